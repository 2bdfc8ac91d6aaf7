/* Signals: a flag and a byte in a pipe; temps removed; the program ends by the signal that stopped it. */
#include "cmd/cmd_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

static volatile sig_atomic_t stop_signal, n_stop, usr1, usr2;
static int self_pipe[2] = { -1, -1 };
static unsigned sig_flags;

bool cmd_stopping(void)
{
	return stop_signal != 0;
}

int cmd_stop_signal(void)
{
	return stop_signal;
}

int cmd_sig_fd(void)
{
	return self_pipe[0];
}

bool cmd_sig_usr1(void)
{
	bool was = usr1 != 0;

	usr1 = 0;
	return was;
}

bool cmd_sig_usr2(void)
{
	bool was = usr2 != 0;

	usr2 = 0;
	return was;
}

static void wake(void)
{
	int e = errno;

	if (self_pipe[1] >= 0 && write(self_pipe[1], "", 1) < 0) {
		errno = e;      /* the pipe is full, so a reader will wake */
	}
	errno = e;
}

/* Async-signal-safe. Returns only when the signal is blocked or ignored. */
void cmd_sig_reraise(int sig)
{
	struct sigaction sa;
	sigset_t set;

	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = SIG_DFL;
	sigaction(sig, &sa, NULL);
	sigemptyset(&set);
	sigaddset(&set, sig);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	raise(sig);
}

static void on_stop(int sig)
{
	n_stop++;
	if (!(sig_flags & CMD_STOP_SOFT) || n_stop > 1) {
		sky_out_unlink_all();
		cmd_sig_reraise(sig);
	}
	stop_signal = sig;
	wake();
}

static void on_usr(int sig)
{
	if (sig == SIGUSR1) {
		usr1 = 1;
	} else {
		usr2 = 1;
	}
	wake();
}

/* A mapped input became shorter while it was read. */
static void on_bus(int sig)
{
	static const char text[] = ": an input file was cut short or became unreadable while it was in use\n";
	ssize_t ignored = write(2, cmd_prog.name, strlen(cmd_prog.name));

	ignored += write(2, text, sizeof(text) - 1);
	(void)ignored;
	sky_out_unlink_all();
	cmd_sig_reraise(sig);
}

static void handle(int sig, void (*fn)(int))
{
	struct sigaction sa, old;

	if (sigaction(sig, NULL, &old) == 0 && old.sa_handler == SIG_IGN) {
		return;         /* nohup and background jobs of old shells: stays ignored */
	}
	memset(&sa, 0, sizeof(sa));
	sa.sa_handler = fn;
	sigemptyset(&sa.sa_mask);
	sigaction(sig, &sa, NULL);      /* without SA_RESTART: a waiting call returns */
}

void cmd_sig_pipe(unsigned flags)
{
	if (flags & CMD_NO_SIGPIPE) {
		signal(SIGPIPE, SIG_IGN);
	}
}

void cmd_sig_init(unsigned flags)
{
	int i;

	sig_flags = flags;
	if (pipe2(self_pipe, O_CLOEXEC | O_NONBLOCK) < 0) {
		self_pipe[0] = self_pipe[1] = -1;
	}
	handle(SIGINT, on_stop);
	handle(SIGTERM, on_stop);
	handle(SIGHUP, on_stop);
	handle(SIGUSR1, on_usr);
	handle(SIGUSR2, on_usr);
	handle(SIGBUS, on_bus);
	for (i = 0; i < 2; i++) {       /* not to be taken for a standard descriptor by a child */
		if (self_pipe[i] >= 0 && self_pipe[i] < 3) {
			int up = fcntl(self_pipe[i], F_DUPFD_CLOEXEC, 10);

			close(self_pipe[i]);
			self_pipe[i] = up;
		}
	}
}

int cmd_stop_err(struct sky_err *err, const char *what)
{
	return sky_fail(err, SKY_E_STOP, "stopped by SIG%s, %s", stop_signal ? sigabbrev_np(stop_signal) : "?", what);
}
