/* jinja: memory and interned names of a compiled template (part of text). */
#include "text/jinja_int.h"

void *jtree_alloc(struct jtree *t, size_t n)
{
	char *r;

	n = (n + 7) & ~(size_t)7;
	if (n > (size_t)(t->free_end - t->free_p)) {
		size_t block = n > 4096 ? n : 16384;

		if (n > 4096) {
			return sky_arena_zalloc(&t->mem, block);
		}
		r = sky_arena_alloc(&t->mem, block);
		if (!r) {
			return NULL;
		}
		t->free_p = r;
		t->free_end = r + block;
	}
	r = t->free_p;
	t->free_p += n;
	return memset(r, 0, n);
}

uint32_t jhash(const char *p, size_t n)
{
	uint64_t h = 0x9e3779b97f4a7c15ull ^ n, w;

	for (; n >= 8; n -= 8, p += 8) {
		memcpy(&w, p, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
	}
	w = 0;
	memcpy(&w, p, n);
	h = (h ^ w) * 0xff51afd7ed558ccdull;
	return (uint32_t)(h ^ h >> 32);
}

const struct jname *jtree_find(const struct jtree *t, const char *p, size_t n)
{
	uint32_t h = jhash(p, n);

	for (const struct jname *m = t->cap_names ? t->names[h % t->cap_names] : NULL; m; m = m->next) {
		if (m->hash == h && m->s.n == n && !memcmp(m->s.p, p, n)) {
			return m;
		}
	}
	return NULL;
}

static bool grow_names(struct jtree *t)
{
	uint32_t cap = t->cap_names ? t->cap_names * 4 : 256;
	struct jname **names = jtree_alloc(t, cap * sizeof(*names));
	struct jname **by_sym = jtree_alloc(t, cap * sizeof(*by_sym));

	if (!names || !by_sym) {
		return false;
	}
	for (uint32_t i = 0; i < t->n_names; i++) {
		struct jname *m = by_sym[i] = t->by_sym[i];

		m->next = names[m->hash % cap];
		names[m->hash % cap] = m;
	}
	t->names = names;
	t->by_sym = by_sym;
	t->cap_names = cap;
	return true;
}

const struct jname *jtree_name(struct jtree *t, const char *p, size_t n)
{
	const struct jname *known = jtree_find(t, p, n);
	struct jname *m;
	char *s;

	if (known) {
		return known;
	}
	if (t->n_names == t->cap_names && !grow_names(t)) {
		return NULL;
	}
	m = jtree_alloc(t, sizeof(*m));
	s = jtree_alloc(t, n + 1);
	if (!m || !s) {
		return NULL;
	}
	memcpy(s, p, n);
	m->s = (struct jstr){ .p = s, .n = (uint32_t)n };
	m->hash = jhash(p, n);
	m->sym = (int32_t)t->n_names;
	m->meth_str = jinja_str_method(p, n);
	m->meth_list = jinja_list_method(p, n);
	m->meth_dict = jinja_dict_method(p, n);
	m->next = t->names[m->hash % t->cap_names];
	t->names[m->hash % t->cap_names] = m;
	t->by_sym[t->n_names++] = m;
	return m;
}
