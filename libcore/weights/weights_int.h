/* Shared by the files of weights. */
#ifndef SKY_WEIGHTS_WEIGHTS_INT_H
#define SKY_WEIGHTS_WEIGHTS_INT_H

#include "weights/weights.h"

/* Names to positions: open addressing over the names of an array of tensors, which must not move afterwards. */
struct sky_nametab {
	uint32_t *slot;         /* position + 1, 0 = empty; owned */
	uint64_t mask;
	const struct sky_tensor *tensors;
};

/* SKY_E_DATA with *dup_p = position of the second of two equal names. */
int sky_nametab_build(struct sky_nametab *t, const struct sky_tensor *tensors, int64_t n, int64_t *dup_p,
                      struct sky_err *err) SKY_MUST_CHECK;
void sky_nametab_release(struct sky_nametab *t);
int64_t sky_nametab_find(const struct sky_nametab *t, const char *name);        /* -1 when absent */

/* Elements and bytes of a shape, every product checked. 0, or -1 when it overflows or is no whole number of bytes. */
int sky_shape_bytes(enum sky_dtype dtype, const int64_t *shape, int n_dim, int64_t *n_p, uint64_t *bytes_p);

/* FILE as an index may name it: relative, inside the folder. */
int sky_hf_plain_name(const char *name);

#endif
