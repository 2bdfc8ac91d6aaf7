/* Tests of the kernel table. Usage: ops [test|grad|perf [NAME [SIZES]]|support]
 *
 * test: every operation of cpu, on every instruction set that runs here, in f32 and bf16, on a grid of sizes, against ref.
 * Rule: with r the result of ref in f32, p that of ref in the type under test, k that of the backend,
 * max|k − r| ≤ factor·max|p − r| + a little (style: kernel tests); for f32 the squared error is ≤ 1e-11 of the squared result.
 * Then bitwise: one thread and three, rows alone and in their batch; and the guard words behind every buffer.
 * perf: of the operation NAME, at sizes that begin with SIZES; OPS_THREADS and OPS_ISA choose; with OPS_THREADS=1 the time is that of the thread.
 * grad: ref's gradients against finite differences; that cpu has the same gradients is part of test. */
#include "tests/kernels/ops.h"
#include "tests/testlib.h"

#define ISAS_MAX 4

bool ops_check(bool ok, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	t_line(ok, __FILE__, __LINE__, "see the notes above", fmt, ap);
	va_end(ap);
	return ok;
}

void ops_note(const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	t_note("%s", text);
}

static const char *type_name(enum kn_dtype t)
{
	return t == KN_F32 ? "f32" : "bf16";
}

static const char *shape_text(const int64_t *d)
{
	static char text[128];

	snprintf(text, sizeof text, "%lld %lld %lld %lld %lld %lld", (long long)d[0], (long long)d[1], (long long)d[2],
	         (long long)d[3], (long long)d[4], (long long)d[5]);
	return text;
}

/* ---- against ref ---- */
static bool near_f32(const struct seg *k, const struct seg *r, const char *what)
{
	double err = 0, all = 0, worst = 0, top = 0;

	for (int64_t i = 0; i < r->rows * r->width; i++) {
		double e = (double)k->v[i] - r->v[i];

		err += e * e;
		all += (double)r->v[i] * r->v[i];
		worst = fabs(e) > worst || isnan(e) ? fabs(e) : worst;
		top = fabs(r->v[i]) > top ? fabs(r->v[i]) : top;
	}
	if (err <= 1e-11 * all + 1e-30 && worst <= 2e-5 * top + 1e-30)
		return true;
	ops_note("%s: squared error %.3g of %.3g, worst %.3g of %.3g", what, err, all, worst, top);
	return false;
}

static bool near_low(const struct seg *k, const struct seg *p, const struct seg *r, int factor, const char *what)
{
	double bound = 0, worst = 0, top = 0;

	for (int64_t i = 0; i < r->rows * r->width; i++) {
		double e = fabs((double)k->v[i] - r->v[i]), q = fabs((double)p->v[i] - r->v[i]);

		bound = q > bound ? q : bound;
		worst = e > worst || isnan(e) ? e : worst;
		top = fabs(r->v[i]) > top ? fabs(r->v[i]) : top;
	}
	/* The little is what f32 sums of thousands of terms lose, where ref sums in double. */
	if (worst <= factor * bound + 4e-6 * top)
		return true;
	ops_note("%s: worst %.3g, naive %.3g, factor %d, largest %.3g", what, worst, bound, factor, top);
	return false;
}

static bool near_ref(const struct run *k, const struct run *p, const struct run *r, int factor, const char *name)
{
	char what[256];
	bool ok = k->rc == KN_OK && k->guard_ok;

	if (!ok)
		ops_note("%s, sizes %s: status %d (%s), guard words %s", name, shape_text(k->d), k->rc,
		         k->be->o->last_error(k->be->dev), k->guard_ok ? "whole" : "overwritten");
	for (int i = 0; i < r->n_seg && ok; i++) {
		snprintf(what, sizeof what, "%s, sizes %s, output %d", name, shape_text(k->d), i);
		ok = k->t == KN_F32 ? near_f32(&k->seg[i], &r->seg[i], what) :
		                      near_low(&k->seg[i], &p->seg[i], &r->seg[i], factor, what);
	}
	return ok;
}

