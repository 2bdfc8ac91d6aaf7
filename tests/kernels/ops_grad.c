/* Gradients of ref against central differences: L = Σ c·y for random c, each gradient member gets c as its dy. */
#include "tests/kernels/ops.h"

#include <math.h>

#define PROBES 24       /* elements of each input that are moved */
#define STEP 0.01f

struct grad {
	struct be be;
	struct run r;
	float *c;               /* weights of the outputs in L */
	double (*loss)(struct grad *g);
	const struct kn_ops *o;
	kn_stream *s;
	/* operands, by operation */
	int64_t T, N, K, H, G, R;
	float *x, *w, *b, *y, *cos, *sin, *kw;
	float *dx, *dw, *db, *dk;
	int32_t *ids, *pos;
};

static const int64_t no_sizes[DIMS_MAX];

static double weigh(const float *c, const float *y, int64_t n)
{
	double sum = 0;

	for (int64_t i = 0; i < n; i++)
		sum += (double)c[i] * y[i];
	return sum;
}

/* d L / d x[i] by moving x[i], against dx[i]; the truncation of a step of 0.01 and the f32 outputs of ref leave 1e-3. */
static bool agrees(struct grad *g, float *x, const float *dx, int64_t n, const char *what)
{
	double top = 0;
	bool ok = true;

	for (int64_t i = 0; i < n; i++)
		top = fabs(dx[i]) > top ? fabs(dx[i]) : top;
	for (int64_t k = 0; k < PROBES && k < n; k++) {
		int64_t i = n <= PROBES ? k : k * (n - 1) / (PROBES - 1);
		float old = x[i];
		double up, down, want;

		x[i] = old + STEP;
		up = g->loss(g);
		x[i] = old - STEP;
		down = g->loss(g);
		x[i] = old;
		want = (up - down) / (2 * (double)STEP);
		if (!(fabs(want - dx[i]) <= 2e-3 * top + 1e-6)) {
			ops_note("%s[%lld]: gradient %.6g, differences %.6g", what, (long long)i, dx[i], want);
			ok = false;
		}
	}
	return ok;
}

static void begin(struct grad *g)
{
	memset(g, 0, sizeof *g);
	if (!be_open(&g->be, kn_ref_ops(), NULL, 1))
		abort();
	run_begin(&g->r, &g->be, KN_F32, no_sizes);
	g->o = g->be.o;
	g->s = g->be.s;
}

static void end(struct grad *g)
{
	run_end(&g->r);
	be_close(&g->be);
}

static float *in(struct grad *g, int64_t n, float mean, float dev)
{
	return run_in(&g->r, KN_F32, n, mean, dev);
}

static float *zero(struct grad *g, int64_t n)
{
	return run_buf(&g->r, KN_F32, n);
}

/* ---- linear ---- */
static double loss_linear(struct grad *g)
{
	kn_weight *w;

	if (g->o->weight_new(g->be.dev, KN_F32, g->N, g->K, KN_USE_FWD | KN_USE_BWD_X, &w))
		return NAN;
	g->o->weight_set(g->s, w, g->w);
	g->o->linear(g->s, w, g->T, g->x, g->b, KN_F32, g->y, 0);
	if (g->dx)
		g->o->linear_bwd_x(g->s, w, g->T, g->c, KN_F32, g->dx, 0);
	g->o->weight_free(w);
	return weigh(g->c, g->y, g->T * g->N);
}

static bool grad_linear(struct grad *g)
{
	int64_t T = g->T = 5, N = g->N = 7, K = g->K = 9;

	g->x = in(g, T * K, 0, 1);
	g->w = in(g, N * K, 0, 1);
	g->b = in(g, N, 0, 1);
	g->c = in(g, T * N, 0, 1);
	g->y = zero(g, T * N);
	g->dx = zero(g, T * K);
	g->dw = zero(g, N * K);
	g->db = zero(g, N);
	g->loss = loss_linear;
	g->loss(g);
	g->o->linear_bwd_w(g->s, KN_F32, T, N, K, g->c, g->x, g->dw, g->db);
	{
		float *dx = g->dx;

		g->dx = NULL;
		return agrees(g, g->x, dx, T * K, "x") & agrees(g, g->w, g->dw, N * K, "w") &
		       agrees(g, g->b, g->db, N, "bias");
	}
}

