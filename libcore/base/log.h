/* Debug masks (SKYRL_DEBUG=store,delta:2) for people who look inside; silent unless switched on. Goes to stderr or
 * SKYRL_DEBUG_FILE. Levels: 1 per run, 2 per object, 3 per request, 4 per record. Never secrets. */
#ifndef SKY_BASE_LOG_H
#define SKY_BASE_LOG_H

#include <stdbool.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

bool sky_log_on(const char *area, int level);
void sky_log(const char *area, int level, const char *fmt, ...) SKY_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
