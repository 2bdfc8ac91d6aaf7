/* store: one object in parallel ranges, and the small arithmetic of checksums in headers. */
#include <errno.h>
#include <fcntl.h>
#include "store/s3_int.h"

/* ---- CRC32C of a whole from the CRCs of its parts ----
 *
 * crc(A·B) = crc(A) · x^(8·|B|) + crc(B) in GF(2)[x] modulo the CRC polynomial; the conditioning of both cancels. */

#define CRC32C_POLY 0x82f63b78u         /* reflected: bit 31 is x^0 */

static uint32_t times(uint32_t a, uint32_t b)
{
	uint32_t r = 0;

	for (uint32_t bit = 1u << 31; bit; bit >>= 1) {
		r ^= a & bit ? b : 0;
		b = b & 1 ? b >> 1 ^ CRC32C_POLY : b >> 1;
	}
	return r;
}

uint32_t sky_crc32c_combine(uint32_t a, uint32_t b, uint64_t n_b)
{
	uint32_t shift = 1u << 31, power = 1u << 23;    /* x^0; x^8 */

	for (; n_b > 0; n_b >>= 1) {
		shift = n_b & 1 ? times(shift, power) : shift;
		power = times(power, power);
	}
	return times(a, shift) ^ b;
}

int sky_base64(const uint8_t *p, size_t n, char *out, size_t cap)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t o = 0;

	if (cap < (n + 2) / 3 * 4 + 1) {
		return -1;
	}
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) |
		             (i + 2 < n ? p[i + 2] : 0);

		out[o++] = digits[v >> 18];
		out[o++] = digits[v >> 12 & 63];
		out[o++] = i + 1 < n ? digits[v >> 6 & 63] : '=';
		out[o++] = i + 2 < n ? digits[v & 63] : '=';
	}
	out[o] = '\0';
	return 0;
}

int sky_unbase64(const char *s, uint8_t *out, size_t cap, size_t *n_p)
{
	uint32_t v = 0;
	size_t n = 0;
	int bits = 0;

	for (; *s && *s != '='; s++) {
		int d = *s >= 'A' && *s <= 'Z' ? *s - 'A' :
		        *s >= 'a' && *s <= 'z' ? *s - 'a' + 26 :
		        *s >= '0' && *s <= '9' ? *s - '0' + 52 :
		        *s == '+' || *s == '-' ? 62 :
		        *s == '/' || *s == '_' ? 63 :
		                                 -1;

		if (d < 0) {
			return -1;
		}
		v = v << 6 | (uint32_t)d;
		bits += 6;
		if (bits >= 8) {
			if (n == cap) {
				return -1;
			}
			bits -= 8;
			out[n++] = (uint8_t)(v >> bits);
		}
	}
	*n_p = n;
	return strspn(s, "=") == strlen(s) ? 0 : -1;
}

/* ---- ranges ---- */

struct range {
	uint64_t n;
	uint32_t crc;
	struct sky_call *c;
};

struct run {
	struct sky_ranges *g;
	const char *what;
	uint64_t off, n, fd_off, part;
	uint8_t *mem;
	int fd;
	struct range *v;
	int64_t n_range, n_begun, n_done;
	char tag[128];
};

static int begin_range(struct run *x, struct sky_calls *cs, struct sky_err *err)
{
	int64_t i = x->n_begun;
	uint64_t at = (uint64_t)i * x->part;
	struct range *r = &x->v[i];

	r->n = x->n - at < x->part ? x->n - at : x->part;
	r->c = x->g->make(x->g->ctx, x->off + at, r->n, x->mem ? x->mem + at : NULL, x->fd, err);
	if (!r->c) {
		return err ? err->code : SKY_E_LIMIT;
	}
	r->c->i_tag = (int)i;
	r->c->t_begin = 0;
	sky_calls_start(cs, r->c);
	x->n_begun++;
	return 0;
}

/* All ranges must come from one and the same object. */
static int range_ended(struct run *x, struct sky_call *c, struct sky_err *err)
{
	struct range *r = &x->v[c->i_tag];
	char tag[128] = "";
	int rc = c->rc;

	if (rc < 0 && err) {
		*err = c->err;
	}
	if (rc == 0) {
		r->crc = c->t.crc32c;
		x->g->tag(c, tag, sizeof(tag));
		if (x->n_done == 0) {
			memcpy(x->tag, tag, sizeof(tag));
		} else if (strcmp(tag, x->tag) != 0) {
			rc = sky_fail(err, SKY_E_AGAIN, "%s: replaced while it was read; read it again", x->what);
		}
		x->g->s->bytes_get += r->n;
		x->n_done++;
	}
	x->g->drop(c);
	r->c = NULL;
	return rc;
}

static int run_ranges(struct run *x, struct sky_calls *cs, struct sky_err *err)
{
	int rc = 0;

	while (rc == 0 && x->n_done < x->n_range) {
		struct sky_call *c;

		while (rc == 0 && x->n_begun < x->n_range && cs->n_active < x->g->s->set.n_parallel) {
			rc = begin_range(x, cs, err);
		}
		c = rc == 0 ? sky_calls_next(cs) : NULL;
		if (c) {
			rc = range_ended(x, c, err);
		}
	}
	return rc;
}

int sky_ranges_get(struct sky_ranges *g, const char *what, uint64_t off, uint64_t n, uint8_t *mem, int fd,
                   uint64_t fd_off, uint32_t *crc_p, struct sky_err *err)
{
	struct run x = { .g = g, .what = what, .off = off, .n = n, .fd_off = fd_off, .mem = mem, .fd = fd,
	                 .part = g->s->set.part_bytes };
	struct sky_calls cs;
	uint32_t crc = 0;
	int rc;

	while (n / x.part > 1000000) {
		x.part *= 2;
	}
	/* Room for all of it first: a full disk is known before the transfer, and the file grows once. */
	if (!mem && n > 0 && fallocate(fd, 0, (off_t)fd_off, (off_t)n) < 0 && errno == ENOSPC) {
		return sky_fail_sys(err, "%s: writing %llu bytes", what, (unsigned long long)n);
	}
	x.n_range = (int64_t)((n + x.part - 1) / x.part);
	x.v = calloc((size_t)x.n_range + 1, sizeof(*x.v));
	if (!x.v) {
		return sky_fail_mem(err, "%s", what);
	}
	rc = sky_calls_init(&cs, g->http, g->s, err);
	if (rc == 0) {
		rc = run_ranges(&x, &cs, err);
		sky_calls_release(&cs);
	}
	for (int64_t i = 0; i < x.n_range; i++) {
		if (x.v[i].c) {
			g->drop(x.v[i].c);
		}
		crc = i == 0 ? x.v[i].crc : sky_crc32c_combine(crc, x.v[i].crc, x.v[i].n);
	}
	if (rc == 0 && crc_p) {
		*crc_p = crc;
	}
	free(x.v);
	return rc;
}
