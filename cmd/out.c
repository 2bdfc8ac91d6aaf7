/* The product stream: stdout is saved under another number and fd 1 made to point at stderr, before any library runs. */
#include "cmd/cmd_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"

#define OUT_BYTES 65536

static int fd = -1;
static char buf[OUT_BYTES];
static size_t n_buf;
static bool broken, tty, eager;        /* eager: somebody may be waiting for each record */
static struct sky_buf rec = SKY_BUF_INIT(64 * SKY_MAX_RECORD_BYTES);
static struct sky_jw rec_writer;

int cmd_out_init(void)
{
	struct stat st;

	fd = fcntl(1, F_DUPFD_CLOEXEC, 10);
	if (fd < 0 || dup2(2, 1) < 0) {
		return -1;
	}
	tty = isatty(fd);
	eager = tty || (fstat(fd, &st) == 0 && (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)));
	return 0;
}

bool cmd_out_broken(void)
{
	return broken;
}

bool cmd_out_is_tty(void)
{
	return tty;
}

int cmd_out_fd(void)
{
	return fd;
}

static int put(const char *p, size_t n, struct sky_err *err)
{
	while (n > 0) {
		ssize_t done = write(fd, p, n);

		if (done < 0 && errno == EINTR && !cmd_stopping()) {
			continue;
		}
		if (done < 0 && errno == EPIPE) {
			broken = true;
			return sky_fail(err, SKY_E_STOP, "standard output was closed by its reader");
		}
		if (done < 0) {
			return sky_fail_sys(err, "standard output");
		}
		p += done;
		n -= (size_t)done;
	}
	return 0;
}

int cmd_out_flush(struct sky_err *err)
{
	size_t n = n_buf;

	n_buf = 0;      /* also after a failure: main must not report it twice */
	return put(buf, n, err);
}

int cmd_out(const void *p, size_t n, struct sky_err *err)
{
	int rc = 0;

	if (tty) {
		cmd_meter_clear();
	}
	if (n > sizeof(buf) - n_buf) {
		rc = cmd_out_flush(err);
	}
	if (rc >= 0 && n > sizeof(buf)) {
		return put(p, n, err);
	}
	if (rc >= 0 && n > 0) {
		memcpy(buf + n_buf, p, n);
		n_buf += n;
	}
	return rc;
}

int cmd_outs(const char *s, struct sky_err *err)
{
	return cmd_out(s, strlen(s), err);
}

int cmd_outf(struct sky_err *err, const char *fmt, ...)
{
	char small[1024];
	struct sky_buf big = SKY_BUF_INIT(SKY_MAX_RECORD_BYTES);
	va_list ap;
	int n, rc;

	va_start(ap, fmt);
	n = vsnprintf(small, sizeof(small), fmt, ap);
	va_end(ap);
	if (n >= 0 && (size_t)n < sizeof(small)) {
		return cmd_out(small, (size_t)n, err);
	}
	rc = n < 0 ? sky_fail(err, SKY_E_LIMIT, "text is too long") : sky_buf_reserve(&big, (size_t)n + 1, err);
	if (rc >= 0) {
		va_start(ap, fmt);
		vsnprintf(big.ptr, (size_t)n + 1, fmt, ap);
		va_end(ap);
		rc = cmd_out(big.ptr, (size_t)n, err);
	}
	sky_buf_release(&big);
	return rc;
}

int cmd_out_binary(struct sky_err *err)
{
	if (tty && !cmd.force) {
		return sky_fail(err, SKY_E_USAGE, "binary output is not written to a terminal; redirect it, or use -f");
	}
	return 0;
}

struct sky_jw *cmd_rec(const char *type, struct sky_err *err)
{
	sky_buf_clear(&rec);
	sky_jw_init(&rec_writer, &rec, err);
	sky_jw_obj(&rec_writer);
	sky_jw_kstr(&rec_writer, "type", type);
	sky_jw_ki64(&rec_writer, "v", 1);
	return &rec_writer;
}

int cmd_rec_end(struct sky_err *err)
{
	int rc;

	sky_jw_close_obj(&rec_writer);
	rc = sky_jw_end(&rec_writer);
	rc = rc < 0 ? rc : sky_buf_addc(&rec, '\n', err);
	rc = rc < 0 ? rc : cmd_out(rec.ptr, rec.n, err);
	return rc < 0 || !eager ? rc : cmd_out_flush(err);
}

int cmd_out_finish(struct sky_err *err)
{
	int rc;

	sky_buf_release(&rec);
	if (fd < 0) {
		return 0;
	}
	rc = broken ? 0 : cmd_out_flush(err);
	if (close(fd) < 0 && rc >= 0 && errno != EINTR) {       /* network file systems report late */
		rc = sky_fail_sys(err, "standard output");
	}
	fd = -1;
	return rc;
}
