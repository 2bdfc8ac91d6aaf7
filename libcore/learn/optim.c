/* AdamW and SGD over the f32 masters of a model. */
#include "learn/optim.h"

#include <math.h>
#include <stdlib.h>

struct sky_optim {
	struct sky_model *model;
	struct sky_device d;
	struct sky_optim_opt opt;
	int64_t n_param, n_step;
	float **m, **v;         /* [n_param] device arrays of the parameter's size; NULL with sgd */
};

void sky_optim_defaults(struct sky_optim_opt *o)
{
	*o = (struct sky_optim_opt){ .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01, .grad_clip = 1 };
}

static int device_fail(const struct sky_optim *o, const char *what, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DEVICE, "%s: %s", what, o->d.ops->last_error(o->d.dev));
}

int sky_optim_new(struct sky_model *m, const struct sky_device *d, const struct sky_optim_opt *opt, struct sky_optim **o_p,
                  struct sky_err *err)
{
	struct sky_optim *o = sky_calloc_array(1, sizeof(*o));

	if (!o) {
		return sky_fail_mem(err, "optimizer");
	}
	o->model = m;
	o->d = *d;
	o->opt = *opt;
	o->n_param = sky_model_n_param(m);
	o->m = sky_calloc_array((size_t)o->n_param + 1, sizeof(*o->m));
	o->v = sky_calloc_array((size_t)o->n_param + 1, sizeof(*o->v));
	if (!o->m || !o->v) {
		sky_optim_free(o);
		return sky_fail_mem(err, "optimizer");
	}
	for (int64_t i = 0; i < o->n_param && !opt->sgd; i++) {
		uint64_t bytes = (uint64_t)sky_model_param(m, i)->n * sizeof(float);

		if (d->ops->alloc(d->dev, bytes, (void **)&o->m[i]) < 0 || d->ops->alloc(d->dev, bytes, (void **)&o->v[i]) < 0) {
			sky_optim_free(o);
			return sky_fail(err, SKY_E_LIMIT, "optimizer state of %lld parameters: out of memory",
			                (long long)sky_model_config(m)->n_param);
		}
	}
	*o_p = o;
	return 0;
}

void sky_optim_free(struct sky_optim *o)
{
	if (!o) {
		return;
	}
	for (int64_t i = 0; o->m && o->v && i < o->n_param; i++) {
		o->d.ops->free(o->d.dev, o->m[i]);
		o->d.ops->free(o->d.dev, o->v[i]);
	}
	free(o->m);
	free(o->v);
	free(o);
}

int64_t sky_optim_count(const struct sky_optim *o)
{
	return o->n_step;
}

static int grad_norm(struct sky_optim *o, double *norm_p, struct sky_err *err)
{
	double sum = 0;

	for (int64_t i = 0; i < o->n_param; i++) {
		const struct sky_param *p = sky_model_param(o->model, i);
		double s = 0;

		if (o->d.ops->sumsq(o->d.stream, p->n, p->grad, &s) < 0) {
			return device_fail(o, "gradient norm", err);
		}
		sum += s;
	}
	*norm_p = sqrt(sum);
	return 0;
}

static int update(struct sky_optim *o, int64_t i, double scale, double lr, struct sky_err *err)
{
	const struct sky_param *p = sky_model_param(o->model, i);
	const struct sky_optim_opt *a = &o->opt;
	double decay = p->decay ? a->weight_decay : 0;
	int rc;

	if (!a->sgd) {
		rc = o->d.ops->adamw(o->d.stream, p->n, p->master, o->m[i], o->v[i], p->grad, (float)scale, (float)lr,
		                     (float)a->beta1, (float)a->beta2, (float)a->eps, (float)decay, o->n_step + 1, KN_F32, NULL);
		return rc < 0 ? device_fail(o, p->name, err) : 0;
	}
	/* w ← (1 − lr·decay)·w − lr·g */
	rc = o->d.ops->scale(o->d.stream, p->n, (float)(1 - lr * decay), p->master);
	rc = rc < 0 ? rc : o->d.ops->scale(o->d.stream, p->n, (float)(-lr * scale), p->grad);
	rc = rc < 0 ? rc : o->d.ops->add(o->d.stream, KN_F32, p->n, p->grad, p->master);
	return rc < 0 ? device_fail(o, p->name, err) : 0;
}

int sky_optim_step(struct sky_optim *o, double lr, double *norm_p, struct sky_err *err)
{
	double norm = 0, scale = 1;
	int rc = grad_norm(o, &norm, err);

	if (rc < 0) {
		return rc;
	}
	if (!isfinite(norm)) {
		return sky_fail(err, SKY_E_DATA, "the gradient norm is not finite at step %lld: the loss has diverged (a smaller "
		                "--lr, more --warmup-steps)", (long long)o->n_step + 1);
	}
	if (o->opt.grad_clip > 0 && norm > o->opt.grad_clip) {
		scale = o->opt.grad_clip / (norm + 1e-6);
	}
	for (int64_t i = 0; i < o->n_param && rc == 0; i++) {
		rc = update(o, i, scale, lr, err);
	}
	o->n_step++;
	rc = rc < 0 ? rc : sky_model_sync(o->model, err);
	rc = rc < 0 ? rc : sky_model_zero_grad(o->model, err);
	*norm_p = norm;
	return rc;
}

