/* Ids → text, exactly as the decoders of `tokenizers` do it. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

int64_t sky_tokenizer_vocab(const struct sky_tokenizer *t)
{
	return t->vocab.n_id;
}

void sky_tokenizer_fingerprint(const struct sky_tokenizer *t, char out[65])
{
	sky_hex(t->sha, 32, out);
}

const char *sky_tokenizer_warnings(const struct sky_tokenizer *t)
{
	return t->warnings.ptr ? t->warnings.ptr : "";
}

int32_t sky_tokenizer_id(const struct sky_tokenizer *t, const char *s, size_t n)
{
	uint32_t id;

	for (size_t i = 0; i < t->n_added; i++) {
		if (t->added[i].n == n && memcmp(t->added[i].text, s, n) == 0) {
			return (int32_t)t->added[i].id;
		}
	}
	id = tok_find_spelled(t, s, n);
	return id == TOK_NO_ID ? -1 : (int32_t)id;
}

const char *sky_tokenizer_token(const struct sky_tokenizer *t, int32_t id, size_t *n_p, int *special_p)
{
	const struct tok_vocab *v = &t->vocab;

	if (id < 0 || (uint32_t)id >= v->n_id || v->tok[id].len == TOK_NO_LEN) {
		*n_p = 0;
		return NULL;
	}
	if (special_p) {
		*special_p = (v->tok[id].flag & TOK_SPECIAL) != 0;
	}
	*n_p = v->tok[id].len;
	return v->bytes + v->tok[id].off;
}

/* ---- bytes → UTF-8 with one U+FFFD for each maximal broken sequence ---- */

/* Bytes of the longest beginning of a valid sequence at p, which is not valid itself; at least 1. */
static size_t broken_prefix(const uint8_t *p, size_t n)
{
	uint8_t lo = 0x80, hi = 0xbf;
	size_t len, i = 1;

	if (p[0] < 0xc2 || p[0] > 0xf4) {
		return 1;
	}
	len = uc_length(p[0]);
	lo = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : lo;
	hi = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : hi;
	for (; i < len && i < n; i++) {
		if (p[i] < lo || p[i] > hi) {
			break;
		}
		lo = 0x80;
		hi = 0xbf;
	}
	return i;
}

static int add_lossy(struct sky_buf *out, const char *s, size_t n, struct sky_err *err)
{
	const uint8_t *p = (const uint8_t *)s;
	int rc = 0;

	while (n && rc == 0) {
		size_t good = uc_valid(p, n);

		rc = sky_buf_add(out, p, good, err);
		p += good;
		n -= good;
		if (n && rc == 0) {
			size_t bad = broken_prefix(p, n);

			rc = sky_buf_adds(out, "\xef\xbf\xbd", err);
			p += bad;
			n -= bad;
		}
	}
	return rc;
}

/* ---- the chain: a list of texts, rewritten by each decoder ---- */

struct list {
	struct sky_buf text;
	size_t *end; /* (n) where text i ends */
	size_t n, cap;
};

static int list_end(struct list *l, struct sky_err *err)
{
	if (l->n == l->cap) {
		size_t cap = l->cap * 2 + 64;
		size_t *p = sky_realloc_array(l->end, cap, sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "decoding");
		}
		l->end = p;
		l->cap = cap;
	}
	l->end[l->n++] = l->text.n;
	return 0;
}

static int list_add(struct list *l, const char *s, size_t n, struct sky_err *err)
{
	int rc = sky_buf_add(&l->text, s, n, err);

	return rc < 0 ? rc : list_end(l, err);
}

/* Replaces every match of d->pattern in one text. */
static int dec_replace(const struct tok_dec *d, struct tok_match *m, const char *s, size_t n, struct list *to,
		       struct sky_err *err)
{
	size_t i = 0, last = SIZE_MAX, from, end;
	int rc;

	while ((rc = tok_regex_find(d->pattern, m, (const uint8_t *)s, n, i, last, &from, &end, err)) == 1) {
		rc = sky_buf_add(&to->text, s + i, from - i, err);
		rc = rc < 0 ? rc : sky_buf_adds(&to->text, d->text, err);
		if (rc < 0) {
			return rc;
		}
		i = last = end;
	}
	rc = rc < 0 ? rc : sky_buf_add(&to->text, s + i, n - i, err);
	return rc < 0 ? rc : list_end(to, err);
}

/* Every occurrence of a literal becomes other. */
static int replace_literal(const char *s, size_t n, const char *what, const char *other, struct list *to,
			   struct sky_err *err)
{
	size_t k = strlen(what);
	const char *end = s + n, *q;
	int rc = 0;

	while (rc == 0 && k && (q = memmem(s, (size_t)(end - s), what, k))) {
		rc = sky_buf_add(&to->text, s, (size_t)(q - s), err);
		rc = rc < 0 ? rc : sky_buf_adds(&to->text, other, err);
		s = q + k;
	}
	rc = rc < 0 ? rc : sky_buf_add(&to->text, s, (size_t)(end - s), err);
	return rc < 0 ? rc : list_end(to, err);
}

