/* kernels/cpu: device, memory, threads, and the table. Work is done when a call returns. */
#include "kernels/cpu/cpu_ops.h"

#include <stdbool.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

/* Below this much work in elements a call stays on the calling thread: waking others costs about as much. */
#define PAR_MIN 16384

static char open_err[256] = "out of memory for the device";

int cpu_fail(kn_dev *dev, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(dev ? dev->err : open_err, sizeof open_err, fmt, ap);
	va_end(ap);
	return code;
}

int cpu_need(kn_dev *dev, const char *op, enum kn_dtype t, int64_t n)
{
	if (t != KN_F32 && t != KN_BF16)
		return cpu_fail(dev, KN_E_UNSUPPORTED, "%s: element type %d is neither f32 nor bf16", op, (int)t);
	if (n < 0)
		return cpu_fail(dev, KN_E_ARG, "%s: negative size", op);
	return KN_OK;
}

/* ---- instruction set ---- */
/* The best first; the scalar text runs anywhere. */
static const struct cpu_vec *const vecs[] = {&cpu_vec_avx512bf16, &cpu_vec_avx512, &cpu_vec_avx2, &cpu_vec_base};

static int runs_here(const struct cpu_vec *vec)
{
	if (vec == &cpu_vec_base)
		return 1;
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || vec == &cpu_vec_avx2)
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
	    !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl"))
		return 0;
	return vec == &cpu_vec_avx512 || __builtin_cpu_supports("avx512bf16");
}

/* SKYRL_TEST_ISA names one instead of the best: tests use it to run every text on one machine. */
static const struct cpu_vec *pick_vec(void)
{
	const char *want = getenv("SKYRL_TEST_ISA");

	for (size_t i = 0; i < sizeof vecs / sizeof vecs[0]; i++) {
		if (want && *want && strcmp(want, vecs[i]->name) != 0)
			continue;
		if (runs_here(vecs[i]))
			return vecs[i];
	}
	return NULL;
}

/* ---- device ---- */
static void cpu_close(kn_dev *dev)
{
	if (!dev)
		return;
	cpu_pool_free(dev->pool);
	free(dev->scratch);
	free(dev);
}

static int cpu_open(int32_t ordinal, int32_t n_threads, kn_dev **dev_p)
{
	const struct cpu_vec *vec = pick_vec();
	kn_dev *dev;

	if (ordinal != 0 || n_threads < 0 || n_threads > CPU_THREADS_MAX)
		return cpu_fail(NULL, KN_E_ARG, "cpu: device %d with %d threads; there is device 0, with 0 (all) to %d",
		                (int)ordinal, (int)n_threads, CPU_THREADS_MAX);
	if (!vec)
		return cpu_fail(NULL, KN_E_UNSUPPORTED, "cpu: this processor cannot run SKYRL_TEST_ISA=%s",
		                getenv("SKYRL_TEST_ISA"));
	dev = calloc(1, sizeof *dev);
	if (!dev)
		return cpu_fail(NULL, KN_E_MEMORY, "out of memory for the device");
	dev->vec = vec;
	dev->n_threads = n_threads ? n_threads : cpu_pool_processors();
	dev->pool = cpu_pool_new(dev->n_threads);
	if (!dev->pool) {
		free(dev);
		return cpu_fail(NULL, KN_E_MEMORY, "out of memory for %d threads", (int)n_threads);
	}
	snprintf(dev->describe, sizeof dev->describe, "cpu: %s, %d threads", vec->name, dev->n_threads);
	*dev_p = dev;
	return KN_OK;
}

static const char *cpu_last_error(kn_dev *dev)
{
	return dev ? dev->err : open_err;
}

static const char *cpu_describe(kn_dev *dev)
{
	return dev->describe;
}

static int cpu_stream_new(kn_dev *dev, kn_stream **s_p)
{
	kn_stream *s = malloc(sizeof *s);

	if (!s)
		return cpu_fail(dev, KN_E_MEMORY, "out of memory for a stream");
	s->dev = dev;
	*s_p = s;
	return KN_OK;
}

static void cpu_stream_free(kn_stream *s)
{
	free(s);
}

static int cpu_sync(kn_stream *s)
{
	(void)s;
	return KN_OK;
}

/* ---- memory ---- */
/* In front of every block from cpu_alloc. Large blocks are mapped: the kernel clears their pages when they are first
 * touched, and huge pages make that and every later walk cheaper. */
struct head {
	uint64_t bytes; /* of the mapping; 0: from aligned_alloc */
	char pad[CPU_ALIGN - sizeof(uint64_t)];
};

#define MAP_MIN (4u << 20)
#define BLOCK 4096      /* bytes of copy and zero that stay on one thread */

static void *alloc_aligned(uint64_t bytes)
{
	if (bytes > (uint64_t)INT64_MAX - CPU_ALIGN)
		return NULL;
	return aligned_alloc(CPU_ALIGN, (size_t)(bytes / CPU_ALIGN + 1) * CPU_ALIGN);
}

static struct head *map_pages(uint64_t bytes)
{
	void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	(void)madvise(p, (size_t)bytes, MADV_HUGEPAGE); /* a wish; small pages do as well */
	return p;
}

static int cpu_alloc(kn_dev *dev, uint64_t bytes, void **p)
{
	bool large = bytes >= MAP_MIN;
	struct head *h = NULL;

	if (bytes <= (uint64_t)INT64_MAX - 2 * sizeof *h)
		h = large ? map_pages(bytes + sizeof *h) : alloc_aligned(bytes + sizeof *h);
	if (!h)
		return cpu_fail(dev, KN_E_MEMORY, "no memory for %llu bytes", (unsigned long long)bytes);
	h->bytes = large ? bytes + sizeof *h : 0;
	if (!large)
		memset(h + 1, 0, (size_t)bytes);
	*p = h + 1;
	return KN_OK;
}

