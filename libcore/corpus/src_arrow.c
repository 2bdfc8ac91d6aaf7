/* Arrow IPC, streams and files. Messages: optional FFFFFFFF, i32 length, flatbuffer, body. A stream must have its end
 * marker: without it nobody can tell a cut one. A file is read by the block lists of its footer. */
#include <stdlib.h>
#include <string.h>

#include "corpus/arrow_int.h"

enum { MSG_SCHEMA = 1, MSG_DICTIONARY = 2, MSG_BATCH = 3 };

struct arrow {
	struct sky_map map;
	struct sky_arena arena, batch;          /* for the whole file; for the batch in hand */
	struct afield *field;
	int n_field;
	struct tdict *dict;
	int n_dict;
	uint64_t at;                            /* stream: next message */
	struct fb footer;                       /* file: its footer, and the batch blocks in it */
	size_t block, n_block, i_block;
	bool is_file;
	struct tcol *col;                       /* batch in hand */
	int64_t n_row, row, first;
};

struct message {
	struct fb b;
	int type;
	size_t header;
	const uint8_t *body;
	uint64_t n_body, end;
};

static int cut(const struct source *s, uint64_t at, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "%s: the Arrow data are cut or damaged at byte %llu", s->in->name,
			(unsigned long long)at);
}

/* Message at byte at; SKY_EOF at an end marker. */
static int read_message(const struct source *s, const struct arrow *a, uint64_t at, struct message *m, struct sky_err *err)
{
	const uint8_t *p = sky_map_at(&a->map, at, 4);
	uint32_t n;
	size_t tab;
	int64_t n_body;

	if (p && sky_load_u32(p) == 0xffffffffu) {
		at += 4;
		p = sky_map_at(&a->map, at, 4);
	}
	if (!p) {
		return sky_fail(err, SKY_E_DATA,
				"%s: byte %llu: no end marker: the Arrow stream is cut (write it again, or check "
				"the transfer)", s->in->name, (unsigned long long)at);
	}
	n = sky_load_u32(p);
	if (!n) {
		return SKY_EOF;
	}
	p = sky_map_at(&a->map, at + 4, n);
	if (!p) {
		return cut(s, at, err);
	}
	m->b = (struct fb){ p, n, false };
	tab = fb_root(&m->b);
	m->type = (int)fb_int(&m->b, tab, 1, 1, 0);
	m->header = fb_table(&m->b, tab, 2);
	n_body = fb_int(&m->b, tab, 3, 8, 0);
	at += 4 + (uint64_t)n;
	if (m->b.bad || !m->header || n_body < 0 || at > a->map.n || (uint64_t)n_body > a->map.n - at) {
		return cut(s, at, err);
	}
	m->body = n_body ? a->map.ptr + at : (const uint8_t *)"";
	m->n_body = (uint64_t)n_body;
	m->end = at + (uint64_t)n_body;
	return 0;
}

static const struct afield *find_dict(const struct afield *f, int n, int64_t id)
{
	const struct afield *hit;

	for (int i = 0; i < n; i++) {
		if (f[i].in_dict && f[i].dict_id == id) {
			return &f[i];
		}
		hit = find_dict(f[i].child, f[i].n_child, id);
		if (hit) {
			return hit;
		}
	}
	return NULL;
}

/* Room for every dictionary of the schema, made once so that columns may point to its members. */
static int count_dicts(const struct afield *f, int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++) {
		sum += f[i].in_dict + count_dicts(f[i].child, f[i].n_child);
	}
	return sum;
}

