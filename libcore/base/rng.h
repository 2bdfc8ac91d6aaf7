/* Counter-based random numbers: Philox4x32-10. A draw is a function of (seed, purpose, index) and nothing else, so
 * threads, batch composition and resume cannot change it. */
#ifndef SKY_BASE_RNG_H
#define SKY_BASE_RNG_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Purposes; append only, values are part of reproducibility. */
enum sky_rng_purpose {
	SKY_RNG_ORDER = 1,      /* data order */
	SKY_RNG_SAMPLE = 2,     /* token sampling: index = position, stream = sequence */
	SKY_RNG_INIT = 3,       /* weight initialisation */
	SKY_RNG_ENV = 4,
	SKY_RNG_SPLIT = 5,      /* train/validation splits, dataset sampling */
	SKY_RNG_RETRY = 6,      /* back-off jitter */
	SKY_RNG_TEST = 7,
};

/* Four 32-bit words for (seed, purpose, stream, index). */
void sky_rng_draw(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index, uint32_t out[4]);
double sky_rng_uniform(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index);      /* [0, 1), 53 bits */
uint64_t sky_rng_below(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index, uint64_t n); /* [0, n), n > 0 */
double sky_rng_normal(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t index);       /* mean 0, deviation 1 */
/* Keyed permutation of [0, n) in O(1) memory (Feistel with cycle walking). */
uint64_t sky_rng_permute(uint64_t seed, uint32_t purpose, uint64_t stream, uint64_t i, uint64_t n);

#ifdef __cplusplus
}
#endif
#endif
