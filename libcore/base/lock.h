/* Advisory lock of a local target: flock on TARGET.lock, which is kept for ever and names its holder (pid, host). */
#ifndef SKY_BASE_LOCK_H
#define SKY_BASE_LOCK_H

#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_lock {
	int fd;         /* -1 when not held */
};

#define SKY_LOCK_INIT { -1 }

/* Takes TARGET.lock; waits at most wait_s seconds (0 = fail at once), growing pauses. Held by another: SKY_E_AGAIN
 * with its pid and host in the message. A directory target is locked beside itself (DIR.lock). */
int sky_lock_take(struct sky_lock *l, const char *target, double wait_s, struct sky_err *err) SKY_MUST_CHECK;
void sky_lock_drop(struct sky_lock *l);         /* safe when not held */

#ifdef __cplusplus
}
#endif
#endif
