/* Writer of trajectory files, and the builder that collects samples for it. */
#include "rollout/traj.h"

#include "weights/weights.h"

#define MAX_ARRAYS 20

struct wr {
	struct sky_st_spec spec[MAX_ARRAYS];
	const void *data[MAX_ARRAYS];
	uint64_t bytes[MAX_ARRAYS];
	int n;
};

static void add(struct wr *w, const char *name, enum sky_dtype dtype, const void *data, int64_t n)
{
	struct sky_st_spec *s = &w->spec[w->n];

	if (!data) {
		return;
	}
	*s = (struct sky_st_spec){ .name = name, .dtype = dtype, .n_dim = 1, .shape = { n } };
	w->data[w->n] = data;
	w->bytes[w->n++] = (uint64_t)n * (uint64_t)sky_dtype_bits(dtype) / 8;
}

static void list_arrays(struct wr *w, const struct sky_traj *t)
{
	struct sky_st_spec *s;

	add(w, "start", SKY_I64, t->start, t->n_traj + 1);
	add(w, "tokens", SKY_I32, t->tokens, t->n_tok);
	add(w, "prompt_len", SKY_I32, t->prompt_len, t->n_traj);
	add(w, "loss_mask", SKY_U8, t->loss_mask, t->n_tok);
	add(w, "logprob", SKY_F32, t->logprob, t->n_tok);
	add(w, "version", SKY_I32, t->version, t->n_tok);
	add(w, "reward", SKY_F32, t->reward, t->n_tok);
	add(w, "group", SKY_I64, t->group, t->n_traj);
	add(w, "traj", SKY_I64, t->traj, t->n_traj);
	add(w, "last", SKY_U8, t->last, t->n_traj);
	add(w, "stop", SKY_U8, t->stop, t->n_traj);
	add(w, "done", SKY_U8, t->done, t->n_traj);
	add(w, "env", SKY_U8, t->env, (int64_t)t->env_bytes);
	if (t->keep_start) {
		add(w, "keep_start", SKY_I64, t->keep_start, t->n_gen + 1);
		add(w, "keep_ids", SKY_I32, t->keep_ids, t->keep_start[t->n_gen]);
	}
	if (t->route_start) {
		add(w, "route_start", SKY_I64, t->route_start, t->n_traj + 1);
		s = &w->spec[w->n];
		add(w, "routes", t->route_dtype, t->routes, t->route_start[t->n_traj]);
		s->n_dim = 3;
		s->shape[1] = t->n_layer;
		s->shape[2] = t->n_expert;
		w->bytes[w->n - 1] *= (uint64_t)(t->n_layer * t->n_expert);
	}
}

int sky_traj_write(const char *path, const struct sky_traj *t, unsigned out_flags, struct sky_err *err)
{
	const char *meta[12] = { "format", "skyrl-traj", "version", "1" };
	struct sky_st_out *o = NULL;
	struct wr w = { .n = 0 };
	int n_meta = 4, i, rc;
	int64_t k;

	rc = sky_traj_check(t, NULL, path, err);
	if (rc < 0) {
		return rc;
	}
	if (t->model) {
		meta[n_meta++] = "model";
		meta[n_meta++] = t->model;
	}
	if (t->sampling) {
		meta[n_meta++] = "sampling";
		meta[n_meta++] = t->sampling;
	}
	if (t->env_name) {
		meta[n_meta++] = "env";
		meta[n_meta++] = t->env_name;
	}
	list_arrays(&w, t);
	rc = sky_st_create(path, w.spec, w.n, meta, 0, out_flags, &o, err);
	for (i = 0; rc == 0 && i < w.n; i++) {
		k = sky_st_out_spec(o, i);
		rc = sky_st_out_write(o, w.data[k], w.bytes[k], err);
	}
	if (rc < 0) {
		sky_st_out_abort(o);
		return rc;
	}
	return sky_st_out_commit(o, err);
}

/* One growing array for each of the file. */
enum { A_START, A_TOKENS, A_PROMPT, A_MASK, A_LOGPROB, A_VERSION, A_REWARD, A_GROUP, A_TRAJ, A_LAST, A_STOP, A_DONE,
	A_KEEP_START,
       A_KEEP_IDS, A_ROUTE_START, A_ROUTES, A_ENV, N_A };

struct sky_traj_build {
	struct sky_traj_build_opts opts;
	char *model, *sampling, *env_name;
	struct sky_buf a[N_A];
	int64_t n_traj, n_tok, n_gen, n_keep, n_route;
	size_t route_bytes;             /* of one row */
};

static void build_clear(struct sky_traj_build *b)
{
	int i;

	for (i = 0; i < N_A; i++) {
		sky_buf_clear(&b->a[i]);
	}
	b->n_traj = b->n_tok = b->n_gen = b->n_keep = b->n_route = 0;
}

