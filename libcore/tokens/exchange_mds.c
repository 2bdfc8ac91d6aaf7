/* MosaicML MDS folders, read and written, and litdata folders, read: shards with an offset table, one index.json. */
#include <snappy-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "tokens/exchange_int.h"

#define MAX_SHARD (1ull << 32)  /* offsets inside a shard are u32 */
#define SHARD_BYTES (1u << 26)  /* the format's own custom */

struct shards {
	struct sky_json *index;
	const struct sky_jnode *shard;  /* next to open */
	struct sky_buf data;            /* shard in hand */
	uint32_t n, i;                  /* samples in it, next one */
	/* columns of the shard in hand */
	int n_col, tok, mask;           /* indices of the columns that we want, −1: none */
	int64_t size[64];               /* fixed sizes, −1: variable */
	char enc[64][64];
	int lit_width;                  /* litdata: element width, negative: signed */
};

static void mds_close(struct sky_tokens_src *s)
{
	struct shards *m = s->state;

	sky_json_free(m->index);
	sky_buf_release(&m->data);
	free(m);
}

static int unsnap(struct shards *m, const char *path, struct sky_err *err)
{
	struct sky_buf raw = SKY_BUF_INIT(MAX_SHARD);
	size_t n = 0;
	int rc;

	if (snappy_uncompressed_length(m->data.ptr, m->data.n, &n) != SNAPPY_OK || n / 100000 > m->data.n) {
		return sky_fail(err, SKY_E_DATA, "%s: damaged snappy data", path);
	}
	rc = sky_buf_reserve(&raw, n, err);
	if (!rc && snappy_uncompress(m->data.ptr, m->data.n, raw.ptr, &n) != SNAPPY_OK) {
		rc = sky_fail(err, SKY_E_DATA, "%s: damaged snappy data", path);
	}
	if (!rc) {
		sky_buf_release(&m->data);
		raw.n = n;
		m->data = raw;
	} else {
		sky_buf_release(&raw);
	}
	return rc;
}

/* The shard's bytes, unpacked: gzip, zstd and bzip2 are told by content, snappy by its name, brotli is not had. */
static int load_file(struct sky_tokens_src *s, const char *name, struct sky_err *err)
{
	struct shards *m = s->state;
	struct sky_stream *in = NULL;
	char path[SKY_MAX_PATH];
	size_t n = strlen(name);
	int64_t got = 1;
	int rc = sky_path_join(path, sizeof path, s->path, name, err);

	if (!rc && (strchr(name, '/') || !strcmp(name, ".."))) {
		rc = sky_fail(err, SKY_E_DATA, "%s: shard \"%.80s\" is no plain name", s->path, name);
	}
	if (!rc && n > 3 && !strcmp(name + n - 3, ".br")) {
		rc = sky_fail(err, SKY_E_DATA,
				"%s: compressed with brotli, which this reader does not have; unpack it or write the "
			      "set again with zstd", path);
	}
	rc = rc ? rc : sky_stream_open(path, NULL, &in, err);
	sky_buf_clear(&m->data);
	while (!rc && got > 0) {
		rc = sky_buf_reserve(&m->data, 1u << 20, err);
		got = rc ? 0 : sky_stream_read(in, m->data.ptr + m->data.n, 1u << 20, err);
		rc = got < 0 ? (int)got : rc;
		m->data.n += got > 0 ? (size_t)got : 0;
	}
	sky_stream_close(in);
	return !rc && n > 7 && !strcmp(name + n - 7, ".snappy") ? unsnap(m, path, err) : rc;
}

/* u32 n, u32 offsets[n + 1] that ascend and end inside the data. */
static int check_offsets(struct sky_tokens_src *s, const char *name, struct sky_err *err)
{
	struct shards *m = s->state;
	const char *p = m->data.ptr;
	uint32_t before;

	m->n = m->data.n >= 8 ? sky_load_u32(p) : 0;
	if (m->data.n < 8 || m->n > (m->data.n - 8) / 4) {
		return sky_fail(err, SKY_E_DATA, "%s/%s: too short for its table of samples; cut", s->path, name);
	}
	before = 4 + 4 * (m->n + 1);
	for (uint32_t i = 0; i <= m->n; i++) {
		uint32_t o = sky_load_u32(p + 4 + 4 * (size_t)i);

		if (o < before || o > m->data.n) {
			return sky_fail(err, SKY_E_DATA,
					"%s/%s: sample %u begins at an impossible place; cut or damaged", s->path,
					name, i);
		}
		before = o;
	}
	m->i = 0;
	return 0;
}

