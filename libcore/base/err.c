/* Errors: filling the caller's struct. */
#include "base/err.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void put(struct sky_err *err, int code, int sys, const char *fmt, va_list ap)
{
	if (!err) {
		return;
	}
	err->code = code;
	err->sys_errno = sys;
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
}

int sky_fail(struct sky_err *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	put(err, code, 0, fmt, ap);
	va_end(ap);
	return code;
}

int sky_fail_sys(struct sky_err *err, const char *fmt, ...)
{
	int e = errno;
	int code = e == ENOENT ? SKY_E_MISSING : e == ENOMEM ? SKY_E_LIMIT : SKY_E_SYS;
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	put(err, code, e, fmt, ap);
	va_end(ap);
	if (err) {
		n = strlen(err->msg);
		snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror(e));
	}
	errno = e;
	return code;
}

int sky_fail_mem(struct sky_err *err, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	va_start(ap, fmt);
	put(err, SKY_E_LIMIT, ENOMEM, fmt, ap);
	va_end(ap);
	if (err) {
		n = strlen(err->msg);
		snprintf(err->msg + n, sizeof(err->msg) - n, ": out of memory");
	}
	return SKY_E_LIMIT;
}

int sky_while(struct sky_err *err, int rc, const char *fmt, ...)
{
	char old[sizeof(err->msg)];
	va_list ap;
	size_t n;

	if (rc >= 0 || !err) {
		return rc;
	}
	memcpy(old, err->msg, sizeof(old));
	va_start(ap, fmt);
	vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
	va_end(ap);
	n = strlen(err->msg);
	snprintf(err->msg + n, sizeof(err->msg) - n, ": %.*s", (int)(sizeof(old) - 1), old);
	return rc;
}
