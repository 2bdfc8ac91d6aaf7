/* Private to kernels/cpu: device, threads, scratch, packed weights. */
#ifndef KN_CPU_INT_H
#define KN_CPU_INT_H

#include "kernels/cpu/cpu_vec.h"
#include "kernels/kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define CPU_ALIGN 64
#define CPU_THREADS_MAX 1024

struct kn_dev {
	const struct cpu_vec *vec;
	int n_threads;
	struct cpu_pool *pool;
	/* One growing buffer that operations of this device share: each asks for its size before it starts, so after the
	 * first step of a loop nothing is allocated any more. */
	void *scratch;
	uint64_t scratch_bytes;
	char err[256];
	char describe[256];
};

struct kn_stream {
	kn_dev *dev;
};

/* Writes the text of the failure and returns code. */
int cpu_fail(kn_dev *dev, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* KN_OK when t is a type of activations (f32 or bf16) and n ≥ 0, else the failure of operation op. */
int cpu_need(kn_dev *dev, const char *op, enum kn_dtype t, int64_t n);
/* bytes of 64-byte aligned scratch, valid until the next call; NULL and an error text when there is no memory. */
void *cpu_scratch(kn_dev *dev, uint64_t bytes);

/* cpu_pool.c: the threads behind cpu_par. NULL when out of memory. */
struct cpu_pool *cpu_pool_new(int n_threads);
void cpu_pool_free(struct cpu_pool *p);
int cpu_pool_processors(void);

/* fn(ctx, i, thread) for i = 0 … n−1 in any order, thread < dev->n_threads: index into per-thread scratch. */
typedef void cpu_task(void *ctx, int64_t i, int thread);
void cpu_par(kn_dev *dev, int64_t n, cpu_task *fn, void *ctx);
void cpu_pool_run(struct cpu_pool *p, int64_t n, cpu_task *fn, void *ctx);
/* fn(ctx, r0, r1) for ranges that cover 0 … n−1; cost is the work of one row in elements touched. A range never depends on
 * what is computed, so fn must give a row the same bits in any range. */
typedef void cpu_range(void *ctx, int64_t r0, int64_t r1);
void cpu_rows(kn_dev *dev, int64_t n, int64_t cost, cpu_range *fn, void *ctx);

static inline uint64_t cpu_type_bytes(enum kn_dtype t)
{
	return t == KN_F32 ? 4 : 2;
}

static inline const void *cpu_at(enum kn_dtype t, const void *p, int64_t i)
{
	return (const char *)p + i * (int64_t)cpu_type_bytes(t);
}

static inline void *cpu_at_w(enum kn_dtype t, void *p, int64_t i)
{
	return (char *)p + i * (int64_t)cpu_type_bytes(t);
}

/* One element by type; the slow way, for f16 and edges. */
float cpu_get(enum kn_dtype t, const void *p, int64_t i);
void cpu_put(enum kn_dtype t, void *p, int64_t i, float x);

static inline int64_t cpu_div_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

#endif
