/* Reader of one safetensors file: u64 length, JSON header, data. Nothing in the header is trusted. */
#include "weights/weights_int.h"

struct sky_st {
	char *name;                     /* for messages; owned */
	struct sky_map map;             /* empty for sky_st_parse */
	struct sky_json *doc;           /* owns the names and the metadata */
	const struct sky_jnode *meta;   /* NULL when absent */
	struct sky_tensor *tensors;     /* by offset */
	int64_t n;
	struct sky_nametab tab;
	uint64_t data_off;
};

int sky_shape_bytes(enum sky_dtype dtype, const int64_t *shape, int n_dim, int64_t *n_p, uint64_t *bytes_p)
{
	uint64_t n = 1, bits;
	int i;

	for (i = 0; i < n_dim; i++) {
		if (shape[i] < 0 || sky_mul_u64(n, (uint64_t)shape[i], &n)) {
			return -1;
		}
	}
	if (n > INT64_MAX || sky_mul_u64(n, (uint64_t)sky_dtype_bits(dtype), &bits) || bits % 8 != 0) {
		return -1;
	}
	*n_p = (int64_t)n;
	*bytes_p = bits / 8;
	return 0;
}

static int bad(const struct sky_st *st, struct sky_err *err, const char *tensor, const char *what)
{
	return sky_fail(err, SKY_E_DATA, "%s: tensor \"%.200s\": %s", st->name, tensor, what);
}

static int read_shape(const struct sky_st *st, struct sky_tensor *t, const struct sky_jnode *shape, struct sky_err *err)
{
	const struct sky_jnode *k;

	if (sky_j_type(shape) != SKY_J_ARRAY) {
		return bad(st, err, t->name, "\"shape\" must be an array");
	}
	if (sky_j_len(shape) > SKY_MAX_DIMS) {
		return bad(st, err, t->name, "more than 8 dimensions are not supported");
	}
	for (k = sky_j_first(shape); k; k = sky_j_next(k)) {
		if (!sky_j_i64(k, &t->shape[t->n_dim]) || t->shape[t->n_dim] < 0) {
			return bad(st, err, t->name, "\"shape\" must hold non-negative integers");
		}
		t->n_dim++;
	}
	return 0;
}

/* One header entry. off and bytes are relative to the data; their place among the others is checked later. */
static int read_entry(const struct sky_st *st, struct sky_tensor *t, const struct sky_jnode *v, struct sky_err *err)
{
	const struct sky_jnode *offs = sky_j_get(v, "data_offsets");
	const char *dtype = sky_j_str(sky_j_get(v, "dtype"));
	uint64_t begin, end, bytes;
	char msg[160];
	int rc;

	t->name = sky_j_key(v);
	if (sky_j_type(v) != SKY_J_OBJECT) {
		return bad(st, err, t->name, "its entry must be an object");
	}
	if (!dtype) {
		return bad(st, err, t->name, "\"dtype\" is missing");
	}
	t->dtype = sky_dtype_parse(dtype);
	if (t->dtype == SKY_DT_NONE) {
		snprintf(msg, sizeof(msg), "unknown dtype \"%.40s\"", dtype);
		return bad(st, err, t->name, msg);
	}
	rc = read_shape(st, t, sky_j_get(v, "shape"), err);
	if (rc < 0) {
		return rc;
	}
	if (sky_j_len(offs) != 2 || !sky_j_u64(sky_j_at(offs, 0), &begin) || !sky_j_u64(sky_j_at(offs, 1), &end)) {
		return bad(st, err, t->name, "\"data_offsets\" must be two non-negative integers");
	}
	if (begin > end) {
		return bad(st, err, t->name, "its data ends before it begins");
	}
	if (sky_shape_bytes(t->dtype, t->shape, t->n_dim, &t->n, &bytes) != 0) {
		return bad(st, err, t->name, "its size overflows or is no whole number of bytes");
	}
	if (bytes != end - begin) {
		snprintf(msg, sizeof(msg), "its data has %llu bytes, dtype and shape need %llu",
		         (unsigned long long)(end - begin),
		         (unsigned long long)bytes);
		return bad(st, err, t->name, msg);
	}
	t->off = begin;
	t->bytes = bytes;
	return 0;
}