int sky_traj_build_new(const struct sky_traj_build_opts *opts, struct sky_traj_build **b_p, struct sky_err *err)
{
	struct sky_traj_build *b = calloc(1, sizeof(*b));
	int i;

	if (!b) {
		return sky_fail_mem(err, "collecting trajectories");
	}
	b->opts = *opts;
	for (i = 0; i < N_A; i++) {
		sky_buf_init(&b->a[i], SIZE_MAX);
	}
	b->model = opts->model ? strdup(opts->model) : NULL;
	b->sampling = opts->sampling ? strdup(opts->sampling) : NULL;
	b->env_name = opts->env_name ? strdup(opts->env_name) : NULL;
	if ((opts->model && !b->model) || (opts->sampling && !b->sampling) || (opts->env_name && !b->env_name)) {
		sky_traj_build_free(b);
		return sky_fail_mem(err, "collecting trajectories");
	}
	if (opts->arrays & SKY_TRAJ_ROUTES) {
		b->route_bytes = (size_t)(opts->n_layer * opts->n_expert) * (size_t)sky_dtype_bits(opts->route_dtype) / 8;
	}
	*b_p = b;
	return 0;
}

void sky_traj_build_free(struct sky_traj_build *b)
{
	int i;

	if (!b) {
		return;
	}
	for (i = 0; i < N_A; i++) {
		sky_buf_release(&b->a[i]);
	}
	free(b->model);
	free(b->sampling);
	free(b->env_name);
	free(b);
}

int64_t sky_traj_build_count(const struct sky_traj_build *b)
{
	return b->n_traj;
}

uint64_t sky_traj_build_bytes(const struct sky_traj_build *b)
{
	uint64_t n = 0;
	int i;

	for (i = 0; i < N_A; i++) {
		n += b->a[i].n;
	}
	return n;
}

static int lacks(const struct sky_traj_build *b, const struct sky_traj_row *r, struct sky_err *err)
{
	unsigned a = b->opts.arrays;
	const char *what = !r->tokens && r->n_tok > 0 ? "tokens" : !r->loss_mask && r->n_tok > 0 ? "loss_mask" :
		a & SKY_TRAJ_LOGPROB && !r->logprob && r->n_tok > 0 ? "logprob" :
		a & SKY_TRAJ_VERSION && !r->version && r->n_tok > 0 ? "version" :
		a & SKY_TRAJ_REWARD && !r->reward && r->n_tok > 0 ? "reward" :
		a & SKY_TRAJ_KEEP && r->n_gen > 0 && (!r->keep_start || !r->keep_ids) ? "keep_ids" :
		a & SKY_TRAJ_ROUTES && r->n_route > 0 && !r->routes ? "routes" : a & SKY_TRAJ_ENV && !r->env ?
			"env" : NULL;

	return what ? sky_fail(err, SKY_E_USAGE, "trajectory %lld comes without %s", (long long)b->n_traj, what) : 0;
}

static int put(struct sky_traj_build *b, int a, const void *p, int64_t n, size_t size, struct sky_err *err)
{
	return sky_buf_add(&b->a[a], p, (size_t)n * size, err);
}

static int put_i64(struct sky_traj_build *b, int a, int64_t v, struct sky_err *err)
{
	return put(b, a, &v, 1, sizeof(v), err);
}

static int put_u8(struct sky_traj_build *b, int a, int v, struct sky_err *err)
{
	uint8_t u = (uint8_t)v;

	return put(b, a, &u, 1, 1, err);
}

static int put_tokens(struct sky_traj_build *b, const struct sky_traj_row *r, struct sky_err *err)
{
	unsigned a = b->opts.arrays;
	int rc;

	rc = put(b, A_TOKENS, r->tokens, r->n_tok, 4, err);
	rc = rc < 0 ? rc : put(b, A_MASK, r->loss_mask, r->n_tok, 1, err);
	rc = rc < 0 || !(a & SKY_TRAJ_LOGPROB) ? rc : put(b, A_LOGPROB, r->logprob, r->n_tok, 4, err);
	rc = rc < 0 || !(a & SKY_TRAJ_VERSION) ? rc : put(b, A_VERSION, r->version, r->n_tok, 4, err);
	return rc < 0 || !(a & SKY_TRAJ_REWARD) ? rc : put(b, A_REWARD, r->reward, r->n_tok, 4, err);
}

static int put_scalars(struct sky_traj_build *b, const struct sky_traj_row *r, struct sky_err *err)
{
	int32_t prompt_len = (int32_t)r->prompt_len;
	unsigned a = b->opts.arrays;
	int rc;

	rc = put(b, A_PROMPT, &prompt_len, 1, 4, err);
	rc = rc < 0 || !(a & SKY_TRAJ_GROUP) ? rc : put_i64(b, A_GROUP, r->group, err);
	if (a & SKY_TRAJ_STEPS) {
		rc = rc < 0 ? rc : put_i64(b, A_TRAJ, r->traj, err);
		rc = rc < 0 ? rc : put_u8(b, A_LAST, r->last, err);
	}
	rc = rc < 0 || !(a & SKY_TRAJ_STOP) ? rc : put_u8(b, A_STOP, r->stop, err);
	rc = rc < 0 || !(a & SKY_TRAJ_DONE) ? rc : put_u8(b, A_DONE, r->done, err);
	if (rc == 0 && a & SKY_TRAJ_ENV) {
		rc = put(b, A_ENV, r->env, (int64_t)r->env_bytes, 1, err);
		rc = rc < 0 ? rc : put(b, A_ENV, "\n", 1, 1, err);
	}
	return rc;
}

