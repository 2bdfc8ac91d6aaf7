/* A growing file of the writer's work folder: buffered, hashed on the way, cut back to a checkpoint on resume. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tokens/tokens_out_int.h"

/* Hash of the bytes that a resumed file keeps. */
static int rehash(struct out_stream *s, uint64_t keep, struct sky_err *err)
{
	uint64_t at = 0;
	int64_t got;

	while (at < keep) {
		uint64_t want = keep - at < STREAM_BUF ? keep - at : STREAM_BUF;

		got = sky_pread_full(s->fd, s->buf, want, at, s->path, err);
		if (got < 0) {
			return (int)got;
		}
		if ((uint64_t)got < want) {
			return sky_fail(err, SKY_E_DATA, "%s: ended while being read back", s->path);
		}
		sky_xxh_update(s->hash, s->buf, want);
		at += want;
	}
	return 0;
}

static int stream_start(struct out_stream *s, uint64_t keep, struct sky_err *err)
{
	struct stat st;
	int rc;

	if (fstat(s->fd, &st)) {
		return sky_fail_sys(err, "%s", s->path);
	}
	if ((uint64_t)st.st_size < keep) {
		return sky_fail(err, SKY_E_DATA,
				"%s: has %lld bytes, its journal promises %llu; start afresh without --resume",
				s->path, (long long)st.st_size, (unsigned long long)keep);
	}
	if (ftruncate(s->fd, (off_t)keep)) {
		return sky_fail_sys(err, "%s: cutting back to %llu bytes", s->path, (unsigned long long)keep);
	}
	rc = s->hash ? rehash(s, keep, err) : 0;
	if (rc < 0) {
		return rc;
	}
	if (lseek(s->fd, (off_t)keep, SEEK_SET) < 0) {
		return sky_fail_sys(err, "%s", s->path);
	}
	s->n_bytes = keep;
	return 0;
}

int stream_open(struct out_stream *s, const char *path, uint64_t keep, bool hashed, struct sky_err *err)
{
	int rc;

	s->fd = -1;
	s->path = tok_path(path, "", err);
	s->buf = sky_aligned_alloc(STREAM_BUF);
	s->hash = hashed ? sky_xxh_new() : NULL;
	if (!s->path || !s->buf || (hashed && !s->hash)) {
		stream_close(s);
		return sky_fail_mem(err, "writing %s", path);
	}
	s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	rc = s->fd < 0 ? sky_fail_sys(err, "%s", path) : stream_start(s, keep, err);
	if (rc < 0) {
		stream_close(s);
	}
	return rc;
}

int stream_flush(struct out_stream *s, struct sky_err *err)
{
	int rc;

	if (!s->n_buf) {
		return 0;
	}
	rc = sky_write_full(s->fd, s->buf, s->n_buf, s->path, err);
	if (rc < 0) {
		return rc;
	}
	if (s->hash) {
		sky_xxh_update(s->hash, s->buf, s->n_buf);
	}
	s->n_buf = 0;
	return 0;
}

int stream_room(struct out_stream *s, size_t n, uint8_t **p_p, struct sky_err *err)
{
	int rc = n > STREAM_BUF - s->n_buf ? stream_flush(s, err) : 0;

	*p_p = s->buf + s->n_buf;
	return rc;
}

int stream_write(struct out_stream *s, const void *p, size_t n, struct sky_err *err)
{
	const uint8_t *at = p;
	uint8_t *room;
	size_t part;
	int rc;

	while (n) {
		part = n < STREAM_BUF / 4 ? n : STREAM_BUF / 4;
		rc = stream_room(s, part, &room, err);
		if (rc < 0) {
			return rc;
		}
		memcpy(room, at, part);
		s->n_buf += part;
		s->n_bytes += part;
		at += part;
		n -= part;
	}
	return 0;
}

int stream_sync(struct out_stream *s, bool durable, struct sky_err *err)
{
	int rc = stream_flush(s, err);

	if (!rc && durable && fdatasync(s->fd)) {
		rc = sky_fail_sys(err, "%s: flushing to disk", s->path);
	}
	return rc;
}

void stream_close(struct out_stream *s)
{
	if (s->fd >= 0) {
		close(s->fd);
	}
	sky_xxh_free(s->hash);
	free(s->path);
	free(s->buf);
	memset(s, 0, sizeof *s);
	s->fd = -1;
}
