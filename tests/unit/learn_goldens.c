/* learn: losses, corrections, advantages, KL and reductions against the recorded numbers of SkyRL 0.4.0 (data/rl). */
#include "base/base.h"
#include "learn/learn.h"
#include "tests/testlib.h"

/* A padded, right-aligned batch of the recording with its rows cut to the tokens whose mask is not 0. */
struct batch {
	int64_t B, R, n;
	int64_t start[65];
	double *a[8];           /* named arrays, [n] each */
	int64_t *at;            /* [n] index in the padded array */
};

static double num(const struct sky_jnode *v)
{
	double x = NAN;
	const char *s = sky_j_str(v);

	if (s) {
		return !strcmp(s, "inf") ? INFINITY : !strcmp(s, "-inf") ? -INFINITY : NAN;
	}
	if (!sky_j_f64(v, &x)) {
		t_bail("not a number in the recording");
	}
	return x;
}

static double num_at(const struct sky_jnode *v, int64_t i)
{
	return num(sky_j_at(v, (size_t)i));
}

static void batch_load(struct batch *b, const struct sky_jnode *v, const char *keep, const char *const *names)
{
	const struct sky_jnode *k = sky_j_get(v, keep);

	memset(b, 0, sizeof(*b));
	b->B = (int64_t)sky_j_len(k);
	b->R = (int64_t)sky_j_len(sky_j_at(k, 0));
	b->at = sky_calloc_array((size_t)(b->B * b->R) + 1, sizeof(int64_t));
	for (int64_t i = 0; i < b->B; i++) {
		for (int64_t j = 0; j < b->R; j++) {
			if (num_at(sky_j_at(k, (size_t)i), j) != 0) {
				b->at[b->n++] = i * b->R + j;
			}
		}
		b->start[i + 1] = b->n;
	}
	for (int a = 0; names[a]; a++) {
		const struct sky_jnode *m = sky_j_get(v, names[a]);

		b->a[a] = sky_calloc_array((size_t)b->n + 1, sizeof(double));
		for (int64_t t = 0; m && t < b->n; t++) {
			b->a[a][t] = num_at(sky_j_at(m, (size_t)(b->at[t] / b->R)), b->at[t] % b->R);
		}
	}
}

static void batch_free(struct batch *b)
{
	for (int a = 0; a < 8; a++) {
		free(b->a[a]);
	}
	free(b->at);
}

static bool near(double x, double want, double tol)
{
	double big = fabs(want) > 1 ? fabs(want) : 1;

	return (isnan(x) && isnan(want)) || x == want || fabs(x - want) <= tol * big;
}

static const struct sky_jnode *flat(const struct sky_jnode *v)
{
	const struct sky_jnode *d = sky_j_get(v, "data");

	return d ? d : v;
}

/* Is x [n] near the padded array v? */
static bool same(const struct batch *b, const double *x, const struct sky_jnode *v, double tol)
{
	for (int64_t t = 0; t < b->n; t++) {
		double want = num_at(flat(v), b->at[t]);

		if (!near(x[t], want, tol)) {
			t_note("token %lld: %.17g, recorded %.17g", (long long)t, x[t], want);
			return false;
		}
	}
	return true;
}

static void set_all(struct sky_algo *a, const char *prefix, const struct sky_jnode *config)
{
	struct sky_err err;
	char text[64], key[160];

	for (const struct sky_jnode *v = sky_j_first(config); v; v = sky_j_next(v)) {
		const char *s = sky_j_str(v) ? sky_j_str(v) : sky_fmt_f64(text, sizeof(text), num(v));

		snprintf(key, sizeof(key), "%s%s", prefix, sky_j_key(v));
		if (sky_algo_set(a, key, s, &err) < 0) {
			t_bail("%s", err.msg);
		}
	}
}

static const char *const loss_names[] = { "log_probs", "old_log_probs", "rollout_logprobs", "advantages", "loss_mask", NULL };

static struct sky_json *load(const char *name)
{
	char path[SKY_MAX_PATH];
	struct sky_json *doc;
	struct sky_err err;

	snprintf(path, sizeof(path), "data/rl/%s", name);
	if (!t_shared(path)) {
		t_skip_all("no golden data (%s)", path);
	}
	if (sky_json_load(t_shared(path), SKY_JSON_PYTHON, &doc, &err) < 0) {
		t_bail("%s", err.msg);
	}
	return doc;
}

