/* Parquet metadata: Thrift compact protocol, the schema tree with its levels, row groups. */
#include <string.h>

#include "corpus/parquet_int.h"

static uint64_t varint(struct thrift *t)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		if (t->at >= t->n) {
			break;
		}
		v |= (uint64_t)(t->p[t->at] & 0x7f) << shift;
		if (!(t->p[t->at++] & 0x80)) {
			return v;
		}
	}
	t->bad = true;
	return 0;
}

int64_t th_int(struct thrift *t)
{
	uint64_t v = varint(t);

	return (int64_t)(v >> 1) ^ -(int64_t)(v & 1);
}

int th_field(struct thrift *t, int *id_p)
{
	uint8_t c;

	if (t->bad || t->at >= t->n) {
		t->bad = true;
		return TH_STOP;
	}
	c = t->p[t->at++];
	if (!c) {
		return TH_STOP;
	}
	*id_p = c >> 4 ? *id_p + (c >> 4) : (int)th_int(t);
	return c & 15;
}

const char *th_binary(struct thrift *t, size_t *n_p)
{
	uint64_t n = varint(t);
	const char *p = (const char *)t->p + t->at;

	if (t->bad || n > t->n - t->at) {
		t->bad = true;
		*n_p = 0;
		return "";
	}
	t->at += n;
	*n_p = n;
	return p;
}

size_t th_list(struct thrift *t, int *type_p)
{
	uint64_t n;
	uint8_t c;

	*type_p = 0;
	if (t->at >= t->n) {
		t->bad = true;
		return 0;
	}
	c = t->p[t->at++];
	*type_p = c & 15;
	n = c >> 4 == 15 ? varint(t) : c >> 4;
	if (n > t->n - t->at) {         /* every element takes a byte at least */
		t->bad = true;
		return 0;
	}
	return n;
}

bool th_enter(struct thrift *t)
{
	t->bad |= ++t->depth > 48;
	return !t->bad;
}

void th_leave(struct thrift *t)
{
	t->depth--;
}

static void skip_struct(struct thrift *t)
{
	int id = 0, type;

	if (!th_enter(t)) {
		return;
	}
	while ((type = th_field(t, &id)) != TH_STOP) {
		th_skip(t, type);
	}
	th_leave(t);
}

static void skip_list(struct thrift *t)
{
	int type;
	size_t n = th_list(t, &type);

	if (!th_enter(t)) {
		return;
	}
	for (size_t i = 0; i < n && !t->bad; i++) {
		if (type == TH_TRUE || type == TH_FALSE) {
			t->at++;
		} else {
			th_skip(t, type);
		}
	}
	th_leave(t);
}

static void skip_map(struct thrift *t)
{
	uint64_t n = varint(t);
	uint8_t types;

	if (!n || t->bad || t->at >= t->n || n > t->n - t->at || !th_enter(t)) {
		t->bad |= n != 0;
		return;
	}
	types = t->p[t->at++];
	for (uint64_t i = 0; i < n && !t->bad; i++) {
		th_skip(t, types >> 4);
		th_skip(t, types & 15);
	}
	th_leave(t);
}

void th_skip(struct thrift *t, int type)
{
	size_t n;

	switch (type) {
	case TH_TRUE:
	case TH_FALSE:
		break;
	case TH_BYTE:
		t->at++;
		break;
	case TH_I16:
	case TH_I32:
	case TH_I64:
		(void)varint(t);
		break;
	case TH_DOUBLE:
		t->at += 8;
		break;
	case TH_BINARY:
		(void)th_binary(t, &n);
		break;
	case TH_LIST:
	case TH_SET:
		skip_list(t);
		break;
	case TH_MAP:
		skip_map(t);
		break;
	case TH_STRUCT:
		skip_struct(t);
		break;
	default:
		t->bad = true;
	}
	t->bad |= t->at > t->n;
}

/* LogicalType: field 1 STRING, 2 MAP, 3 LIST, 10 INTEGER{1 width, 2 signed}. */
static void read_logical(struct thrift *t, struct pq_node *e)
{
	int id = 0, type;

	while (th_enter(t) && (type = th_field(t, &id)) != TH_STOP) {
		e->is_text |= id == 1;
		e->is_map |= id == 2;
		e->is_list |= id == 3;
		if (id == 10 && type == TH_STRUCT) {
			int k = 0, kt;

			while (th_enter(t) && (kt = th_field(t, &k)) != TH_STOP) {
				e->is_unsigned |= k == 2 && kt == TH_FALSE;
				th_skip(t, kt);
				th_leave(t);
			}
			th_leave(t);
		} else {
			th_skip(t, type);
		}
		th_leave(t);
	}
	th_leave(t);
}

