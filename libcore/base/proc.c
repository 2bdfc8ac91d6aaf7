/* Child processes. */
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/time.h"

extern char **environ;

/* Whether one of the n entries sets the variable of entry. */
static int sets(char *const env[], size_t n, const char *entry)
{
	size_t len = strcspn(entry, "="), i;

	for (i = 0; i < n; i++) {
		if (strncmp(env[i], entry, len) == 0 && env[i][len] == '=') {
			return 1;
		}
	}
	return 0;
}

/* extra, then what it does not override of our own environment. */
static char **make_env(char *const extra[])
{
	size_t n = 0, n_extra = 0, n_env = 0, i;
	char **env;

	while (environ[n]) {
		n++;
	}
	while (extra && extra[n_extra]) {
		n_extra++;
	}
	env = sky_malloc_array(n + n_extra + 1, sizeof(*env));
	if (!env) {
		return NULL;
	}
	for (i = 0; i < n_extra; i++) {
		env[n_env++] = extra[i];
	}
	for (i = 0; i < n; i++) {
		if (!sets(env, n_extra, environ[i])) {
			env[n_env++] = environ[i];
		}
	}
	env[n_env] = NULL;
	return env;
}

static void close_fd(int *fd)
{
	if (*fd >= 0) {
		close(*fd);
	}
	*fd = -1;
}

/* What becomes of descriptors 0, 1, 2 in the child; all others are closed. */
static int plan_fds(posix_spawn_file_actions_t *fa, unsigned flags, int child_in, int child_out)
{
	int e;

	e = flags & SKY_PROC_STDIN ? posix_spawn_file_actions_adddup2(fa, child_in, 0) :
		posix_spawn_file_actions_addopen(fa, 0, "/dev/null", O_RDONLY, 0);
	if (e == 0 && flags & SKY_PROC_QUIET) {
		e = posix_spawn_file_actions_addopen(fa, 2, "/dev/null", O_WRONLY, 0);
	}
	if (e == 0) {
		e = posix_spawn_file_actions_adddup2(fa, flags & SKY_PROC_STDOUT ? child_out : 2, 1);
	}
	return e ? e : posix_spawn_file_actions_addclosefrom_np(fa, 3);
}