static int read_columns(struct sky_tokens_src *s, struct sky_err *err)
{
	struct shards *m = s->state;
	const struct sky_jnode *names = sky_j_get(m->shard, "column_names"), *encs = sky_j_get(m->shard, "column_encodings");
	const struct sky_jnode *sizes = sky_j_get(m->shard, "column_sizes");
	const char *want = s->opt.column ? s->opt.column : "tokens", *name, *enc;

	m->n_col = (int)sky_j_len(names);
	m->tok = m->mask = -1;
	if (m->n_col > 64 || sky_j_len(encs) != sky_j_len(names) || sky_j_len(sizes) != sky_j_len(names)) {
		return sky_fail(err, SKY_E_DATA, "%s/index.json: columns do not match their encodings", s->path);
	}
	for (int i = 0; i < m->n_col; i++) {
		name = sky_j_str(sky_j_at(names, (size_t)i));
		enc = sky_j_str(sky_j_at(encs, (size_t)i));
		if (!name || !enc || strlen(enc) >= sizeof m->enc[i]) {
			return sky_fail(err, SKY_E_DATA, "%s/index.json: column %d without name or encoding", s->path, i);
		}
		snprintf(m->enc[i], sizeof m->enc[i], "%s", enc);
		if (!sky_j_i64(sky_j_at(sizes, (size_t)i), &m->size[i])) {
			m->size[i] = -1;
		}
		if (!strcmp(name, want) || (!s->opt.column && m->tok < 0 && !strcmp(name, "input_ids"))) {
			m->tok = i;
		}
		m->mask = !strcmp(name, "loss_mask") ? i : m->mask;
	}
	return m->tok >= 0 ? 0 : sky_fail(err, SKY_E_USAGE, "%s: no column \"%s\" (--column)", s->path, want);
}

static int next_shard(struct sky_tokens_src *s, struct sky_err *err)
{
	struct shards *m = s->state;
	const struct sky_jnode *zip;
	const char *name;
	int64_t n;
	int rc;

	if (!m->shard) {
		return SKY_EOF;
	}
	zip = sky_j_get(m->shard, "zip_data");
	name = sky_j_str(sky_j_get(sky_j_type(zip) == SKY_J_OBJECT ? zip : sky_j_get(m->shard, "raw_data"), "basename"));
	rc = name ? load_file(s, name, err) : sky_fail(err, SKY_E_DATA, "%s/index.json: a shard without a name", s->path);
	rc = rc ? rc : check_offsets(s, name, err);
	rc = rc ? rc : read_columns(s, err);
	if (!rc && (!sky_j_i64(sky_j_get(m->shard, "samples"), &n) || n != m->n)) {
		rc = sky_fail(err, SKY_E_DATA, "%s/%s: %u samples, the index promises another number", s->path, name, m->n);
	}
	m->shard = sky_j_next(m->shard);
	return rc;
}

static int mds_open(struct sky_tokens_src *s, struct sky_err *err)
{
	struct shards *m = calloc(1, sizeof *m);
	char path[SKY_MAX_PATH];
	int rc = m ? 0 : sky_fail_mem(err, "reading %s", s->path);

	if (rc < 0) {
		return rc;
	}
	s->state = m;
	sky_buf_init(&m->data, MAX_SHARD);
	rc = sky_path_join(path, sizeof path, s->path, "index.json", err);
	rc = rc ? rc : sky_json_load(path, 0, &m->index, err);
	if (!rc && sky_j_type(sky_j_get(sky_json_root(m->index), "shards")) != SKY_J_ARRAY) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no list of shards", path);
	}
	m->shard = rc ? NULL : sky_j_first(sky_j_get(sky_json_root(m->index), "shards"));
	if (m->shard) {
		rc = read_columns(s, err);
		s->width = !rc && strstr(m->enc[m->tok], "uint16") ? 2 : 0;
	}
	return rc;
}

