/* Token texts, the index from text to id, and the table of merges. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- printable spelling of bytes ----
 * 0x21-0x7e, 0xa1-0xac and 0xae-0xff stand for themselves; the other 68 bytes, in order, are U+0100 … U+0143. */

static bool is_plain(unsigned b)
{
	return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
}

uint32_t tok_char_of_byte(uint8_t b)
{
	if (is_plain(b)) {
		return b;
	}
	return b < 0x21 ? 0x100u + b : b < 0xa1 ? 0x100u + 0x21 + (b - 0x7fu) : 0x143u;
}

int tok_byte_of_char(uint32_t cp)
{
	if (cp < 0x100) {
		return is_plain(cp) ? (int)cp : -1;
	}
	if (cp > 0x143) {
		return -1;
	}
	cp -= 0x100;
	return cp < 0x21 ? (int)cp : cp < 0x43 ? (int)(0x7f + cp - 0x21) : 0xad;
}

int64_t tok_unmap(const char *s, size_t n, char *out)
{
	int64_t k = 0;
	unsigned len;

	for (size_t i = 0; i < n; i += len) {
		int b = tok_byte_of_char(uc_decode((const uint8_t *)s + i, &len));

		if (b < 0) {
			return -1;
		}
		out[k++] = (char)b;
	}
	return k;
}

/* ---- vocabulary ---- */

static int vocab_room(struct tok_vocab *v, uint32_t id, size_t n, struct sky_err *err)
{
	if (id >= v->cap) {
		uint32_t cap = v->cap ? v->cap : 4096;
		struct tok_token *p;

		while (cap <= id) {
			cap *= 2;
		}
		p = realloc(v->tok, cap * sizeof(*p));
		if (!p) {
			return sky_fail_mem(err, "vocabulary");
		}
		for (uint32_t i = v->cap; i < cap; i++) {
			p[i] = (struct tok_token){ 0, TOK_NO_LEN, 0 };
		}
		v->tok = p;
		v->cap = cap;
	}
	if (v->n_bytes + n > v->bytes_cap) {
		size_t cap = (v->n_bytes + n) * 2 + 65536;
		char *p = realloc(v->bytes, cap);

		if (!p) {
			return sky_fail_mem(err, "vocabulary");
		}
		v->bytes = p;
		v->bytes_cap = cap;
	}
	return 0;
}

int tok_vocab_add(struct tok_vocab *v, const char *s, size_t n, uint32_t id, unsigned flag, struct sky_err *err)
{
	int rc;

	if (id > TOK_MAX_ID) {
		return sky_fail(err, SKY_E_LIMIT, "token id %u is larger than %u, the largest that is supported", id,
				TOK_MAX_ID);
	}
	if (n >= TOK_NO_LEN) {
		return sky_fail(err, SKY_E_LIMIT, "a token of %zu bytes", n);
	}
	rc = vocab_room(v, id, n, err);
	if (rc < 0) {
		return rc;
	}
	if (n) {
		memcpy(v->bytes + v->n_bytes, s, n);
	}
	v->tok[id].off = (uint32_t)v->n_bytes;
	v->tok[id].len = (uint32_t)n & TOK_NO_LEN;
	v->tok[id].flag |= flag & 0xff;
	v->n_bytes += n;
	if (id >= v->n_id) {
		v->n_id = id + 1;
	}
	return 0;
}

static uint64_t hash_text(const char *s, size_t n, bool foreign)
{
	uint64_t h = n * 0x9e3779b97f4a7c15ull + foreign, w;

	while (n >= 8) {
		memcpy(&w, s, 8);
		h = (h ^ w) * 0xff51afd7ed558ccdull;
		h ^= h >> 32;
		s += 8;
		n -= 8;
	}
	w = 0;
	if (n) {
		memcpy(&w, s, n);
	}
	h = (h ^ w) * 0xc4ceb9fe1a85ec53ull;
	return h ^ h >> 29;
}

int tok_vocab_index(struct tok_vocab *v, struct sky_err *err)
{
	uint64_t n = 1024;

	while (n < (uint64_t)v->n_id * 3 / 2) {
		n *= 2;
	}
	free(v->slot);
	v->slot = malloc(n * sizeof(*v->slot));
	if (!v->slot) {
		return sky_fail_mem(err, "index of the vocabulary");
	}
	memset(v->slot, 0xff, n * sizeof(*v->slot));
	v->mask = n - 1;
	for (uint32_t id = 0; id < v->n_id; id++) {
		uint64_t h, i;

		if (v->tok[id].len == TOK_NO_LEN || !(v->tok[id].flag & TOK_MODEL)) {
			continue;
		}
		h = hash_text(v->bytes + v->tok[id].off, v->tok[id].len, v->tok[id].flag & TOK_FOREIGN);
		for (i = h & v->mask; v->slot[i] != UINT64_MAX; i = (i + 1) & v->mask) {
		}
		v->slot[i] = h >> 32 << 32 | id;
	}
	return 0;
}