static void cpu_free(kn_dev *dev, void *p)
{
	struct head *h = p ? (struct head *)p - 1 : NULL;

	(void)dev;
	if (h && h->bytes)
		munmap(h, (size_t)h->bytes);
	else
		free(h);
}

struct bytes_ctx {
	char *dst;
	const char *src; /* NULL: zeros */
	uint64_t bytes;
};

static void bytes_range(void *ctx, int64_t r0, int64_t r1)
{
	struct bytes_ctx *c = ctx;
	uint64_t from = (uint64_t)r0 * BLOCK, to = (uint64_t)r1 * BLOCK;

	to = to < c->bytes ? to : c->bytes;
	if (c->src)
		memcpy(c->dst + from, c->src + from, (size_t)(to - from));
	else
		memset(c->dst + from, 0, (size_t)(to - from));
}

static int cpu_copy(kn_stream *s, void *dst, const void *src, uint64_t bytes)
{
	struct bytes_ctx c = {dst, src, bytes};
	uintptr_t a = (uintptr_t)dst, b = (uintptr_t)src;

	if (!bytes)
		return KN_OK;
	if (a < b ? b - a < bytes : a - b < bytes)
		memmove(dst, src, (size_t)bytes);
	else
		cpu_rows(s->dev, (int64_t)((bytes + BLOCK - 1) / BLOCK), BLOCK / 4, bytes_range, &c);
	return KN_OK;
}

static int cpu_zero(kn_stream *s, void *dst, uint64_t bytes)
{
	struct bytes_ctx c = {dst, NULL, bytes};

	cpu_rows(s->dev, (int64_t)((bytes + BLOCK - 1) / BLOCK), BLOCK / 4, bytes_range, &c);
	return KN_OK;
}

void *cpu_scratch(kn_dev *dev, uint64_t bytes)
{
	if (bytes > dev->scratch_bytes) {
		free(dev->scratch);
		dev->scratch_bytes = 0;
		dev->scratch = alloc_aligned(bytes);
		if (!dev->scratch) {
			cpu_fail(dev, KN_E_MEMORY, "no memory for %llu bytes of scratch", (unsigned long long)bytes);
			return NULL;
		}
		dev->scratch_bytes = bytes;
	}
	return dev->scratch ? dev->scratch : dev; /* 0 bytes asked for: any address that is not NULL */
}

/* ---- threads ---- */
void cpu_par(kn_dev *dev, int64_t n, cpu_task *fn, void *ctx)
{
	cpu_pool_run(dev->pool, n, fn, ctx);
}

struct rows_ctx {
	cpu_range *fn;
	void *ctx;
	int64_t n, step;
};

static void rows_task(void *ctx, int64_t i, int thread)
{
	struct rows_ctx *c = ctx;
	int64_t r0 = i * c->step, r1 = r0 + c->step;

	(void)thread;
	c->fn(c->ctx, r0, r1 < c->n ? r1 : c->n);
}

void cpu_rows(kn_dev *dev, int64_t n, int64_t cost, cpu_range *fn, void *ctx)
{
	struct rows_ctx c = {fn, ctx, n, 1};
	int64_t parts = 4 * (int64_t)dev->n_threads;

	if (n <= 0)
		return;
	if (dev->n_threads == 1 || n <= PAR_MIN / (cost > 0 ? cost : 1)) {
		fn(ctx, 0, n);
		return;
	}
	c.step = cpu_div_up(n, parts);
	if (cost < 16)
		c.step = cpu_div_up(c.step, 64) * 64; /* flat arrays: whole cache lines */
	cpu_par(dev, cpu_div_up(n, c.step), rows_task, &c);
}

static const struct kn_ops ops = {
	.abi = KN_ABI, .size = sizeof(struct kn_ops), .name = "cpu",
	.open = cpu_open, .close = cpu_close, .last_error = cpu_last_error, .describe = cpu_describe,
	.stream_new = cpu_stream_new, .stream_free = cpu_stream_free, .sync = cpu_sync,
	.alloc = cpu_alloc, .free = cpu_free, .copy = cpu_copy, .zero = cpu_zero,
	.weight_new = cpu_weight_new, .weight_set = cpu_weight_set, .weight_free = cpu_weight_free,
	.linear = cpu_linear, .linear_bwd_x = cpu_linear_bwd_x, .linear_bwd_w = cpu_linear_bwd_w,
	.embed = cpu_embed, .embed_bwd = cpu_embed_bwd,
	.rmsnorm = cpu_rmsnorm, .rmsnorm_bwd = cpu_rmsnorm_bwd, .rope = cpu_rope,
	.silu_mul = cpu_silu_mul, .silu_mul_bwd = cpu_silu_mul_bwd, .add = cpu_add, .cast = cpu_cast,
	.kv_page_bytes = cpu_kv_page_bytes, .kv_write = cpu_kv_write,
	.attn = cpu_attn, .attn_bwd = cpu_attn_bwd,
	.logprob = cpu_logprob, .logprob_bwd = cpu_logprob_bwd,
	.qk_rope = cpu_qk_rope, .qk_rope_bwd = cpu_qk_rope_bwd,
	.sumsq = cpu_sumsq, .scale = cpu_scale, .adamw = cpu_adamw,
};

const struct kn_ops *kn_cpu_ops(void)
{
	return &ops;
}
