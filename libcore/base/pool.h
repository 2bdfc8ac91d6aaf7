/* Threads: a parallel-for and an ordered pipeline with bounded queues. Workers block all signals. */
#ifndef SKY_BASE_POOL_H
#define SKY_BASE_POOL_H

#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_pool;

int sky_pool_new(int n_threads, struct sky_pool **pool_p, struct sky_err *err) SKY_MUST_CHECK;  /* n_threads ≥ 1, the caller counts as one */
void sky_pool_free(struct sky_pool *p);
int sky_pool_threads(const struct sky_pool *p);
/* fn(ctx, i, worker) for i in [0, n), worker in [0, threads); returns when all are done. Order unspecified. */
void sky_pool_for(struct sky_pool *p, int64_t n, void (*fn)(void *ctx, int64_t i, int worker), void *ctx);
int sky_cpu_count(void);        /* CPUs this process may use (affinity, cgroup quota) */

/* Ordered pipeline: source (one at a time) → work (parallel) → sink (one at a time, in source order). At most
 * depth items are alive. source: SKY_EOF ends; any negative code stops the line and is returned, items already taken
 * still reach the sink in order unless work failed. */
struct sky_pipe {
	int n_threads, depth;
	void *ctx;
	int (*source)(void *ctx, void **item_p, struct sky_err *err);
	int (*work)(void *ctx, void *item, int worker, struct sky_err *err);
	int (*sink)(void *ctx, void *item, struct sky_err *err);        /* owns item from here */
	void (*drop)(void *ctx, void *item);                            /* frees an item that never reached the sink */
};
int sky_pipe_run(const struct sky_pipe *p, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
