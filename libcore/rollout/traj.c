/* Reader of trajectory files: names and shapes to typed views, then all checks. */
#include "rollout/traj.h"

#include "weights/weights.h"

#define MAX_COPIES 20

struct sky_traj_own {
	struct sky_st *st;
	int64_t *gen_start;
	uint64_t *env_off;
	void *copies[MAX_COPIES];       /* arrays that lay at an odd address */
	int n_copies;
};

struct rd {
	struct sky_traj *t;
	struct sky_traj_own *own;
	const char *path;
	struct sky_err *err;
};

static int bad(const struct rd *r, const char *array, const char *what)
{
	return sky_fail(r->err, SKY_E_DATA, "%s: array %s %s", r->path, array, what);
}

/* The data, at an address that its type allows. */
static int aligned(struct rd *r, const struct sky_tensor *t, const void **p_p)
{
	size_t align = (size_t)sky_dtype_bits(t->dtype) / 8;
	void *copy;

	if ((uintptr_t)t->data % align == 0) {
		*p_p = t->data;
		return 0;
	}
	copy = sky_aligned_alloc((size_t)t->bytes);
	if (!copy) {
		return sky_fail_mem(r->err, "reading %s", r->path);
	}
	memcpy(copy, t->data, (size_t)t->bytes);
	r->own->copies[r->own->n_copies++] = copy;
	*p_p = copy;
	return 0;
}

/* A vector of type dtype; n < 0 takes any length. *p_p is NULL when it is absent and not required. */
static int vector(struct rd *r, const char *name, enum sky_dtype dtype, int64_t n, int required, const void **p_p,
                  int64_t *n_p)
{
	const struct sky_tensor *t = sky_st_find(r->own->st, name);
	char what[120];

	*p_p = NULL;
	if (!t) {
		return required ? bad(r, name, "is missing") : 0;
	}
	if (t->dtype != dtype || t->n_dim != 1) {
		snprintf(what, sizeof(what), "is %s of %d dimensions, must be %s of 1", sky_dtype_name(t->dtype),
		         t->n_dim,
		         sky_dtype_name(dtype));
		return bad(r, name, what);
	}
	if (n >= 0 && t->n != n) {
		snprintf(what, sizeof(what), "has %lld entries, must have %lld", (long long)t->n, (long long)n);
		return bad(r, name, what);
	}
	if (n_p) {
		*n_p = t->n;
	}
	return aligned(r, t, p_p);
}

static int read_routes(struct rd *r)
{
	const struct sky_tensor *x = sky_st_find(r->own->st, "routes");
	struct sky_traj *t = r->t;
	const void *p;
	int rc;

	rc = vector(r, "route_start", SKY_I64, t->n_traj + 1, 0, &p, NULL);
	if (rc < 0) {
		return rc;
	}
	t->route_start = p;
	if (!x) {
		return 0;
	}
	if (x->n_dim != 3) {
		return bad(r, "routes", "must have 3 dimensions: rows, layers, experts");
	}
	t->route_dtype = x->dtype;
	t->n_layer = x->shape[1];
	t->n_expert = x->shape[2];
	if (t->route_start && t->route_start[t->n_traj] != x->shape[0]) {
		return bad(r, "route_start", "does not end with the number of rows of routes");
	}
	return aligned(r, x, &t->routes);
}

static int read_keep(struct rd *r)
{
	struct sky_traj *t = r->t;
	const void *start, *ids;
	int64_t n = 0, n_ids = 0;
	int rc;

	rc = vector(r, "keep_start", SKY_I64, -1, 0, &start, &n);
	rc = rc < 0 ? rc : vector(r, "keep_ids", SKY_I32, -1, 0, &ids, &n_ids);
	if (rc < 0 || !start) {
		t->keep_ids = rc < 0 ? NULL : ids;
		return rc;
	}
	if (n != t->n_gen + 1) {
		return bad(r, "keep_start", "must have one entry more than there are tokens with loss_mask 1");
	}
	t->keep_start = start;
	t->keep_ids = ids;
	if (ids && t->keep_start[t->n_gen] != n_ids) {
		return bad(r, "keep_start", "does not end with the length of keep_ids");
	}
	return 0;
}

static int read_arrays(struct rd *r)
{
	struct sky_traj *t = r->t;
	const struct { const char *name; enum sky_dtype dtype; int per_token; int required; const void **to; } list[] = {
		{ "prompt_len", SKY_I32, 0, 1, (const void **)&t->prompt_len },
		{ "loss_mask", SKY_U8, 1, 1, (const void **)&t->loss_mask },
		{ "logprob", SKY_F32, 1, 0, (const void **)&t->logprob },
		{ "version", SKY_I32, 1, 0, (const void **)&t->version },
		{ "reward", SKY_F32, 1, 0, (const void **)&t->reward },
		{ "group", SKY_I64, 0, 0, (const void **)&t->group },
		{ "traj", SKY_I64, 0, 0, (const void **)&t->traj }, { "last", SKY_U8, 0, 0, (const void **)&t->last },
		{ "stop", SKY_U8, 0, 0, (const void **)&t->stop }, { "done", SKY_U8, 0, 0, (const void **)&t->done },
	};
	const void *p;
	int64_t n = 0, i;
	size_t k;
	int rc;

	rc = vector(r, "start", SKY_I64, -1, 1, &p, &n);
	t->start = p;
	if (rc == 0 && n < 1) {
		rc = bad(r, "start", "is empty; it has one entry more than there are samples");
	}
	t->n_traj = n - 1;
	rc = rc < 0 ? rc : vector(r, "tokens", SKY_I32, -1, 1, &p, &t->n_tok);
	t->tokens = p;
	for (k = 0; rc == 0 && k < sizeof(list) / sizeof(list[0]); k++) {
		rc = vector(r, list[k].name, list[k].dtype, list[k].per_token ? t->n_tok : t->n_traj,
		            list[k].required, &p, NULL);
		*list[k].to = p;
	}
	for (i = 0; rc == 0 && i < t->n_tok; i++) {
		t->n_gen += t->loss_mask[i] == 1;
	}
	rc = rc < 0 ? rc : vector(r, "env", SKY_U8, -1, 0, &p, &n);
	if (rc < 0) {
		return rc;
	}
	t->env = p;
	t->env_bytes = p ? (uint64_t)n : 0;
	rc = read_keep(r);
	return rc < 0 ? rc : read_routes(r);
}

