/* Shared inside libcore/learn. */
#ifndef SKY_LEARN_LEARN_INT_H
#define SKY_LEARN_LEARN_INT_H

/* exp(clamp(x, −20, 20)); *d (may be NULL) its derivative, 0 beyond the clamp. */
double sky_safe_exp(double x, double *d);

#endif
