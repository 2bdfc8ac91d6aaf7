/* XXH3-128 for content, SHA-256 for fingerprints and request signing, HMAC, CRC32C. */
#ifndef SKY_BASE_HASH_H
#define SKY_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_h128 { uint64_t hi, lo; };

struct sky_h128 sky_xxh128(const void *p, size_t n);            /* XXH3-128, seed 0 */
uint64_t sky_xxh64(const void *p, size_t n, uint64_t seed);     /* XXH3-64, for hash tables */
/* Streaming; NULL when out of memory. */
struct sky_xxh_state;
struct sky_xxh_state *sky_xxh_new(void);
void sky_xxh_update(struct sky_xxh_state *s, const void *p, size_t n);
struct sky_h128 sky_xxh_digest(const struct sky_xxh_state *s);
void sky_xxh_free(struct sky_xxh_state *s);
/* 32 lower-case hex digits, high half first (canonical form), and NUL. */
void sky_h128_hex(struct sky_h128 h, char out[33]);
int sky_h128_parse(const char *hex, struct sky_h128 *h_p);      /* 0 or -1 */

struct sky_sha256 { uint32_t h[8]; uint64_t n; uint8_t block[64]; };
void sky_sha256_init(struct sky_sha256 *s);
void sky_sha256_update(struct sky_sha256 *s, const void *p, size_t n);
void sky_sha256_final(struct sky_sha256 *s, uint8_t out[32]);
void sky_sha256(const void *p, size_t n, uint8_t out[32]);
void sky_hmac_sha256(const void *key, size_t n_key, const void *p, size_t n, uint8_t out[32]);
uint32_t sky_crc32c(uint32_t crc, const void *p, size_t n);     /* start with 0 */
uint32_t sky_crc32(uint32_t crc, const void *p, size_t n);      /* IEEE, start with 0 */
void sky_md5(const void *p, size_t n, uint8_t out[16]);         /* object stores ask for it; never for trust */
/* Lower-case hex of n bytes and NUL: out has 2n + 1 bytes. */
void sky_hex(const uint8_t *p, size_t n, char *out);

#ifdef __cplusplus
}
#endif
#endif