/* Loss, gradient and clip ratio of one recorded case. */
static bool loss_agrees(const struct sky_algo *a, const struct batch *b, const char *bname, const struct sky_jnode *ref, double tol,
                        double loss, const double *d, const struct sky_metrics *met)
{
	const struct sky_jnode *clip = sky_j_get(sky_j_get(ref, "metrics"), "clip_ratio");
	double mine = sky_metric_get(met, "loss_metrics/clip_ratio");
	/* Terms of 5e34 cancel in these: the recorded loss means nothing, the gradient does. */
	bool huge = !strcmp(bname, "extreme") && strstr("kl_cov importance_sampling clip_cov", a->policy_loss_type);

	if (!huge && !near(loss, num(sky_j_get(ref, "loss")), tol)) {
		t_note("loss %.17g, recorded %.17g", loss, num(sky_j_get(ref, "loss")));
		return false;
	}
	if (clip && !isnan(mine) && !near(mine, num(clip), 1e-6)) {
		t_note("clip_ratio %.9g, recorded %.9g", mine, num(clip));
		return false;
	}
	return same(b, d, sky_j_get(ref, "grad"), tol);
}

static void check_loss(const struct sky_algo *a, const struct sky_jnode *c, const struct sky_jnode *batches, const char *title)
{
	const char *bname = sky_j_str(sky_j_get(c, "batch"));
	const struct sky_jnode *exact = sky_j_get(c, "exact"), *ref = exact ? exact : sky_j_get(c, "f64");
	const struct sky_jnode *p = sky_j_at(sky_j_get(ref, "randperm"), 0);
	double tol = exact || !strstr("regular dual_clip cispo rollout_is dppo", a->policy_loss_type) ? 1e-12 : 2e-7;
	bool with_rollout = true;
	struct sky_metrics met = { 0 };
	struct sky_err err;
	struct batch b;
	int64_t perm[256];
	double loss = NAN, *d;

	batch_load(&b, sky_j_get(batches, bname), "response_mask", loss_names);
	if (sky_j_get(c, "rollout") && !sky_j_bool(sky_j_get(c, "rollout"), &with_rollout)) {
		t_bail("rollout is not a boolean");
	}
	for (size_t i = 0; p && i < sky_j_len(p) && i < 256; i++) {
		perm[i] = (int64_t)num(sky_j_at(p, i));
	}
	d = sky_calloc_array((size_t)b.n + 1, sizeof(double));
	struct sky_loss_in in = { .n_seq = b.B, .start = b.start, .lp = b.a[0], .old = b.a[1],
	                          .rollout = with_rollout ? b.a[2] : NULL, .adv = b.a[3], .mask = b.a[4], .adv_scale = 1,
	                          .randperm = p ? perm : NULL };
	if (!strcmp(bname, "extreme") && !strcmp(a->policy_loss_type, "kl_cov")) {
		/* Every covariance is 0 there: which of equal ones the release takes is chance. */
	} else if (sky_j_get(ref, "error")) {
		T_OK(sky_policy_loss(a, &in, &loss, d, &met, &err) < 0, "%s: refused", title);
	} else if (sky_policy_loss(a, &in, &loss, d, &met, &err) < 0) {
		T_OK(0, "%s: %s", title, err.msg);
	} else if (!strcmp(bname, "nan_under_mask")) {
		T_OK(isfinite(loss), "%s: a NaN under a mask of 0 does not reach the loss", title);
	} else {
		T_OK(loss_agrees(a, &b, bname, ref, tol, loss, d, &met), "%s", title);
	}
	free(d);
	batch_free(&b);
}

static void test_losses(void)
{
	struct sky_json *doc = load("losses.json");
	const struct sky_jnode *root = sky_json_root(doc);
	char title[200];

	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "cases")); c; c = sky_j_next(c)) {
		const char *conf = sky_j_str(sky_j_get(c, "config"));
		struct sky_algo a;

		sky_algo_defaults(&a);
		a.compat_skyrl = 1;
		set_all(&a, "", sky_j_get(sky_j_get(root, "configs"), conf));
		snprintf(title, sizeof(title), "loss %s on %s", conf, sky_j_str(sky_j_get(c, "batch")));
		check_loss(&a, c, sky_j_get(root, "batches"), title);
	}
	sky_json_free(doc);
}

static void check_correction(const struct sky_jnode *root, const struct sky_jnode *c)
{
	const char *conf = sky_j_str(sky_j_get(c, "config")), *bname = sky_j_str(sky_j_get(c, "batch"));
	const struct sky_jnode *ref = sky_j_get(c, "exact"), *tis = flat(sky_j_get(ref, "tis_ratio"));
	struct sky_metrics met = { 0 };
	struct sky_algo a;
	struct sky_err err;
	struct batch b;
	double *w;
	bool ok;

	sky_algo_defaults(&a);
	set_all(&a, "off_policy_correction.", sky_j_get(sky_j_get(root, "configs"), conf));
	batch_load(&b, sky_j_get(sky_j_get(root, "batches"), bname), "response_mask", loss_names);
	w = sky_calloc_array((size_t)b.n + 1, sizeof(double));
	struct sky_loss_in in = { .n_seq = b.B, .start = b.start, .old = b.a[1], .rollout = b.a[2], .mask = b.a[4] };
	ok = sky_off_policy(&a, &in, w, b.a[4], &met, &err) == 0 && same(&b, b.a[4], sky_j_get(ref, "loss_mask"), 0);
	/* A token ratio is recorded at masked tokens too: compare where it counts. */
	for (int64_t t = 0; ok && a.tis == 1 && sky_j_len(tis) && t < b.n; t++) {
		ok = b.a[4][t] == 0 || near(w[t], num_at(tis, b.at[t]), 1e-12);
	}
	T_OK(ok, "correction %s on %s", conf, bname);
	free(w);
	batch_free(&b);
}

