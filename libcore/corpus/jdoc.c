/* JSON rows: one value into a flat list, strings unescaped on the way. Iterative, so depth costs no stack. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "corpus/corpus_int.h"

struct scan {
	struct sky_jdoc *d;
	const char *p, *end, *start;
	struct sky_err *err;
	uint32_t up[SKY_MAX_JSON_DEPTH];        /* open containers */
	int depth;
};

static int bad(struct scan *s, const char *at, const char *what)
{
	s->d->err_off = (size_t)(at - s->start);
	return sky_fail(s->err, SKY_E_DATA, "byte %zu: %s", s->d->err_off, what);
}

static void skip_space(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) {
		s->p++;
	}
}

static int new_val(struct scan *s, struct sky_jval **v_p)
{
	struct sky_jdoc *d = s->d;

	if (d->n_val == d->cap_val) {
		uint32_t cap = d->cap_val ? d->cap_val * 2 : 64;
		struct sky_jval *v = cap > d->cap_val ? sky_realloc_array(d->val, cap, sizeof *v) : NULL;

		if (!v) {
			return sky_fail_mem(s->err, "a JSON row of %u values", d->n_val);
		}
		d->val = v;
		d->cap_val = cap;
	}
	*v_p = &d->val[d->n_val];
	memset(*v_p, 0, sizeof **v_p);
	d->n_val++;
	return 0;
}

static int hex4(const char *p)
{
	int v = 0;

	for (int i = 0; i < 4; i++) {
		unsigned c = (unsigned char)p[i], low = c | 0x20;

		if (c >= '0' && c <= '9') {
			v = v << 4 | (int)(c - '0');
		} else if (low >= 'a' && low <= 'f') {
			v = v << 4 | (int)(low - 'a' + 10);
		} else {
			return -1;
		}
	}
	return v;
}

static char *put_utf8(char *to, int c)
{
	if (c < 0x80) {
		*to++ = (char)c;
	} else if (c < 0x800) {
		*to++ = (char)(0xc0 | c >> 6);
		*to++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*to++ = (char)(0xe0 | c >> 12);
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	} else {
		*to++ = (char)(0xf0 | c >> 18);
		*to++ = (char)(0x80 | (c >> 12 & 0x3f));
		*to++ = (char)(0x80 | (c >> 6 & 0x3f));
		*to++ = (char)(0x80 | (c & 0x3f));
	}
	return to;
}

/* \uXXXX at s->p (behind the 'u'); pairs of surrogates become one character, a lone one the byte 0xff. */
static int unescape_u(struct scan *s, char **to_p)
{
	int hi, lo;

	hi = s->end - s->p >= 4 ? hex4(s->p) : -1;
	if (hi < 0) {
		return bad(s, s->p - 2, "\\u without four hexadecimal digits");
	}
	s->p += 4;
	if (hi < 0xd800 || hi > 0xdfff) {
		*to_p = put_utf8(*to_p, hi);
		return 0;
	}
	if (hi < 0xdc00 && s->end - s->p >= 6 && s->p[0] == '\\' && s->p[1] == 'u') {
		lo = hex4(s->p + 2);
		if (lo >= 0xdc00 && lo <= 0xdfff) {
			s->p += 6;
			*to_p = put_utf8(*to_p, 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00));
			return 0;
		}
	}
	*(*to_p)++ = (char)0xff;
	return 0;
}

static int unescape_one(struct scan *s, char **to_p)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *k;

	if (s->p + 1 >= s->end) {
		return bad(s, s->p, "string without an end");
	}
	s->p += 2;
	if (s->p[-1] == 'u') {
		return unescape_u(s, to_p);
	}
	k = s->p[-1] ? strchr(from, s->p[-1]) : NULL;
	if (!k) {
		return bad(s, s->p - 2, "unknown escape in a string");
	}
	*(*to_p)++ = to[k - from];
	return 0;
}