/* ---- embed ---- */
static double loss_embed(struct grad *g)
{
	g->o->embed(g->s, KN_F32, g->T, g->K, g->ids, g->x, g->y);
	return weigh(g->c, g->y, g->T * g->K);
}

static bool grad_embed(struct grad *g)
{
	g->T = 6;
	g->K = 3;
	g->ids = run_ids(&g->r, g->T, 4);
	g->x = in(g, 4 * g->K, 0, 1);
	g->c = in(g, g->T * g->K, 0, 1);
	g->y = zero(g, g->T * g->K);
	g->dx = zero(g, 4 * g->K);
	g->loss = loss_embed;
	g->o->embed_bwd(g->s, g->T, g->K, g->ids, g->c, g->dx);
	return agrees(g, g->x, g->dx, 4 * g->K, "table");
}

/* ---- rmsnorm ---- */
static double loss_rmsnorm(struct grad *g)
{
	g->o->rmsnorm(g->s, g->T, g->K, KN_F32, g->x, g->w, 1e-3f, KN_F32, g->y, g->b);
	return weigh(g->c, g->y, g->T * g->K);
}

static bool grad_rmsnorm(struct grad *g)
{
	int64_t n = (g->T = 3) * (g->K = 8);

	g->x = in(g, n, 0.3f, 1);
	g->w = in(g, g->K, 1, 0.3f);
	g->c = in(g, n, 0, 1);
	g->y = zero(g, n);
	g->b = zero(g, g->T);
	g->dx = zero(g, n);
	g->dw = zero(g, g->K);
	g->loss = loss_rmsnorm;
	g->loss(g);
	g->o->rmsnorm_bwd(g->s, g->T, g->K, KN_F32, g->x, g->w, g->b, KN_F32, g->c, KN_F32, g->dx, 0, g->dw);
	return agrees(g, g->x, g->dx, n, "x") & agrees(g, g->w, g->dw, g->K, "w");
}

/* ---- silu_mul ---- */
static double loss_silu(struct grad *g)
{
	g->o->silu_mul(g->s, KN_F32, g->T, g->K, g->x, g->y);
	return weigh(g->c, g->y, g->T * g->K);
}

static bool grad_silu(struct grad *g)
{
	int64_t n = (g->T = 3) * (g->K = 5);

	g->x = in(g, 2 * n, 0, 2);
	g->c = in(g, n, 0, 1);
	g->y = zero(g, n);
	g->dx = zero(g, 2 * n);
	g->loss = loss_silu;
	g->o->silu_mul_bwd(g->s, KN_F32, g->T, g->K, g->x, g->c, g->dx, NULL);
	return agrees(g, g->x, g->dx, 2 * n, "gu");
}

/* ---- heads ---- */
static double loss_qk(struct grad *g)
{
	int64_t w = (g->H + 2 * g->G) * g->K;

	g->o->qk_rope(g->s, KN_F32, g->T, g->H, g->G, g->K, g->x, g->w, g->kw, 1e-3f, g->R, g->pos, g->cos, g->sin, g->y);
	return weigh(g->c, g->y, g->T * w);
}

static bool grad_qk(struct grad *g)
{
	int64_t T = g->T = 3, d = g->K = 6, n, R = g->R = 2;

	g->H = 2;
	g->G = 1;
	n = T * (g->H + 2 * g->G) * d;
	g->x = in(g, n, 0.2f, 1);
	g->w = in(g, d, 1, 0.3f);
	g->kw = in(g, d, 1, 0.3f);
	g->pos = run_ids(&g->r, T, 10);
	g->cos = zero(g, 10 * R);
	g->sin = zero(g, 10 * R);
	for (int i = 0; i < 10 * R; i++) {
		g->cos[i] = cosf((float)i);
		g->sin[i] = sinf((float)i);
	}
	g->c = in(g, n, 0, 1);
	g->dx = zero(g, n);
	memcpy(g->dx, g->c, (size_t)n * sizeof *g->c);
	g->y = zero(g, n);
	g->dw = zero(g, d);
	g->dk = zero(g, d);
	g->loss = loss_qk;
	g->o->qk_rope_bwd(g->s, KN_F32, T, g->H, g->G, d, g->x, g->w, g->kw, 1e-3f, R, g->pos, g->cos, g->sin, g->dx, g->dw,
	                  g->dk);
	return agrees(g, g->x, g->dx, n, "qkv") & agrees(g, g->w, g->dw, d, "qw") & agrees(g, g->kw, g->dk, d, "kw");
}

