/* Files: transfers that finish, whole files, folders, paths. Publishing is in publish.c. */
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"

/* One call moves at most this much: Linux caps at 2 GiB - 4 KiB anyway. */
#define CHUNK_BYTES ((size_t)1 << 30)

/* A descriptor that somebody else made non-blocking: wait instead of failing. */
static int wait_fd(int fd, short events)
{
	struct pollfd p = { .fd = fd, .events = events };

	return poll(&p, 1, -1) < 0 && errno != EINTR ? -1 : 0;
}

int64_t sky_read_full(int fd, void *p, size_t n, const char *name, struct sky_err *err)
{
	char *b = p;
	size_t done = 0;
	ssize_t r;

	while (done < n) {
		r = read(fd, b + done, n - done < CHUNK_BYTES ? n - done : CHUNK_BYTES);
		if (r == 0) {
			break;
		}
		if (r > 0) {
			done += (size_t)r;
		} else if (errno != EINTR && (errno != EAGAIN || wait_fd(fd, POLLIN) != 0)) {
			return sky_fail_sys(err, "reading %s", name);
		}
	}
	return (int64_t)done;
}

int64_t sky_pread_full(int fd, void *p, size_t n, uint64_t off, const char *name, struct sky_err *err)
{
	char *b = p;
	size_t done = 0;
	ssize_t r;

	while (done < n) {
		r = pread(fd, b + done, n - done < CHUNK_BYTES ? n - done : CHUNK_BYTES, (off_t)(off + done));
		if (r == 0) {
			break;
		}
		if (r > 0) {
			done += (size_t)r;
		} else if (errno != EINTR) {
			return sky_fail_sys(err, "reading %s at byte %llu", name, (unsigned long long)(off + done));
		}
	}
	return (int64_t)done;
}

int sky_write_full(int fd, const void *p, size_t n, const char *name, struct sky_err *err)
{
	const char *b = p;
	size_t done = 0;
	ssize_t r;

	while (done < n) {
		r = write(fd, b + done, n - done < CHUNK_BYTES ? n - done : CHUNK_BYTES);
		if (r >= 0) {
			done += (size_t)r;
		} else if (errno != EINTR && (errno != EAGAIN || wait_fd(fd, POLLOUT) != 0)) {
			return sky_fail_sys(err, "writing %s", name);
		}
	}
	return 0;
}

int sky_pwrite_full(int fd, const void *p, size_t n, uint64_t off, const char *name, struct sky_err *err)
{
	const char *b = p;
	size_t done = 0;
	ssize_t r;

	while (done < n) {
		r = pwrite(fd, b + done, n - done < CHUNK_BYTES ? n - done : CHUNK_BYTES, (off_t)(off + done));
		if (r >= 0) {
			done += (size_t)r;
		} else if (errno != EINTR) {
			return sky_fail_sys(err, "writing %s at byte %llu", name, (unsigned long long)(off + done));
		}
	}
	return 0;
}

int sky_file_read(const char *path, struct sky_buf *out, struct sky_err *err)
{
	size_t want = 64 << 10;
	struct stat st;
	int64_t got;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening %s", path);
	}
	if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
		rc = sky_fail(err, SKY_E_USAGE, "%s is a folder, a file is expected", path);
		goto out;
	}
	if (st.st_size > 0 && (uint64_t)st.st_size < out->max) {
		/* One byte more, so that the end of the file shows without growing. */
		want = (size_t)st.st_size + 1;
	}
	do {
		if (want > out->max - out->n) {
			want = out->max - out->n;
		}
		if (want == 0) {
			char more;

			got = sky_read_full(fd, &more, 1, path, err);
			rc = got < 0 ? (int)got : got == 0 ? 0 :
				sky_fail(err, SKY_E_LIMIT, "%s is larger than the limit of %zu bytes", path, out->max);
			goto out;
		}
		rc = sky_buf_reserve(out, want, err);
		if (rc < 0) {
			rc = sky_while(err, rc, "reading %s", path);
			goto out;
		}
		got = sky_read_full(fd, out->ptr + out->n, want, path, err);
		if (got < 0) {
			rc = (int)got;
			goto out;
		}
		out->n += (size_t)got;
		out->ptr[out->n] = '\0';
		rc = 0;
		if ((size_t)got < want) {
			goto out;
		}
		want = out->n < (64 << 10) ? 64 << 10 : out->n;
	} while (1);
out:
	close(fd);
	return rc;
}

bool sky_file_exists(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0;
}