/* String at s->p (on the quote). Without escapes it is a view of the row. */
static int scan_string(struct scan *s, const char **str_p, uint32_t *n_p)
{
	const char *open = s->p;
	size_t n = json_skip_plain(s->p + 1, (size_t)(s->end - s->p - 1));
	char *to, *from;
	int rc;

	s->p += 1 + n;
	if (s->p < s->end && *s->p == '"') {
		*str_p = open + 1;
		*n_p = (uint32_t)n;
		s->p++;
		return 0;
	}
	from = to = s->d->text.ptr + s->d->text.n;
	memcpy(to, open + 1, n);
	to += n;
	for (;;) {
		if (s->p >= s->end) {
			return bad(s, open, "string without an end");
		}
		if (*s->p == '"') {
			break;
		}
		if (*s->p != '\\') {
			return bad(s, s->p, "control character in a string (must be escaped)");
		}
		rc = unescape_one(s, &to);
		if (rc < 0) {
			return rc;
		}
		n = json_copy_plain(to, s->p, (size_t)(s->end - s->p));
		s->p += n;
		to += n;
	}
	s->p++;
	*str_p = from;
	*n_p = (uint32_t)(to - from);
	s->d->text.n = (size_t)(to - s->d->text.ptr);
	return 0;
}

static int scan_number(struct scan *s, struct sky_jval *v)
{
	const char *p = s->p, *from;

	p += p < s->end && *p == '-';
	from = p;
	while (p < s->end && *p >= '0' && *p <= '9') {
		p++;
	}
	if (p == from || (*from == '0' && p > from + 1)) {
		return bad(s, s->p, "not a JSON value (a number has digits and no leading zero)");
	}
	if (p < s->end && *p == '.') {
		from = ++p;
		while (p < s->end && *p >= '0' && *p <= '9') {
			p++;
		}
		if (p == from) {
			return bad(s, p, "digits expected behind the decimal point");
		}
	}
	if (p < s->end && (*p == 'e' || *p == 'E')) {
		p++;
		p += p < s->end && (*p == '+' || *p == '-');
		from = p;
		while (p < s->end && *p >= '0' && *p <= '9') {
			p++;
		}
		if (p == from) {
			return bad(s, p, "digits expected in the exponent");
		}
	}
	v->tag = SKY_JT_NUMBER;
	v->str = s->p;
	v->n_str = (uint32_t)(p - s->p);
	s->p = p;
	return 0;
}

static int scan_word(struct scan *s, struct sky_jval *v)
{
	static const struct { const char *word; size_t n; enum sky_jtag tag; } words[] = {
		{ "true", 4, SKY_JT_TRUE }, { "false", 5, SKY_JT_FALSE }, { "null", 4, SKY_JT_NULL },
	};

	for (size_t i = 0; i < 3; i++) {
		if ((size_t)(s->end - s->p) >= words[i].n && !memcmp(s->p, words[i].word, words[i].n)) {
			v->tag = words[i].tag;
			v->str = s->p;
			v->n_str = (uint32_t)words[i].n;
			s->p += words[i].n;
			return 0;
		}
	}
	return bad(s, s->p, "not a JSON value");
}

static int open_container(struct scan *s, struct sky_jval *v)
{
	if (s->depth == SKY_MAX_JSON_DEPTH) {
		return bad(s, s->p, "nested deeper than 64");
	}
	v->tag = *s->p == '{' ? SKY_JT_OBJECT : SKY_JT_ARRAY;
	v->str = s->p;
	s->up[s->depth++] = (uint32_t)(v - s->d->val);
	s->p++;
	return 0;
}

static void close_container(struct scan *s)
{
	struct sky_jval *v = &s->d->val[s->up[--s->depth]];

	s->p++;
	v->end = s->d->n_val;
	v->n_str = (uint32_t)(s->p - v->str);
}

/* One value at s->p; containers are only opened. */
static int scan_value(struct scan *s, const char *key, uint32_t n_key)
{
	struct sky_jval *v = NULL;
	int rc;

	if (s->p >= s->end) {
		return bad(s, s->p, "the text ends where a value should be");
	}
	rc = new_val(s, &v);
	if (rc < 0) {
		return rc;
	}
	v->key = key;
	v->n_key = n_key;
	v->end = s->d->n_val;
	switch (*s->p) {
	case '"':
		v->tag = SKY_JT_STRING;
		return scan_string(s, &v->str, &v->n_str);
	case '{':
	case '[':
		return open_container(s, v);
	case '-':
	case '0': case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
		return scan_number(s, v);
	default:
		return scan_word(s, v);
	}
}

static int scan_key(struct scan *s, const char **key_p, uint32_t *n_p)
{
	int rc;

	if (s->p >= s->end || *s->p != '"') {
		return bad(s, s->p, "a key in quotes expected");
	}
	rc = scan_string(s, key_p, n_p);
	if (rc < 0) {
		return rc;
	}
	skip_space(s);
	if (s->p >= s->end || *s->p != ':') {
		return bad(s, s->p, "':' expected behind a key");
	}
	s->p++;
	skip_space(s);
	return 0;
}

