/* Loops that a compiler may turn into vectors of the width that the processor has, chosen when the program starts. */
#ifndef SKY_BASE_VEC_H
#define SKY_BASE_VEC_H

/* In front of a function whose loops do the same operations in the same order for every width: no contraction to fused
 * multiply-adds, so the bits do not depend on the processor. A compiler without function clones builds the plain form. */
#if defined(__GNUC__) && !defined(__clang__)
#define SKY_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default"), optimize("O3", "fp-contract=off")))
#else
#define SKY_CLONES
#endif

#endif
