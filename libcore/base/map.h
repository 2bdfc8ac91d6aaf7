/* Read-only mappings with checked lengths. */
#ifndef SKY_BASE_MAP_H
#define SKY_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_map {
	const uint8_t *ptr;     /* NULL for an empty file */
	uint64_t n;             /* bytes */
	int fd;                 /* kept open so that the inode stays */
	char *path;             /* owned, for messages */
};

#define SKY_MAP_INIT { NULL, 0, -1, NULL }

enum sky_map_advice { SKY_MAP_NORMAL, SKY_MAP_SEQUENTIAL, SKY_MAP_RANDOM, SKY_MAP_WILLNEED, SKY_MAP_DONTNEED };

int sky_map_open(struct sky_map *m, const char *path, struct sky_err *err) SKY_MUST_CHECK;
void sky_map_close(struct sky_map *m);          /* safe on SKY_MAP_INIT and twice */
void sky_map_advise(const struct sky_map *m, uint64_t off, uint64_t n, enum sky_map_advice advice);
/* Pointer to [off, off + n), or NULL when that leaves the mapping. */
const void *sky_map_at(const struct sky_map *m, uint64_t off, uint64_t n);

/* Little-endian loads and stores at any alignment. */
uint16_t sky_load_u16(const void *p);
uint32_t sky_load_u32(const void *p);
uint64_t sky_load_u64(const void *p);
void sky_store_u16(void *p, uint16_t v);
void sky_store_u32(void *p, uint32_t v);
void sky_store_u64(void *p, uint64_t v);

#ifdef __cplusplus
}
#endif
#endif
