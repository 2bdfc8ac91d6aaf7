/* Rows of columns as JSON text. Hostile files are caught by table_check, so printing trusts the columns. */
#include <endian.h>
#include <math.h>
#include <string.h>

#include "corpus/table.h"

static bool is_valid(const struct tcol *c, int64_t i)
{
	if (!c->valid) {
		return true;
	}
	return c->valid_bytes ? c->valid[i] : c->valid[i >> 3] >> (i & 7) & 1;
}

static uint64_t load(const uint8_t *p, int width, int64_t i)
{
	uint64_t v = 0;

	memcpy(&v, p + (uint64_t)i * (unsigned)width, (size_t)width);
	return le64toh(v);
}

static int64_t load_signed(const uint8_t *p, int width, int64_t i)
{
	int shift = 64 - 8 * width;

	return (int64_t)(load(p, width, i) << shift) >> shift;
}

static int bad(const struct tcol *c, const char *file, const char *what, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "%s: column \"%s\": %s", file, c->name ? c->name : "", what);
}

/* Offsets ascend and end inside limit. */
static int check_offsets(const struct tcol *c, const char *file, uint64_t limit, struct sky_err *err)
{
	int64_t before = 0, o;

	if (c->n == 0) {
		return 0;
	}
	if (c->off.n / (unsigned)c->off_bytes < (uint64_t)c->n + 1) {
		return bad(c, file, "fewer offsets than values", err);
	}
	for (int64_t i = 0; i <= c->n; i++) {
		o = load_signed(c->off.p, c->off_bytes, i);
		if (o < before || (uint64_t)o > limit) {
			return bad(c, file, "an offset runs backwards or out of the data", err);
		}
		before = o;
	}
	return 0;
}

static int check_list_view(const struct tcol *c, const char *file, struct sky_err *err)
{
	uint64_t need = (uint64_t)c->n * (unsigned)c->off_bytes;

	if (c->off.n < need || c->size.n < need) {
		return bad(c, file, "fewer views than values", err);
	}
	for (int64_t i = 0; i < c->n; i++) {
		int64_t o = load_signed(c->off.p, c->off_bytes, i), n = load_signed(c->size.p, c->off_bytes, i);

		if (is_valid(c, i) && (o < 0 || n < 0 || o > c->child[0].n || n > c->child[0].n - o)) {
			return bad(c, file, "a list view leaves its values", err);
		}
	}
	return 0;
}

static int check_views(const struct tcol *c, const char *file, struct sky_err *err)
{
	if (c->data.n / 16 < (uint64_t)c->n) {
		return bad(c, file, "fewer views than values", err);
	}
	for (int64_t i = 0; i < c->n; i++) {
		const uint8_t *v = c->data.p + 16 * i;
		int64_t n = (int32_t)load(v, 4, 0), buf = (int32_t)load(v, 4, 2), off = (int32_t)load(v, 4, 3);

		if (!is_valid(c, i)) {
			continue;
		}
		if (n < 0 || (n > 12 && (buf < 0 || buf >= c->n_extra || off < 0 || (uint64_t)(off + n) > c->extra[buf].n))) {
			return bad(c, file, "a string view leaves its buffers", err);
		}
	}
	return 0;
}

static int64_t dict_size(const struct tdict *d)
{
	int64_t n = 0;

	for (int i = 0; i < d->n_chunk; i++) {
		n += d->chunk[i].n;
	}
	return n;
}

static int check_dict(const struct tcol *c, const char *file, struct sky_err *err)
{
	int64_t n = c->dict ? dict_size(c->dict) : 0, k;

	if (c->data.n / (unsigned)c->width < (uint64_t)c->n) {
		return bad(c, file, "fewer indices than values", err);
	}
	for (int64_t i = 0; i < c->n; i++) {
		k = c->is_signed ? load_signed(c->data.p, c->width, i) : (int64_t)load(c->data.p, c->width, i);
		if (is_valid(c, i) && (k < 0 || k >= n)) {
			return bad(c, file, "an index leaves its dictionary", err);
		}
	}
	return 0;
}

static int check_children(const struct tcol *c, const char *file, int depth, struct sky_err *err)
{
	int rc = 0;

	for (int i = 0; !rc && i < c->n_child; i++) {
		if (c->kind == T_STRUCT && c->child[i].n < c->n) {
			return bad(c, file, "a member has fewer values than its struct", err);
		}
		rc = table_check(&c->child[i], file, depth + 1, err);
	}
	return rc;
}

