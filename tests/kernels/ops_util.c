/* Backends, buffers, inputs. See ops.h. */
#include "tests/kernels/ops.h"

#include <stdarg.h>
#include <time.h>

#define GUARD 64

bool ops_cpu_time;

double ops_now(void)
{
	struct timespec t;

	clock_gettime(ops_cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

bool be_open(struct be *be, const struct kn_ops *o, const char *isa, int n_threads)
{
	int rc;

	if (isa)
		setenv("SKYRL_TEST_ISA", isa, 1);
	else
		unsetenv("SKYRL_TEST_ISA");
	be->o = o;
	be->dev = NULL;
	be->s = NULL;
	snprintf(be->name, sizeof be->name, "%s%s%s x%d", o->name, isa ? " " : "", isa ? isa : "", n_threads);
	rc = o->open(0, n_threads, &be->dev);
	unsetenv("SKYRL_TEST_ISA");
	return rc == KN_OK && o->stream_new(be->dev, &be->s) == KN_OK;
}

void be_close(struct be *be)
{
	if (be->s)
		be->o->stream_free(be->s);
	be->o->close(be->dev);
}

const char *const *ops_isas(void)
{
	static const char *all[] = {"avx512bf16", "avx512", "avx2", "scalar"};
	static const char *here[5];
	struct be be;
	int n = 0;

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		if (be_open(&be, kn_cpu_ops(), all[i], 1)) {
			here[n++] = all[i];
			be_close(&be);
		}
	}
	here[n] = NULL;
	return here;
}

void run_begin(struct run *r, struct be *be, enum kn_dtype t, const int64_t *d)
{
	*r = (struct run){.be = be, .t = t, .d = d, .r1 = -1, .seed = 1, .guard_ok = true, .bump = -1};
}

void run_end(struct run *r)
{
	for (int i = 0; i < r->n_buf; i++) {
		const uint8_t *g = (const uint8_t *)r->buf[i] + r->buf_bytes[i];

		for (int j = 0; j < GUARD; j++)
			if (g[j] != 0xa5)
				r->guard_ok = false;
		free(r->buf[i]);
	}
	for (int i = 0; i < r->n_seg; i++)
		free(r->seg[i].v);
	r->n_buf = r->n_seg = 0;
}

static uint64_t type_bytes(enum kn_dtype t)
{
	return t == KN_U8 ? 1 : t == KN_BF16 || t == KN_F16 ? 2 : t == KN_I64 ? 8 : 4;
}

void *run_buf(struct run *r, enum kn_dtype t, int64_t n)
{
	uint64_t bytes = (uint64_t)n * type_bytes(t);
	uint8_t *p = aligned_alloc(64, (size_t)((bytes + GUARD) / 64 + 1) * 64);

	if (!p || r->n_buf == BUFS_MAX)
		abort();
	memset(p, 0, (size_t)bytes);
	memset(p + bytes, 0xa5, GUARD);
	r->buf[r->n_buf] = p;
	r->buf_bytes[r->n_buf++] = bytes;
	return p;
}

static uint32_t next(struct run *r)
{
	r->seed = r->seed * 1664525u + 1013904223u;
	return r->seed >> 8;
}

float ops_get(enum kn_dtype t, const void *p, int64_t i)
{
	uint32_t u;
	float x;

	if (t == KN_F32)
		return ((const float *)p)[i];
	u = (uint32_t)((const uint16_t *)p)[i] << 16;
	memcpy(&x, &u, sizeof x);
	return x;
}

static void put(enum kn_dtype t, void *p, int64_t i, float x)
{
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	if (t == KN_F32)
		((float *)p)[i] = x;
	else
		((uint16_t *)p)[i] = (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

void *ops_at(enum kn_dtype t, void *p, int64_t i)
{
	return (char *)p + i * (int64_t)type_bytes(t);
}

/* A sum of four uniform numbers, cut to what bf16 holds. */
void *run_in(struct run *r, enum kn_dtype t, int64_t n, float mean, float dev)
{
	void *p = run_buf(r, t, n);
	int number = r->n_in++;

	for (int64_t i = 0; i < n; i++) {
		float x = 0;
		uint16_t h;

		for (int k = 0; k < 4; k++)
			x += (float)next(r) / (float)(1 << 23) - 1;
		put(KN_BF16, &h, 0, mean + dev * x);
		x = ops_get(KN_BF16, &h, 0);
		if (number == r->bump && i == r->bump_at)
			x += r->bump_by;
		put(t, p, i, x);
	}
	return p;
}

int32_t *run_ids(struct run *r, int64_t n, int32_t below)
{
	int32_t *p = run_buf(r, KN_I32, n);

	for (int64_t i = 0; i < n; i++)
		p[i] = (int32_t)(next(r) % (uint32_t)below);
	return p;
}

void run_emit(struct run *r, enum kn_dtype t, const void *p, int64_t rows, int64_t width)
{
	struct seg *s = &r->seg[r->n_seg++];

	if (r->n_seg > SEGS_MAX)
		abort();
	s->rows = rows;
	s->width = width;
	s->v = malloc((size_t)(rows * width) * sizeof *s->v + 1);
	if (!s->v)
		abort();
	for (int64_t i = 0; i < rows * width; i++)
		s->v[i] = ops_get(t, p, i);
}

int64_t run_first(const struct run *r)
{
	return r->r1 < 0 ? 0 : r->r0;
}

int64_t run_count(const struct run *r, int64_t n)
{
	return r->r1 < 0 ? n : r->r1 - r->r0;
}