static int read_meta(struct rd *r)
{
	const char *format = sky_st_meta(r->own->st, "format"), *version = sky_st_meta(r->own->st, "version");

	if (!format || strcmp(format, "skyrl-traj") != 0) {
		return sky_fail(r->err, SKY_E_DATA,
		                "%s is no trajectory file (its metadata lacks format = skyrl-traj)", r->path);
	}
	if (!version || strcmp(version, "1") != 0) {
		return sky_fail(r->err, SKY_E_DATA,
		                "%s: trajectory format version \"%.20s\"; this program reads version 1", r->path,
		                version ? version : "");
	}
	r->t->model = sky_st_meta(r->own->st, "model");
	r->t->sampling = sky_st_meta(r->own->st, "sampling");
	r->t->env_name = sky_st_meta(r->own->st, "env");
	return 0;
}

/* Where generated tokens and lines of env begin, for access by sample. Everything was checked before. */
static int make_indices(struct rd *r)
{
	struct sky_traj *t = r->t;
	const char *p = t->env;
	int64_t i, j, n_gen = 0;

	r->own->gen_start = sky_malloc_array((size_t)t->n_traj + 1, sizeof(int64_t));
	r->own->env_off = t->env ? sky_malloc_array((size_t)t->n_traj + 1, sizeof(uint64_t)) : NULL;
	if (!r->own->gen_start || (t->env && !r->own->env_off)) {
		return sky_fail_mem(r->err, "reading %s", r->path);
	}
	for (i = 0; i <= t->n_traj; i++) {
		r->own->gen_start[i] = n_gen;
		if (t->env) {
			r->own->env_off[i] = (uint64_t)(p - t->env);
		}
		if (i == t->n_traj) {
			break;
		}
		for (j = t->start[i]; j < t->start[i + 1]; j++) {
			n_gen += t->loss_mask[j];
		}
		if (t->env) {
			p = (const char *)memchr(p, '\n', (size_t)(t->env + t->env_bytes - p)) + 1;
		}
	}
	t->gen_start = r->own->gen_start;
	t->env_off = r->own->env_off;
	return 0;
}

int sky_traj_open(const char *path, const struct sky_traj_limits *lim, struct sky_traj *t, struct sky_err *err)
{
	struct rd r = { t, NULL, path, err };
	int rc;

	memset(t, 0, sizeof(*t));
	r.own = t->own = calloc(1, sizeof(*t->own));
	if (!r.own) {
		return sky_fail_mem(err, "opening %s", path);
	}
	rc = sky_st_open(path, &r.own->st, err);
	rc = rc < 0 ? rc : read_meta(&r);
	rc = rc < 0 ? rc : read_arrays(&r);
	rc = rc < 0 ? rc : sky_traj_check(t, lim, path, err);
	if (rc == 0 && t->sampling) {
		rc = sky_traj_sampling_parse(t->sampling, &t->how, path, err);
	}
	rc = rc < 0 ? rc : make_indices(&r);
	if (rc < 0) {
		sky_traj_close(t);
	}
	return rc;
}

void sky_traj_close(struct sky_traj *t)
{
	struct sky_traj_own *own = t->own;
	int i;

	if (own) {
		for (i = 0; i < own->n_copies; i++) {
			free(own->copies[i]);
		}
		free(own->gen_start);
		free(own->env_off);
		sky_st_close(own->st);
		free(own);
	}
	memset(t, 0, sizeof(*t));
}

void sky_traj_row_at(const struct sky_traj *t, int64_t i, struct sky_traj_row *row)
{
	int64_t at = t->start[i];
	size_t route_bytes;

	memset(row, 0, sizeof(*row));
	row->n_tok = t->start[i + 1] - at;
	row->n_gen = t->gen_start[i + 1] - t->gen_start[i];
	row->prompt_len = t->prompt_len[i];
	row->tokens = t->tokens + at;
	row->loss_mask = t->loss_mask + at;
	row->logprob = t->logprob ? t->logprob + at : NULL;
	row->reward = t->reward ? t->reward + at : NULL;
	row->version = t->version ? t->version + at : NULL;
	row->group = t->group ? t->group[i] : 0;
	row->traj = t->traj ? t->traj[i] : i;
	row->last = t->last ? t->last[i] : 1;
	row->stop = t->stop ? t->stop[i] : 0;
	row->done = t->done ? t->done[i] : 0;
	if (t->keep_start) {
		row->keep_start = t->keep_start + t->gen_start[i];
		row->keep_ids = t->keep_ids + t->keep_start[t->gen_start[i]];
	}
	if (t->route_start) {
		route_bytes = (size_t)(t->n_layer * t->n_expert) * (size_t)sky_dtype_bits(t->route_dtype) / 8;
		row->routes = (const char *)t->routes + (size_t)t->route_start[i] * route_bytes;
		row->n_route = t->route_start[i + 1] - t->route_start[i];
	}
	if (t->env) {
		row->env = t->env + t->env_off[i];
		row->env_bytes = t->env_off[i + 1] - t->env_off[i] - 1;
	}
}
