/* Read-only mappings. */
#include "base/map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int sky_map_open(struct sky_map *m, const char *path, struct sky_err *err)
{
	struct stat st;
	void *p = NULL;
	char *name;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening %s", path);
	}
	if (fstat(fd, &st) != 0) {
		rc = sky_fail_sys(err, "reading the size of %s", path);
		goto out_close;
	}
	if (!S_ISREG(st.st_mode)) {
		rc = sky_fail(err, SKY_E_USAGE, "%s is not a regular file and cannot be mapped", path);
		goto out_close;
	}
	name = strdup(path);
	if (!name) {
		rc = sky_fail_mem(err, "mapping %s", path);
		goto out_close;
	}
	if (st.st_size > 0) {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		if (p == MAP_FAILED) {
			rc = sky_fail_sys(err, "mapping %s (%lld bytes)", path, (long long)st.st_size);
			free(name);
			goto out_close;
		}
	}
	m->ptr = p;
	m->n = (uint64_t)st.st_size;
	m->fd = fd;
	m->path = name;
	return 0;

out_close:
	close(fd);
	return rc;
}

void sky_map_close(struct sky_map *m)
{
	int e = errno;

	if (m->ptr) {
		munmap((void *)(uintptr_t)m->ptr, (size_t)m->n);
	}
	if (m->fd >= 0) {
		close(m->fd);
	}
	free(m->path);
	m->ptr = NULL;
	m->n = 0;
	m->fd = -1;
	m->path = NULL;
	errno = e;
}

void sky_map_advise(const struct sky_map *m, uint64_t off, uint64_t n, enum sky_map_advice advice)
{
	static const int to_sys[] = { MADV_NORMAL, MADV_SEQUENTIAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED };
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from;

	if (!m->ptr || off >= m->n) {
		return;
	}
	if (n > m->n - off) {
		n = m->n - off;
	}
	from = off / page * page;
	(void)madvise((void *)(uintptr_t)(m->ptr + from), (size_t)(n + off - from), to_sys[advice]);
}

const void *sky_map_at(const struct sky_map *m, uint64_t off, uint64_t n)
{
	static const uint8_t nothing;

	if (off > m->n || n > m->n - off) {
		return NULL;
	}
	return m->ptr ? m->ptr + off : &nothing;
}

uint16_t sky_load_u16(const void *p)
{
	const uint8_t *b = p;

	return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t sky_load_u32(const void *p)
{
	const uint8_t *b = p;

	return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t sky_load_u64(const void *p)
{
	const uint8_t *b = p;

	return (uint64_t)sky_load_u32(b) | (uint64_t)sky_load_u32(b + 4) << 32;
}

void sky_store_u16(void *p, uint16_t v)
{
	uint8_t *b = p;

	b[0] = (uint8_t)v;
	b[1] = (uint8_t)(v >> 8);
}

void sky_store_u32(void *p, uint32_t v)
{
	uint8_t *b = p;

	sky_store_u16(b, (uint16_t)v);
	sky_store_u16(b + 2, (uint16_t)(v >> 16));
}

void sky_store_u64(void *p, uint64_t v)
{
	uint8_t *b = p;

	sky_store_u32(b, (uint32_t)v);
	sky_store_u32(b + 4, (uint32_t)(v >> 32));
}