uint32_t tok_vocab_find(const struct tok_vocab *v, const char *s, size_t n, bool foreign)
{
	uint64_t h = hash_text(s, n, foreign);

	for (uint64_t i = h & v->mask; v->slot[i] != UINT64_MAX; i = (i + 1) & v->mask) {
		uint32_t id = (uint32_t)v->slot[i];

		if (v->slot[i] >> 32 == h >> 32 && v->tok[id].len == n &&
		    !(v->tok[id].flag & TOK_FOREIGN) == !foreign && memcmp(v->bytes + v->tok[id].off, s, n) == 0) {
			return id;
		}
	}
	return TOK_NO_ID;
}

void tok_vocab_release(struct tok_vocab *v)
{
	free(v->bytes);
	free(v->tok);
	free(v->slot);
	memset(v, 0, sizeof(*v));
}

/* ---- merges ---- */

int tok_merges_add(struct tok_merges *m, uint32_t left, uint32_t right, uint32_t rank, uint32_t new_id,
		   struct sky_err *err)
{
	if (rank > TOK_MAX_RANK) {
		return sky_fail(err, SKY_E_LIMIT, "more than %u merges", TOK_MAX_RANK);
	}
	if (rank >= m->rank_cap) {
		uint32_t cap = m->rank_cap ? m->rank_cap : 65536;
		uint32_t *p;

		while (cap <= rank) {
			cap *= 2;
		}
		p = realloc(m->new_id, cap * sizeof(*p));
		if (!p) {
			return sky_fail_mem(err, "merges");
		}
		memset(p + m->rank_cap, 0xff, (cap - m->rank_cap) * sizeof(*p));
		m->new_id = p;
		m->rank_cap = cap;
	}
	if (m->n_list == m->list_cap) {
		size_t cap = m->list_cap ? m->list_cap * 2 : 65536;
		uint64_t *p = realloc(m->list, cap * sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "merges");
		}
		m->list = p;
		m->list_cap = cap;
	}
	m->new_id[rank] = new_id;
	m->n_rank = rank >= m->n_rank ? rank + 1 : m->n_rank;
	m->list[m->n_list++] = (uint64_t)left << 43 | (uint64_t)right << 22 | rank;
	return 0;
}

/* The list becomes the hash table; of equal pairs the later one counts. */
int tok_merges_index(struct tok_merges *m, struct sky_err *err)
{
	uint64_t n = 1024;

	m->shift = 54;
	while (n < m->n_list * 3 / 2) {
		n *= 2;
		m->shift--;
	}
	m->slot = sky_aligned_alloc(n * sizeof(*m->slot));
	if (!m->slot) {
		return sky_fail_mem(err, "merges");
	}
	m->maybe = calloc(1u << (TOK_FILTER_BITS - 3), 1);
	if (!m->maybe) {
		return sky_fail_mem(err, "merges");
	}
	memset(m->slot, 0xff, n * sizeof(*m->slot));
	m->mask = n - 1;
	for (size_t k = 0; k < m->n_list; k++) {
		const uint64_t key = m->list[k] >> 22, h = key * 0x9e3779b97f4a7c15ull;
		uint64_t i = h >> m->shift;

		m->maybe[h >> (64 - TOK_FILTER_BITS + 3)] |= (uint8_t)(1u << (h >> (64 - TOK_FILTER_BITS) & 7));
		while (m->slot[i & m->mask] != UINT64_MAX && m->slot[i & m->mask] >> 22 != key) {
			i++;
		}
		m->slot[i & m->mask] = m->list[k];
	}
	free(m->list);
	m->list = NULL;
	m->n_list = m->list_cap = 0;
	m->id_base = m->n_rank ? m->new_id[0] : TOK_NO_ID;
	for (uint32_t r = 0; r < m->n_rank && m->id_base != TOK_NO_ID; r++) {
		m->id_base = m->new_id[r] == r + m->new_id[0] ? m->id_base : TOK_NO_ID;
	}
	return 0;
}

int tok_merges_bytes(struct tok_merges *m, const uint32_t byte_id[256], struct sky_err *err)
{
	m->first = malloc(65536 * sizeof(*m->first));
	if (!m->first) {
		return sky_fail_mem(err, "merges");
	}
	for (unsigned i = 0; i < 65536; i++) {
		const uint32_t a = byte_id[i >> 8], b = byte_id[i & 255];

		m->first[i] = a == TOK_NO_ID || b == TOK_NO_ID ? TOK_NO_ID : tok_merges_find(m, a, b);
	}
	return 0;
}

void tok_merges_release(struct tok_merges *m)
{
	free(m->slot);
	free(m->maybe);
	free(m->new_id);
	free(m->first);
	free(m->list);
	memset(m, 0, sizeof(*m));
}
