/* Pre-tokenizers by the general path: a list of pieces goes through the steps of the file in order. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

/* Pieces of one step are collected in e->piece2 and become e->piece at its end. */
static int push(struct sky_encoder *e, size_t from, size_t to, struct sky_err *err)
{
	if (from == to) {
		return 0;
	}
	if (e->n_piece2 == e->piece2_cap) {
		size_t cap = e->piece2_cap ? e->piece2_cap * 2 : 256;
		struct tok_piece *p = realloc(e->piece2, cap * sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "pieces of a text");
		}
		e->piece2 = p;
		e->piece2_cap = cap;
	}
	e->piece2[e->n_piece2].from = from;
	e->piece2[e->n_piece2++].to = to;
	return 0;
}

static void take(struct sky_encoder *e)
{
	struct tok_piece *p = e->piece;
	size_t cap = e->piece_cap;

	e->piece = e->piece2;
	e->piece_cap = e->piece2_cap;
	e->n_piece = e->n_piece2;
	e->piece2 = p;
	e->piece2_cap = cap;
	e->n_piece2 = 0;
}

/* ---- spans of one piece, alternately unmatched and matched, put together by the behaviour ---- */

struct joiner {
	struct sky_encoder *e;
	enum tok_behavior behavior;
	size_t from;  /* start of the piece being collected; SIZE_MAX: none */
	size_t end;   /* its end so far */
	bool matched; /* kind of the last span */
};

static int flush(struct joiner *j, struct sky_err *err)
{
	int rc = j->from == SIZE_MAX ? 0 : push(j->e, j->from, j->end, err);

	j->from = SIZE_MAX;
	return rc;
}

static int span(struct joiner *j, size_t from, size_t to, bool matched, struct sky_err *err)
{
	bool join = false;
	int rc;

	switch (j->behavior) {
	case SPLIT_REMOVED:
		return matched ? 0 : push(j->e, from, to, err);
	case SPLIT_ISOLATED:
		return push(j->e, from, to, err);
	case SPLIT_PREVIOUS: /* a match joins the text before it, unless that is a match */
		join = matched && !j->matched;
		break;
	case SPLIT_NEXT: /* text joins the match before it; a match after a match starts anew */
		join = !matched && j->matched;
		break;
	case SPLIT_CONTIGUOUS:
		join = matched == j->matched;
		break;
	}
	if (!join || j->from == SIZE_MAX) {
		rc = flush(j, err);
		if (rc < 0) {
			return rc;
		}
		j->from = from;
	}
	j->end = to;
	j->matched = matched;
	return 0;
}

static int split_by_pattern(struct sky_encoder *e, const struct tok_pre *s, const struct tok_regex *pattern,
			    const uint8_t *p, struct tok_piece piece, struct sky_err *err)
{
	struct joiner j = { e, s->behavior, SIZE_MAX, 0, false };
	const size_t n = piece.to - piece.from, base = piece.from;
	size_t i = 0, last = SIZE_MAX, from, to;
	int rc;

	while ((rc = tok_regex_find(pattern, e->match, p + base, n, i, last, &from, &to, err)) == 1) {
		rc = from > i ? span(&j, base + i, base + from, s->invert, err) : 0;
		if (rc == 0) {
			rc = span(&j, base + from, base + to, !s->invert, err);
		}
		if (rc < 0) {
			return rc;
		}
		i = last = to;
	}
	if (rc == 0 && i < n) {
		rc = span(&j, base + i, base + n, s->invert, err);
	}
	return rc < 0 ? rc : flush(&j, err);
}

/* Every character for which want() holds is a match. */
static int split_by_class(struct sky_encoder *e, enum tok_behavior behavior, unsigned mask, const uint8_t *p,
			  struct tok_piece piece, struct sky_err *err)
{
	struct joiner j = { e, behavior, SIZE_MAX, 0, false };
	size_t open = piece.from;
	unsigned k;
	int rc = 0;

	for (size_t i = piece.from; i < piece.to && rc == 0; i += k) {
		if (!(uc_class(uc_decode(p + i, &k)) & mask)) {
			continue;
		}
		rc = i > open ? span(&j, open, i, false, err) : 0;
		if (rc == 0) {
			rc = span(&j, i, i + k, true, err);
		}
		open = i + k;
	}
	if (rc == 0 && open < piece.to) {
		rc = span(&j, open, piece.to, false, err);
	}
	return rc < 0 ? rc : flush(&j, err);
}

/* \w+|[^\w\s]+, white space removed */
static int split_words(struct sky_encoder *e, const uint8_t *p, struct tok_piece piece, struct sky_err *err)
{
	size_t open = piece.from;
	int kind = 0, rc = 0; /* 0 space, 1 word, 2 other */
	unsigned k;

	for (size_t i = piece.from; i < piece.to && rc == 0; i += k) {
		unsigned c = uc_class(uc_decode(p + i, &k));
		int now = c & UC_W ? 1 : c & UC_S ? 0 : 2;

		if (now != kind) {
			rc = kind ? push(e, open, i, err) : 0;
			open = i;
			kind = now;
		}
	}
	return rc < 0 || !kind ? rc : push(e, open, piece.to, err);
}

/* ---- steps that rewrite text ---- */

