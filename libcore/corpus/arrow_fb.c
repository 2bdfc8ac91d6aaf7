/* Arrow metadata: checked access to flatbuffers, and the schema. */
#include <endian.h>
#include <string.h>

#include "corpus/arrow_int.h"

static bool inside(struct fb *b, size_t at, size_t n)
{
	if (at <= b->n && n <= b->n - at) {
		return true;
	}
	b->bad = true;
	return false;
}

static uint64_t get(struct fb *b, size_t at, size_t width)
{
	uint64_t v = 0;

	if (inside(b, at, width)) {
		memcpy(&v, b->p + at, width);
	}
	return le64toh(v);
}

size_t fb_root(struct fb *b)
{
	size_t at = get(b, 0, 4);

	return inside(b, at, 4) ? at : 0;
}

/* Position of a field inside its table; 0 when the table leaves it out. */
static size_t field(struct fb *b, size_t tab, int id)
{
	int64_t vt = (int64_t)tab - (int32_t)get(b, tab, 4);
	size_t n, off;

	if (vt < 0 || !inside(b, (size_t)vt, 4)) {
		b->bad = true;
		return 0;
	}
	n = get(b, (size_t)vt, 2);
	if (4 + 2 * (size_t)id + 2 > n) {
		return 0;
	}
	off = get(b, (size_t)vt + 4 + 2 * (size_t)id, 2);
	return off && inside(b, tab + off, 1) ? tab + off : 0;
}

size_t fb_deref(struct fb *b, size_t at)
{
	size_t to = at + get(b, at, 4);

	return !b->bad && inside(b, to, 4) ? to : 0;
}

size_t fb_table(struct fb *b, size_t tab, int id)
{
	size_t at = tab ? field(b, tab, id) : 0;

	return at ? fb_deref(b, at) : 0;
}

int64_t fb_int(struct fb *b, size_t tab, int id, int width, int64_t def)
{
	size_t at = tab ? field(b, tab, id) : 0;
	int shift = 64 - 8 * width;

	return at ? (int64_t)(get(b, at, (size_t)width) << shift) >> shift : def;
}

size_t fb_vector(struct fb *b, size_t tab, int id, size_t elem_bytes, size_t *at_p)
{
	size_t v = fb_table(b, tab, id), n;

	if (!v) {
		return 0;
	}
	n = get(b, v, 4);
	if (n > b->n / elem_bytes || !inside(b, v + 4, n * elem_bytes)) {
		b->bad = true;
		return 0;
	}
	*at_p = v + 4;
	return n;
}

const char *fb_string(struct fb *b, size_t tab, int id, size_t *n_p)
{
	size_t at = 0;

	*n_p = fb_vector(b, tab, id, 1, &at);
	return *n_p ? (const char *)b->p + at : "";
}

static int refuse(const char *file, const char *name, const char *what, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "%s: column \"%.80s\": %s", file, name, what);
}

static int read_type(struct fb *b, size_t type, struct afield *f, const char *file, struct sky_err *err)
{
	static const uint8_t float_bytes[] = { 2, 4, 8 };
	int64_t v;

	switch (f->type) {
	case ARROW_INT:
		v = fb_int(b, type, 0, 4, 0);
		if (v != 8 && v != 16 && v != 32 && v != 64) {
			return refuse(file, f->name, "integers of an unknown width", err);
		}
		f->width = (int)v / 8;
		f->is_signed = fb_int(b, type, 1, 1, 0) != 0;
		return 0;
	case ARROW_FLOAT:
		v = fb_int(b, type, 0, 2, 0);
		if (v < 0 || v > 2) {
			return refuse(file, f->name, "numbers of an unknown precision", err);
		}
		f->width = float_bytes[v];
		return 0;
	case ARROW_FIXED_BINARY:
	case ARROW_FIXED_LIST:
		v = fb_int(b, type, 0, 4, 0);
		if (v < 0) {
			return refuse(file, f->name, "a negative fixed size", err);
		}
		f->fixed = (int)v;
		return 0;
	case ARROW_UNION:
	case ARROW_RUN_END:
		return refuse(file, f->name, f->type == ARROW_UNION ? "unions are not supported; cast the column" :
			      "run-end encoding is not supported; cast the column", err);
	default:
		return f->type >= ARROW_NULL && f->type <= ARROW_LARGE_LIST_VIEW ? 0 :
		       refuse(file, f->name, "a type that this reader does not know", err);
	}
}

