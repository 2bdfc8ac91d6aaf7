/* Column chunks of Parquet: pages one after another into levels and values. */
#include <string.h>

#include "corpus/parquet_int.h"

struct page {
	int type, encoding, def_encoding, rep_encoding;
	int64_t n_value, n_null, n_raw, n_stored, def_bytes, rep_bytes;
	bool has_crc, packed;
	uint32_t crc;
};

struct chunk {
	struct parquet *q;
	const struct pq_node *leaf;
	const struct pq_chunk *c;
	struct pq_values *v;
	struct tstr *dict_str;          /* dictionary page */
	const uint8_t *dict_fixed;
	int64_t n_dict;
	struct sky_err *err;
};

static int damaged(struct chunk *k, const char *what)
{
	return sky_fail(k->err, SKY_E_DATA, "%s: column \"%s\": damaged page: %s", k->q->file, k->leaf->name, what);
}

/* Members of DataPageHeader (5), DictionaryPageHeader (7), DataPageHeaderV2 (8). */
static void read_sub_header(struct thrift *t, struct page *p, int kind)
{
	int id = 0, type;

	while (!t->bad && (type = th_field(t, &id)) != TH_STOP) {
		if (type == TH_I32) {
			int64_t v = th_int(t);

			p->n_value = id == 1 ? v : p->n_value;
			p->encoding = (id == 2 && kind != 8) || (id == 4 && kind == 8) ? (int)v : p->encoding;
			p->def_encoding = id == 3 && kind == 5 ? (int)v : p->def_encoding;
			p->rep_encoding = id == 4 && kind == 5 ? (int)v : p->rep_encoding;
			p->n_null = id == 2 && kind == 8 ? v : p->n_null;
			p->def_bytes = id == 5 && kind == 8 ? v : p->def_bytes;
			p->rep_bytes = id == 6 && kind == 8 ? v : p->rep_bytes;
		} else {
			p->packed = id == 7 && kind == 8 ? type == TH_TRUE : p->packed;
			th_skip(t, type);
		}
	}
}

static int read_header(struct chunk *k, struct thrift *t, struct page *p)
{
	int id = 0, type;

	*p = (struct page){ .type = -1, .packed = true, .def_encoding = 3, .rep_encoding = 3 };
	while (!t->bad && (type = th_field(t, &id)) != TH_STOP) {
		if (type == TH_I32) {
			int64_t v = th_int(t);

			p->type = id == 1 ? (int)v : p->type;
			p->n_raw = id == 2 ? v : p->n_raw;
			p->n_stored = id == 3 ? v : p->n_stored;
			p->has_crc |= id == 4;
			p->crc = id == 4 ? (uint32_t)v : p->crc;
		} else if (type == TH_STRUCT && (id == 5 || id == 7 || id == 8)) {
			read_sub_header(t, p, id);
		} else {
			th_skip(t, type);
		}
	}
	if (t->bad || p->n_raw < 0 || p->n_stored < 0 || (uint64_t)p->n_stored > t->n - t->at || p->n_value < 0) {
		return damaged(k, "its header");
	}
	if (p->has_crc && sky_crc32(0, t->p + t->at, (size_t)p->n_stored) != p->crc) {
		return damaged(k, "its checksum does not hold");
	}
	return 0;
}

static int grow(struct chunk *k, void **p, int64_t used, int64_t cap, size_t elem)
{
	void *q = sky_arena_alloc(&k->q->batch, (size_t)cap * elem + 64);

	if (!q) {
		return sky_fail_mem(k->err, "a column of %s", k->q->file);
	}
	if (used) {
		memcpy(q, *p, (size_t)used * elem);
	}
	*p = q;
	return 0;
}

/* Room for n more levels and values. */
static int make_room(struct chunk *k, int64_t n)
{
	struct pq_values *v = k->v;
	int64_t cap;
	int rc = 0;

	n = n ? n : 1;          /* so that there are arrays, whatever a page says */
	if (v->n_level + n > v->cap) {
		cap = v->n_level + n > 2 * v->cap ? v->n_level + n : 2 * v->cap;
		rc = grow(k, (void **)&v->def, v->n_level, cap, sizeof *v->def);
		rc = rc ? rc : grow(k, (void **)&v->rep, v->n_level, cap, sizeof *v->rep);
		v->cap = cap;
	}
	if (!rc && v->n_value + n > v->cap_value) {
		cap = v->n_value + n > 2 * v->cap_value ? v->n_value + n : 2 * v->cap_value;
		rc = v->width ? grow(k, (void **)&v->fixed, v->n_value, cap, (size_t)v->width) :
		     grow(k, (void **)&v->str, v->n_value, cap, sizeof *v->str);
		v->cap_value = cap;
	}
	return rc;
}