/* ---- attention ---- */
static const int32_t attn_start[] = {0, 5, 8}, attn_pos0[] = {0, 0}, attn_table[] = {1, 0};

static double loss_attn(struct grad *g)
{
	struct kn_attn a = {g->H, g->G, g->K, 0.4f, g->N};
	struct kn_rows rows = {2, attn_start, attn_pos0};
	uint64_t page = g->o->kv_page_bytes(g->be.dev, KN_F32, g->G, g->K);
	struct kn_kv kv = {.dtype = KN_F32, .n_kv_head = g->G, .d_head = g->K, .pages = g->b, .page_bytes = page,
		.table = attn_table, .table_stride = 1};
	int64_t w = (g->H + 2 * g->G) * g->K;

	g->o->kv_write(g->s, &kv, &rows, w, g->x + g->H * g->K, g->x + (g->H + g->G) * g->K);
	g->o->attn(g->s, &a, &kv, &rows, w, g->x, g->y, g->w);
	return weigh(g->c, g->y, g->T * g->H * g->K);
}

static bool grad_attn(struct grad *g)
{
	struct kn_rows rows = {2, attn_start, attn_pos0};
	int64_t T = g->T = 8, H = g->H = 4, G = g->G = 2, d = g->K = 3, w = (H + 2 * G) * d;
	struct kn_attn a = {H, G, d, 0.4f, 0};
	bool ok = true;

	g->x = in(g, T * w, 0, 1);
	g->c = in(g, T * H * d, 0, 1);
	g->y = zero(g, T * H * d);
	g->w = zero(g, T * H);
	g->b = zero(g, 2 * (int64_t)g->o->kv_page_bytes(g->be.dev, KN_F32, G, d) / 4);
	g->dx = zero(g, T * w);
	g->loss = loss_attn;
	for (g->N = 0; g->N <= 3; g->N += 3) { /* without and with a window */
		a.window = g->N;
		g->loss(g);
		g->o->attn_bwd(g->s, &a, KN_F32, &rows, g->x, g->y, g->w, g->c, g->dx);
		ok &= agrees(g, g->x, g->dx, T * w, g->N ? "qkv, window 3" : "qkv");
	}
	return ok;
}

/* ---- logprob ---- */
static double loss_logprob(struct grad *g)
{
	g->o->logprob(g->s, g->T, g->K, g->x, g->ids, 0.8f, g->y, g->y + g->T, g->w);
	return weigh(g->c, g->y, 2 * g->T);
}

static bool grad_logprob(struct grad *g)
{
	int64_t n = (g->T = 4) * (g->K = 6);

	g->x = in(g, n, 0, 2);
	g->ids = run_ids(&g->r, g->T, (int32_t)g->K);
	g->c = in(g, 2 * g->T, 0, 1);
	g->y = zero(g, 2 * g->T);
	g->w = zero(g, g->T);
	g->dx = zero(g, n);
	g->loss = loss_logprob;
	g->loss(g);
	g->o->logprob_bwd(g->s, g->T, g->K, g->x, g->ids, 0.8f, g->w, g->c, g->c + g->T, g->y + g->T, KN_F32, g->dx);
	return agrees(g, g->x, g->dx, n, "logits");
}

void mode_grad(void)
{
	static const struct {
		const char *name;
		bool (*fn)(struct grad *g);
	} cases[] = {
		{"linear", grad_linear}, {"embed", grad_embed}, {"rmsnorm", grad_rmsnorm}, {"silu_mul", grad_silu},
		{"qk_rope with norms", grad_qk}, {"attn", grad_attn}, {"logprob and entropy", grad_logprob},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct grad g;

		begin(&g);
		ops_check(cases[i].fn(&g), "ref's gradient of %s is that of finite differences", cases[i].name);
		end(&g);
	}
}