/* Next value inside the innermost container, or its end. */
static int scan_inside(struct scan *s)
{
	struct sky_jval *box = &s->d->val[s->up[s->depth - 1]];
	bool object = box->tag == SKY_JT_OBJECT;
	const char *key = NULL;
	uint32_t n_key = 0;
	int rc;

	skip_space(s);
	if (s->p < s->end && *s->p == (object ? '}' : ']')) {
		close_container(s);
		return 0;
	}
	if (box->n_child) {
		if (s->p >= s->end || *s->p != ',') {
			return bad(s, s->p, s->p >= s->end ? "the text ends inside a container" :
				   object ? "',' or '}' expected" : "',' or ']' expected");
		}
		s->p++;
		skip_space(s);
	}
	box->n_child++;
	if (object) {
		rc = scan_key(s, &key, &n_key);
		if (rc < 0) {
			return rc;
		}
	}
	return scan_value(s, key, n_key);
}

int sky_jdoc_parse(struct sky_jdoc *d, const char *p, size_t n, struct sky_err *err)
{
	struct scan s = { .d = d, .p = p, .end = p + n, .start = p, .err = err };
	int rc;

	d->n_val = 0;
	d->err_off = 0;
	if (n >= UINT32_MAX) {
		return sky_fail(err, SKY_E_DATA, "byte 0: a row of %zu bytes, 4 GiB or more", n);
	}
	d->text.max = SIZE_MAX;
	sky_buf_clear(&d->text);
	rc = sky_buf_reserve(&d->text, n + 64, err);    /* unescaping never grows; 64: room of json_copy_plain */
	if (rc < 0) {
		return rc;
	}
	skip_space(&s);
	rc = scan_value(&s, NULL, 0);
	while (!rc && s.depth) {
		rc = scan_inside(&s);
	}
	if (rc < 0) {
		return rc;
	}
	skip_space(&s);
	return s.p < s.end ? bad(&s, s.p, "more text behind the value") : 0;
}

void sky_jdoc_release(struct sky_jdoc *d)
{
	free(d->val);
	sky_buf_release(&d->text);
	memset(d, 0, sizeof *d);
}

const struct sky_jval *sky_jval_first(const struct sky_jdoc *d, const struct sky_jval *v)
{
	(void)d;
	return v && v->n_child ? v + 1 : NULL;
}

const struct sky_jval *sky_jval_next(const struct sky_jdoc *d, const struct sky_jval *parent, const struct sky_jval *v)
{
	return v->end < parent->end ? &d->val[v->end] : NULL;
}

const struct sky_jval *sky_jval_get(const struct sky_jdoc *d, const struct sky_jval *v, const char *key)
{
	const struct sky_jval *found = NULL;
	size_t n = strlen(key);

	if (!v || v->tag != SKY_JT_OBJECT) {
		return NULL;
	}
	for (const struct sky_jval *c = sky_jval_first(d, v); c; c = sky_jval_next(d, v, c)) {
		if (c->n_key == n && !memcmp(c->key, key, n)) {
			found = c;
		}
	}
	return found;
}

/* digits of mantissa and exponent: value = ±digits × 10^exp10, exact or not at all. */
bool sky_jval_i64(const struct sky_jval *v, int64_t *out)
{
	const char *p, *end;
	int64_t m = 0, exp10 = 0, e = 0;
	bool neg, point = false, eneg;

	if (!v || v->tag != SKY_JT_NUMBER) {
		return false;
	}
	p = v->str;
	end = p + v->n_str;
	neg = *p == '-';
	for (p += neg; p < end && *p != 'e' && *p != 'E'; p++) {
		if (*p == '.') {
			point = true;
			continue;
		}
		if (sky_mul_i64(m, 10, &m) || (neg ? __builtin_sub_overflow(m, *p - '0', &m) : sky_add_i64(m, *p - '0',
				&m))) {
			return false;
		}
		exp10 -= point;
	}
	if (p < end) {
		eneg = *++p == '-';
		p += *p == '-' || *p == '+';
		for (; p < end; p++) {
			e = e < 100000 ? e * 10 + (*p - '0') : e;
		}
		exp10 += eneg ? -e : e;
	}
	for (; m && exp10 < 0; exp10++, m /= 10) {
		if (m % 10) {
			return false;
		}
	}
	for (; m && exp10 > 0; exp10--) {
		if (sky_mul_i64(m, 10, &m)) {
			return false;
		}
	}
	*out = m;
	return true;
}
