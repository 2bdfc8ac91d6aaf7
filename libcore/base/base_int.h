/* Shared inside base and with its tests only. */
#ifndef SKY_BASE_BASE_INT_H
#define SKY_BASE_BASE_INT_H

#include <stddef.h>
#include <stdint.h>

/* The table path of sky_crc32c, whatever the CPU has. */
uint32_t sky_crc32c_scalar(uint32_t crc, const void *p, size_t n);

#endif