/* PLAIN texts: u32 length, bytes. */
static int plain_texts(struct chunk *k, const uint8_t *p, size_t n_in, int64_t n, struct tstr *out)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t len;

		if (n_in < 4 || (len = sky_load_u32(p)) > n_in - 4) {
			return damaged(k, "a text leaves it");
		}
		out[i] = (struct tstr){ (const char *)p + 4, len };
		p += 4 + (size_t)len;
		n_in -= 4 + (size_t)len;
	}
	return 0;
}

static int plain(struct chunk *k, const uint8_t *p, size_t n_in, int64_t n)
{
	struct pq_values *v = k->v;

	if (!v->width) {
		return plain_texts(k, p, n_in, n, v->str + v->n_value);
	}
	if (k->leaf->type == PQ_BOOLEAN) {
		if (n_in < (uint64_t)(n + 7) / 8) {
			return damaged(k, "values are missing");
		}
		for (int64_t i = 0; i < n; i++) {
			v->fixed[v->n_value + i] = p[i >> 3] >> (i & 7) & 1;
		}
		return 0;
	}
	if ((uint64_t)n > n_in / (unsigned)v->width) {
		return damaged(k, "values are missing");
	}
	if (n > 0) {
		memcpy(v->fixed + v->n_value * v->width, p, (size_t)n * (unsigned)v->width);
	}
	return 0;
}

static int by_dictionary(struct chunk *k, const uint8_t *p, size_t n_in, int64_t n)
{
	struct pq_values *v = k->v;
	struct pq_in in = { n_in ? p + 1 : p, n_in ? n_in - 1 : 0, k->q->file, &k->q->batch, k->err };
	uint32_t *index = sky_arena_alloc(&k->q->batch, ((size_t)n + 1) * sizeof *index);
	int rc;

	if (!index) {
		return sky_fail_mem(k->err, "a page of %s", k->q->file);
	}
	if (!n) {
		return 0;
	}
	rc = n_in ? pq_rle(&in, p[0], n, index) : damaged(k, "indices are missing");
	for (int64_t i = 0; !rc && i < n; i++) {
		if (index[i] >= k->n_dict) {
			return damaged(k, "an index leaves the dictionary");
		}
		if (v->width) {
			memcpy(v->fixed + (v->n_value + i) * v->width, k->dict_fixed + (int64_t)index[i] * v->width,
			       (size_t)v->width);
		} else {
			v->str[v->n_value + i] = k->dict_str[index[i]];
		}
	}
	return rc;
}

static int delta_ints(struct chunk *k, struct pq_in *in, int64_t n)
{
	struct pq_values *v = k->v;
	int64_t *wide = sky_arena_alloc(&k->q->batch, ((size_t)n + 1) * sizeof *wide), got = 0;
	size_t used;
	int rc = wide ? 0 : sky_fail_mem(k->err, "a page of %s", k->q->file);

	if (k->leaf->type != PQ_INT32 && k->leaf->type != PQ_INT64) {
		return damaged(k, "integer deltas in a column of another type");
	}
	rc = rc ? rc : pq_delta_ints(in, n, wide, &got, &used);
	if (!rc && got != n) {
		return damaged(k, "fewer deltas than values");
	}
	for (int64_t i = 0; !rc && i < n; i++) {
		if (v->width == 4) {
			sky_store_u32(v->fixed + (v->n_value + i) * 4, (uint32_t)wide[i]);
		} else {
			sky_store_u64(v->fixed + (v->n_value + i) * 8, (uint64_t)wide[i]);
		}
	}
	return rc;
}

/* BYTE_STREAM_SPLIT: all first bytes, all second bytes, … */
static int split(struct chunk *k, const uint8_t *p, size_t n_in, int64_t n)
{
	struct pq_values *v = k->v;
	size_t w = (size_t)v->width;

	if (!w || k->leaf->type == PQ_BOOLEAN || n_in / w < (size_t)n) {
		return damaged(k, "split bytes are missing");
	}
	for (int64_t i = 0; i < n; i++) {
		for (size_t b = 0; b < w; b++) {
			v->fixed[(size_t)(v->n_value + i) * w + b] = p[b * (size_t)n + (size_t)i];
		}
	}
	return 0;
}

