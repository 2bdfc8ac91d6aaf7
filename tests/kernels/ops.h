/* The runner of kernel tests: backends, buffers with guard words, inputs from a seed, recorded outputs.
 *
 * An operation under test is one function (struct op): it makes its inputs from a seed, calls the member, and emits its
 * outputs row by row. The same function serves every check: against ref, alone against in a batch, on one thread against on
 * two, finite differences, time. All inputs are numbers that bf16 can hold, so f32 and bf16 runs see the same data. */
#ifndef TESTS_KERNELS_OPS_H
#define TESTS_KERNELS_OPS_H

#include "kernels/kernels.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS_MAX 8
#define SEGS_MAX 16
#define BUFS_MAX 32

/* One backend on one instruction set with a number of threads. */
struct be {
	const struct kn_ops *o;
	kn_dev *dev;
	kn_stream *s;
	char name[64];
};

/* An output: rows × width numbers, as f32. */
struct seg {
	int64_t rows, width;
	float *v;
};

/* One run of an operation. */
struct run {
	struct be *be;
	enum kn_dtype t;                /* type of activations and products */
	const int64_t *d;               /* sizes, meaning by operation */
	int64_t r0, r1;                 /* only these rows of the batch; r1 < 0: all */
	uint32_t seed;
	int repeat;                     /* perf: call the member that often, add the time to `seconds` */
	double seconds;
	int rc;                         /* first status that is not KN_OK */
	struct seg seg[SEGS_MAX];
	int n_seg;
	void *buf[BUFS_MAX];
	uint64_t buf_bytes[BUFS_MAX];
	int n_buf;
	bool guard_ok;
	/* grad: input number `bump` gets `by` added at element `bump_at`; -1: none */
	int n_in, bump;
	int64_t bump_at;
	float bump_by;
};

struct op {
	const char *name;
	void (*fn)(struct run *r);
	int factor;                     /* of the tolerance rule: 2 forward, 3 gradients */
	bool rows;                      /* promises rows independent of the batch */
	const int64_t (*shapes)[DIMS_MAX];      /* ends with a row whose first size is -1 */
	int64_t (*n_rows)(const int64_t *d);
	double (*flops)(const int64_t *d);
	double (*bytes)(const int64_t *d, enum kn_dtype t);
	const int64_t (*perf)[DIMS_MAX];        /* shapes for perf, or NULL */
};

extern const struct op ops_linear[], ops_rows[], ops_attn[], ops_end[]; /* each ends with name NULL */

/* ---- ops_util.c ---- */
bool be_open(struct be *be, const struct kn_ops *o, const char *isa, int n_threads);
void be_close(struct be *be);
void run_begin(struct run *r, struct be *be, enum kn_dtype t, const int64_t *d);
void run_end(struct run *r);            /* frees; guard_ok and rc stay */
/* A buffer of n elements of type t, cleared, with guard words after it. */
void *run_buf(struct run *r, enum kn_dtype t, int64_t n);
/* Input: n random numbers around `mean` with deviation about `dev`, of type t. */
void *run_in(struct run *r, enum kn_dtype t, int64_t n, float mean, float dev);
int32_t *run_ids(struct run *r, int64_t n, int32_t below);
/* Calls the member once, or `repeat` times under the clock. */
#define RUN(r, call) \
	do { \
		double t0_ = ops_now(); \
		for (int i_ = 0; i_ < ((r)->repeat ? (r)->repeat : 1); i_++) { \
			int rc_ = (call); \
			if (rc_ && !(r)->rc) \
				(r)->rc = rc_; \
		} \
		(r)->seconds = ops_now() - t0_; \
	} while (0)
void run_emit(struct run *r, enum kn_dtype t, const void *p, int64_t rows, int64_t width);
/* Seconds of the wall clock, or of the calling thread where ops_cpu_time is set: steadier on a busy machine. */
extern bool ops_cpu_time;
double ops_now(void);
float ops_get(enum kn_dtype t, const void *p, int64_t i);
void *ops_at(enum kn_dtype t, void *p, int64_t i);
/* The rows that the run is about: first and count, of n. */
int64_t run_first(const struct run *r);
int64_t run_count(const struct run *r, int64_t n);
/* A check of the runner: one line of TAP. */
bool ops_check(bool ok, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void ops_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* ---- modes ---- */
void mode_test(void);
void mode_grad(void);
void mode_perf(const char *only, const char *sizes);
void mode_support(void);
/* The instruction sets that run here, best first; ends with NULL. */
extern const char *const *ops_isas(void);

#endif
