/* Parquet: row groups one by one; levels and values of the leaves become columns of lists and structs.
 *
 * A node's slots are the entries of its first leaf that begin a new value at the node's place: rep ≤ the repetition of its
 * enclosing list, and def ≥ the level at which that list's element exists. */
#include <stdlib.h>
#include <string.h>

#include "corpus/parquet_int.h"

struct build {
	struct parquet *q;
	struct pq_values *leaf;         /* of all leaves */
	struct sky_err *err;
};

static void *room(struct build *b, size_t n)
{
	void *p = sky_arena_zalloc(&b->q->batch, n + 64);

	if (!p) {
		sky_fail_mem(b->err, "a row group of %s", b->q->file);
	}
	return p;
}

static int build(struct build *b, const struct pq_node *node, int rep, int exist, bool element, struct tcol *c);

/* Values of a leaf spread over its slots. */
static int build_leaf(struct build *b, const struct pq_node *node, const struct pq_values *v, int rep, int exist,
		struct tcol *c)
{
	size_t elem = v->width ? (size_t)v->width : sizeof(struct tstr);
	uint8_t *valid = room(b, (size_t)v->n_level), *data = room(b, (size_t)v->n_level * elem);
	const uint8_t *from = v->width ? v->fixed : (const uint8_t *)v->str;
	int64_t n = 0, at = 0;

	if (!valid || !data) {
		return SKY_E_LIMIT;
	}
	for (int64_t i = 0; i < v->n_level; i++) {
		bool full = v->def[i] == node->def;

		if (v->rep[i] <= rep && v->def[i] >= exist) {
			valid[n] = full;
			if (full) {
				memcpy(data + (size_t)n * elem, from + (size_t)at * elem, elem);
			}
			n++;
		}
		at += full;
	}
	c->n = n;
	c->valid = valid;
	c->valid_bytes = 1;
	c->data = (struct tbytes){ data, (uint64_t)n * elem };
	c->width = v->width;
	c->is_signed = !node->is_unsigned;
	switch (node->type) {
	case PQ_BOOLEAN:
		c->kind = T_BOOL_BYTES;
		break;
	case PQ_INT32:
	case PQ_INT64:
		c->kind = T_INT;
		break;
	case PQ_FLOAT:
	case PQ_DOUBLE:
		c->kind = T_FLOAT;
		break;
	case PQ_BYTES:
		c->kind = T_STR_PTR;
		break;
	default:
		c->kind = node->type == PQ_FIXED ? T_STR_FIXED : T_OPAQUE;
	}
	return 0;
}

/* A repeated node as a list of its elements. */
static int build_list(struct build *b, const struct pq_node *node, const struct pq_node *elem, int present, int rep,
		int exist,
                      struct tcol *c)
{
	const struct pq_values *v = &b->leaf[node->first_leaf];
	uint8_t *valid = room(b, (size_t)v->n_level), *off = room(b, ((size_t)v->n_level + 1) * 8);
	const struct pq_node *repeated = node->repetition == PQ_REPEATED ? node : &node->child[0];
	int64_t n = 0, k = 0;

	c->child = room(b, sizeof *c->child);
	if (!valid || !off || !c->child) {
		return SKY_E_LIMIT;
	}
	for (int64_t i = 0; i < v->n_level; i++) {
		if (v->rep[i] <= rep && v->def[i] >= exist) {
			valid[n] = v->def[i] >= present;
			sky_store_u64(off + 8 * n, (uint64_t)k);
			n++;
		}
		k += v->rep[i] <= repeated->rep && v->def[i] >= repeated->def;
	}
	sky_store_u64(off + 8 * n, (uint64_t)k);
	c->kind = T_LIST_OFF;
	c->n = n;
	c->valid = valid;
	c->valid_bytes = 1;
	c->off = (struct tbytes){ off, ((uint64_t)n + 1) * 8 };
	c->off_bytes = 8;
	c->n_child = 1;
	return build(b, elem, repeated->rep, repeated->def, true, &c->child[0]);
}

static int build_struct(struct build *b, const struct pq_node *node, int rep, int exist, struct tcol *c)
{
	const struct pq_values *v = &b->leaf[node->first_leaf];
	uint8_t *valid = room(b, (size_t)v->n_level);
	int rc = 0;

	c->child = room(b, (size_t)node->n_child * sizeof *c->child);
	if (!valid || !c->child) {
		return SKY_E_LIMIT;
	}
	for (int64_t i = 0; i < v->n_level; i++) {
		if (v->rep[i] <= rep && v->def[i] >= exist) {
			valid[c->n++] = v->def[i] >= node->def;
		}
	}
	c->kind = T_STRUCT;
	c->valid = valid;
	c->valid_bytes = 1;
	c->n_child = node->n_child;
	for (int i = 0; !rc && i < node->n_child; i++) {
		rc = build(b, &node->child[i], rep, exist, false, &c->child[i]);
	}
	return rc;
}

/* Element of a LIST group: the only member of its repeated child, unless that child is the element itself (old writers:
 * a repeated leaf, several members, or the names array and NAME_tuple). */
