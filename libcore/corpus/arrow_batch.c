/* Arrow record batches: buffers of the body, unpacked when compressed, hung into columns along the schema. */
#include <string.h>
#include <zstd.h>

#include "corpus/arrow_int.h"

#define MAX_BODY (1ull << 34)   /* bytes of one unpacked buffer */

struct walk {
	struct abatch *a;
	size_t node, n_node, buf, n_buf, var, n_var;    /* positions and counts of the three vectors */
	size_t i_node, i_buf, i_var;
	int codec;                                      /* −1 none, 0 LZ4 frame, 1 zstd */
	struct sky_err *err;
};

static int damaged(struct walk *w, const char *what)
{
	return sky_fail(w->err, SKY_E_DATA, "%s: damaged record batch: %s", w->a->file, what);
}

static int unpack(struct walk *w, const uint8_t *p, uint64_t n, struct tbytes *out)
{
	int64_t raw;
	uint8_t *to;
	int rc;

	if (n < 8) {
		return damaged(w, "a compressed buffer without its length");
	}
	raw = (int64_t)sky_load_u64(p);
	p += 8;
	n -= 8;
	if (raw == -1) {
		*out = (struct tbytes){ p, n };
		return 0;
	}
	/* LZ4 packs at most 255 : 1, zstd's frames say more only for long runs. */
	if (raw < 0 || (uint64_t)raw > MAX_BODY || (uint64_t)raw / 100000 > n + 1) {
		return damaged(w, "a compressed buffer of an impossible length");
	}
	to = sky_arena_alloc(w->a->arena, (size_t)raw + 64);
	if (!to) {
		return sky_fail_mem(w->err, "a record batch of %s", w->a->file);
	}
	if (w->codec == 1) {
		size_t got = ZSTD_decompress(to, (size_t)raw, p, n);

		rc = ZSTD_isError(got) || got != (size_t)raw ? damaged(w, "zstd data") : 0;
	} else {
		rc = lz4_frame(p, n, to, (size_t)raw, w->err);
		rc = sky_while(w->err, rc, "%s", w->a->file);
	}
	*out = (struct tbytes){ to, (uint64_t)raw };
	return rc;
}

static int next_buffer(struct walk *w, struct tbytes *out)
{
	int64_t off, n;
	const uint8_t *p;

	if (w->i_buf == w->n_buf) {
		return damaged(w, "fewer buffers than the schema needs");
	}
	p = w->a->b->p + w->buf + 16 * w->i_buf++;
	off = (int64_t)sky_load_u64(p);
	n = (int64_t)sky_load_u64(p + 8);
	if (off < 0 || n < 0 || (uint64_t)off > w->a->n_body || (uint64_t)n > w->a->n_body - (uint64_t)off) {
		return damaged(w, "a buffer outside the body");
	}
	if (w->codec >= 0 && n) {
		return unpack(w, w->a->body + off, (uint64_t)n, out);
	}
	*out = (struct tbytes){ n ? w->a->body + off : (const uint8_t *)"", (uint64_t)n };
	return 0;
}

static int validity(struct walk *w, struct tcol *c, int64_t nulls)
{
	struct tbytes v;
	int rc = next_buffer(w, &v);

	if (!rc && nulls && v.n) {
		if (v.n < ((uint64_t)c->n + 7) / 8) {
			return damaged(w, "a validity bitmap is short");
		}
		c->valid = v.p;
	}
	return rc;
}

static int view_buffers(struct walk *w, struct tcol *c)
{
	struct tbytes *extra;
	int64_t n;
	int rc = 0;

	if (w->i_var == w->n_var) {
		return damaged(w, "fewer variadic counts than the schema needs");
	}
	n = (int64_t)sky_load_u64(w->a->b->p + w->var + 8 * w->i_var++);
	if (n < 0 || (uint64_t)n > w->n_buf - w->i_buf) {
		return damaged(w, "a variadic count larger than the buffers");
	}
	extra = sky_arena_alloc(w->a->arena, ((size_t)n + 1) * sizeof *extra);
	if (!extra) {
		return sky_fail_mem(w->err, "a record batch of %s", w->a->file);
	}
	for (int64_t i = 0; !rc && i < n; i++) {
		rc = next_buffer(w, &extra[i]);
	}
	c->extra = extra;
	c->n_extra = n;
	return rc;
}

static int column(struct walk *w, const struct afield *f, bool values, struct tcol *c);

static int children(struct walk *w, const struct afield *f, struct tcol *c)
{
	int rc = 0;

	c->n_child = f->n_child;
	c->child = sky_arena_zalloc(w->a->arena, ((size_t)f->n_child + 1) * sizeof *c->child);
	if (!c->child) {
		return sky_fail_mem(w->err, "a record batch of %s", w->a->file);
	}
	for (int i = 0; !rc && i < f->n_child; i++) {
		rc = column(w, &f->child[i], false, &c->child[i]);
	}
	return rc;
}

