/* Growing byte buffer: the one place where text and records are assembled. */
#include "base/buf.h"

#include <stdarg.h>

void sky_buf_init(struct sky_buf *b, size_t max)
{
	b->ptr = NULL;
	b->n = 0;
	b->cap = 0;
	b->max = max;
}

void sky_buf_release(struct sky_buf *b)
{
	if (!b) {
		return;
	}
	free(b->ptr);
	b->ptr = NULL;
	b->n = 0;
	b->cap = 0;
}

void sky_buf_clear(struct sky_buf *b)
{
	b->n = 0;
	if (b->ptr) {
		b->ptr[0] = '\0';
	}
}

int sky_buf_reserve(struct sky_buf *b, size_t more, struct sky_err *err)
{
	size_t need, cap;
	char *p;

	if (more > b->max || b->n > b->max - more) {
		return sky_fail(err, SKY_E_LIMIT, "buffer would exceed its limit of %zu bytes", b->max);
	}
	/* The NUL is outside of max; max may be SIZE_MAX. */
	need = b->n + more;
	if (need == SIZE_MAX) {
		return sky_fail_mem(err, "growing a buffer to %zu bytes", need);
	}
	need++;
	if (need <= b->cap) {
		return 0;
	}
	cap = b->cap ? b->cap : 64;
	while (cap < need) {
		cap = cap > SIZE_MAX / 2 ? need : cap * 2;
	}
	if (b->max < SIZE_MAX && cap > b->max + 1) {
		cap = b->max + 1;
	}
	p = realloc(b->ptr, cap);
	if (!p) {
		return sky_fail_mem(err, "growing a buffer to %zu bytes", cap);
	}
	p[b->n] = '\0';
	b->ptr = p;
	b->cap = cap;
	return 0;
}

int sky_buf_add(struct sky_buf *b, const void *p, size_t n, struct sky_err *err)
{
	int rc = sky_buf_reserve(b, n, err);

	if (rc < 0) {
		return rc;
	}
	if (n > 0) {
		memcpy(b->ptr + b->n, p, n);
	}
	b->n += n;
	b->ptr[b->n] = '\0';
	return 0;
}

int sky_buf_adds(struct sky_buf *b, const char *s, struct sky_err *err)
{
	return sky_buf_add(b, s, strlen(s), err);
}

int sky_buf_addc(struct sky_buf *b, char c, struct sky_err *err)
{
	return sky_buf_add(b, &c, 1, err);
}

int sky_buf_addf(struct sky_buf *b, struct sky_err *err, const char *fmt, ...)
{
	va_list ap;
	int n, rc;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0) {
		return sky_fail_sys(err, "formatting text");
	}
	rc = sky_buf_reserve(b, (size_t)n, err);
	if (rc < 0) {
		return rc;
	}
	va_start(ap, fmt);
	vsnprintf(b->ptr + b->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
	return 0;
}

char *sky_buf_take(struct sky_buf *b)
{
	char *p = b->ptr;

	if (!p) {
		p = calloc(1, 1);
	}
	b->ptr = NULL;
	b->n = 0;
	b->cap = 0;
	return p;
}