static void test_correction(void)
{
	struct sky_json *doc = load("offpolicy.json");
	const struct sky_jnode *root = sky_json_root(doc);
	char title[200];

	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "cases")); c; c = sky_j_next(c)) {
		check_correction(root, c);
	}
	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "through_loss")); c; c = sky_j_next(c)) {
		const char *loss = sky_j_str(sky_j_get(c, "loss")), *conf = sky_j_str(sky_j_get(c, "config"));
		struct sky_algo a;

		sky_algo_defaults(&a);
		a.compat_skyrl = 1;
		set_all(&a, "", sky_j_get(sky_j_get(root, "loss_configs"), loss));
		set_all(&a, "off_policy_correction.", sky_j_get(sky_j_get(root, "configs"), conf));
		snprintf(title, sizeof(title), "loss %s with %s on %s", loss, conf, sky_j_str(sky_j_get(c, "batch")));
		check_loss(&a, c, sky_j_get(root, "batches"), title);
	}
	sky_json_free(doc);
}

/* One estimator on one recorded batch. Groups of equal rewards give exactly 0 here; the release shows the rounding of its
 * float32 mean. */
static void check_advantage(const struct batch *b, const struct sky_jnode *c, const struct sky_jnode *r, const int64_t *group)
{
	const char *cname = sky_j_str(sky_j_get(c, "name"));
	const struct sky_jnode *f64 = sky_j_get(r, "f64"), *ref = f64 ? f64 : r;
	double *adv = sky_calloc_array(2 * (size_t)b->n + 1, sizeof(double));
	struct sky_adv_in in = { .n_seq = b->B, .start = b->start, .reward = b->a[0], .group = group, .value = b->a[1] };
	struct sky_algo a;
	struct sky_err err = { 0 };
	bool by_group = !strstr("gae reinforce++", sky_j_key(r));
	/* Whitening equal values shows the rounding of their mean only. */
	double tol = by_group ? 1e-6 : strstr(cname, "zero_std") ? 1e-11 : 1e-12;
	bool no_std = !strcmp(sky_j_key(r), "grpo_no_std");
	int rc;

	sky_algo_defaults(&a);
	a.compat_skyrl = 1;
	a.grpo_norm_by_std = !no_std;
	a.gamma = num(sky_j_get(c, "gamma"));
	a.lambd = num(sky_j_get(c, "lambd"));
	snprintf(a.advantage_estimator, sizeof(a.advantage_estimator), "%s", no_std ? "grpo" : sky_j_key(r));
	rc = sky_advantages(&a, &in, adv, adv + b->n, &err);
	if (sky_j_get(ref, "error")) {
		T_OK(rc < 0, "advantage %s on %s: refused", sky_j_key(r), cname);
	} else if (by_group && strstr(cname, "zero_std")) {
		bool zero = rc == 0;

		for (int64_t t = 0; t < b->n; t++) {
			zero &= adv[t] == 0;
		}
		T_OK(zero, "advantage %s on %s: equal rewards give 0", sky_j_key(r), cname);
	} else {
		/* A group of one divides by float32(1) + 1e-6 in the release. */
		T_OK(rc == 0 && same(b, adv, sky_j_get(ref, "advantages"), tol) &&
		             same(b, adv + b->n, sky_j_get(ref, "returns"), tol),
		     "advantage %s on %s %s", sky_j_key(r), cname, err.msg);
	}
	free(adv);
}

static void test_advantages(void)
{
	static const char *const names[] = { "rewards", "values", NULL };
	struct sky_json *doc = load("advantages.json");

	for (const struct sky_jnode *c = sky_j_first(sky_j_get(sky_json_root(doc), "cases")); c; c = sky_j_next(c)) {
		int64_t group[64];
		struct batch b;

		if (strstr("mask_holes zero_mask_row", sky_j_str(sky_j_get(c, "name")))) {
			continue;       /* holes in the response mask, rewards outside of it: no ragged form */
		}
		batch_load(&b, c, "response_mask", names);
		for (int64_t i = 0; i < b.B; i++) {
			group[i] = sky_j_str(sky_j_at(sky_j_get(c, "uids"), (size_t)i))[0];
		}
		for (const struct sky_jnode *r = sky_j_first(sky_j_get(c, "results")); r; r = sky_j_next(r)) {
			check_advantage(&b, c, r, group);
		}
		batch_free(&b);
	}
	sky_json_free(doc);
}