static const struct pq_node *list_element(const struct pq_node *node)
{
	const struct pq_node *r = &node->child[0];
	size_t n = strlen(node->name);

	if (!r->n_child || r->n_child > 1 || !strcmp(r->name, "array") ||
	    (!strncmp(r->name, node->name, n) && !strcmp(r->name + n, "_tuple"))) {
		return r;
	}
	return &r->child[0];
}

/* element: node is the element of a list that was built already, so its own repetition is done. */
static int build(struct build *b, const struct pq_node *node, int rep, int exist, bool element, struct tcol *c)
{
	c->name = node->name;
	if (!node->n_leaf) {
		return sky_fail(b->err, SKY_E_DATA, "%s: column \"%s\" has no values", b->q->file, node->name);
	}
	if (node->repetition == PQ_REPEATED && !element) {
		return build_list(b, node, node, exist, rep, exist, c);
	}
	if (!node->n_child) {
		return build_leaf(b, node, &b->leaf[node->first_leaf], rep, exist, c);
	}
	if ((node->is_list || node->is_map) && node->n_child == 1 && node->child[0].repetition == PQ_REPEATED) {
		return build_list(b, node, node->is_map ? &node->child[0] : list_element(node), node->def, rep, exist, c);
	}
	return build_struct(b, node, rep, exist, c);
}

static int read_group(struct source *s, struct parquet *q, struct sky_err *err)
{
	const struct pq_group *g = &q->group[q->i_group++];
	struct build b = { .q = q, .err = err };
	int rc = 0;

	sky_arena_release(&q->batch);
	sky_arena_init(&q->batch, 1u << 20, 0);
	q->first += q->n_row;
	q->n_row = q->row = 0;
	b.leaf = room(&b, (size_t)q->n_leaf * sizeof *b.leaf);
	q->col = room(&b, (size_t)q->root.n_child * sizeof *q->col);
	if (!b.leaf || !q->col) {
		return SKY_E_LIMIT;
	}
	if (!g->n_row) {
		return 0;
	}
	for (int i = 0; !rc && i < q->root.n_child; i++) {
		const struct pq_node *node = &q->root.child[i];

		if (!table_wants(s, node->name)) {
			q->col[i] = (struct tcol){ .kind = T_NULL, .name = node->name, .n = g->n_row };
			continue;
		}
		for (int k = node->first_leaf; !rc && k < node->first_leaf + node->n_leaf; k++) {
			rc = pq_read_chunk(q, q->leaf[k], &g->chunk[k], &b.leaf[k], err);
		}
		if (rc < 0) {
			return rc;
		}
		rc = build(&b, &q->root.child[i], 0, 0, false, &q->col[i]);
		if (!rc && q->col[i].n != g->n_row) {
			rc = sky_fail(err, SKY_E_DATA, "%s: column \"%s\" has %lld rows, its row group promises %lld",
					s->in->name,
				      q->col[i].name, (long long)q->col[i].n, (long long)g->n_row);
		}
		rc = rc ? rc : table_check(&q->col[i], s->in->name, 0, err);
	}
	q->n_row = rc ? 0 : g->n_row;
	return rc;
}

static void list_leaves(struct parquet *q, struct pq_node *node)
{
	if (!node->n_child) {
		q->leaf[node->first_leaf] = node;
	}
	for (int i = 0; i < node->n_child; i++) {
		list_leaves(q, &node->child[i]);
	}
}

static int parquet_open(struct source *s, struct sky_err *err)
{
	struct parquet *q = calloc(1, sizeof *q);
	int rc;

	if (!q) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	s->state = q;
	q->map = (struct sky_map)SKY_MAP_INIT;
	q->file = s->in->name;
	q->first = 1;
	sky_arena_init(&q->arena, 1u << 16, 0);
	sky_arena_init(&q->batch, 1u << 20, 0);
	rc = source_map(s, &q->map, err);
	rc = rc ? rc : pq_footer(q, err);
	if (rc < 0) {
		return rc;
	}
	q->leaf = sky_arena_zalloc(&q->arena, ((size_t)q->n_leaf + 1) * sizeof(struct pq_node *));
	if (!q->leaf) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	if (q->root.n_child) {
		list_leaves(q, &q->root);
	}
	return 0;
}

static int parquet_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	struct parquet *q = s->state;
	int rc;

	while (q->row == q->n_row) {
		if (q->i_group == q->n_group) {
			return SKY_EOF;
		}
		rc = read_group(s, q, err);
		if (rc < 0) {
			return rc;
		}
	}
	return table_block(s, q->col, q->root.n_child, q->n_row, &q->row, q->first, b_p, err);
}

static void parquet_close(struct source *s)
{
	struct parquet *q = s->state;

	if (q) {
		sky_map_close(&q->map);
		sky_arena_release(&q->arena);
		sky_arena_release(&q->batch);
		free(q);
	}
}

const struct format format_parquet = { SKY_IN_PARQUET, "Parquet", parquet_open, parquet_next, parquet_close };