static int lists(struct walk *w, const struct afield *f, struct tcol *c)
{
	bool view = f->type == ARROW_LIST_VIEW || f->type == ARROW_LARGE_LIST_VIEW;
	int rc = 0;

	c->off_bytes = f->type == ARROW_LARGE_LIST || f->type == ARROW_LARGE_LIST_VIEW ? 8 : 4;
	c->kind = f->type == ARROW_FIXED_LIST ? T_LIST_FIXED : view ? T_LIST_VIEW : T_LIST_OFF;
	c->width = f->fixed;
	if (c->kind != T_LIST_FIXED) {
		rc = next_buffer(w, &c->off);
		rc = rc || !view ? rc : next_buffer(w, &c->size);
	}
	return rc ? rc : children(w, f, c);
}

static int plain(struct walk *w, const struct afield *f, struct tcol *c)
{
	int rc;

	switch (f->type) {
	case ARROW_INT:
		c->kind = T_INT;
		return next_buffer(w, &c->data);
	case ARROW_FLOAT:
		c->kind = T_FLOAT;
		return next_buffer(w, &c->data);
	case ARROW_BOOL:
		c->kind = T_BOOL_BITS;
		return next_buffer(w, &c->data);
	case ARROW_FIXED_BINARY:
		c->kind = T_STR_FIXED;
		c->width = f->fixed;
		return next_buffer(w, &c->data);
	case ARROW_BINARY:
	case ARROW_UTF8:
	case ARROW_LARGE_BINARY:
	case ARROW_LARGE_UTF8:
		c->kind = T_STR_OFF;
		c->off_bytes = f->type >= ARROW_LARGE_BINARY ? 8 : 4;
		rc = next_buffer(w, &c->off);
		return rc ? rc : next_buffer(w, &c->data);
	case ARROW_BINARY_VIEW:
	case ARROW_UTF8_VIEW:
		c->kind = T_STR_VIEW;
		rc = next_buffer(w, &c->data);
		return rc ? rc : view_buffers(w, c);
	case ARROW_STRUCT:
		c->kind = T_STRUCT;
		return children(w, f, c);
	case ARROW_DECIMAL:
	case ARROW_DATE:
	case ARROW_TIME:
	case ARROW_TIMESTAMP:
	case ARROW_INTERVAL:
	case ARROW_DURATION:
		c->kind = T_OPAQUE;
		rc = next_buffer(w, &c->data);
		return rc;
	default:
		return lists(w, f, c);
	}
}

static int dictionary(struct walk *w, const struct afield *f, struct tcol *c)
{
	c->kind = T_DICT;
	c->width = f->index_width;
	c->is_signed = f->index_signed;
	for (int i = 0; i < w->a->n_dict; i++) {
		if (w->a->dict[i].id == f->dict_id) {
			c->dict = &w->a->dict[i];
		}
	}
	return next_buffer(w, &c->data);
}

/* values: the column is the values of a dictionary itself. */
static int column(struct walk *w, const struct afield *f, bool values, struct tcol *c)
{
	const uint8_t *p;
	int64_t nulls;
	int rc;

	if (w->i_node == w->n_node) {
		return damaged(w, "fewer columns than the schema");
	}
	p = w->a->b->p + w->node + 16 * w->i_node++;
	c->n = (int64_t)sky_load_u64(p);
	nulls = (int64_t)sky_load_u64(p + 8);
	if (c->n < 0 || c->n > INT64_MAX / 16 || nulls < 0 || nulls > c->n) {
		return damaged(w, "an impossible number of values");
	}
	c->name = f->name;
	c->width = f->width;
	c->is_signed = f->is_signed;
	if (f->type == ARROW_NULL) {
		c->kind = T_NULL;
		return 0;
	}
	rc = validity(w, c, nulls);
	if (rc < 0) {
		return rc;
	}
	return f->in_dict && !values ? dictionary(w, f, c) : plain(w, f, c);
}

int arrow_batch(struct abatch *a, const struct afield *f, int n_f, bool values, struct tcol **col_p, int64_t *n_row_p,
                struct sky_err *err)
{
	struct walk w = { .a = a, .codec = -1, .err = err };
	size_t packed = fb_table(a->b, a->tab, 3);
	struct tcol *col = sky_arena_zalloc(a->arena, ((size_t)n_f + 1) * sizeof *col);
	int rc = col ? 0 : sky_fail_mem(err, "a record batch of %s", a->file);

	*n_row_p = fb_int(a->b, a->tab, 0, 8, 0);
	w.n_node = fb_vector(a->b, a->tab, 1, 16, &w.node);
	w.n_buf = fb_vector(a->b, a->tab, 2, 16, &w.buf);
	w.n_var = fb_vector(a->b, a->tab, 4, 8, &w.var);
	if (packed) {
		w.codec = (int)fb_int(a->b, packed, 0, 1, 0);
	}
	if (!rc && (a->b->bad || *n_row_p < 0 || w.codec > 1)) {
		rc = damaged(&w, "its metadata");
	}
	for (int i = 0; !rc && i < n_f; i++) {
		rc = column(&w, &f[i], values, &col[i]);
		if (!rc && col[i].n != *n_row_p && !values) {
			rc = damaged(&w, "columns of different lengths");
		}
		rc = rc ? rc : table_check(&col[i], a->file, 0, err);
	}
	*col_p = col;
	return rc;
}
