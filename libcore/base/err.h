/* Errors are values: a code for the program, a sentence for the person. */
#ifndef SKY_BASE_ERR_H
#define SKY_BASE_ERR_H

#include <stdarg.h>

#define SKY_MUST_CHECK __attribute__((warn_unused_result))
#define SKY_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

#ifdef __cplusplus
extern "C" {
#endif

/* Exit status of a program = -code (style: 1 failed, 2 usage, 3 data, 4 missing, 5 again, 7 limit, 8 device, 10 stop). */
enum sky_code {
	SKY_OK = 0,
	SKY_EOF = 1,          /* not an error: the input ended */
	SKY_E_SYS = -1,       /* a system call failed; sys_errno tells */
	SKY_E_USAGE = -2,     /* options or configuration; nothing was touched */
	SKY_E_DATA = -3,      /* input damaged or invalid; a retry is useless */
	SKY_E_MISSING = -4,   /* a named thing does not exist */
	SKY_E_AGAIN = -5,     /* lock held, throttled, server down: run again later */
	SKY_E_UNCHANGED = -6, /* nothing to do (only where the caller asked to be told) */
	SKY_E_LIMIT = -7,     /* out of memory or over a stated limit */
	SKY_E_DEVICE = -8,    /* device, collective or peer failed */
	SKY_E_PARTIAL = -9,   /* some items failed, each reported */
	SKY_E_STOP = -10,     /* stopped at a requested limit or by a signal; state is saved */
};

/* Lives on the caller's stack; no allocation, so it works when memory is gone. Written only on failure. */
struct sky_err {
	int code;
	int sys_errno;
	char msg[1024];
};

/* Fill *err (may be NULL) and return code. The text names object, operation, cause and, if known, remedy. */
int sky_fail(struct sky_err *err, int code, const char *fmt, ...) SKY_PRINTF(3, 4);
/* As sky_fail with SKY_E_SYS (ENOENT gives SKY_E_MISSING, ENOMEM gives SKY_E_LIMIT); appends ": strerror(errno)";
 * errno survives. */
int sky_fail_sys(struct sky_err *err, const char *fmt, ...) SKY_PRINTF(2, 3);
/* Out of memory while doing what fmt says. Returns SKY_E_LIMIT. */
int sky_fail_mem(struct sky_err *err, const char *fmt, ...) SKY_PRINTF(2, 3);
/* When rc < 0: prefix "CONTEXT: " to the message. Returns rc always. */
int sky_while(struct sky_err *err, int rc, const char *fmt, ...) SKY_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