static struct tok_text *rewrite(struct sky_encoder *e, const uint8_t *p, const uint32_t *map, size_t base)
{
	struct tok_text *o = &e->work[(const uint8_t *)e->work[0].buf.ptr == p && p];

	sky_buf_clear(&o->buf);
	o->map.n = 0;
	o->map.in = map;
	o->map.base = (uint32_t)base;
	return o;
}

static int keep(struct sky_encoder *e, struct tok_text *o, const uint8_t *p, size_t from, size_t to,
		struct sky_err *err)
{
	int rc = sky_buf_add(&o->buf, p + from, to - from, err);

	return rc < 0 ? rc : uc_map_add(e->offsets ? &o->map : NULL, from, to - from, 1, err);
}

static int insert(struct sky_encoder *e, struct tok_text *o, const char *s, size_t at, struct sky_err *err)
{
	int rc = sky_buf_adds(&o->buf, s, err);

	return rc < 0 ? rc : uc_map_add(e->offsets ? &o->map : NULL, at, strlen(s), 0, err);
}

/* Every piece that does not begin with a space gets one in front. */
static int prefix_spaces(struct sky_encoder *e, struct tok_text *o, const uint8_t *p, struct sky_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < e->n_piece && rc == 0; i++) {
		struct tok_piece *q = &e->piece[i];
		size_t start = o->buf.n;

		if (p[q->from] != ' ') {
			rc = insert(e, o, " ", q->from, err);
		}
		if (rc == 0) {
			rc = keep(e, o, p, q->from, q->to, err);
		}
		q->from = start;
		q->to = o->buf.n;
	}
	return rc;
}

static int metaspace_piece(struct sky_encoder *e, const struct tok_pre *s, struct tok_text *o, const uint8_t *p,
			   struct tok_piece q, bool at_start, struct sky_err *err)
{
	size_t n_text = strlen(s->text);
	int rc = 0;

	if ((s->prepend == PREPEND_ALWAYS || (s->prepend == PREPEND_FIRST && at_start)) && p[q.from] != ' ' &&
	    !(q.to - q.from >= n_text && memcmp(p + q.from, s->text, n_text) == 0)) {
		rc = insert(e, o, s->text, q.from, err);
	}
	for (size_t i = q.from; i < q.to && rc == 0; i++) {
		rc = p[i] == ' ' ? insert(e, o, s->text, i, err) : keep(e, o, p, i, i + 1, err);
	}
	return rc;
}

static int metaspace(struct sky_encoder *e, const struct tok_pre *s, struct tok_text *o, const uint8_t *p, bool first,
		     struct sky_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < e->n_piece && rc == 0; i++) {
		size_t start = o->buf.n;

		rc = metaspace_piece(e, s, o, p, e->piece[i], first && i == 0, err);
		e->piece[i].from = start;
		e->piece[i].to = o->buf.n;
	}
	return rc;
}

/* ---- the steps ---- */

static int step_piece(struct sky_encoder *e, const struct tok_pre *s, const uint8_t *p, struct tok_piece piece,
		      struct sky_err *err)
{
	switch (s->kind) {
	case PRE_SPLIT:
	case PRE_DELIMITER:
	case PRE_BYTE_LEVEL:
	case PRE_METASPACE:
		return split_by_pattern(e, s, s->pattern, p, piece, err);
	case PRE_DIGITS:
		return split_by_class(e, s->individual ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS, UC_NUM, p, piece, err);
	case PRE_PUNCT:
		return split_by_class(e, s->behavior, UC_PUNCT, p, piece, err);
	case PRE_WHITESPACE:
		return split_words(e, p, piece, err);
	case PRE_WHITESPACE_SPLIT:
		return split_by_class(e, SPLIT_REMOVED, UC_S, p, piece, err);
	}
	return 0;
}

static int step(struct sky_encoder *e, const struct tok_pre *s, const uint8_t **p, const uint32_t **map, size_t base,
		bool first, struct sky_err *err)
{
	int rc = 0;

	if ((s->kind == PRE_BYTE_LEVEL && s->prefix_space) || s->kind == PRE_METASPACE) {
		struct tok_text *o = rewrite(e, *p, *map, base);

		rc = s->kind == PRE_METASPACE ? metaspace(e, s, o, *p, first, err) : prefix_spaces(e, o, *p, err);
		*p = (const uint8_t *)o->buf.ptr;
		*map = e->offsets ? o->map.at : NULL;
	}
	if ((s->kind == PRE_BYTE_LEVEL && !s->use_regex) || (s->kind == PRE_METASPACE && !s->split)) {
		return rc;
	}
	e->n_piece2 = 0;
	for (size_t i = 0; i < e->n_piece && rc == 0; i++) {
		rc = step_piece(e, s, *p, e->piece[i], err);
	}
	take(e);
	return rc;
}

int tok_pretokenize(struct sky_encoder *e, const uint8_t *p, size_t n, const uint32_t *map, size_t base, bool first,
		    const uint8_t **out_p, const uint32_t **map_p, struct sky_err *err)
{
	const struct sky_tokenizer *t = e->t;
	int rc;

	e->n_piece = e->n_piece2 = 0;
	rc = push(e, 0, n, err);
	take(e);
	for (size_t i = 0; i < t->n_pre && rc == 0; i++) {
		rc = step(e, &t->pre[i], &p, &map, base, first, err);
	}
	*out_p = p;
	*map_p = map;
	return rc;
}