/* ---- bitwise ---- */
/* Rows [at, at + part's rows) of each output of whole are those of part. */
static bool same_rows(const struct run *part, const struct run *whole, int64_t at, const char *name)
{
	for (int i = 0; i < whole->n_seg; i++) {
		const struct seg *a = &part->seg[i], *b = &whole->seg[i];

		if (memcmp(a->v, b->v + at * b->width, (size_t)(a->rows * a->width) * sizeof *a->v) == 0)
			continue;
		ops_note("%s, sizes %s, output %d: rows from %lld on differ in bits", name, shape_text(whole->d), i,
		         (long long)at);
		return false;
	}
	return true;
}

static bool rows_alone(const struct op *op, const struct run *whole, struct be *be, const char *name)
{
	int64_t n = op->n_rows(whole->d);
	int64_t cut[][2] = {{0, 1}, {n - 1, n}, {n / 2, n / 2 + 1}, {n / 3, n}, {0, n - n / 4}};
	bool ok = true;

	for (size_t i = 0; n > 1 && ok && i < sizeof cut / sizeof cut[0]; i++) {
		struct run part;

		run_begin(&part, be, whole->t, whole->d);
		part.r0 = cut[i][0];
		part.r1 = cut[i][1];
		op->fn(&part);
		ok = same_rows(&part, whole, part.r0, name);
		run_end(&part);
	}
	return ok;
}

struct result {
	bool near, guard, threads, rows;
};

static void test_shape(const struct op *op, const int64_t *d, enum kn_dtype t, struct be *ref, struct be (*be)[2], int n_isa,
                       struct result *res)
{
	struct run r, p;

	run_begin(&r, ref, KN_F32, d);
	op->fn(&r);
	run_begin(&p, ref, t, d);
	op->fn(&p);
	for (int i = 0; i < n_isa; i++) {
		struct run k, k3;

		run_begin(&k, &be[i][0], t, d);
		op->fn(&k);
		run_begin(&k3, &be[i][1], t, d);
		op->fn(&k3);
		res[i].near &= near_ref(&k, &p, &r, op->factor, be[i][0].name) && r.rc == KN_OK && p.rc == KN_OK;
		res[i].threads &= same_rows(&k3, &k, 0, be[i][1].name);
		if (op->rows)
			res[i].rows &= rows_alone(op, &k, &be[i][1], be[i][1].name);
		run_end(&k);
		res[i].guard &= k.guard_ok;
		run_end(&k3);
		res[i].guard &= k3.guard_ok;
	}
	run_end(&p);
	run_end(&r);
}

static void test_op(const struct op *op, struct be *ref, struct be (*be)[2], int n_isa)
{
	static const enum kn_dtype types[] = {KN_F32, KN_BF16};

	for (size_t k = 0; k < 2; k++) {
		struct result res[ISAS_MAX];

		for (int i = 0; i < n_isa; i++)
			res[i] = (struct result){true, true, true, true};
		for (int64_t s = 0; op->shapes[s][0] >= 0; s++)
			test_shape(op, op->shapes[s], types[k], ref, be, n_isa, res);
		for (int i = 0; i < n_isa; i++) {
			const char *t = type_name(types[k]), *on = be[i][0].name;

			ops_check(res[i].near, "%s %s on %s agrees with ref", op->name, t, on);
			ops_check(res[i].threads, "%s %s on %s: one thread and three give the same bits", op->name, t, on);
			if (op->rows)
				ops_check(res[i].rows, "%s %s on %s: a row has the same bits in any batch", op->name, t, on);
			ops_check(res[i].guard, "%s %s on %s writes inside its outputs", op->name, t, on);
		}
	}
}

static const struct op *const families[] = {ops_linear, ops_rows, ops_attn, ops_end};

void mode_test(void)
{
	const char *const *isas = ops_isas();
	struct be ref, be[ISAS_MAX][2];
	int n_isa = 0;

	if (!be_open(&ref, kn_ref_ops(), NULL, 1))
		t_bail("ref does not open");
	for (; n_isa < ISAS_MAX && isas[n_isa]; n_isa++)
		if (!be_open(&be[n_isa][0], kn_cpu_ops(), isas[n_isa], 1) ||
		    !be_open(&be[n_isa][1], kn_cpu_ops(), isas[n_isa], 3))
			t_bail("cpu does not open on %s", isas[n_isa]);
	for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
		for (const struct op *op = families[f]; op->name; op++)
			test_op(op, &ref, be, n_isa);
	for (int i = 0; i < n_isa; i++) {
		be_close(&be[i][0]);
		be_close(&be[i][1]);
	}
	be_close(&ref);
}

