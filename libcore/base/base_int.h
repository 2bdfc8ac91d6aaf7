/* Shared inside base and with its tests only. */
#ifndef SKY_BASE_BASE_INT_H
#define SKY_BASE_BASE_INT_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

/* The table path of sky_crc32c, whatever the CPU has. */
uint32_t sky_crc32c_scalar(uint32_t crc, const void *p, size_t n);
/* A thread that blocks all signals. */
int sky_thread_start(pthread_t *t, void *(*fn)(void *), void *arg, struct sky_err *err) SKY_MUST_CHECK;
/* One Philox4x32-10 block. */
void sky_philox(const uint32_t ctr[4], const uint32_t key[2], uint32_t out[4]);

#endif