static int width_of(const char *name)
{
	static const struct { const char *name; int code, width; } t[] = {
		{ "uint8", 8, 1 }, { "int8", 9, -1 }, { "uint16", 16, 2 }, { "int16", 17, -2 }, { "int32", 33, -4 },
				{ "uint32", 32, 4 },
		{ "uint64", 64, 8 }, { "int64", 65, -8 },
	};

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		if (name ? !strncmp(name, t[i].name, strlen(t[i].name)) && strchr(":", name[strlen(t[i].name)]) : 0) {
			return t[i].width;
		}
	}
	return 0;
}

static int width_of_code(int code)
{
	static const int8_t w[66] = { [8] = 1, [9] = -1, [16] = 2, [17] = -2, [32] = 4, [33] = -4, [64] = 8, [65] = -8 };

	return code < 66 ? w[code] : 0;
}

/* Where the elements of a value are and how wide: "bytes", "ndarray", "ndarray:T", "ndarray:T:shape". */
static int locate(struct sky_tokens_src *s, const char *enc, const uint8_t **p, size_t *n, int *width, struct sky_err *err)
{
	unsigned head, ndim, step;

	if (!strcmp(enc, "bytes")) {
		*width = s->opt.width;
		return *width ? 0 : sky_fail(err, SKY_E_USAGE,
				"%s: its tokens are bare bytes and nothing tells their width; it is "
					     "--width 8 as llm-foundry writes them by default", s->path);
	}
	if (strncmp(enc, "ndarray", 7)) {
		return sky_fail(err, SKY_E_USAGE, "%s: a column of encoding \"%s\" holds no ids (--column)", s->path, enc);
	}
	if (enc[7]) {
		*width = width_of(enc + 8);
		if (*width && strchr(enc + 8, ':')) {
			return 0;
		}
	} else {
		*width = *n ? width_of_code((*p)[0]) : 0;
		*p += *n ? 1 : 0;
		*n -= *n ? 1 : 0;
	}
	head = *n ? (*p)[0] : 0;
	ndim = head >> 2;
	step = 1u << (head & 3);
	if (!*width || ndim != 1 || *n < 1 + step) {
		return sky_fail(err, SKY_E_DATA, "%s: an array of encoding \"%s\" that is no list of integers", s->path, enc);
	}
	*p += 1 + step;
	*n -= 1 + step;
	return 0;
}

/* Values of one sample: sizes of the variable columns, then all columns in order. */
static int sample(struct sky_tokens_src *s, const uint8_t *p, size_t n, struct sky_err *err)
{
	struct shards *m = s->state;
	struct row mask = { NULL, NULL, 0, 0 };
	const uint8_t *sizes = p;
	size_t head = 0;
	int width = 1, rc = 0;

	for (int i = 0; i < m->n_col; i++) {
		head += m->size[i] < 0 ? 4 : 0;
	}
	if (head > n) {
		return sky_fail(err, SKY_E_DATA, "%s: a sample shorter than its sizes", s->path);
	}
	p += head;
	n -= head;
	for (int i = 0; !rc && i < m->n_col; i++) {
		size_t k = m->size[i] < 0 ? sky_load_u32(sizes) : (size_t)m->size[i], left = k;
		const uint8_t *v = p;

		sizes += m->size[i] < 0 ? 4 : 0;
		if (k > n) {
			return sky_fail(err, SKY_E_DATA, "%s: a value leaves its sample", s->path);
		}
		if (i == m->tok || i == m->mask) {
			struct row *to = i == m->tok ? &s->row : &mask;

			rc = locate(s, m->enc[i], &v, &left, &width, err);
			if (!rc && left % (unsigned)(width < 0 ? -width : width)) {
				rc = sky_fail(err, SKY_E_DATA, "%s: %zu bytes are no list of ids of %d", s->path, left,
					      width < 0 ? -width : width);
			}
			rc = rc ? rc : row_load(to, v, width, (int64_t)(left / (unsigned)(width < 0 ? -width : width)),
					s->path, err);
		}
		p += k;
		n -= k;
	}
	s->has_mask = m->mask >= 0;
	if (!rc && s->has_mask && mask.n != s->row.n) {
		rc = sky_fail(err, SKY_E_DATA, "%s: %lld mask values for %lld tokens", s->path, (long long)mask.n,
				(long long)s->row.n);
	}
	for (int64_t i = 0; !rc && s->has_mask && i < s->row.n; i++) {
		s->row.mask[i] = mask.ids[i] != 0;
	}
	free(mask.ids);
	free(mask.mask);
	return rc;
}

