/* Writer of one safetensors file; byte for byte what the reference crate writes for the same tensors. */
#include "weights/weights_int.h"

#include <assert.h>

struct sky_st_out {
	struct sky_out out;
	uint32_t *order;        /* file order → spec */
	int64_t n;
	uint64_t want, n_bytes; /* of data */
};

/* Place of a type in the crate's list, which orders tensors by it, descending, and then by name. */
static int rank_of(enum sky_dtype t)
{
	static const enum sky_dtype list[] = {
		SKY_BOOL, SKY_F4, SKY_F6_E2M3, SKY_F6_E3M2, SKY_U8, SKY_I8, SKY_F8_E5M2, SKY_F8_E4M3, SKY_F8_E8M0,
			SKY_F8_E4M3FNUZ,
		SKY_F8_E5M2FNUZ, SKY_I16, SKY_U16, SKY_F16, SKY_BF16, SKY_I32, SKY_U32, SKY_F32, SKY_C64, SKY_F64,
			SKY_I64, SKY_U64,
	};
	int i;

	for (i = 0; i < (int)(sizeof(list) / sizeof(list[0])); i++) {
		if (list[i] == t) {
			return i;
		}
	}
	return -1;
}

static int by_crate(const void *a, const void *b, void *vspecs)
{
	const struct sky_st_spec *specs = vspecs, *x = &specs[*(const uint32_t *)a], *y = &specs[*(const uint32_t *)b];
	int d = rank_of(y->dtype) - rank_of(x->dtype);

	return d ? d : strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b, void *vspecs)
{
	const struct sky_st_spec *specs = vspecs;

	return strcmp(specs[*(const uint32_t *)a].name, specs[*(const uint32_t *)b].name);
}

static int check_specs(struct sky_st_out *o, const char *path, const struct sky_st_spec *specs, struct sky_err *err)
{
	int64_t i;

	for (i = 0; i < o->n; i++) {
		o->order[i] = (uint32_t)i;
		if (rank_of(specs[i].dtype) < 0 || specs[i].n_dim < 0 || specs[i].n_dim > SKY_MAX_DIMS ||
		    strcmp(specs[i].name, "__metadata__") == 0) {
			return sky_fail(err, SKY_E_USAGE,
			                "writing %s: tensor \"%.200s\" has a name, type or rank that the format lacks",
			                path, specs[i].name);
		}
	}
	qsort_r(o->order, (size_t)o->n, sizeof(*o->order), by_name, (void *)(uintptr_t)specs);
	for (i = 1; i < o->n; i++) {
		if (strcmp(specs[o->order[i - 1]].name, specs[o->order[i]].name) == 0) {
			return sky_fail(err, SKY_E_USAGE, "writing %s: tensor \"%.200s\" occurs twice", path,
			                specs[o->order[i]].name);
		}
	}
	return 0;
}

static int put_entry(struct sky_st_out *o, struct sky_jw *w, const struct sky_st_spec *s, struct sky_err *err)
{
	uint64_t bytes, end;
	int64_t n;
	int i;

	if (sky_shape_bytes(s->dtype, s->shape, s->n_dim, &n, &bytes) != 0 || sky_add_u64(o->want, bytes, &end)) {
		return sky_fail(err, SKY_E_USAGE,
		                "tensor \"%.200s\": its size overflows or is no whole number of bytes", s->name);
	}
	sky_jw_key(w, s->name);
	sky_jw_obj(w);
	sky_jw_kstr(w, "dtype", sky_dtype_name(s->dtype));
	sky_jw_key(w, "shape");
	sky_jw_arr(w);
	for (i = 0; i < s->n_dim; i++) {
		sky_jw_i64(w, s->shape[i]);
	}
	sky_jw_close_arr(w);
	sky_jw_key(w, "data_offsets");
	sky_jw_arr(w);
	sky_jw_u64(w, o->want);
	sky_jw_u64(w, end);
	sky_jw_close_arr(w);
	sky_jw_close_obj(w);
	o->want = end;
	return 0;
}

