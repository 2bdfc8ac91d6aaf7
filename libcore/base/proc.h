/* Child processes with posix_spawn: own process group, pipes on stdin and stdout, deadlines, never a shell unless asked. */
#ifndef SKY_BASE_PROC_H
#define SKY_BASE_PROC_H

#include <stdint.h>
#include <sys/types.h>
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sky_proc {
	pid_t pid;              /* 0 when none */
	int in, out;            /* our ends: in writes to the child's stdin, out reads its stdout; -1 when closed */
	char *name;             /* owned, for messages */
};

enum sky_proc_flags {
	SKY_PROC_STDIN = 1u << 0,       /* pipe to stdin; otherwise /dev/null */
	SKY_PROC_STDOUT = 1u << 1,      /* pipe from stdout; otherwise our stderr */
	SKY_PROC_QUIET = 1u << 2,       /* stderr to /dev/null */
};

/* argv[0] is looked up in PATH. env_extra: NULL or "K=V" strings ending with NULL. All other descriptors are closed. */
int sky_proc_start(struct sky_proc *p, char *const argv[], char *const env_extra[], unsigned flags, struct sky_err *err) SKY_MUST_CHECK;
/* As above with /bin/sh -c cmd. */
int sky_proc_shell(struct sky_proc *p, const char *cmd, unsigned flags, struct sky_err *err) SKY_MUST_CHECK;
void sky_proc_close_in(struct sky_proc *p);
/* Waits at most timeout_s (< 0: for ever). SKY_E_AGAIN when still running; otherwise reaped, pipes closed, *p empty.
 * *status_p as from waitpid. Read the child's output to its end first. */
int sky_proc_wait(struct sky_proc *p, double timeout_s, int *status_p, struct sky_err *err) SKY_MUST_CHECK;
/* TERM to the group, KILL after grace_s, reaped. Safe when none. */
void sky_proc_kill(struct sky_proc *p, double grace_s);
/* "exited with status 3", "was killed by signal 9 (Killed)" */
char *sky_proc_status_text(int status, char *out, size_t cap);

#ifdef __cplusplus
}
#endif
#endif