/* ---- support ---- */
void mode_support(void)
{
	struct be ref, cpu;

	be_open(&ref, kn_ref_ops(), NULL, 1);
	be_open(&cpu, kn_cpu_ops(), NULL, 0);
	printf("%-24s %-10s %-10s\n", "operation", "ref", "cpu");
	for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
		for (const struct op *op = families[f]; op->name; op++) {
			printf("%-24s", op->name);
			for (int b = 0; b < 2; b++) {
				struct run lo, hi;

				run_begin(&hi, b ? &cpu : &ref, KN_F32, op->shapes[2]);
				op->fn(&hi);
				run_begin(&lo, b ? &cpu : &ref, KN_BF16, op->shapes[2]);
				op->fn(&lo);
				printf(" %-10s", hi.rc ? lo.rc ? "-" : "bf16" : lo.rc ? "f32" : "f32 bf16");
				run_end(&hi);
				run_end(&lo);
			}
			printf("\n");
		}
	}
	be_close(&ref);
	be_close(&cpu);
}

/* ---- perf: median and best of at least 20 runs, each on caches as the run before left them ---- */
static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void perf_shape(const struct op *op, const int64_t *d, enum kn_dtype t, struct be *be)
{
	double time[21], flops = op->flops ? op->flops(d) : 0, bytes = op->bytes ? op->bytes(d, t) : 0;
	int n = 21, repeat = 1;
	struct run r;

	run_begin(&r, be, t, d);
	r.repeat = 1;
	op->fn(&r);
	run_end(&r);
	if (r.seconds < 1e-3)
		repeat = (int)(1e-3 / (r.seconds + 1e-7)) + 1;
	for (int i = 0; i < n; i++) {
		run_begin(&r, be, t, d);
		r.repeat = repeat;
		op->fn(&r);
		time[i] = r.seconds / repeat;
		run_end(&r);
		if (time[0] > 0.1 && i == 4)
			n = 5;
	}
	qsort(time, (size_t)n, sizeof time[0], by_value);
	printf("%-22s %-4s %-28s %10.1f us (best %.1f)", op->name, type_name(t), shape_text(d), time[n / 2] * 1e6,
	       time[0] * 1e6);
	if (flops > 0)
		printf(" %8.1f GFLOP/s", flops / time[n / 2] * 1e-9);
	printf(" %7.1f GB/s\n", bytes / time[n / 2] * 1e-9);
	fflush(stdout);
}

void mode_perf(const char *only, const char *sizes)
{
	struct be be;
	const char *threads = getenv("OPS_THREADS");

	if (!be_open(&be, kn_cpu_ops(), getenv("OPS_ISA"), threads ? (int)strtol(threads, NULL, 10) : 0))
		t_bail("cpu does not open");
	ops_cpu_time = threads && strcmp(threads, "1") == 0;
	printf("%s\n", be.o->describe(be.dev));
	for (size_t f = 0; f < sizeof families / sizeof families[0]; f++)
		for (const struct op *op = families[f]; op->name; op++)
			for (int64_t s = 0; (!only || strcmp(only, op->name) == 0) && op->perf && op->perf[s][0] >= 0; s++) {
				if (sizes && strncmp(shape_text(op->perf[s]), sizes, strlen(sizes)) != 0)
					continue;
				perf_shape(op, op->perf[s], KN_F32, &be);
				perf_shape(op, op->perf[s], KN_BF16, &be);
			}
	be_close(&be);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "all";

	if (!kn_cpu_ops())
		t_skip_all("no cpu backend in this build");
	if (strcmp(mode, "perf") == 0) {
		mode_perf(argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL);
		return 0;
	}
	if (strcmp(mode, "support") == 0) {
		mode_support();
		return 0;
	}
	if (strcmp(mode, "all") == 0 || strcmp(mode, "test") == 0)
		mode_test();
	if (strcmp(mode, "all") == 0 || strcmp(mode, "grad") == 0)
		mode_grad();
	return t_done();
}
