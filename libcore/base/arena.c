/* Bump allocator: blocks are kept over a reset, so a warmed-up loop allocates nothing. */
#include "base/arena.h"

#include <assert.h>
#include <sys/mman.h>

#define ALIGN 64u
#define HUGE_BYTES ((size_t)2 << 20)

struct sky_arena_block {
	struct sky_arena_block *next;
	size_t cap, n;          /* bytes behind the header, and handed out */
	char pad[ALIGN - 3 * sizeof(void *)];
	char data[];
};
static_assert(sizeof(struct sky_arena_block) == ALIGN, "data of a block must be aligned");

void *sky_malloc_array(size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		return NULL;
	}
	return malloc(bytes ? bytes : 1);
}

void *sky_calloc_array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size ? size : 1);
}

void *sky_realloc_array(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		return NULL;
	}
	return realloc(p, bytes ? bytes : 1);
}

void *sky_aligned_alloc(size_t bytes)
{
	size_t align = bytes >= HUGE_BYTES ? HUGE_BYTES : ALIGN;
	void *p = NULL;

	if (posix_memalign(&p, align, bytes ? bytes : 1) != 0) {
		return NULL;
	}
	if (bytes >= HUGE_BYTES) {
		/* A hint: failure changes speed only. */
		(void)madvise(p, bytes, MADV_HUGEPAGE);
	}
	return p;
}

void sky_arena_init(struct sky_arena *a, size_t block_bytes, size_t max_bytes)
{
	a->head = NULL;
	a->block_bytes = block_bytes ? block_bytes : (size_t)64 << 10;
	a->n_used = 0;
	a->n_max = max_bytes;
}

void sky_arena_release(struct sky_arena *a)
{
	struct sky_arena_block *b, *next;

	for (b = a->head; b; b = next) {
		next = b->next;
		free(b);
	}
	a->head = NULL;
	a->n_used = 0;
}

void sky_arena_reset(struct sky_arena *a)
{
	struct sky_arena_block *b;

	for (b = a->head; b; b = b->next) {
		b->n = 0;
	}
	a->n_used = 0;
}

/* A block with room for bytes moves to the head, where the next request looks first. */
static struct sky_arena_block *block_for(struct sky_arena *a, size_t bytes)
{
	struct sky_arena_block **link, *b;
	size_t cap = bytes > a->block_bytes ? bytes : a->block_bytes;

	for (link = &a->head; (b = *link) != NULL; link = &b->next) {
		if (b->cap - b->n >= bytes) {
			*link = b->next;
			b->next = a->head;
			a->head = b;
			return b;
		}
	}
	if (cap > SIZE_MAX - sizeof(*b)) {
		return NULL;
	}
	b = sky_aligned_alloc(sizeof(*b) + cap);
	if (!b) {
		return NULL;
	}
	b->cap = cap;
	b->n = 0;
	b->next = a->head;
	a->head = b;
	return b;
}

void *sky_arena_alloc(struct sky_arena *a, size_t bytes)
{
	struct sky_arena_block *b = a->head;
	void *p;

	if (bytes > SIZE_MAX - ALIGN) {
		return NULL;
	}
	bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
	if (bytes == 0) {
		bytes = ALIGN;
	}
	if (a->n_max && (bytes > a->n_max || a->n_used > a->n_max - bytes)) {
		return NULL;
	}
	if (!b || b->cap - b->n < bytes) {
		b = block_for(a, bytes);
		if (!b) {
			return NULL;
		}
	}
	p = b->data + b->n;
	b->n += bytes;
	a->n_used += bytes;
	return p;
}

void *sky_arena_zalloc(struct sky_arena *a, size_t bytes)
{
	void *p = sky_arena_alloc(a, bytes);

	if (p) {
		memset(p, 0, bytes);
	}
	return p;
}

char *sky_arena_strndup(struct sky_arena *a, const char *s, size_t n)
{
	char *p;

	if (n == SIZE_MAX) {
		return NULL;
	}
	p = sky_arena_alloc(a, n + 1);
	if (p) {
		memcpy(p, s, n);
		p[n] = '\0';
	}
	return p;
}