int table_check(const struct tcol *c, const char *file, int depth, struct sky_err *err)
{
	uint64_t need = 0;
	int rc = 0;

	if (depth > MAX_TABLE_DEPTH) {
		return bad(c, file, "nested deeper than 32", err);
	}
	switch (c->kind) {
	case T_BOOL_BITS:
		need = ((uint64_t)c->n + 7) / 8;
		break;
	case T_BOOL_BYTES:
		need = (uint64_t)c->n;
		break;
	case T_INT:
	case T_FLOAT:
	case T_STR_FIXED:
		need = (uint64_t)c->n * (unsigned)c->width;
		break;
	case T_STR_OFF:
		rc = check_offsets(c, file, c->data.n, err);
		break;
	case T_STR_VIEW:
		rc = check_views(c, file, err);
		break;
	case T_LIST_OFF:
		rc = check_offsets(c, file, (uint64_t)c->child[0].n, err);
		break;
	case T_LIST_FIXED:
		rc = c->width && c->n > c->child[0].n / c->width ? bad(c, file, "fewer elements than lists", err) : 0;
		break;
	case T_LIST_VIEW:
		rc = check_list_view(c, file, err);
		break;
	case T_DICT:
		rc = check_dict(c, file, err);
		break;
	default:
		break;
	}
	if (!rc && c->data.n < need) {
		rc = bad(c, file, "fewer bytes than values", err);
	}
	return rc ? rc : check_children(c, file, depth, err);
}

/* A JSON string with everything escaped that must be; other bytes as they are. */
static int put_string(struct sky_buf *out, const char *p, size_t n, struct sky_err *err)
{
	static const char hex[] = "0123456789abcdef";
	char esc[6] = "\\u00";
	size_t k;
	int rc = sky_buf_reserve(out, n + 80, err);

	rc = rc ? rc : sky_buf_addc(out, '"', err);
	while (!rc && n) {
		rc = sky_buf_reserve(out, n + 80, err);         /* 64 of it: room of json_copy_plain */
		if (rc < 0) {
			return rc;
		}
		k = json_copy_plain(out->ptr + out->n, p, n);
		out->n += k;
		p += k;
		n -= k;
		if (n) {
			unsigned char c = (unsigned char)*p++;

			n--;
			if (c == '"' || c == '\\' || c == '\n') {
				esc[1] = c == '\n' ? 'n' : (char)c;
				rc = sky_buf_add(out, esc, 2, err);
				esc[1] = 'u';
			} else {
				esc[4] = hex[c >> 4];
				esc[5] = hex[c & 15];
				rc = sky_buf_add(out, esc, 6, err);
			}
		}
	}
	return rc ? rc : sky_buf_addc(out, '"', err);
}

static int put_float(struct sky_buf *out, const struct tcol *c, int64_t i, struct sky_err *err)
{
	char text[64];
	uint32_t u32;
	uint64_t u64;
	float f;
	double d;

	if (c->width == 2) {
		d = sky_f16_to_f32((uint16_t)load(c->data.p, 2, i));
	} else if (c->width == 4) {
		u32 = (uint32_t)load(c->data.p, 4, i);
		memcpy(&f, &u32, 4);
		d = f;
	} else {
		u64 = load(c->data.p, 8, i);
		memcpy(&d, &u64, 8);
	}
	return sky_buf_adds(out, isfinite(d) ? sky_fmt_f64(text, sizeof text, d) : "null", err);
}

static int put_view(struct sky_buf *out, const struct tcol *c, int64_t i, struct sky_err *err)
{
	const uint8_t *v = c->data.p + 16 * i;
	uint64_t n = load(v, 4, 0);

	if (n <= 12) {
		return put_string(out, (const char *)v + 4, n, err);
	}
	return put_string(out, (const char *)c->extra[load(v, 4, 2)].p + load(v, 4, 3), n, err);
}

static int put_value(struct sky_buf *out, const struct tcol *c, int64_t i, int keep_nulls, struct sky_err *err);

static int put_list(struct sky_buf *out, const struct tcol *c, int64_t from, int64_t n, int keep_nulls, struct sky_err *err)
{
	int rc = sky_buf_addc(out, '[', err);

	for (int64_t k = 0; !rc && k < n; k++) {
		rc = k ? sky_buf_addc(out, ',', err) : 0;
		rc = rc ? rc : put_value(out, &c->child[0], from + k, keep_nulls, err);
	}
	return rc ? rc : sky_buf_addc(out, ']', err);
}

static int put_members(struct sky_buf *out, const struct tcol *col, int n_col, int64_t i, int keep_nulls, struct sky_err *err)
{
	int rc = sky_buf_addc(out, '{', err);
	bool comma = false;

	for (int k = 0; !rc && k < n_col; k++) {
		if (!keep_nulls && (col[k].kind == T_NULL || col[k].kind == T_OPAQUE || !is_valid(&col[k], i))) {
			continue;
		}
		rc = comma ? sky_buf_addc(out, ',', err) : 0;
		comma = true;
		rc = rc ? rc : put_string(out, col[k].name, strlen(col[k].name), err);
		rc = rc ? rc : sky_buf_addc(out, ':', err);
		rc = rc ? rc : put_value(out, &col[k], i, keep_nulls, err);
	}
	return rc ? rc : sky_buf_addc(out, '}', err);
}