static int dec_strip(const struct tok_dec *d, const char *s, size_t n, struct list *to, struct sky_err *err)
{
	size_t k = strlen(d->text);

	for (int64_t i = 0; i < d->start && k && n >= k && memcmp(s, d->text, k) == 0; i++) {
		s += k;
		n -= k;
	}
	for (int64_t i = 0; i < d->stop && k && n >= k && memcmp(s + n - k, d->text, k) == 0; i++) {
		n -= k;
	}
	return list_add(to, s, n, err);
}

static int byte_token(const char *s, size_t n)
{
	static const char hex[] = "0123456789abcdef0123456789ABCDEF";
	const char *hi, *lo;

	if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>' || !s[3] || !s[4]) {
		return -1;
	}
	hi = memchr(hex, s[3], 32);
	lo = memchr(hex, s[4], 32);
	return hi && lo ? (int)((hi - hex) % 16 * 16 + (lo - hex) % 16) : -1;
}

/* A run of byte tokens: text when it is UTF-8, else one U+FFFD for each byte. */
static int flush_run(struct sky_buf *run, struct list *to, struct sky_err *err)
{
	int rc = 0;

	if (run->n == 0) {
		return 0;
	}
	if (uc_valid((const uint8_t *)run->ptr, run->n) == run->n) {
		rc = list_add(to, run->ptr, run->n, err);
	} else {
		for (size_t i = 0; i < run->n && rc == 0; i++) {
			rc = list_add(to, "\xef\xbf\xbd", 3, err);
		}
	}
	sky_buf_clear(run);
	return rc;
}

static int dec_byte_fallback(const struct list *from, struct list *to, struct sky_err *err)
{
	struct sky_buf run = SKY_BUF_INIT(SIZE_MAX / 2);
	size_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < from->n && rc == 0; at = from->end[i++]) {
		const char *s = from->text.ptr + at;
		size_t n = from->end[i] - at;
		int b = n == 6 ? byte_token(s, n) : -1;

		if (b >= 0) {
			rc = sky_buf_addc(&run, (char)b, err);
			continue;
		}
		rc = flush_run(&run, to, err);
		rc = rc < 0 ? rc : list_add(to, s, n, err);
	}
	rc = rc < 0 ? rc : flush_run(&run, to, err);
	sky_buf_release(&run);
	return rc;
}

static int dec_byte_level(const struct list *from, struct list *to, struct sky_err *err)
{
	struct sky_buf bytes = SKY_BUF_INIT(SIZE_MAX / 2);
	size_t at = 0;
	int rc = sky_buf_reserve(&bytes, from->text.n + 1, err);

	for (size_t i = 0; i < from->n && rc == 0; at = from->end[i++]) {
		size_t n = from->end[i] - at;
		int64_t k = n ? tok_unmap(from->text.ptr + at, n, bytes.ptr + bytes.n) : 0;

		if (k < 0) {
			memcpy(bytes.ptr + bytes.n, from->text.ptr + at, n);
			k = (int64_t)n;
		}
		bytes.n += (size_t)k;
	}
	rc = rc < 0 ? rc : add_lossy(&to->text, bytes.ptr, bytes.n, err);
	sky_buf_release(&bytes);
	return rc < 0 ? rc : list_end(to, err);
}

static int dec_wordpiece(const struct tok_dec *d, size_t i, const char *s, size_t n, struct list *to,
			 struct sky_err *err)
{
	static const char *const cleanup[][2] = {
		{ " .", "." },   { " ?", "?" },     { " !", "!" },     { " ,", "," },
		{ " ' ", "'" },  { " n't", "n't" }, { " 'm", "'m" },   { " do not", " don't" },
		{ " 's", "'s" }, { " 've", "'ve" }, { " 're", "'re" },
	};
	struct list a = { SKY_BUF_INIT(SIZE_MAX / 2), NULL, 0, 0 }, b = a;
	size_t k = strlen(d->text);
	int rc = 0;

	if (i && n >= k && memcmp(s, d->text, k) == 0) {
		rc = sky_buf_add(&a.text, s + k, n - k, err);
	} else {
		rc = i ? sky_buf_adds(&a.text, " ", err) : 0;
		rc = rc < 0 ? rc : sky_buf_add(&a.text, s, n, err);
	}
	for (size_t c = 0; c < sizeof(cleanup) / sizeof(cleanup[0]) && d->cleanup && rc == 0 && a.text.n; c++) {
		struct list t = a;

		sky_buf_clear(&b.text);
		rc = replace_literal(a.text.ptr, a.text.n, cleanup[c][0], cleanup[c][1], &b, err);
		a = b;
		b = t;
	}
	rc = rc < 0 ? rc : list_add(to, a.text.ptr, a.text.n, err);
	sky_buf_release(&a.text);
	sky_buf_release(&b.text);
	free(a.end);
	free(b.end);
	return rc;
}

