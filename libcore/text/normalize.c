/* Normalizers. Each rewrites a whole text between added tokens; most texts need none of it, so every step first looks
 * whether it changes anything. */
#include "text/tok_int.h"

#include <string.h>

static int copy(struct tok_text *o, bool offsets, const uint8_t *p, size_t from, size_t to, struct sky_err *err)
{
	int rc = sky_buf_add(&o->buf, p + from, to - from, err);

	return rc < 0 ? rc : uc_map_add(offsets ? &o->map : NULL, from, to - from, 1, err);
}

/* n bytes that stand for the text at from. */
static int put(struct tok_text *o, bool offsets, const void *s, size_t n, size_t from, struct sky_err *err)
{
	int rc = sky_buf_add(&o->buf, s, n, err);

	return rc < 0 ? rc : uc_map_add(offsets ? &o->map : NULL, from, n, 0, err);
}

static int lower(struct tok_text *o, bool offsets, const uint8_t *p, size_t n, struct sky_err *err)
{
	unsigned k;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i += k) {
		uint32_t c[3];
		unsigned m = uc_lower(uc_decode(p + i, &k), c);

		for (unsigned j = 0; j < m && rc == 0; j++) {
			uint8_t b[4];

			rc = put(o, offsets, b, uc_encode(c[j], b), i, err);
		}
	}
	return rc;
}

static int strip(const struct tok_norm *s, struct tok_text *o, bool offsets, const uint8_t *p, size_t n,
		 struct sky_err *err)
{
	size_t from = 0, to = n;
	unsigned k;

	while (s->left && from < n && (uc_class(uc_decode(p + from, &k)) & UC_S)) {
		from += k;
	}
	while (s->right && to > from) {
		size_t i = to - 1;

		while (i > from && (p[i] & 0xc0) == 0x80) {
			i--;
		}
		if (!(uc_class(uc_decode(p + i, &k)) & UC_S)) {
			break;
		}
		to = i;
	}
	return copy(o, offsets, p, from, to, err);
}

static int strip_accents(struct tok_text *o, bool offsets, const uint8_t *p, size_t n, struct sky_err *err)
{
	unsigned k;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i += k) {
		if (!(uc_class(uc_decode(p + i, &k)) & UC_MN)) {
			rc = copy(o, offsets, p, i, i + k, err);
		}
	}
	return rc;
}

static int replace(struct sky_encoder *e, const struct tok_norm *s, struct tok_text *o, const uint8_t *p, size_t n,
		   struct sky_err *err)
{
	size_t i = 0, last = SIZE_MAX, from, to, n_text = strlen(s->text);
	const bool offsets = e->offsets;
	int rc;

	while ((rc = tok_regex_find(s->pattern, e->match, p, n, i, last, &from, &to, err)) == 1) {
		rc = copy(o, offsets, p, i, from, err);
		if (rc == 0) {
			rc = put(o, offsets, s->text, n_text, from, err);
		}
		if (rc < 0) {
			return rc;
		}
		i = last = to;
	}
	return rc < 0 ? rc : copy(o, offsets, p, i, n, err);
}

static int apply(struct sky_encoder *e, const struct tok_norm *s, struct tok_text *o, const uint8_t *p, size_t n,
		 struct sky_err *err)
{
	int rc;

	switch (s->kind) {
	case NORM_FORM:
		return uc_normalize(p, n, s->form, &o->buf, e->offsets ? &o->map : NULL, err);
	case NORM_LOWER:
		return lower(o, e->offsets, p, n, err);
	case NORM_STRIP:
		return strip(s, o, e->offsets, p, n, err);
	case NORM_ACCENTS:
		return strip_accents(o, e->offsets, p, n, err);
	case NORM_PREPEND:
		rc = n ? put(o, e->offsets, s->text, strlen(s->text), 0, err) : 0;
		return rc < 0 ? rc : copy(o, e->offsets, p, 0, n, err);
	case NORM_REPLACE:
		return replace(e, s, o, p, n, err);
	}
	return 0;
}

static bool is_ascii(const uint8_t *p, size_t n)
{
	size_t i = 0;
	uint64_t w;

	for (; i + 8 <= n; i += 8) {
		memcpy(&w, p + i, 8);
		if (w & 0x8080808080808080ull) {
			return false;
		}
	}
	while (i < n && p[i] < 0x80) {
		i++;
	}
	return i == n;
}

/* Cheap proof that a step would change nothing. */
static bool unchanged(const struct tok_norm *s, const uint8_t *p, size_t n)
{
	switch (s->kind) {
	case NORM_FORM:
		return s->form == UC_NFC_FORM ? uc_nfc_span(p, n) == n : is_ascii(p, n);
	case NORM_ACCENTS:
		return is_ascii(p, n);
	default:
		return n == 0;
	}
}

int tok_normalize(struct sky_encoder *e, const uint8_t *p, size_t n, size_t base, const uint8_t **out_p, size_t *n_p,
		  const uint32_t **map_p, struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;
	const uint32_t *map = NULL;
	int which = 0;

	for (size_t i = 0; i < t->n_norm; i++) {
		struct tok_text *o = &e->norm[which];
		int rc;

		if (unchanged(&t->norm[i], p, n)) {
			continue;
		}
		sky_buf_clear(&o->buf);
		o->map.n = 0;
		o->map.in = map;
		o->map.base = (uint32_t)base;
		rc = apply(e, &t->norm[i], o, p, n, err);
		if (rc < 0) {
			return rc;
		}
		p = (const uint8_t *)o->buf.ptr;
		n = o->buf.n;
		map = e->offsets ? o->map.at : NULL;
		which ^= 1;
		e->n_normalized++;
	}
	*out_p = p;
	*n_p = n;
	*map_p = map;
	return 0;
}