static int take_dictionary(struct source *s, struct arrow *a, struct message *m, struct sky_err *err)
{
	int64_t id = fb_int(&m->b, m->header, 0, 8, 0), n_row;
	size_t data = fb_table(&m->b, m->header, 1);
	bool delta = fb_int(&m->b, m->header, 2, 1, 0) != 0;
	const struct afield *f = find_dict(a->field, a->n_field, id);
	struct tdict *d = NULL;
	struct tcol *col, *chunk;
	struct abatch batch = { .b = &m->b, .tab = data, .body = m->body, .n_body = m->n_body, .arena = &a->arena,
				.dict = a->dict, .n_dict = a->n_dict, .file = s->in->name };
	int rc;

	if (!f || !data) {
		return sky_fail(err, SKY_E_DATA, "%s: a dictionary that no column uses", s->in->name);
	}
	rc = arrow_batch(&batch, f, 1, true, &col, &n_row, err);
	if (rc < 0) {
		return rc;
	}
	for (int i = 0; i < a->n_dict; i++) {
		d = a->dict[i].id == id ? &a->dict[i] : d;
	}
	if (!d) {
		d = &a->dict[a->n_dict++];
		d->id = id;
	}
	if (!delta) {
		d->n_chunk = 0;
	}
	chunk = sky_arena_alloc(&a->arena, (size_t)(d->n_chunk + 1) * sizeof *chunk);
	if (!chunk) {
		return sky_fail_mem(err, "a dictionary of %s", s->in->name);
	}
	memcpy(chunk, d->chunk ? d->chunk : chunk, (size_t)d->n_chunk * sizeof *chunk);
	chunk[d->n_chunk++] = *col;
	d->chunk = chunk;
	return 0;
}

static int take_schema(struct source *s, struct arrow *a, struct fb *b, size_t schema, struct sky_err *err)
{
	int rc = arrow_schema(b, schema, &a->arena, s->in->name, &a->field, &a->n_field, err);

	if (!rc) {
		a->dict = sky_arena_zalloc(&a->arena, ((size_t)count_dicts(a->field, a->n_field) + 1) * sizeof *a->dict);
		rc = a->dict ? 0 : sky_fail_mem(err, "the schema of %s", s->in->name);
	}
	return rc;
}

static int take_batch(struct source *s, struct arrow *a, struct message *m, struct sky_err *err)
{
	struct abatch batch = { .b = &m->b, .tab = m->header, .body = m->body, .n_body = m->n_body, .arena = &a->batch,
				.dict = a->dict, .n_dict = a->n_dict, .file = s->in->name };
	int rc;

	a->first += a->n_row;
	a->row = a->n_row = 0;
	sky_arena_release(&a->batch);
	sky_arena_init(&a->batch, 1u << 16, 0);
	rc = arrow_batch(&batch, a->field, a->n_field, false, &a->col, &a->n_row, err);
	for (int i = 0; !rc && i < a->n_field; i++) {
		if (!table_wants(s, a->field[i].name)) {
			a->col[i] = (struct tcol){ .kind = T_NULL, .name = a->field[i].name, .n = a->n_row };
		}
	}
	return rc;
}

static int open_stream_form(struct source *s, struct arrow *a, struct sky_err *err)
{
	struct message m;
	int rc = read_message(s, a, 0, &m, err);

	if (rc == SKY_EOF || (!rc && m.type != MSG_SCHEMA)) {
		return sky_fail(err, SKY_E_DATA, "%s: an Arrow stream without a schema", s->in->name);
	}
	a->at = rc ? 0 : m.end;
	return rc ? rc : take_schema(s, a, &m.b, m.header, err);
}

/* Message that block i of a footer vector names: i64 offset, i32 metadata length, padding, i64 body length. */
static int block_message(const struct source *s, struct arrow *a, size_t block, size_t i, struct message *m,
		struct sky_err *err)
{
	int64_t off = (int64_t)sky_load_u64(a->footer.p + block + 24 * i);
	int rc;

	if (off < 0) {
		return cut(s, 0, err);
	}
	rc = read_message(s, a, (uint64_t)off, m, err);
	return rc == SKY_EOF ? cut(s, (uint64_t)off, err) : rc;
}