/* Length and JSON, padded with blanks so that the data starts at a multiple of 8. */
static int make_header(struct sky_st_out *o, const struct sky_st_spec *specs, const char *const *meta,
                       struct sky_buf *b,
                       struct sky_err *err)
{
	struct sky_jw w;
	uint64_t n_text;
	int64_t i;
	int rc;

	rc = sky_buf_add(b, "01234567", 8, err);
	if (rc < 0) {
		return rc;
	}
	sky_jw_init(&w, b, err);
	sky_jw_obj(&w);
	if (meta && meta[0]) {
		sky_jw_key(&w, "__metadata__");
		sky_jw_obj(&w);
		for (i = 0; meta[i]; i += 2) {
			sky_jw_kstr(&w, meta[i], meta[i + 1]);
		}
		sky_jw_close_obj(&w);
	}
	for (i = 0; i < o->n; i++) {
		rc = put_entry(o, &w, &specs[o->order[i]], err);
		if (rc < 0) {
			return rc;
		}
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	while (rc == 0 && b->n % 8 != 0) {
		rc = sky_buf_addc(b, ' ', err);
	}
	if (rc < 0) {
		return rc;
	}
	n_text = b->n - 8;
	sky_store_u64(b->ptr, n_text);
	return 0;
}

int sky_st_create(const char *path, const struct sky_st_spec *specs, int64_t n, const char *const *meta, int keep_order,
                  unsigned out_flags, struct sky_st_out **o_p, struct sky_err *err)
{
	struct sky_buf head = SKY_BUF_INIT(SKY_MAX_HEADER_BYTES + 8);
	struct sky_st_out *o = calloc(1, sizeof(*o));
	int64_t i;
	int rc;

	if (!o || !(o->order = sky_malloc_array((size_t)n, sizeof(*o->order)))) {
		free(o);
		return sky_fail_mem(err, "writing %s", path);
	}
	o->n = n;
	rc = check_specs(o, path, specs, err);
	if (rc == 0 && keep_order) {
		for (i = 0; i < n; i++) {
			o->order[i] = (uint32_t)i;
		}
	} else if (rc == 0) {
		qsort_r(o->order, (size_t)n, sizeof(*o->order), by_crate, (void *)(uintptr_t)specs);
	}
	if (rc == 0) {
		rc = sky_while(err, make_header(o, specs, meta, &head, err), "writing %s", path);
	}
	if (rc == 0) {
		rc = sky_out_open(&o->out, path, out_flags, err);
	}
	if (rc == 0) {
		rc = sky_out_write(&o->out, head.ptr, head.n, err);
	}
	sky_buf_release(&head);
	if (rc < 0) {
		sky_st_out_abort(o);
		return rc;
	}
	*o_p = o;
	return 0;
}

int64_t sky_st_out_spec(const struct sky_st_out *o, int64_t i)
{
	assert(i >= 0 && i < o->n);
	return o->order[i];
}

int sky_st_out_write(struct sky_st_out *o, const void *p, uint64_t n, struct sky_err *err)
{
	int rc;

	if (n > o->want - o->n_bytes) {
		return sky_fail(err, SKY_E_USAGE, "writing %s: more data than the tensors have", o->out.path);
	}
	rc = sky_out_write(&o->out, p, n, err);
	if (rc == 0) {
		o->n_bytes += n;
	}
	return rc;
}

int sky_st_out_commit(struct sky_st_out *o, struct sky_err *err)
{
	int rc;

	if (o->n_bytes != o->want) {
		rc = sky_fail(err, SKY_E_USAGE, "writing %s: %llu bytes of data were given, the tensors have %llu",
		              o->out.path,
		              (unsigned long long)o->n_bytes, (unsigned long long)o->want);
	} else {
		rc = sky_out_commit(&o->out, err);
	}
	sky_st_out_abort(o);
	return rc;
}

void sky_st_out_abort(struct sky_st_out *o)
{
	if (!o) {
		return;
	}
	sky_out_abort(&o->out);
	free(o->order);
	free(o);
}