static int mds_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct shards *m = s->state;
	const char *p;
	uint32_t from, to;
	int rc;

	while (m->i == m->n) {
		rc = next_shard(s, err);
		if (rc) {
			return rc;
		}
	}
	p = m->data.ptr + 4 + 4 * (size_t)m->i++;
	from = sky_load_u32(p);
	to = sky_load_u32(p + 4);
	return sample(s, (const uint8_t *)m->data.ptr + from, to - from, err);
}

const struct src_ops src_mds = { mds_open, mds_next, mds_close };

/* ---- litdata: u32 items, u32 offsets, bare values; the type is in the config ---- */

static int lit_open(struct sky_tokens_src *s, struct sky_err *err)
{
	static const struct { const char *tail; int width; } kinds[] = {
		{ ":16", -4 }, { ":18", -8 }, { ":20", 2 }, { ":22", 4 }, { ":24", 8 },
	};
	struct shards *m = calloc(1, sizeof *m);
	const struct sky_jnode *root;
	char path[SKY_MAX_PATH];
	const char *kind;
	int rc = m ? sky_path_join(path, sizeof path, s->path, "index.json", err) : sky_fail_mem(err, "reading %s", s->path);

	s->state = m;
	if (rc < 0) {
		return rc;
	}
	sky_buf_init(&m->data, MAX_SHARD);
	rc = sky_json_load(path, 0, &m->index, err);
	if (rc < 0) {
		return rc;
	}
	root = sky_json_root(m->index);
	kind = sky_j_str(sky_j_at(sky_j_get(sky_j_get(root, "config"), "data_format"), 0));
	for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++) {
		m->lit_width = !strncmp(kind, "no_header_tensor", 16) && !strcmp(kind + 16, kinds[i].tail) ? kinds[i].width :
			       m->lit_width;
	}
	if (!m->lit_width) {
		return sky_fail(err, SKY_E_DATA, "%s: data_format \"%.60s\" is no list of token ids", path, kind ? kind : "");
	}
	m->shard = sky_j_first(sky_j_get(root, "chunks"));
	return 0;
}

static int lit_next(struct sky_tokens_src *s, struct sky_err *err)
{
	struct shards *m = s->state;
	unsigned w = (unsigned)(m->lit_width < 0 ? -m->lit_width : m->lit_width);
	const char *name, *p;
	uint32_t from, n;
	int rc;

	while (m->i == m->n) {
		if (!m->shard) {
			return SKY_EOF;
		}
		name = sky_j_str(sky_j_get(m->shard, "filename"));
		rc = name ? load_file(s, name, err) : sky_fail(err, SKY_E_DATA,
				"%s/index.json: a chunk without a name", s->path);
		rc = rc ? rc : check_offsets(s, name, err);
		if (rc < 0) {
			return rc;
		}
		m->shard = sky_j_next(m->shard);
	}
	p = m->data.ptr + 4 + 4 * (size_t)m->i++;
	from = sky_load_u32(p);
	n = sky_load_u32(p + 4) - from;
	if (n % w) {
		return sky_fail(err, SKY_E_DATA, "%s: an item of %u bytes is no list of ids of %u", s->path, n, w);
	}
	return row_load(&s->row, (const uint8_t *)m->data.ptr + from, m->lit_width, n / w, s->path, err);
}