/* RLE booleans: u32 length, runs of one bit. */
static int rle_booleans(struct chunk *k, const uint8_t *p, size_t n_in, int64_t n)
{
	struct pq_in in = { p + 4, 0, k->q->file, &k->q->batch, k->err };
	uint32_t *bit = sky_arena_alloc(&k->q->batch, ((size_t)n + 1) * sizeof *bit);
	int rc;

	if (k->leaf->type != PQ_BOOLEAN || n_in < 4 || sky_load_u32(p) > n_in - 4 || !bit) {
		return damaged(k, "runs are missing");
	}
	in.n = sky_load_u32(p);
	rc = pq_rle(&in, 1, n, bit);
	for (int64_t i = 0; !rc && i < n; i++) {
		k->v->fixed[k->v->n_value + i] = (uint8_t)bit[i];
	}
	return rc;
}

static int take_values(struct chunk *k, int encoding, const uint8_t *p, size_t n_in, int64_t n)
{
	struct pq_in in = { p, n_in, k->q->file, &k->q->batch, k->err };
	int rc;

	switch (encoding) {
	case 0:
		rc = plain(k, p, n_in, n);
		break;
	case 2:
	case 8:
		rc = by_dictionary(k, p, n_in, n);
		break;
	case 3:
		rc = rle_booleans(k, p, n_in, n);
		break;
	case 5:
		rc = delta_ints(k, &in, n);
		break;
	case 6:
	case 7:
		if (k->v->width) {
			return damaged(k, "text deltas in a column of another type");
		}
		rc = encoding == 6 ? pq_delta_lengths(&in, n, k->v->str + k->v->n_value) :
		     pq_delta_bytes(&in, n, k->v->str + k->v->n_value);
		break;
	case 9:
		rc = split(k, p, n_in, n);
		break;
	default:
		return sky_fail(k->err, SKY_E_DATA, "%s: column \"%s\": unknown encoding %d", k->q->file,
				k->leaf->name, encoding);
	}
	k->v->n_value += rc ? 0 : n;
	return rc;
}

static int bits_for(int max)
{
	return max ? 32 - __builtin_clz((unsigned)max) : 0;
}

/* n levels from runs in [p, p + n_in) into out; how many reach max. */
static int take_levels(struct chunk *k, const uint8_t *p, size_t n_in, int max, int64_t n, uint16_t *out, int64_t *full_p)
{
	struct pq_in in = { p, n_in, k->q->file, &k->q->batch, k->err };
	uint32_t *level = sky_arena_alloc(&k->q->batch, ((size_t)n + 1) * sizeof *level);
	int64_t full = 0;
	int rc = level ? pq_rle(&in, bits_for(max), n, level) : sky_fail_mem(k->err, "a page of %s", k->q->file);

	for (int64_t i = 0; !rc && i < n; i++) {
		if (level[i] > (unsigned)max) {
			return damaged(k, "a level above the schema's");
		}
		out[i] = (uint16_t)level[i];
		full += level[i] == (unsigned)max;
	}
	*full_p = full;
	return rc;
}

static int page_v1(struct chunk *k, const struct page *p, const uint8_t *stored)
{
	struct pq_values *v = k->v;
	int64_t n = p->n_value, full = n, ignored;
	const uint8_t *raw;
	size_t left = (size_t)p->n_raw;
	int max[2] = { k->leaf->rep, k->leaf->def };
	int rc = pq_unpack(k->q, k->c->codec, stored, (size_t)p->n_stored, left, &raw, k->err);

	if (!rc && ((max[0] && p->rep_encoding != 3) || (max[1] && p->def_encoding != 3))) {
		rc = damaged(k, "levels in an encoding that nobody writes any more");
	}
	for (int i = 0; !rc && i < 2; i++) {
		uint16_t *out = (i ? v->def : v->rep) + v->n_level;
		uint32_t len;

		if (!max[i]) {
			memset(out, 0, (size_t)n * sizeof *out);
			continue;
		}
		if (left < 4 || (len = sky_load_u32(raw)) > left - 4) {
			return damaged(k, "levels are missing");
		}
		rc = take_levels(k, raw + 4, len, max[i], n, out, i ? &full : &ignored);
		raw += 4 + (size_t)len;
		left -= 4 + (size_t)len;
	}
	rc = rc ? rc : take_values(k, p->encoding, raw, left, full);
	v->n_level += rc ? 0 : n;
	return rc;
}

