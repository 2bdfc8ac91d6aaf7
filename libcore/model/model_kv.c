/* model: pages of running sequences. Page i is page i of every block that keeps state; counts and the
 * free list stand on the host. */
#include "model/model_int.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t bytes_per_page(const struct sky_model *m)
{
	const struct sky_block *last = &m->plan.block[m->plan.n_block - 1];

	return last->state_off + last->page_bytes;
}

int sky_kvpool_new(struct sky_model *m, int64_t n_page, struct sky_kvpool **p_p, struct sky_err *err)
{
	struct sky_kvpool *p;
	void *mem = NULL;
	int rc;

	if (n_page < 1 || n_page > INT32_MAX) {
		return sky_fail(err, SKY_E_USAGE, "a pool needs 1 to %d pages, not %lld", INT32_MAX,
				(long long)n_page);
	}
	p = calloc(1, sizeof *p);
	if (p) {
		p->refs = sky_calloc_array((size_t)n_page, sizeof *p->refs);
		p->free_list = sky_malloc_array((size_t)n_page, sizeof *p->free_list);
	}
	if (!p || !p->refs || !p->free_list) {
		sky_kvpool_free(p);
		return sky_fail_mem(err, "making a pool of %lld pages", (long long)n_page);
	}
	p->m = m;
	rc = m->d.ops->alloc(m->d.dev, bytes_per_page(m) * (uint64_t)n_page, &mem);
	if (rc) {
		sky_kvpool_free(p);
		return sky_kn_fail(m, rc, "allocating pages of keys and values", err);
	}
	p->mem = mem;
	p->n_page = p->n_free = n_page;
	for (int64_t i = 0; i < n_page; i++) {
		p->free_list[i] = (int32_t)(n_page - 1 - i); /* page 0 is taken first */
	}
	*p_p = p;
	return 0;
}

void sky_kvpool_free(struct sky_kvpool *p)
{
	if (!p) {
		return;
	}
	if (p->mem) {
		p->m->d.ops->free(p->m->d.dev, p->mem);
	}
	free(p->refs);
	free(p->free_list);
	free(p);
}

int32_t sky_kvpool_take(struct sky_kvpool *p)
{
	int32_t page;

	if (p->n_free == 0) {
		return -1;
	}
	page = p->free_list[--p->n_free];
	p->refs[page] = 1;
	return page;
}

void sky_kvpool_ref(struct sky_kvpool *p, int32_t page)
{
	assert(page >= 0 && page < p->n_page && p->refs[page] > 0);
	p->refs[page]++;
}

void sky_kvpool_drop(struct sky_kvpool *p, int32_t page)
{
	assert(page >= 0 && page < p->n_page && p->refs[page] > 0);
	if (--p->refs[page] == 0) {
		p->free_list[p->n_free++] = page;
	}
}

void *sky_kvpool_pages(const struct sky_kvpool *p, const struct sky_block *b)
{
	return p->mem + b->state_off * (uint64_t)p->n_page;
}

int32_t sky_kvpool_fork(struct sky_kvpool *p, int32_t page)
{
	const struct sky_model *m = p->m;
	int32_t to = sky_kvpool_take(p);

	for (int32_t i = 0; to >= 0 && i < m->plan.n_block; i++) {
		const struct sky_block *b = &m->plan.block[i];
		char *base = sky_kvpool_pages(p, b);

		if (b->page_bytes &&
		    m->d.ops->copy(m->d.stream, base + (uint64_t)to * b->page_bytes,
				   base + (uint64_t)page * b->page_bytes, b->page_bytes) != 0) {
			sky_kvpool_drop(p, to);
			return -1;
		}
	}
	return to;
}

int64_t sky_kvpool_n_free(const struct sky_kvpool *p)
{
	return p->n_free;
}
