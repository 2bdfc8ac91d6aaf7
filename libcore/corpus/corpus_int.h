/* Private to libcore/corpus. */
#ifndef SKY_CORPUS_INT_H
#define SKY_CORPUS_INT_H

#include "corpus/corpus.h"

/* Copies from src to dst until a byte that ends or escapes a JSON string ('"', '\\', below 0x20) or n bytes are done;
 * returns how many. dst has 64 bytes more than n; src is not read beyond n. The widest version that the CPU runs. */
size_t json_copy_plain(char *dst, const char *src, size_t n);
/* The same without copying. */
size_t json_skip_plain(const char *src, size_t n);
/* The scalar version of both (dst may be NULL), for tests of the others. */
size_t json_plain_scalar(char *dst, const char *src, size_t n);

#endif