static int page_v2(struct chunk *k, const struct page *p, const uint8_t *stored)
{
	struct pq_values *v = k->v;
	int64_t n = p->n_value, full = n, ignored, levels = p->rep_bytes + p->def_bytes;
	const uint8_t *raw = stored;
	int rc = 0;

	if (p->rep_bytes < 0 || p->def_bytes < 0 || levels > p->n_stored || levels > p->n_raw) {
		return damaged(k, "levels are missing");
	}
	memset(v->rep + v->n_level, 0, (size_t)n * sizeof *v->rep);
	memset(v->def + v->n_level, 0, (size_t)n * sizeof *v->def);
	if (k->leaf->rep) {
		rc = take_levels(k, stored, (size_t)p->rep_bytes, k->leaf->rep, n, v->rep + v->n_level, &ignored);
	}
	if (!rc && k->leaf->def) {
		rc = take_levels(k, stored + p->rep_bytes, (size_t)p->def_bytes, k->leaf->def, n, v->def + v->n_level, &full);
	}
	if (!rc && p->n_raw > levels) {
		rc = pq_unpack(k->q, p->packed ? k->c->codec : 0, stored + levels, (size_t)(p->n_stored - levels),
			       (size_t)(p->n_raw - levels), &raw, k->err);
	}
	rc = rc ? rc : take_values(k, p->encoding, raw, (size_t)(p->n_raw - levels), full);
	v->n_level += rc ? 0 : n;
	return rc;
}

static int dictionary(struct chunk *k, const struct page *p, const uint8_t *stored)
{
	struct pq_values dict = { .width = k->v->width }, *real = k->v;
	const uint8_t *raw;
	int rc = pq_unpack(k->q, k->c->codec, stored, (size_t)p->n_stored, (size_t)p->n_raw, &raw, k->err);

	/* A value takes a bit at least, so a lying count cannot ask for much memory. */
	if (!rc && p->n_value > 8 * p->n_raw) {
		rc = damaged(k, "more values than bits");
	}
	k->v = &dict;
	rc = rc ? rc : make_room(k, p->n_value);
	rc = rc ? rc : plain(k, raw, (size_t)p->n_raw, p->n_value);
	k->v = real;
	k->dict_fixed = dict.fixed;
	k->dict_str = dict.str;
	k->n_dict = p->n_value;
	return rc;
}

static int one_page(struct chunk *k, struct thrift *t)
{
	struct page p;
	const uint8_t *stored;
	int rc = read_header(k, t, &p);

	if (rc < 0) {
		return rc;
	}
	stored = t->p + t->at;
	t->at += (size_t)p.n_stored;
	if (p.type == 2) {
		return dictionary(k, &p, stored);
	}
	if (p.type != 0 && p.type != 3) {
		return 0;               /* an index page: nothing to read */
	}
	if (p.n_value > k->c->n_value - k->v->n_level) {
		return damaged(k, "more values than the chunk promises");
	}
	rc = make_room(k, p.n_value);
	return rc ? rc : p.type == 0 ? page_v1(k, &p, stored) : page_v2(k, &p, stored);
}

int pq_read_chunk(struct parquet *q, const struct pq_node *leaf, const struct pq_chunk *c, struct pq_values *v,
                  struct sky_err *err)
{
	static const uint8_t width[] = { 1, 4, 8, 12, 4, 8, 0, 0 };
	struct chunk k = { .q = q, .leaf = leaf, .c = c, .v = v, .err = err };
	int64_t from = c->dict_off > 0 && c->dict_off < c->data_off ? c->dict_off : c->data_off;
	struct thrift t = { 0 };
	int rc = 0;

	memset(v, 0, sizeof *v);
	v->width = leaf->type == PQ_FIXED ? leaf->type_length : width[leaf->type];
	if (!c->n_value) {
		return 0;
	}
	if (c->type != leaf->type || from < 4 || (uint64_t)from > q->map.n || c->n_stored < 0 ||
	    (uint64_t)c->n_stored > q->map.n - (uint64_t)from || c->n_value < 0) {
		return sky_fail(err, SKY_E_DATA, "%s: column \"%s\": its place in the file is impossible%s", q->file,
				leaf->name,
				c->type == -2 ? " (its data lie in another file)" : "");
	}
	t.p = q->map.ptr + from;
	t.n = (size_t)c->n_stored;
	while (!rc && v->n_level < c->n_value) {
		size_t before = t.at;

		rc = t.at < t.n ? one_page(&k, &t) : damaged(&k, "the chunk ends before its last value");
		if (!rc && t.at == before) {
			rc = damaged(&k, "it is empty");
		}
	}
	return rc;
}
