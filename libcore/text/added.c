/* Finding added tokens in text: leftmost, then longest, as the Aho-Corasick matcher of `tokenizers` does. Most texts
 * hold few candidates, so a byte filter does nearly all the work. */
#include "text/tok_int.h"

#include <stdlib.h>
#include <string.h>

struct edge {
	uint32_t key, node;
}; /* key: (parent << 8 | byte) + 1 */

struct tok_trie {
	bool first[256];   /* bytes that a token starts with */
	int only;          /* the single such byte, or −1 */
	struct edge *edge; /* open hash, key 0 = free */
	uint32_t mask;
	const struct tok_added **token; /* by node, NULL inside */
	uint32_t n_node;
};

/* Slot of the edge, or the free one where it belongs. */
static struct edge *edge_find(const struct tok_trie *t, uint32_t node, uint8_t byte)
{
	uint32_t key = (node << 8 | byte) + 1;
	uint32_t i = key * 0x9e3779b1u;

	i ^= i >> 15;
	while (t->edge[i & t->mask].key != key && t->edge[i & t->mask].key != 0) {
		i++;
	}
	return &t->edge[i & t->mask];
}

static void trie_insert(struct tok_trie *t, const struct tok_added *a)
{
	uint32_t node = 0;

	for (size_t i = 0; i < a->n_match; i++) {
		struct edge *e = edge_find(t, node, (uint8_t)a->match[i]);

		if (e->key == 0) {
			e->key = (node << 8 | (uint8_t)a->match[i]) + 1;
			e->node = t->n_node++;
		}
		node = e->node;
	}
	if (!t->token[node]) {
		t->token[node] = a;
	}
	t->only = t->first[(uint8_t)a->match[0]] || t->only == -2 ? t->only : t->only == -1 ? (uint8_t)a->match[0] : -2;
	t->first[(uint8_t)a->match[0]] = true;
}

int tok_trie_new(const struct tok_added *a, size_t n, bool normalized, struct tok_trie **t_p, struct sky_err *err)
{
	struct tok_trie *t = NULL;
	size_t total = 1, n_slot = 16, count = 0;

	*t_p = NULL;
	for (size_t i = 0; i < n; i++) {
		if (!(a[i].flags & ADDED_NORMALIZED) == !normalized && a[i].n_match) {
			total += a[i].n_match;
			count++;
		}
	}
	if (count == 0) {
		return 0;
	}
	if (total >= 1u << 23) {
		return sky_fail(err, SKY_E_LIMIT, "added tokens: more than %u bytes of text", 1u << 23);
	}
	while (n_slot < total * 2) {
		n_slot *= 2;
	}
	t = calloc(1, sizeof(*t));
	if (!t || !(t->edge = calloc(n_slot, sizeof(*t->edge))) || !(t->token = calloc(total, sizeof(void *)))) {
		tok_trie_free(t);
		return sky_fail_mem(err, "added tokens");
	}
	t->mask = (uint32_t)(n_slot - 1);
	t->n_node = 1;
	t->only = -1;
	for (size_t i = 0; i < n; i++) {
		if (!(a[i].flags & ADDED_NORMALIZED) == !normalized && a[i].n_match) {
			trie_insert(t, &a[i]);
		}
	}
	*t_p = t;
	return 0;
}

void tok_trie_free(struct tok_trie *t)
{
	if (t) {
		free(t->edge);
		free(t->token);
		free(t);
	}
}

static const struct tok_added *longest_at(const struct tok_trie *t, const uint8_t *p, size_t n, size_t *len_p)
{
	const struct tok_added *found = NULL;
	uint32_t node = 0;

	for (size_t i = 0; i < n; i++) {
		node = edge_find(t, node, p[i])->node;
		if (node == 0) {
			break;
		}
		if (t->token[node]) {
			found = t->token[node];
			*len_p = i + 1;
		}
	}
	return found;
}

/* Start of the character that ends before i. */
static size_t char_before(const uint8_t *p, size_t i)
{
	do {
		i--;
	} while (i > 0 && (p[i] & 0xc0) == 0x80);
	return i;
}

static unsigned class_at(const uint8_t *p, size_t i)
{
	unsigned k;

	return uc_class(uc_decode(p + i, &k));
}

static bool stands_alone(const uint8_t *p, size_t n, size_t from, size_t to)
{
	return !(from > 0 && (class_at(p, char_before(p, from)) & UC_W)) && !(to < n && (class_at(p, to) & UC_W));
}

static void strip_space(const struct tok_added *a, const uint8_t *p, size_t n, size_t floor, struct tok_hit *hit)
{
	if (a->flags & ADDED_LSTRIP) {
		size_t i = hit->from;

		while (i > 0 && (class_at(p, char_before(p, i)) & UC_S)) {
			i = char_before(p, i);
		}
		hit->from = i > floor ? i : floor;
	}
	while ((a->flags & ADDED_RSTRIP) && hit->to < n && (class_at(p, hit->to) & UC_S)) {
		hit->to += uc_length(p[hit->to]);
	}
}

bool tok_trie_next(const struct tok_trie *t, const uint8_t *p, size_t n, size_t *pos, size_t floor, bool skip_special,
		   struct tok_hit *hit)
{
	size_t i = *pos, len = 0;

	while (i < n) {
		const struct tok_added *a;

		if (t->only >= 0) {
			const uint8_t *q = memchr(p + i, t->only, n - i);

			i = q ? (size_t)(q - p) : n;
		}
		while (i < n && !t->first[p[i]]) {
			i++;
		}
		a = i < n ? longest_at(t, p + i, n - i, &len) : NULL;
		if (!a) {
			i += i < n;
			continue;
		}
		hit->from = i;
		hit->to = i + len;
		i += len;
		if ((skip_special && (a->flags & ADDED_SPECIAL)) ||
		    ((a->flags & ADDED_SINGLE_WORD) && !stands_alone(p, n, hit->from, hit->to))) {
			continue; /* what it covers is not searched again */
		}
		*pos = i;
		hit->token = a;
		strip_space(a, p, n, floor, hit);
		return true;
	}
	*pos = n;
	return false;
}