static void test_kl(void)
{
	static const char *const names[] = { "log_probs", "ref", "loss_mask", NULL };
	struct sky_json *doc = load("kl.json");
	const struct sky_jnode *root = sky_json_root(doc);

	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "cases")); c; c = sky_j_next(c)) {
		const char *bname = sky_j_str(sky_j_get(c, "batch")), *type = sky_j_str(sky_j_get(c, "type"));
		const struct sky_jnode *ref = sky_j_get(c, "f64");
		struct sky_err err;
		struct batch b;
		bool mask = true, ok;
		double *kl;

		if (!sky_j_bool(sky_j_get(c, "mask"), &mask) || !mask || !strcmp(bname, "nan_under_mask") ||
		    !strcmp(bname, "fraction_mask")) {
			continue;       /* the same formula without a mask; NaN is selected away here; masks are 0 or 1 */
		}
		batch_load(&b, sky_j_get(sky_j_get(root, "batches"), bname), "loss_mask", names);
		kl = sky_calloc_array(3 * (size_t)b.n + 1, sizeof(double));
		ok = sky_kl(type, b.n, b.a[0], b.a[1], b.a[2], kl, kl + b.n, &err) == 0;
		ok = ok && same(&b, kl, sky_j_get(ref, "kl"), 1e-12);
		ok = ok && near(sky_kl_term(b.B, b.start, kl, b.a[2]), num(sky_j_get(ref, "term")), 1e-12);
		sky_kl_term_grad(b.B, b.start, kl + b.n, b.a[2], 1, kl + 2 * b.n);
		T_OK(ok && same(&b, kl + 2 * b.n, sky_j_get(ref, "grad_term"), 1e-12), "kl %s on %s", type, bname);
		free(kl);
		batch_free(&b);
	}
	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "controllers")); c; c = sky_j_next(c)) {
		const struct sky_jnode *u = sky_j_get(c, "updates");
		struct sky_algo a;
		double v;
		bool ok = true;

		sky_algo_defaults(&a);
		a.compat_skyrl = 1;
		set_all(&a, "", sky_j_get(c, "config"));
		v = a.kl_loss_coef;
		for (size_t i = 0; i < sky_j_len(u); i++) {
			v = sky_kl_control(&a, v, num_at(sky_j_at(u, i), 0), (int64_t)num_at(sky_j_at(u, i), 1));
			ok &= near(v, num_at(sky_j_get(c, "values"), (int64_t)i + 1), 1e-12);
		}
		T_OK(ok, "kl controller %s", a.kl_adaptive ? "adaptive" : "fixed");
	}
	sky_json_free(doc);
}

static void test_reduction(void)
{
	static const char *const names[] = { "advantages", "loss_mask", NULL };
	struct sky_json *doc = load("reduction.json");
	const struct sky_jnode *root = sky_json_root(doc);

	for (const struct sky_jnode *c = sky_j_first(sky_j_get(root, "cases")); c; c = sky_j_next(c)) {
		const char *bname = sky_j_str(sky_j_get(c, "batch"));
		const struct sky_jnode *bounds = sky_j_get(c, "prompt_boundaries");
		int64_t prompt[64] = { 0 };
		struct sky_algo a;
		struct sky_err err = { 0 };
		struct batch b;
		int rc;

		batch_load(&b, sky_j_get(sky_j_get(root, "batches"), bname), "response_mask", names);
		for (size_t p = 0; p < sky_j_len(bounds); p++) {
			for (int64_t i = (int64_t)num_at(sky_j_at(bounds, p), 0); i < (int64_t)num_at(sky_j_at(bounds,
			                                                                                       p), 1); i++) {
				prompt[i] = (int64_t)p;
			}
		}
		sky_algo_defaults(&a);
		snprintf(a.loss_reduction, sizeof(a.loss_reduction), "%s", sky_j_str(sky_j_get(c, "loss_reduction")));
		a.max_seq_len = (int64_t)num(sky_j_get(c, "max_seq_len"));
		rc = sky_reduce_scale(&a, b.B, b.start, b.a[1], prompt, (int64_t)num(sky_j_get(c, "micro_batch_size")), b.a[0],
		                      &err);
		T_OK(rc == 0 && same(&b, b.a[0], sky_j_get(c, "f64"), 1e-12), "reduction %s on %s %s", a.loss_reduction, bname,
		     err.msg);
		batch_free(&b);
	}
	sky_json_free(doc);
}

int main(void)
{
	test_losses();
	test_correction();
	test_advantages();
	test_kl();
	test_reduction();
	return t_done();
}
