/* A growing byte buffer with a mandatory maximum. Always NUL-terminated behind its n bytes. */
#ifndef SKY_BASE_BUF_H
#define SKY_BASE_BUF_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_buf {
	char *ptr;      /* owned; NULL while nothing was ever added */
	size_t n;       /* bytes in use */
	size_t cap;
	size_t max;     /* growth beyond this fails with SKY_E_LIMIT */
};

#define SKY_BUF_INIT(max_bytes) { NULL, 0, 0, (max_bytes) }

void sky_buf_init(struct sky_buf *b, size_t max);
void sky_buf_release(struct sky_buf *b);                /* frees members; the struct may be used again */
void sky_buf_clear(struct sky_buf *b);                  /* n = 0, keeps the memory */
int sky_buf_reserve(struct sky_buf *b, size_t more, struct sky_err *err) SKY_MUST_CHECK;   /* room for n + more */
int sky_buf_add(struct sky_buf *b, const void *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;
int sky_buf_adds(struct sky_buf *b, const char *s, struct sky_err *err) SKY_MUST_CHECK;
int sky_buf_addc(struct sky_buf *b, char c, struct sky_err *err) SKY_MUST_CHECK;
int sky_buf_addf(struct sky_buf *b, struct sky_err *err, const char *fmt, ...) SKY_PRINTF(3, 4) SKY_MUST_CHECK;
char *sky_buf_take(struct sky_buf *b);                  /* hands over the memory (malloc), buffer is empty after */

#ifdef __cplusplus
}
#endif
#endif
