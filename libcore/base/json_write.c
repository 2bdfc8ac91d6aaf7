/* Writing JSON: the caller says what, commas and escapes are ours. */
#include "base/json.h"

#include <assert.h>
#include <inttypes.h>

#include "base/num.h"

static void put(struct sky_jw *w, const char *p, size_t n)
{
	if (w->rc == 0) {
		w->rc = sky_buf_add(w->out, p, n, w->err);
	}
}

/* In front of every value and key. */
static void lead(struct sky_jw *w)
{
	if (w->comma && !w->keyed) {
		put(w, ", ", w->spaced ? 2 : 1);
	}
	w->comma = true;
	w->keyed = false;
}

void sky_jw_init(struct sky_jw *w, struct sky_buf *out, struct sky_err *err)
{
	memset(w, 0, sizeof(*w));
	w->out = out;
	w->err = err;
}

static void open_with(struct sky_jw *w, char c)
{
	lead(w);
	put(w, &c, 1);
	w->depth++;
	w->comma = false;
}

static void close_with(struct sky_jw *w, char c)
{
	assert(w->depth > 0 && !w->keyed);
	put(w, &c, 1);
	w->depth--;
	w->comma = true;
}

void sky_jw_obj(struct sky_jw *w)
{
	open_with(w, '{');
}

void sky_jw_arr(struct sky_jw *w)
{
	open_with(w, '[');
}

void sky_jw_close_obj(struct sky_jw *w)
{
	close_with(w, '}');
}

void sky_jw_close_arr(struct sky_jw *w)
{
	close_with(w, ']');
}

/* The character at p in up to n bytes; bytes that are not UTF-8 count one and give U+FFFD. */
static int decode(const unsigned char *p, size_t n, uint32_t *c_p)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	int len = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
	uint32_t c = len == 1 ? p[0] : len == 0 ? 0 : p[0] & (0x7fu >> len);
	int i;

	*c_p = 0xfffd;
	if (len == 0 || (size_t)len > n) {
		return 1;
	}
	for (i = 1; i < len; i++) {
		if ((p[i] & 0xc0) != 0x80) {
			return 1;
		}
		c = c << 6 | (p[i] & 0x3f);
	}
	if (c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
		return 1;
	}
	*c_p = c;
	return len;
}

static void put_escaped(struct sky_jw *w, uint32_t c)
{
	char out[16];
	int n;

	switch (c) {
	case '"': put(w, "\\\"", 2); return;
	case '\\': put(w, "\\\\", 2); return;
	case '\n': put(w, "\\n", 2); return;
	case '\r': put(w, "\\r", 2); return;
	case '\t': put(w, "\\t", 2); return;
	case '\b': put(w, "\\b", 2); return;
	case '\f': put(w, "\\f", 2); return;
	default: break;
	}
	if (c < 0x10000) {
		n = snprintf(out, sizeof(out), "\\u%04x", (unsigned)c);
	} else {
		c -= 0x10000;
		n = snprintf(out, sizeof(out), "\\u%04x\\u%04x", 0xd800u + (unsigned)(c >> 10),
		             0xdc00u + (unsigned)(c & 0x3ff));
	}
	put(w, out, (size_t)n);
}

static void put_string(struct sky_jw *w, const char *s, size_t n)
{
	const unsigned char *p = (const unsigned char *)s;
	size_t i = 0, run = 0;
	uint32_t c;
	int len;

	put(w, "\"", 1);
	while (i < n) {
		/* Runs of plain text go out in one piece. */
		if (p[i] >= 0x20 && p[i] < 0x7f && p[i] != '"' && p[i] != '\\') {
			i++;
			continue;
		}
		len = decode(p + i, n - i, &c);
		if (c >= 0x7f && !w->ascii && !(c == 0xfffd && len == 1)) {
			i += (size_t)len;
			continue;
		}
		put(w, s + run, i - run);
		if (c == 0xfffd && !w->ascii) {
			put(w, "\xef\xbf\xbd", 3);
		} else {
			put_escaped(w, c);
		}
		i += (size_t)len;
		run = i;
	}
	put(w, s + run, n - run);
	put(w, "\"", 1);
}

void sky_jw_key(struct sky_jw *w, const char *key)
{
	assert(!w->keyed);
	lead(w);
	put_string(w, key, strlen(key));
	put(w, ": ", w->spaced ? 2 : 1);
	w->keyed = true;
}

void sky_jw_strn(struct sky_jw *w, const char *s, size_t n)
{
	lead(w);
	put_string(w, s, n);
}

void sky_jw_str(struct sky_jw *w, const char *s)
{
	if (!s) {
		sky_jw_null(w);
		return;
	}
	sky_jw_strn(w, s, strlen(s));
}

void sky_jw_raw(struct sky_jw *w, const char *s, size_t n)
{
	lead(w);
	put(w, s, n);
}

void sky_jw_i64(struct sky_jw *w, int64_t v)
{
	char out[32];

	sky_jw_raw(w, out, (size_t)snprintf(out, sizeof(out), "%" PRId64, v));
}

void sky_jw_u64(struct sky_jw *w, uint64_t v)
{
	char out[32];

	sky_jw_raw(w, out, (size_t)snprintf(out, sizeof(out), "%" PRIu64, v));
}

void sky_jw_f64(struct sky_jw *w, double v)
{
	char out[40];

	sky_fmt_f64(out, sizeof(out), v);
	sky_jw_raw(w, out, strlen(out));
}

void sky_jw_f32(struct sky_jw *w, float v)
{
	char out[40];

	sky_fmt_f32(out, sizeof(out), v);
	sky_jw_raw(w, out, strlen(out));
}

void sky_jw_bool(struct sky_jw *w, bool v)
{
	sky_jw_raw(w, v ? "true" : "false", v ? 4 : 5);
}

void sky_jw_null(struct sky_jw *w)
{
	sky_jw_raw(w, "null", 4);
}

void sky_jw_kstr(struct sky_jw *w, const char *key, const char *s)
{
	sky_jw_key(w, key);
	sky_jw_str(w, s);
}

void sky_jw_ki64(struct sky_jw *w, const char *key, int64_t v)
{
	sky_jw_key(w, key);
	sky_jw_i64(w, v);
}

void sky_jw_kf64(struct sky_jw *w, const char *key, double v)
{
	sky_jw_key(w, key);
	sky_jw_f64(w, v);
}

void sky_jw_kbool(struct sky_jw *w, const char *key, bool v)
{
	sky_jw_key(w, key);
	sky_jw_bool(w, v);
}

int sky_jw_end(struct sky_jw *w)
{
	assert(w->rc < 0 || (w->depth == 0 && !w->keyed));
	return w->rc;
}