static void read_element(struct thrift *t, struct pq_node *e, struct sky_arena *arena)
{
	int id = 0, type;
	const char *s;
	size_t n;

	e->type = -1;
	e->converted = -1;
	while (!t->bad && (type = th_field(t, &id)) != TH_STOP) {
		if (id == 4 && type == TH_BINARY) {
			s = th_binary(t, &n);
			e->name = sky_arena_strndup(arena, s, n);
		} else if (id == 10 && type == TH_STRUCT) {
			read_logical(t, e);
		} else if (type == TH_I32 && id >= 1 && id <= 6) {
			int64_t v = th_int(t);

			e->type = id == 1 ? (int)v : e->type;
			e->type_length = id == 2 ? (int)v : e->type_length;
			e->repetition = id == 3 ? (int)v : e->repetition;
			e->n_child = id == 5 ? (int)v : e->n_child;
			e->converted = id == 6 ? (int)v : e->converted;
		} else {
			th_skip(t, type);
		}
	}
	/* Older names of the same: 0 UTF8, 1 MAP, 2 MAP_KEY_VALUE, 3 LIST, 11 to 14 unsigned integers. */
	e->is_text |= e->converted == 0;
	e->is_map |= e->converted == 1 || e->converted == 2;
	e->is_list |= e->converted == 3;
	e->is_unsigned |= e->converted >= 11 && e->converted <= 14;
}

/* Elements come in depth-first order; hangs them into a tree and numbers levels and leaves. */
static int hang(struct parquet *q, struct pq_node *flat, int64_t n, int64_t *at, struct pq_node *to, int def, int rep,
                int depth, struct sky_err *err)
{
	struct pq_node *e = &flat[*at];
	int rc = 0;

	++*at;
	*to = *e;
	to->def = def + (*at > 1 && e->repetition != PQ_REQUIRED);
	to->rep = rep + (*at > 1 && e->repetition == PQ_REPEATED);
	to->first_leaf = q->n_leaf;
	if (depth > MAX_TABLE_DEPTH || e->repetition < 0 || e->repetition > 2 || !e->name || e->n_child < 0 ||
			e->n_child > n - *at) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged Parquet schema", q->file);
	}
	if (!e->n_child) {
		if (e->type < 0 || e->type > PQ_FIXED || (e->type == PQ_FIXED && (e->type_length < 1 ||
				e->type_length > 1 << 20))) {
			return *at > 1 ? sky_fail(err, SKY_E_DATA, "%s: column \"%.80s\" has no known type", q->file,
					e->name) : 0;
		}
		q->n_leaf++;
		to->n_leaf = 1;
		return 0;
	}
	to->child = sky_arena_zalloc(&q->arena, (size_t)e->n_child * sizeof *to->child);
	if (!to->child) {
		return sky_fail_mem(err, "the schema of %s", q->file);
	}
	for (int i = 0; !rc && i < e->n_child; i++) {
		rc = *at < n ? hang(q, flat, n, at, &to->child[i], to->def, to->rep, depth + 1, err) :
		     sky_fail(err, SKY_E_DATA, "%s: damaged Parquet schema", q->file);
	}
	to->n_leaf = q->n_leaf - to->first_leaf;
	return rc;
}

static int read_schema(struct parquet *q, struct thrift *t, struct sky_err *err)
{
	int type;
	size_t n = th_list(t, &type);
	struct pq_node *flat = n ? sky_arena_zalloc(&q->arena, n * sizeof *flat) : NULL;
	int64_t at = 0;
	int rc;

	if (!flat || type != TH_STRUCT || n > 100000) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged Parquet schema", q->file);
	}
	for (size_t i = 0; i < n && !t->bad; i++) {
		read_element(t, &flat[i], &q->arena);
	}
	if (t->bad) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged Parquet schema", q->file);
	}
	rc = hang(q, flat, (int64_t)n, &at, &q->root, 0, 0, 0, err);
	if (!rc && at != (int64_t)n) {
		rc = sky_fail(err, SKY_E_DATA, "%s: damaged Parquet schema", q->file);
	}
	return rc;
}