/* Offsets are kept without their leading 0 until the file is written. */
static int put_ragged(struct sky_traj_build *b, const struct sky_traj_row *r, struct sky_err *err)
{
	int64_t i, n;
	int rc;

	rc = put_i64(b, A_START, b->n_tok + r->n_tok, err);
	if (rc == 0 && b->opts.arrays & SKY_TRAJ_KEEP && r->n_gen > 0) {
		n = r->keep_start[r->n_gen] - r->keep_start[0];
		rc = put(b, A_KEEP_IDS, r->keep_ids, n, 4, err);
		for (i = 1; rc == 0 && i <= r->n_gen; i++) {
			rc = put_i64(b, A_KEEP_START, b->n_keep + r->keep_start[i] - r->keep_start[0], err);
		}
		b->n_keep += n;
	}
	if (rc == 0 && b->opts.arrays & SKY_TRAJ_ROUTES) {
		rc = put(b, A_ROUTES, r->routes, r->n_route, b->route_bytes, err);
		rc = rc < 0 ? rc : put_i64(b, A_ROUTE_START, b->n_route + r->n_route, err);
		b->n_route += r->n_route;
	}
	return rc;
}

/* The leading 0 of an offset array. */
static int begin(struct sky_traj_build *b, struct sky_err *err)
{
	int rc;

	rc = put_i64(b, A_START, 0, err);
	rc = rc < 0 ? rc : put_i64(b, A_KEEP_START, 0, err);
	return rc < 0 ? rc : put_i64(b, A_ROUTE_START, 0, err);
}

int sky_traj_build_add(struct sky_traj_build *b, const struct sky_traj_row *row, struct sky_err *err)
{
	int rc;

	rc = lacks(b, row, err);
	if (rc == 0 && b->n_traj == 0) {
		build_clear(b);
		rc = begin(b, err);
	}
	rc = rc < 0 ? rc : put_ragged(b, row, err);
	rc = rc < 0 ? rc : put_tokens(b, row, err);
	rc = rc < 0 ? rc : put_scalars(b, row, err);
	if (rc < 0) {
		return sky_while(err, rc, "collecting trajectories");
	}
	b->n_traj++;
	b->n_tok += row->n_tok;
	b->n_gen += row->n_gen;
	return 0;
}

/* An array that exists but has no entries needs an address. */
static const void *array(const struct sky_traj_build *b, int a, unsigned bit)
{
	static const int64_t nothing;

	return bit && !(b->opts.arrays & bit) ? NULL : b->a[a].ptr ? b->a[a].ptr : (const void *)&nothing;
}

int sky_traj_build_write(struct sky_traj_build *b, const char *path, unsigned out_flags, struct sky_err *err)
{
	struct sky_traj t = { .n_traj = b->n_traj, .n_tok = b->n_tok, .n_gen = b->n_gen };
	int rc;

	if (b->n_traj == 0) {
		return sky_fail(err, SKY_E_USAGE, "writing %s: there are no trajectories", path);
	}
	t.start = array(b, A_START, 0);
	t.tokens = array(b, A_TOKENS, 0);
	t.prompt_len = array(b, A_PROMPT, 0);
	t.loss_mask = array(b, A_MASK, 0);
	t.logprob = array(b, A_LOGPROB, SKY_TRAJ_LOGPROB);
	t.version = array(b, A_VERSION, SKY_TRAJ_VERSION);
	t.reward = array(b, A_REWARD, SKY_TRAJ_REWARD);
	t.group = array(b, A_GROUP, SKY_TRAJ_GROUP);
	t.traj = array(b, A_TRAJ, SKY_TRAJ_STEPS);
	t.last = array(b, A_LAST, SKY_TRAJ_STEPS);
	t.stop = array(b, A_STOP, SKY_TRAJ_STOP);
	t.done = array(b, A_DONE, SKY_TRAJ_DONE);
	t.keep_start = array(b, A_KEEP_START, SKY_TRAJ_KEEP);
	t.keep_ids = array(b, A_KEEP_IDS, SKY_TRAJ_KEEP);
	t.route_start = array(b, A_ROUTE_START, SKY_TRAJ_ROUTES);
	t.routes = array(b, A_ROUTES, SKY_TRAJ_ROUTES);
	t.route_dtype = b->opts.route_dtype;
	t.n_layer = b->opts.n_layer;
	t.n_expert = b->opts.n_expert;
	t.env = array(b, A_ENV, SKY_TRAJ_ENV);
	t.env_bytes = b->a[A_ENV].n;
	t.model = b->model;
	t.sampling = b->sampling;
	t.env_name = b->env_name;
	rc = sky_traj_write(path, &t, out_flags, err);
	if (rc == 0) {
		build_clear(b);
	}
	return rc;
}