const struct src_ops src_litdata = { lit_open, lit_next, mds_close };

/* ---- writing MDS ---- */

struct mds_out {
	char *work;
	struct sky_buf body, offs, index;       /* samples, their ends (u32), the shards so far as JSON */
	int64_t n_shard;
	uint32_t n;
};

static int mds_out_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct mds_out *m = calloc(1, sizeof *m);

	if (!m) {
		return sky_fail_mem(err, "creating %s", d->path);
	}
	d->state = m;
	sky_buf_init(&m->body, MAX_SHARD);
	sky_buf_init(&m->offs, MAX_SHARD);
	sky_buf_init(&m->index, SKY_MAX_JSON_BYTES);
	return folder_begin(d->path, &m->work, err);
}

static void mds_out_abort(struct sky_tokens_dst *d)
{
	struct mds_out *m = d->state;

	if (m->work) {
		(void)!sky_remove_tree(m->work, NULL);
	}
	sky_buf_release(&m->body);
	sky_buf_release(&m->offs);
	sky_buf_release(&m->index);
	free(m->work);
	free(m);
}

/* The description of the columns, as the peer prints it: members common to shard and index. */
static int put_config(const struct sky_tokens_dst *d, uint64_t limit, struct sky_buf *out, struct sky_err *err)
{
	const char *t = d->opt.dtype_bytes == 2 ? "uint16" : "int32";

	if (d->opt.with_mask) {
		return sky_buf_addf(out, err, "\"column_encodings\": [\"ndarray:uint8\", \"ndarray:%s\"], \"column_names\": "
				    "[\"loss_mask\", \"tokens\"], \"column_sizes\": [null, null], \"compression\": "
						"null, \"format\": "
				    "\"mds\", \"hashes\": [], \"size_limit\": %llu, \"version\": 2", t,
						(unsigned long long)limit);
	}
	return sky_buf_addf(out, err,
			"\"column_encodings\": [\"ndarray:%s\"], \"column_names\": [\"tokens\"], \"column_sizes\": "
			    "[null], \"compression\": null, \"format\": \"mds\", \"hashes\": [], \"size_limit\": "
					"%llu, \"version\": 2",
			    t, (unsigned long long)limit);
}

static int end_shard(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct mds_out *m = d->state;
	struct sky_buf head = SKY_BUF_INIT(MAX_SHARD), config = SKY_BUF_INIT(1u << 16);
	uint64_t limit = d->opt.shard_bytes ? d->opt.shard_bytes : SHARD_BYTES, base;
	char name[64], path[SKY_MAX_PATH];
	struct sky_out out = { .fd = -1 };
	uint8_t word[4];
	int rc = sky_buf_addc(&config, '{', err);

	rc = rc ? rc : put_config(d, limit, &config, err);
	rc = rc ? rc : sky_buf_addc(&config, '}', err);
	base = 4 + 4 * ((uint64_t)m->n + 1) + config.n;
	for (uint32_t i = 0; !rc && i < m->n + 2; i++) {
		sky_store_u32(word, i == 0 ? m->n : (uint32_t)base + (i == 1 ? 0 : sky_load_u32(m->offs.ptr + 4 * (i - 2))));
		rc = sky_buf_add(&head, word, 4, err);
	}
	snprintf(name, sizeof name, "shard.%05lld.mds", (long long)m->n_shard++);
	rc = rc ? rc : sky_path_join(path, sizeof path, m->work, name, err);
	rc = rc ? rc : sky_out_open(&out, path, d->opt.out_flags, err);
	rc = rc ? rc : sky_out_write(&out, head.ptr, head.n, err);
	rc = rc ? rc : sky_out_write(&out, config.ptr, config.n, err);
	rc = rc ? rc : sky_out_write(&out, m->body.ptr ? m->body.ptr : "", m->body.n, err);
	rc = rc ? rc : sky_out_commit(&out, err);
	sky_out_abort(&out);
	rc = rc ? rc : sky_buf_adds(&m->index, m->index.n ? ", {" : "{", err);
	rc = rc ? rc : put_config(d, limit, &m->index, err);
	rc = rc ? rc : sky_buf_addf(&m->index, err,
			", \"raw_data\": {\"basename\": \"%s\", \"bytes\": %llu, \"hashes\": {}}, "
				    "\"samples\": %u, \"zip_data\": null}", name,
						(unsigned long long)(base + m->body.n), m->n);
	m->n = 0;
	sky_buf_clear(&m->body);
	sky_buf_clear(&m->offs);
	sky_buf_release(&head);
	sky_buf_release(&config);
	return rc;
}