/* Own group, default signals, none blocked, whatever this process does with its own. */
static int plan_attr(posix_spawnattr_t *at)
{
	sigset_t none, all;
	int e;

	sigemptyset(&none);
	sigfillset(&all);
	e = posix_spawnattr_setflags(at, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	e = e ? e : posix_spawnattr_setpgroup(at, 0);
	e = e ? e : posix_spawnattr_setsigmask(at, &none);
	return e ? e : posix_spawnattr_setsigdefault(at, &all);
}

static int spawn(struct sky_proc *p, char *const argv[], char **env, unsigned flags, int child_in, int child_out,
                 struct sky_err *err)
{
	posix_spawn_file_actions_t fa;
	posix_spawnattr_t at;
	int e;

	if (posix_spawn_file_actions_init(&fa) != 0) {
		return sky_fail_mem(err, "starting %s", argv[0]);
	}
	if (posix_spawnattr_init(&at) != 0) {
		posix_spawn_file_actions_destroy(&fa);
		return sky_fail_mem(err, "starting %s", argv[0]);
	}
	e = plan_fds(&fa, flags, child_in, child_out);
	e = e ? e : plan_attr(&at);
	e = e ? e : posix_spawnp(&p->pid, argv[0], &fa, &at, argv, env);
	posix_spawnattr_destroy(&at);
	posix_spawn_file_actions_destroy(&fa);
	if (e != 0) {
		p->pid = 0;
		errno = e;
		return sky_fail_sys(err, "starting %s", argv[0]);
	}
	return 0;
}

int sky_proc_start(struct sky_proc *p, char *const argv[], char *const env_extra[], unsigned flags, struct sky_err *err)
{
	int to[2] = { -1, -1 }, from[2] = { -1, -1 }, rc = 0;
	char **env;

	p->pid = 0;
	p->in = -1;
	p->out = -1;
	p->name = strdup(argv[0]);
	env = make_env(env_extra);
	if (!p->name || !env) {
		rc = sky_fail_mem(err, "starting %s", argv[0]);
	} else if ((flags & SKY_PROC_STDIN && pipe2(to, O_CLOEXEC) != 0) ||
	           (flags & SKY_PROC_STDOUT && pipe2(from, O_CLOEXEC) != 0)) {
		rc = sky_fail_sys(err, "making pipes for %s", argv[0]);
	} else {
		rc = spawn(p, argv, env, flags, to[0], from[1], err);
	}
	free(env);
	close_fd(&to[0]);
	close_fd(&from[1]);
	if (rc < 0) {
		close_fd(&to[1]);
		close_fd(&from[0]);
		free(p->name);
		p->name = NULL;
		return rc;
	}
	p->in = to[1];
	p->out = from[0];
	return 0;
}

int sky_proc_shell(struct sky_proc *p, const char *cmd, unsigned flags, struct sky_err *err)
{
	char *argv[] = { (char *)(uintptr_t)"/bin/sh", (char *)(uintptr_t)"-c", (char *)(uintptr_t)cmd, NULL };
	char *name = strdup(cmd);
	int rc;

	if (!name) {
		return sky_fail_mem(err, "starting %.80s", cmd);
	}
	rc = sky_proc_start(p, argv, NULL, flags, err);
	if (rc < 0) {
		free(name);
		return rc;
	}
	free(p->name);
	p->name = name;
	return 0;
}

void sky_proc_close_in(struct sky_proc *p)
{
	close_fd(&p->in);
}

static void forget(struct sky_proc *p)
{
	close_fd(&p->in);
	close_fd(&p->out);
	free(p->name);
	p->name = NULL;
	p->pid = 0;
}

/* Until the child has ended, without reaping it: its group stays addressable. 0 ended, SKY_E_AGAIN, other failure. */
static int wait_end(struct sky_proc *p, double timeout_s, struct sky_err *err)
{
	double until = sky_now() + timeout_s, pause = 0.001, left;
	int pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0), rc = 0;
	struct pollfd pf = { .fd = pidfd, .events = POLLIN };
	siginfo_t info;

	for (;;) {
		memset(&info, 0, sizeof(info));
		if (waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT | WNOHANG) != 0 && errno != EINTR) {
			rc = sky_fail_sys(err, "waiting for %.80s", p->name);
			break;
		}
		if (info.si_pid == p->pid) {
			break;
		}
		left = timeout_s < 0 ? 3600 : until - sky_now();
		if (left <= 0) {
			rc = sky_fail(err, SKY_E_AGAIN, "%.80s is still running", p->name);
			break;
		}
		if (pidfd >= 0) {
			(void)poll(&pf, 1, left > 3600 ? 3600000 : (int)(left * 1e3) + 1);
		} else {
			/* Kernels before 5.3 */
			struct timespec t = { 0, (long)(pause * 1e9) };

			(void)nanosleep(&t, NULL);
			pause = pause < 0.05 ? pause * 1.5 : 0.05;
		}
	}
	if (pidfd >= 0) {
		close(pidfd);
	}
	return rc;
}

static int reap(struct sky_proc *p)
{
	int status = 0;

	while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR) {
	}
	return status;
}

int sky_proc_wait(struct sky_proc *p, double timeout_s, int *status_p, struct sky_err *err)
{
	int rc;

	if (p->pid <= 0) {
		return sky_fail(err, SKY_E_USAGE, "there is no child process to wait for");
	}
	rc = wait_end(p, timeout_s, err);
	if (rc == 0) {
		*status_p = reap(p);
		forget(p);
	}
	return rc;
}

void sky_proc_kill(struct sky_proc *p, double grace_s)
{
	int e = errno;

	if (p->pid > 0) {
		close_fd(&p->in);
		if (grace_s > 0) {
			kill(-p->pid, SIGTERM);
			if (wait_end(p, grace_s, NULL) < 0) {
				/* Whatever the reason: what follows does not need its consent. */
				errno = e;
			}
		}
		kill(-p->pid, SIGKILL);
		reap(p);
		forget(p);
	}
	errno = e;
}

char *sky_proc_status_text(int status, char *out, size_t cap)
{
	if (WIFEXITED(status)) {
		snprintf(out, cap, "exited with status %d", WEXITSTATUS(status));
	} else if (WIFSIGNALED(status)) {
		snprintf(out, cap, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
	} else {
		snprintf(out, cap, "ended with wait status %d", status);
	}
	return out;
}