static int put_dict(struct sky_buf *out, const struct tcol *c, int64_t i, int keep_nulls, struct sky_err *err)
{
	int64_t k = c->is_signed ? load_signed(c->data.p, c->width, i) : (int64_t)load(c->data.p, c->width, i);
	int chunk = 0;

	while (k >= c->dict->chunk[chunk].n) {
		k -= c->dict->chunk[chunk++].n;
	}
	return put_value(out, &c->dict->chunk[chunk], k, keep_nulls, err);
}

static int put_string_of(struct sky_buf *out, const struct tcol *c, int64_t i, struct sky_err *err)
{
	const struct tstr *s;
	uint64_t from;

	switch (c->kind) {
	case T_STR_OFF:
		from = load(c->off.p, c->off_bytes, i);
		return put_string(out, (const char *)c->data.p + from, load(c->off.p, c->off_bytes, i + 1) - from, err);
	case T_STR_PTR:
		s = (const struct tstr *)(const void *)c->data.p + i;
		return put_string(out, s->p, s->n, err);
	case T_STR_FIXED:
		return put_string(out, (const char *)c->data.p + i * c->width, (size_t)c->width, err);
	default:
		return put_view(out, c, i, err);
	}
}

static int put_value(struct sky_buf *out, const struct tcol *c, int64_t i, int keep_nulls, struct sky_err *err)
{
	uint64_t from;

	if (!is_valid(c, i)) {
		return sky_buf_adds(out, "null", err);
	}
	switch (c->kind) {
	case T_BOOL_BITS:
		return sky_buf_adds(out, c->data.p[i >> 3] >> (i & 7) & 1 ? "true" : "false", err);
	case T_BOOL_BYTES:
		return sky_buf_adds(out, c->data.p[i] ? "true" : "false", err);
	case T_INT:
		return c->is_signed ? sky_buf_addf(out, err, "%lld", (long long)load_signed(c->data.p, c->width, i)) :
		       sky_buf_addf(out, err, "%llu", (unsigned long long)load(c->data.p, c->width, i));
	case T_FLOAT:
		return put_float(out, c, i, err);
	case T_STR_OFF:
	case T_STR_PTR:
	case T_STR_FIXED:
	case T_STR_VIEW:
		return put_string_of(out, c, i, err);
	case T_LIST_OFF:
		from = load(c->off.p, c->off_bytes, i);
		return put_list(out, c, (int64_t)from, (int64_t)(load(c->off.p, c->off_bytes, i + 1) - from),
				keep_nulls, err);
	case T_LIST_FIXED:
		return put_list(out, c, i * c->width, c->width, keep_nulls, err);
	case T_LIST_VIEW:
		return put_list(out, c, load_signed(c->off.p, c->off_bytes, i), load_signed(c->size.p, c->off_bytes, i),
				keep_nulls, err);
	case T_STRUCT:
		return put_members(out, c->child, c->n_child, i, keep_nulls, err);
	case T_DICT:
		return put_dict(out, c, i, keep_nulls, err);
	default:
		return sky_buf_adds(out, "null", err);
	}
}

bool table_wants(const struct source *s, const char *name)
{
	const char *const *c = s->opt->columns;

	while (c && *c && strcmp(*c, name)) {
		c++;
	}
	return !c || *c;
}

int table_row(const struct tcol *col, int n_col, int64_t i, int keep_nulls, struct sky_buf *out, struct sky_err *err)
{
	int rc = put_members(out, col, n_col, i, keep_nulls, err);

	return rc ? rc : sky_buf_addc(out, '\n', err);
}

int table_block(struct source *s, const struct tcol *col, int n_col, int64_t n, int64_t *row_p, int64_t first,
                struct sky_block **b_p, struct sky_err *err)
{
	size_t want = s->opt->block_bytes ? s->opt->block_bytes : 1u << 20;
	struct sky_block *b;
	int rc = source_block(s, SKY_BLOCK_JSON, &b, err);

	if (rc < 0) {
		return rc;
	}
	b->row = first + *row_p;
	while (!rc && *row_p < n && b->data.n < want) {
		size_t before = b->data.n;

		rc = table_row(col, n_col, *row_p, s->opt->keep_nulls, &b->data, err);
		if (!rc && b->data.n - before > source_max_line(s)) {
			rc = sky_fail(err, SKY_E_LIMIT, "%s: row %lld is longer than %llu bytes (--max-line)", s->in->name,
				      (long long)(first + *row_p), (unsigned long long)source_max_line(s));
		}
		++*row_p;
		b->n_row++;
	}
	if (rc < 0) {
		sky_block_free(b);
		return rc;
	}
	*b_p = b;
	return 0;
}