static int read_dictionary(struct fb *b, size_t dict, struct afield *f, const char *file, struct sky_err *err)
{
	size_t index = fb_table(b, dict, 1);
	int64_t bits = index ? fb_int(b, index, 0, 4, 0) : 32;

	f->in_dict = true;
	f->dict_id = fb_int(b, dict, 0, 8, 0);
	f->index_signed = index ? fb_int(b, index, 1, 1, 0) != 0 : 1;
	f->index_width = (int)bits / 8;
	return bits == 8 || bits == 16 || bits == 32 || bits == 64 ? 0 :
	       refuse(file, f->name, "dictionary indices of an unknown width", err);
}

static int want_children(const struct afield *f)
{
	return f->type == ARROW_LIST || f->type == ARROW_LARGE_LIST || f->type == ARROW_FIXED_LIST || f->type == ARROW_MAP ||
	       f->type == ARROW_LIST_VIEW || f->type == ARROW_LARGE_LIST_VIEW;
}

static int read_fields(struct fb *b, size_t tab, int id, int depth, struct sky_arena *arena, const char *file,
                       struct afield **f_p, int *n_p, struct sky_err *err)
{
	size_t at = 0, n = fb_vector(b, tab, id, 4, &at), n_name;
	struct afield *f = NULL;
	int rc = 0;

	if (depth > MAX_TABLE_DEPTH || n > 65536) {
		return sky_fail(err, SKY_E_DATA, "%s: a schema nested deeper than 32 or wider than 65536", file);
	}
	f = n ? sky_arena_zalloc(arena, n * sizeof *f) : NULL;
	if (n && !f) {
		return sky_fail_mem(err, "the schema of %s", file);
	}
	for (size_t i = 0; !rc && i < n; i++) {
		size_t t = fb_deref(b, at + 4 * i), dict;
		const char *name = fb_string(b, t, 0, &n_name);

		f[i].name = sky_arena_strndup(arena, name, n_name);
		if (!f[i].name) {
			return sky_fail_mem(err, "the schema of %s", file);
		}
		f[i].type = (int)fb_int(b, t, 2, 1, 0);
		rc = read_type(b, fb_table(b, t, 3), &f[i], file, err);
		dict = fb_table(b, t, 4);
		rc = rc || !dict ? rc : read_dictionary(b, dict, &f[i], file, err);
		rc = rc ? rc : read_fields(b, t, 5, depth + 1, arena, file, &f[i].child, &f[i].n_child, err);
		if (!rc && want_children(&f[i]) && f[i].n_child != 1) {
			rc = refuse(file, f[i].name, "a list without its one child", err);
		}
		if (!rc && b->bad) {
			rc = sky_fail(err, SKY_E_DATA, "%s: damaged schema", file);
		}
	}
	*f_p = f;
	*n_p = (int)n;
	return rc;
}

int arrow_schema(struct fb *b, size_t schema, struct sky_arena *arena, const char *file, struct afield **f_p, int *n_p,
                 struct sky_err *err)
{
	if (!schema || b->bad) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged schema", file);
	}
	if (fb_int(b, schema, 0, 2, 0) != 0) {
		return sky_fail(err, SKY_E_DATA, "%s: big-endian Arrow data are not supported", file);
	}
	return read_fields(b, schema, 1, 0, arena, file, f_p, n_p, err);
}
