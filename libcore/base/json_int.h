/* Layout of JSON documents, shared by json.c and json_get.c. */
#ifndef SKY_BASE_JSON_INT_H
#define SKY_BASE_JSON_INT_H

#include "base/arena.h"
#include "base/json.h"

/* Members and elements lie side by side, so that the next sibling is the next node and an index is an addition. */
struct sky_jnode {
	const char *key;                /* into the text; NULL in arrays and for the root */
	union {
		const char *text;       /* string, decoded; number, raw */
		struct sky_jnode *child;
		bool truth;
	} u;
	uint32_t n;                     /* members, elements, bytes of a string */
	uint32_t hash;                  /* of key */
	uint8_t type;                   /* enum sky_jtype */
	uint8_t last;                   /* no sibling follows */
};

struct sky_json {
	char *text;                     /* owned copy of the input; strings are decoded inside it */
	struct sky_arena arena;         /* nodes and hash tables */
	struct sky_jnode root;
};

/* Objects from this size on have a hash table of sky_j_table_cap(n) slots (position + 1, 0 = empty, linear probing)
 * directly in front of their first member. */
#define SKY_J_TABLE_FROM 12

static inline uint32_t sky_j_table_cap(uint32_t n)
{
	uint32_t cap = 32;

	while (cap < 2 * (uint64_t)n) {
		cap *= 2;
	}
	return cap;
}

uint32_t sky_j_hash(const char *key, size_t n);

#endif