/* ---- on disk ---- */

static int path_of(char *out, const char *dir, struct sky_err *err)
{
	return sky_path_join(out, SKY_MAX_PATH, dir, "optimizer.safetensors", err);
}

/* Specs of m/NAME of all parameters, then v/NAME; *names_p owns the names. NULL when out of memory. */
static struct sky_st_spec *specs_of(const struct sky_optim *o, char **names_p)
{
	struct sky_st_spec *s = sky_calloc_array(2 * (size_t)o->n_param + 1, sizeof(*s));
	size_t bytes = 1;
	char *at;

	for (int64_t i = 0; i < o->n_param; i++) {
		bytes += 2 * (strlen(sky_model_param(o->model, i)->name) + 3);
	}
	at = *names_p = sky_malloc_array(bytes, 1);
	if (!s || !at) {
		free(s);
		return NULL;
	}
	for (int64_t i = 0; i < 2 * o->n_param; i++) {
		const struct sky_param *p = sky_model_param(o->model, i % o->n_param);
		size_t n = strlen(p->name) + 3;

		snprintf(at, n, "%c/%s", i < o->n_param ? 'm' : 'v', p->name);
		s[i].name = at;
		s[i].dtype = SKY_F32;
		s[i].n_dim = p->n_dim;
		memcpy(s[i].shape, p->shape, sizeof(s[i].shape));
		at += n;
	}
	return s;
}

int sky_optim_save(const struct sky_optim *o, const char *dir, struct sky_err *err)
{
	char path[SKY_MAX_PATH], count[32], *names = NULL;
	const char *meta[] = { "format", "skyrl-optim", "steps", count, NULL };
	struct sky_st_spec *s = specs_of(o, &names);
	struct sky_st_out *out = NULL;
	int64_t n = o->opt.sgd ? 0 : 2 * o->n_param;
	int rc = s ? path_of(path, dir, err) : sky_fail_mem(err, "optimizer state");

	snprintf(count, sizeof(count), "%lld", (long long)o->n_step);
	rc = rc < 0 ? rc : sky_st_create(path, s, n, meta, 0, SKY_OUT_REPLACE, &out, err);
	for (int64_t k = 0; k < n && rc == 0; k++) {
		int64_t i = sky_st_out_spec(out, k);
		uint64_t bytes = (uint64_t)sky_model_param(o->model, i % o->n_param)->n * sizeof(float);
		const float *src = i < o->n_param ? o->m[i] : o->v[i - o->n_param];
		void *host = malloc(bytes ? bytes : 1);

		if (!host) {
			rc = sky_fail_mem(err, "optimizer state");
		} else if (o->d.ops->copy(o->d.stream, host, src, bytes) < 0 || o->d.ops->sync(o->d.stream) < 0) {
			rc = device_fail(o, "optimizer state", err);
		} else {
			rc = sky_st_out_write(out, host, bytes, err);
		}
		free(host);
	}
	if (out) {
		if (rc == 0) {
			rc = sky_st_out_commit(out, err);
		} else {
			sky_st_out_abort(out);
		}
	}
	free(s);
	free(names);
	return rc;
}

static int load_one(struct sky_optim *o, const struct sky_st *st, const char *name, int64_t n, float *dst, struct sky_err *err)
{
	const struct sky_tensor *t = sky_st_find(st, name);

	if (!t || t->dtype != SKY_F32 || t->n != n) {
		return sky_fail(err, SKY_E_DATA, "optimizer state %s: %s", name,
		                t ? "other type or size than the parameter" : "missing");
	}
	if (o->d.ops->copy(o->d.stream, dst, t->data, t->bytes) < 0 || o->d.ops->sync(o->d.stream) < 0) {
		return device_fail(o, "optimizer state", err);
	}
	return 0;
}

int sky_optim_load(struct sky_optim *o, const char *dir, struct sky_err *err)
{
	char path[SKY_MAX_PATH], name[1024];
	struct sky_st *st = NULL;
	int rc = path_of(path, dir, err);

	rc = rc < 0 ? rc : sky_st_open(path, &st, err);
	for (int64_t i = 0; i < o->n_param && rc == 0 && !o->opt.sgd; i++) {
		const struct sky_param *p = sky_model_param(o->model, i);

		snprintf(name, sizeof(name), "m/%s", p->name);
		rc = load_one(o, st, name, p->n, o->m[i], err);
		snprintf(name, sizeof(name), "v/%s", p->name);
		rc = rc < 0 ? rc : load_one(o, st, name, p->n, o->v[i], err);
	}
	if (rc == 0) {
		const char *steps = sky_st_meta(st, "steps");

		rc = steps ? sky_parse_i64(steps, &o->n_step, err) : sky_fail(err, SKY_E_DATA, "no step count in the metadata");
	}
	sky_st_close(st);
	return sky_while(err, rc, "%s", path);
}
