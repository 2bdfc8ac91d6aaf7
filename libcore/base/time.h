/* Clocks. SKYRL_TEST_NOW (seconds since 1970) fixes the wall clock, SKYRL_TEST_SLEEP=0 makes sleeps return at once. */
#ifndef SKY_BASE_TIME_H
#define SKY_BASE_TIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

double sky_now(void);                   /* monotonic seconds */
double sky_wall(void);                  /* seconds since 1970 */
void sky_sleep(double s);               /* ends early when a signal comes */
char *sky_utc(char *out, size_t cap, double wall_s);            /* 2026-01-31T12:00:00Z */
/* Fields of a UTC second count: year, month 1-12, day, hour, minute, second. */
void sky_utc_fields(int64_t s, int out[6]);
int64_t sky_utc_seconds(const int fields[6]);

#ifdef __cplusplus
}
#endif
#endif