bool sky_is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int sky_file_size(const char *path, uint64_t *bytes_p, struct sky_err *err)
{
	struct stat st;

	if (stat(path, &st) != 0) {
		return sky_fail_sys(err, "reading the size of %s", path);
	}
	*bytes_p = (uint64_t)st.st_size;
	return 0;
}

int sky_mkdirs(const char *path, struct sky_err *err)
{
	char part[SKY_MAX_PATH];
	size_t n = strlen(path), i;

	if (n == 0 || n >= sizeof(part)) {
		return sky_fail(err, SKY_E_USAGE, "creating a folder: the path has %zu bytes, 1 to %zu are allowed", n,
		                sizeof(part) - 1);
	}
	memcpy(part, path, n + 1);
	for (i = 1; i <= n; i++) {
		if (part[i] != '/' && part[i] != '\0') {
			continue;
		}
		part[i] = '\0';
		if (mkdir(part, 0777) != 0 && !(errno == EEXIST && sky_is_dir(part))) {
			return sky_fail_sys(err, "creating folder %s", part);
		}
		part[i] = path[i];
	}
	return 0;
}

int sky_fsync_dir(const char *dir, struct sky_err *err)
{
	int fd, rc = 0;

	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening folder %s", dir);
	}
	/* Some file systems cannot sync a folder and say EINVAL; there is nothing better to do then. */
	if (fsync(fd) != 0 && errno != EINVAL) {
		rc = sky_fail_sys(err, "syncing folder %s", dir);
	}
	close(fd);
	return rc;
}

static int remove_at(int dir_fd, const char *name, const char *path, int depth, struct sky_err *err)
{
	struct dirent *e;
	int fd, rc = 0;
	DIR *d;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT) {
		return 0;
	}
	if (errno != EISDIR && errno != EPERM) {
		return sky_fail_sys(err, "removing %s (in %s)", name, path);
	}
	if (depth >= 64) {
		return sky_fail(err, SKY_E_LIMIT, "removing %s: folders are nested deeper than 64", path);
	}
	fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		rc = sky_fail_sys(err, "opening folder %s (in %s)", name, path);
		if (fd >= 0) {
			close(fd);
		}
		return rc;
	}
	while (rc == 0 && (e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
			rc = remove_at(dirfd(d), e->d_name, path, depth + 1, err);
		}
	}
	closedir(d);
	if (rc == 0 && unlinkat(dir_fd, name, AT_REMOVEDIR) != 0 && errno != ENOENT) {
		rc = sky_fail_sys(err, "removing folder %s (in %s)", name, path);
	}
	return rc;
}

int sky_remove_tree(const char *path, struct sky_err *err)
{
	return remove_at(AT_FDCWD, path, path, 0, err);
}

static int by_bytes(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int sky_list_dir(const char *dir, char ***names_p, size_t *n_p, struct sky_err *err)
{
	char **names = NULL, **more;
	size_t n = 0, cap = 0;
	struct dirent *e;
	DIR *d;
	int rc;

	d = opendir(dir);
	if (!d) {
		return sky_fail_sys(err, "opening folder %s", dir);
	}
	while ((errno = 0, e = readdir(d)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
			continue;
		}
		if (n == cap) {
			cap = cap ? 2 * cap : 16;
			more = reallocarray(names, cap, sizeof(*names));
			if (!more) {
				rc = sky_fail_mem(err, "listing %s", dir);
				goto out_fail;
			}
			names = more;
		}
		names[n] = strdup(e->d_name);
		if (!names[n]) {
			rc = sky_fail_mem(err, "listing %s", dir);
			goto out_fail;
		}
		n++;
	}
	if (errno != 0) {
		rc = sky_fail_sys(err, "listing %s", dir);
		goto out_fail;
	}
	closedir(d);
	if (n > 1) {
		qsort(names, n, sizeof(*names), by_bytes);
	}
	*names_p = names;
	*n_p = n;
	return 0;

out_fail:
	closedir(d);
	sky_names_free(names, n);
	return rc;
}

void sky_names_free(char **names, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		free(names[i]);
	}
	free(names);
}

int sky_path_join(char *out, size_t cap, const char *dir, const char *name, struct sky_err *err)
{
	size_t n = strlen(dir);
	int len;

	if (name[0] == '/' || n == 0) {
		len = snprintf(out, cap, "%s", name);
	} else {
		len = snprintf(out, cap, "%s%s%s", dir, dir[n - 1] == '/' ? "" : "/", name);
	}
	if (len < 0 || (size_t)len >= cap) {
		return sky_fail(err, SKY_E_LIMIT, "path %.200s/%.200s is longer than %zu bytes", dir, name, cap - 1);
	}
	return 0;
}
