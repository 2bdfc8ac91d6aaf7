/* Bump allocator for per-batch lifetimes: many small allocations, one reset. Not thread-safe; one per thread. */
#ifndef SKY_BASE_ARENA_H
#define SKY_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_arena_block;
struct sky_arena {
	struct sky_arena_block *head;   /* blocks in use, newest first; kept by _reset */
	size_t block_bytes;             /* size of a fresh block; larger requests get their own */
	size_t n_used, n_max;           /* bytes handed out now, and allowed (0 = no limit) */
};

void sky_arena_init(struct sky_arena *a, size_t block_bytes, size_t max_bytes);
void sky_arena_release(struct sky_arena *a);
void sky_arena_reset(struct sky_arena *a);      /* everything handed out is gone; memory is kept for the next round */
void *sky_arena_alloc(struct sky_arena *a, size_t bytes);         /* 64-byte aligned, not cleared; NULL when out of memory */
void *sky_arena_zalloc(struct sky_arena *a, size_t bytes);
char *sky_arena_strndup(struct sky_arena *a, const char *s, size_t n);

/* Plain heap with overflow check: NULL when n * size overflows or memory is gone. */
void *sky_malloc_array(size_t n, size_t size);
void *sky_calloc_array(size_t n, size_t size);
void *sky_realloc_array(void *p, size_t n, size_t size);
/* 64-byte aligned memory for vector code, huge-page hint from 2 MiB on; free with free(). */
void *sky_aligned_alloc(size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