static int open_file_form(struct source *s, struct arrow *a, struct sky_err *err)
{
	const uint8_t *tail = a->map.n >= 18 ? a->map.ptr + a->map.n - 10 : NULL;
	size_t tab, dicts = 0, n_dict;
	struct message m;
	uint32_t n;
	int rc;

	a->is_file = true;
	if (!tail || memcmp(tail + 4, "ARROW1", 6)) {
		return sky_fail(err, SKY_E_DATA, "%s: an Arrow file without its footer: cut", s->in->name);
	}
	n = sky_load_u32(tail);
	if (n > a->map.n - 18) {
		return sky_fail(err, SKY_E_DATA, "%s: the length of the Arrow footer is larger than the file", s->in->name);
	}
	a->footer = (struct fb){ tail - n, n, false };
	tab = fb_root(&a->footer);
	rc = take_schema(s, a, &a->footer, fb_table(&a->footer, tab, 1), err);
	n_dict = fb_vector(&a->footer, tab, 2, 24, &dicts);
	a->n_block = fb_vector(&a->footer, tab, 3, 24, &a->block);
	if (!rc && a->footer.bad) {
		rc = sky_fail(err, SKY_E_DATA, "%s: damaged Arrow footer", s->in->name);
	}
	for (size_t i = 0; !rc && i < n_dict; i++) {
		rc = block_message(s, a, dicts, i, &m, err);
		if (!rc && m.type != MSG_DICTIONARY) {
			rc = sky_fail(err, SKY_E_DATA, "%s: damaged Arrow footer", s->in->name);
		}
		rc = rc ? rc : take_dictionary(s, a, &m, err);
	}
	return rc;
}

static int arrow_open(struct source *s, struct sky_err *err)
{
	struct arrow *a = calloc(1, sizeof *a);
	int rc;

	if (!a) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	s->state = a;
	a->map = (struct sky_map)SKY_MAP_INIT;
	a->first = 1;
	sky_arena_init(&a->arena, 1u << 16, 0);
	sky_arena_init(&a->batch, 1u << 16, 0);
	rc = source_map(s, &a->map, err);
	if (rc < 0) {
		return rc;
	}
	if (a->map.n < 8) {
		return sky_fail(err, SKY_E_DATA, "%s: %llu bytes are no Arrow data", s->in->name,
				(unsigned long long)a->map.n);
	}
	return memcmp(a->map.ptr, "ARROW1", 6) ? open_stream_form(s, a, err) : open_file_form(s, a, err);
}

/* Next record batch of either form, dictionaries on the way. */
static int advance(struct source *s, struct arrow *a, struct sky_err *err)
{
	struct message m;
	int rc;

	for (;;) {
		if (a->is_file) {
			if (a->i_block == a->n_block) {
				return SKY_EOF;
			}
			rc = block_message(s, a, a->block, a->i_block++, &m, err);
		} else {
			rc = read_message(s, a, a->at, &m, err);
		}
		if (rc) {
			return rc;
		}
		a->at = m.end;
		if (m.type == MSG_BATCH) {
			return take_batch(s, a, &m, err);
		}
		rc = m.type == MSG_DICTIONARY ? take_dictionary(s, a, &m, err) :
		     sky_fail(err, SKY_E_DATA, "%s: an Arrow message of unknown kind %d", s->in->name, m.type);
		if (rc < 0) {
			return rc;
		}
	}
}

static int arrow_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	struct arrow *a = s->state;
	int rc;

	while (a->row == a->n_row) {
		rc = advance(s, a, err);
		if (rc) {
			return rc;
		}
	}
	return table_block(s, a->col, a->n_field, a->n_row, &a->row, a->first, b_p, err);
}

static void arrow_close(struct source *s)
{
	struct arrow *a = s->state;

	if (a) {
		sky_map_close(&a->map);
		sky_arena_release(&a->arena);
		sky_arena_release(&a->batch);
		free(a);
	}
}

const struct format format_arrow = { SKY_IN_ARROW, "Arrow", arrow_open, arrow_next, arrow_close };