static int apply_each(const struct tok_dec *d, struct tok_match *m, const struct list *from, struct list *to,
		      struct sky_err *err)
{
	size_t at = 0;
	int rc = 0;

	for (size_t i = 0; i < from->n && rc == 0; at = from->end[i++]) {
		const char *s = from->text.ptr ? from->text.ptr + at : "";
		size_t n = from->end[i] - at;

		switch (d->kind) {
		case DEC_REPLACE:
			rc = dec_replace(d, m, s, n, to, err);
			break;
		case DEC_STRIP:
			rc = dec_strip(d, s, n, to, err);
			break;
		case DEC_METASPACE:
			rc = replace_literal(s, n, d->text, i == 0 && d->prepend != PREPEND_NEVER ? "" : " ", to, err);
			break;
		case DEC_BPE:
			rc = replace_literal(s, n, d->text, i + 1 == from->n ? "" : " ", to, err);
			break;
		default:
			rc = dec_wordpiece(d, i, s, n, to, err);
		}
	}
	return rc;
}

static int apply(const struct tok_dec *d, struct tok_match *m, const struct list *from, struct list *to,
		 struct sky_err *err)
{
	int rc;

	switch (d->kind) {
	case DEC_BYTE_LEVEL:
		return dec_byte_level(from, to, err);
	case DEC_BYTE_FALLBACK:
		return dec_byte_fallback(from, to, err);
	case DEC_FUSE:
		rc = sky_buf_add(&to->text, from->text.ptr, from->text.n, err);
		return rc < 0 ? rc : list_end(to, err);
	default:
		return apply_each(d, m, from, to, err);
	}
}

static bool hidden(const struct sky_tokenizer *t, int32_t id, int skip_special)
{
	const struct tok_vocab *v = &t->vocab;

	return id < 0 || (uint32_t)id >= v->n_id || v->tok[id].len == TOK_NO_LEN ||
	       (skip_special && (v->tok[id].flag & TOK_SPECIAL));
}

/* The token as the file spells it. */
static int add_spelled(const struct sky_tokenizer *t, int32_t id, struct list *l, struct sky_err *err)
{
	const char *s = t->vocab.bytes + t->vocab.tok[id].off;
	size_t n = t->vocab.tok[id].len;
	uint8_t b[4];
	int rc = 0;

	if (!t->byte_level || (t->vocab.tok[id].flag & TOK_FOREIGN)) {
		return list_add(l, s, n, err);
	}
	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = sky_buf_add(&l->text, b, uc_encode(tok_char_of_byte((uint8_t)s[i]), b), err);
	}
	return rc < 0 ? rc : list_end(l, err);
}

static int decode_chain(const struct sky_tokenizer *t, const int32_t *ids, int64_t n, int skip_special,
			struct sky_buf *out, struct sky_err *err)
{
	struct list a = { SKY_BUF_INIT(SIZE_MAX / 2), NULL, 0, 0 }, b = a;
	struct tok_match *m = NULL;
	size_t at = 0;
	int rc = tok_match_new(&m, err);

	for (int64_t i = 0; i < n && rc == 0; i++) {
		rc = hidden(t, ids[i], skip_special) ? 0 : add_spelled(t, ids[i], &a, err);
	}
	for (size_t i = 0; i < t->n_dec && rc == 0; i++) {
		struct list c = a;

		sky_buf_clear(&b.text);
		b.n = 0;
		rc = apply(&t->dec[i], m, &a, &b, err);
		a = b;
		b = c;
	}
	for (size_t i = 0; i < a.n && rc == 0; at = a.end[i++]) {
		rc = !t->has_decoder && i ? sky_buf_adds(out, " ", err) : 0;
		rc = rc < 0 || a.end[i] == at ? rc : sky_buf_add(out, a.text.ptr + at, a.end[i] - at, err);
	}
	tok_match_free(m);
	sky_buf_release(&a.text);
	sky_buf_release(&b.text);
	free(a.end);
	free(b.end);
	return rc;
}

int sky_decode(const struct sky_tokenizer *t, const int32_t *ids, int64_t n, int skip_special, struct sky_buf *out,
	       struct sky_err *err)
{
	struct sky_buf bytes = SKY_BUF_INIT(SIZE_MAX / 2);
	int rc = 0;

	if (!t->byte_level || t->n_dec != 1 || t->dec[0].kind != DEC_BYTE_LEVEL) {
		return decode_chain(t, ids, n, skip_special, out, err);
	}
	for (int64_t i = 0; i < n && rc == 0; i++) {
		if (!hidden(t, ids[i], skip_special)) {
			rc = sky_buf_add(&bytes, t->vocab.bytes + t->vocab.tok[ids[i]].off, t->vocab.tok[ids[i]].len,
					 err);
		}
	}
	rc = rc < 0 ? rc : add_lossy(out, bytes.ptr, bytes.n, err);
	sky_buf_release(&bytes);
	return rc;
}