static void read_column_meta(struct thrift *t, struct pq_chunk *c)
{
	int id = 0, type;

	c->dict_off = -1;
	c->data_off = -1;
	while (th_enter(t) && (type = th_field(t, &id)) != TH_STOP) {
		if (type == TH_I32 || type == TH_I64) {
			int64_t v = th_int(t);

			c->type = id == 1 ? (int)v : c->type;
			c->codec = id == 4 ? (int)v : c->codec;
			c->n_value = id == 5 ? v : c->n_value;
			c->n_stored = id == 7 ? v : c->n_stored;
			c->data_off = id == 9 ? v : c->data_off;
			c->dict_off = id == 11 ? v : c->dict_off;
		} else {
			th_skip(t, type);
		}
		th_leave(t);
	}
	th_leave(t);
}

static void read_chunk(struct thrift *t, struct pq_chunk *c)
{
	int id = 0, type;

	c->type = -1;
	while (!t->bad && (type = th_field(t, &id)) != TH_STOP) {
		if (id == 3 && type == TH_STRUCT) {
			read_column_meta(t, c);
		} else {
			if (id == 1) {
				c->type = -2;   /* the data lie in another file */
			}
			th_skip(t, type);
		}
	}
}

static int read_group(struct parquet *q, struct thrift *t, struct pq_group *g, struct sky_err *err)
{
	int id = 0, type, elem;
	size_t n;

	while (!t->bad && (type = th_field(t, &id)) != TH_STOP) {
		if (id == 1 && type == TH_LIST) {
			n = th_list(t, &elem);
			if ((int64_t)n != q->n_leaf || elem != TH_STRUCT) {
				return sky_fail(err, SKY_E_DATA, "%s: a row group with %zu columns, the schema has %d",
						q->file, n,
						q->n_leaf);
			}
			g->chunk = sky_arena_zalloc(&q->arena, (n + 1) * sizeof *g->chunk);
			if (!g->chunk) {
				return sky_fail_mem(err, "the row groups of %s", q->file);
			}
			for (size_t i = 0; i < n && !t->bad; i++) {
				read_chunk(t, &g->chunk[i]);
			}
		} else if (id == 3 && type == TH_I64) {
			g->n_row = th_int(t);
		} else {
			th_skip(t, type);
		}
	}
	return g->n_row < 0 || !g->chunk ? sky_fail(err, SKY_E_DATA, "%s: damaged row group", q->file) : 0;
}

static int read_groups(struct parquet *q, struct thrift *t, struct sky_err *err)
{
	int type, rc = 0;
	size_t n = th_list(t, &type);

	q->group = sky_arena_zalloc(&q->arena, (n + 1) * sizeof *q->group);
	if (!q->group) {
		return sky_fail_mem(err, "the row groups of %s", q->file);
	}
	for (size_t i = 0; !rc && i < n && !t->bad; i++) {
		rc = read_group(q, t, &q->group[i], err);
	}
	q->n_group = (int64_t)n;
	return rc;
}

int pq_footer(struct parquet *q, struct sky_err *err)
{
	const uint8_t *p = q->map.ptr;
	uint64_t n = q->map.n;
	struct thrift t = { 0 };
	int id = 0, type, rc = 0;

	if (n < 12 || memcmp(p, "PAR1", 4) || memcmp(p + n - 4, "PAR1", 4)) {
		bool locked = n >= 8 && (!memcmp(p, "PARE", 4) || !memcmp(p + n - 4, "PARE", 4));

		return sky_fail(err, SKY_E_DATA, "%s: %s", q->file, locked ? "an encrypted Parquet file; decrypt it first" :
				"no PAR1 at both ends: not a Parquet file, or a cut one");
	}
	t.n = sky_load_u32(p + n - 8);
	if (t.n > n - 12) {
		return sky_fail(err, SKY_E_DATA, "%s: the length of the footer, %zu, is larger than the file", q->file, t.n);
	}
	t.p = p + n - 8 - t.n;
	while (!rc && !t.bad && (type = th_field(&t, &id)) != TH_STOP) {
		if (id == 2 && type == TH_LIST) {
			rc = read_schema(q, &t, err);
		} else if (id == 3 && type == TH_I64) {
			q->n_file_row = th_int(&t);
		} else if (id == 4 && type == TH_LIST && q->root.name) {
			rc = read_groups(q, &t, err);
		} else {
			th_skip(&t, type);
		}
	}
	if (!rc && (t.bad || !q->root.name)) {
		rc = sky_fail(err, SKY_E_DATA, "%s: damaged Parquet footer", q->file);
	}
	return rc;
}