static int by_offset(const void *a, const void *b)
{
	const struct sky_tensor *x = a, *y = b;

	if (x->off != y->off) {
		return x->off < y->off ? -1 : 1;
	}
	/* Tensors without elements share the offset of what follows them. */
	if (x->bytes != y->bytes) {
		return x->bytes < y->bytes ? -1 : 1;
	}
	return strcmp(x->name, y->name);
}

static int read_meta(const struct sky_st *st, const struct sky_jnode *meta, struct sky_err *err)
{
	const struct sky_jnode *k;

	if (sky_j_type(meta) != SKY_J_OBJECT) {
		return sky_fail(err, SKY_E_DATA, "%s: __metadata__ must be an object", st->name);
	}
	for (k = sky_j_first(meta); k; k = sky_j_next(k)) {
		if (!sky_j_str(k)) {
			return sky_fail(err, SKY_E_DATA, "%s: __metadata__ \"%.100s\" must be a string", st->name,
			                sky_j_key(k));
		}
	}
	return 0;
}

/* Contiguous from 0, no holes, no overlap. The end against the file is the caller's to check. */
static int place(struct sky_st *st, uint64_t *end_p, struct sky_err *err)
{
	uint64_t at = 0;
	int64_t i;

	if (st->n > 1) {
		qsort(st->tensors, (size_t)st->n, sizeof(*st->tensors), by_offset);
	}
	for (i = 0; i < st->n; i++) {
		struct sky_tensor *t = &st->tensors[i];

		if (t->off != at) {
			return bad(st, err, t->name, t->off < at ? "its data overlaps that of another tensor" :
			           "there is a hole in front of its data");
		}
		if (sky_add_u64(at, t->bytes, &at)) {
			return bad(st, err, t->name, "its offset overflows");
		}
	}
	*end_p = at;
	return 0;
}

static int read_header(struct sky_st *st, const char *text, uint64_t n_text, struct sky_err *err)
{
	const struct sky_jnode *root, *k;
	int rc;

	if (n_text == 0 || text[0] != '{') {
		return sky_fail(err, SKY_E_DATA, "%s: no safetensors file (its header does not begin with \"{\")",
		                st->name);
	}
	rc = sky_json_parse(text, n_text, "header", SKY_JSON_NO_DUP, &st->doc, err);
	if (rc < 0) {
		return sky_while(err, rc, "%s", st->name);
	}
	root = sky_json_root(st->doc);
	st->tensors = sky_calloc_array(sky_j_len(root), sizeof(*st->tensors));
	if (!st->tensors) {
		return sky_fail_mem(err, "reading %s", st->name);
	}
	for (k = sky_j_first(root); k; k = sky_j_next(k)) {
		if (strcmp(sky_j_key(k), "__metadata__") == 0) {
			st->meta = k;
			rc = read_meta(st, k, err);
		} else {
			rc = read_entry(st, &st->tensors[st->n++], k, err);
		}
		if (rc < 0) {
			return rc;
		}
	}
	return 0;
}

static int check_length(const struct sky_st *st, uint64_t file_bytes, uint64_t n_text, struct sky_err *err)
{
	if (n_text > SKY_MAX_HEADER_BYTES) {
		return sky_fail(err, SKY_E_DATA,
		                "%s: no safetensors file (its header would have %llu bytes, the limit is %llu)",
		                st->name, (unsigned long long)n_text, (unsigned long long)SKY_MAX_HEADER_BYTES);
	}
	if (n_text > file_bytes - 8) {
		return sky_fail(err, SKY_E_DATA,
		                "%s is cut off: its header should have %llu bytes, the file has %llu", st->name,
		                (unsigned long long)n_text, (unsigned long long)file_bytes);
	}
	return 0;
}

