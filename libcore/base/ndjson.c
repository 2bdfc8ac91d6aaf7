/* Bounded line reader. */
#include "base/ndjson.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "base/time.h"

#define READ_BYTES ((size_t)64 << 10)

void sky_lines_init(struct sky_lines *l, int fd, const char *name, size_t max_line)
{
	l->fd = fd;
	l->name = name;
	l->n_line = 0;
	/* Room for the line, CR, LF and what is read beyond them. */
	sky_buf_init(&l->buf, max_line > SIZE_MAX - READ_BYTES - 2 ? SIZE_MAX : max_line + READ_BYTES + 2);
	l->max_line = max_line;
	l->pos = 0;
	l->scan = 0;
	l->eof = 0;
}

void sky_lines_release(struct sky_lines *l)
{
	sky_buf_release(&l->buf);
	l->pos = 0;
	l->scan = 0;
}

/* 0 when the descriptor can be read, or has ended. */
static int wait_input(struct sky_lines *l, double until, struct sky_err *err)
{
	struct pollfd p = { .fd = l->fd, .events = POLLIN };
	double left;
	int ms, rc;

	for (;;) {
		ms = -1;
		if (until >= 0) {
			left = until - sky_now();
			ms = left <= 0 ? 0 : left > 1e6 ? 1000000000 : (int)(left * 1e3) + 1;
		}
		rc = poll(&p, 1, ms);
		if (rc > 0) {
			return 0;
		}
		if (rc < 0 && errno != EINTR) {
			return sky_fail_sys(err, "waiting for %s", l->name);
		}
		if (until >= 0 && sky_now() >= until) {
			return sky_fail(err, SKY_E_AGAIN, "%s sent no line in time", l->name);
		}
	}
}

/* Reads once more; what was consumed is dropped first. */
static int fill(struct sky_lines *l, double until, struct sky_err *err)
{
	size_t want = READ_BYTES;
	ssize_t got;
	int rc;

	if (l->pos > 0) {
		l->buf.n -= l->pos;
		l->scan -= l->pos;
		memmove(l->buf.ptr, l->buf.ptr + l->pos, l->buf.n);
		l->pos = 0;
	}
	rc = sky_buf_reserve(&l->buf, want, err);
	if (rc < 0) {
		return sky_while(err, rc, "%s, line %lld", l->name, (long long)l->n_line + 1);
	}
	for (;;) {
		if (until >= 0) {
			rc = wait_input(l, until, err);
			if (rc < 0) {
				return rc;
			}
		}
		got = read(l->fd, l->buf.ptr + l->buf.n, want);
		if (got >= 0) {
			l->buf.n += (size_t)got;
			l->buf.ptr[l->buf.n] = '\0';
			l->eof = got == 0;
			return 0;
		}
		if (errno == EAGAIN) {
			rc = wait_input(l, until, err);
			if (rc < 0) {
				return rc;
			}
		} else if (errno != EINTR) {
			return sky_fail_sys(err, "reading %s", l->name);
		}
	}
}

static void hand_out(struct sky_lines *l, size_t end, size_t next, const char **line_p, size_t *n_p)
{
	if (end > l->pos && l->buf.ptr[end - 1] == '\r') {
		end--;
	}
	*line_p = l->buf.ptr + l->pos;
	*n_p = end - l->pos;
	l->buf.ptr[end] = '\0';
	l->pos = next;
	l->scan = next;
	l->n_line++;
}

int sky_lines_next(struct sky_lines *l, double timeout_s, const char **line_p, size_t *n_p, struct sky_err *err)
{
	double until = timeout_s < 0 ? -1 : sky_now() + timeout_s;
	const char *lf;
	size_t n;
	int rc;

	for (;;) {
		lf = l->buf.n > l->scan ? memchr(l->buf.ptr + l->scan, '\n', l->buf.n - l->scan) : NULL;
		n = (lf ? (size_t)(lf - l->buf.ptr) : l->buf.n) - l->pos;
		if (n > l->max_line && (n > l->max_line + 1 || l->buf.ptr[l->pos + n - 1] != '\r')) {
			return sky_fail(err, SKY_E_LIMIT, "%s, line %lld: longer than the limit of %zu bytes", l->name,
			                (long long)l->n_line + 1, l->max_line);
		}
		if (lf) {
			hand_out(l, l->pos + n, l->pos + n + 1, line_p, n_p);
			return 0;
		}
		if (l->eof) {
			if (n == 0) {
				return SKY_EOF;
			}
			hand_out(l, l->buf.n, l->buf.n, line_p, n_p);
			return 0;
		}
		l->scan = l->buf.n;
		rc = fill(l, until, err);
		if (rc < 0) {
			return rc;
		}
	}
}