/* u8 dimensions << 2 | width of the shape, shape, values. */
static int put_array(struct sky_buf *to, const uint8_t *v, int64_t n, unsigned width, struct sky_err *err)
{
	uint8_t head[5];
	unsigned step = n < 256 ? 0 : n < 65536 ? 1 : 2;
	int rc;

	head[0] = (uint8_t)(1u << 2 | step);
	sky_store_u32(head + 1, (uint32_t)n);
	rc = sky_buf_add(to, head, 1 + (1u << step), err);
	return rc ? rc : sky_buf_add(to, v, (size_t)n * width, err);
}

static uint32_t array_bytes(int64_t n, unsigned width)
{
	return (uint32_t)(1 + (n < 256 ? 1 : n < 65536 ? 2 : 4) + n * width);
}

static int mds_out_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct mds_out *m = d->state;
	unsigned w = (unsigned)d->opt.dtype_bytes;
	uint64_t limit = d->opt.shard_bytes ? d->opt.shard_bytes : SHARD_BYTES, need = 16 + (uint64_t)n * (w + 1);
	uint8_t word[4];
	int rc = 0;

	if (!n) {
		return sky_fail(err, SKY_E_DATA,
				"%s: row %lld has no tokens, which MDS cannot hold; leave empty rows out", d->path,
				(long long)d->n_row);
	}
	if (need > MAX_SHARD / 2) {
		return sky_fail(err, SKY_E_LIMIT, "%s: row %lld is too long for a shard of MDS", d->path,
				(long long)d->n_row);
	}
	if (m->n && m->body.n + need + 4 * (uint64_t)m->n + 1024 > limit) {
		rc = end_shard(d, err);
	}
	if (!rc && d->opt.with_mask) {
		sky_store_u32(word, array_bytes(n, 1));
		rc = sky_buf_add(&m->body, word, 4, err);
	}
	sky_store_u32(word, array_bytes(n, w));
	rc = rc ? rc : sky_buf_add(&m->body, word, 4, err);
	if (!rc && d->opt.with_mask) {
		rc = dst_pack_mask(d, mask, n, err);
		rc = rc ? rc : put_array(&m->body, d->bytes, n, 1, err);
	}
	rc = rc ? rc : dst_pack(d, ids, n, (int)w, err);
	rc = rc ? rc : put_array(&m->body, d->bytes, n, w, err);
	sky_store_u32(word, (uint32_t)m->body.n);
	rc = rc ? rc : sky_buf_add(&m->offs, word, 4, err);
	m->n++;
	return rc;
}

static int mds_out_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct mds_out *m = d->state;
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	char path[SKY_MAX_PATH];
	int rc = m->n || !m->n_shard ? end_shard(d, err) : 0;

	rc = rc ? rc : sky_buf_adds(&text, "{\"shards\": [", err);
	rc = rc ? rc : sky_buf_add(&text, m->index.ptr, m->index.n, err);
	rc = rc ? rc : sky_buf_adds(&text, "], \"version\": 2}", err);
	rc = rc ? rc : sky_path_join(path, sizeof path, m->work, "index.json", err);
	rc = rc ? rc : sky_file_publish(path, text.ptr, text.n, d->opt.out_flags, err);
	rc = rc ? rc : folder_commit(m->work, d->path, err);
	sky_buf_release(&text);
	return rc;
}

const struct dst_ops dst_mds = { mds_out_open, mds_out_add, mds_out_commit, mds_out_abort };