static int parse(struct sky_st *st, const uint8_t *head, uint64_t n_head, uint64_t file_bytes, struct sky_err *err)
{
	uint64_t n_text, end = 0, have;
	int64_t i, dup;
	int rc;

	if (n_head < 8 || file_bytes < 8) {
		return sky_fail(err, SKY_E_DATA, "%s: no safetensors file (%llu bytes, at least 8 are needed)",
		                st->name,
		                (unsigned long long)file_bytes);
	}
	n_text = sky_load_u64(head);
	rc = check_length(st, file_bytes, n_text, err);
	if (rc < 0) {
		return rc;
	}
	if (n_text > n_head - 8) {
		return sky_fail(err, SKY_E_DATA, "%s: the header has %llu bytes, only %llu were given", st->name,
		                (unsigned long long)n_text, (unsigned long long)n_head - 8);
	}
	rc = read_header(st, (const char *)head + 8, n_text, err);
	if (rc == 0) {
		rc = place(st, &end, err);
	}
	if (rc < 0) {
		return rc;
	}
	st->data_off = 8 + n_text;
	have = file_bytes - st->data_off;
	if (have != end) {
		return sky_fail(err, SKY_E_DATA, have < end ?
		                "%s is cut off: its tensors need %llu bytes, %llu are there" :
		                "%s: its tensors need %llu bytes, but %llu are there", st->name,
		                (unsigned long long)end,
		                (unsigned long long)have);
	}
	for (i = 0; i < st->n; i++) {
		st->tensors[i].off += st->data_off;
	}
	return sky_nametab_build(&st->tab, st->tensors, st->n, &dup, err);
}

static int st_new(const char *name, struct sky_st **st_p, struct sky_err *err)
{
	static const struct sky_map no_map = SKY_MAP_INIT;
	struct sky_st *st = calloc(1, sizeof(*st));

	if (!st || !(st->name = strdup(name))) {
		free(st);
		return sky_fail_mem(err, "opening %s", name);
	}
	st->map = no_map;
	*st_p = st;
	return 0;
}

int sky_st_parse(const void *head, uint64_t n_head, uint64_t file_bytes, const char *name, struct sky_st **st_p,
                 struct sky_err *err)
{
	struct sky_st *st;
	int rc;

	rc = st_new(name, &st, err);
	if (rc < 0) {
		return rc;
	}
	rc = parse(st, head, n_head, file_bytes, err);
	if (rc < 0) {
		sky_st_close(st);
		return rc;
	}
	*st_p = st;
	return 0;
}

int sky_st_open(const char *path, struct sky_st **st_p, struct sky_err *err)
{
	struct sky_st *st;
	int64_t i;
	int rc;

	rc = st_new(path, &st, err);
	if (rc < 0) {
		return rc;
	}
	rc = sky_map_open(&st->map, path, err);
	if (rc == 0) {
		rc = parse(st, st->map.ptr, st->map.n, st->map.n, err);
	}
	if (rc < 0) {
		sky_st_close(st);
		return rc;
	}
	for (i = 0; i < st->n; i++) {
		st->tensors[i].data = sky_map_at(&st->map, st->tensors[i].off, st->tensors[i].bytes);
	}
	*st_p = st;
	return 0;
}

void sky_st_close(struct sky_st *st)
{
	if (!st) {
		return;
	}
	sky_nametab_release(&st->tab);
	free(st->tensors);
	sky_json_free(st->doc);
	sky_map_close(&st->map);
	free(st->name);
	free(st);
}

int64_t sky_st_count(const struct sky_st *st)
{
	return st->n;
}

const struct sky_tensor *sky_st_at(const struct sky_st *st, int64_t i)
{
	return i >= 0 && i < st->n ? &st->tensors[i] : NULL;
}

const struct sky_tensor *sky_st_find(const struct sky_st *st, const char *name)
{
	return sky_st_at(st, sky_nametab_find(&st->tab, name));
}

const char *sky_st_meta(const struct sky_st *st, const char *key)
{
	return sky_j_str(sky_j_get(st->meta, key));
}

int sky_st_meta_at(const struct sky_st *st, int64_t i, const char **key_p, const char **value_p)
{
	const struct sky_jnode *k = sky_j_first(st->meta);

	for (; k && i > 0; i--) {
		k = sky_j_next(k);
	}
	if (!k || i < 0) {
		return SKY_EOF;
	}
	*key_p = sky_j_key(k);
	*value_p = sky_j_str(k);
	return 0;
}

uint64_t sky_st_data_off(const struct sky_st *st)
{
	return st->data_off;
}
