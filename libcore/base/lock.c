/* Advisory locks of local targets. */
#include "base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/time.h"

static int held(int fd, const char *target, struct sky_err *err)
{
	char who[200];
	ssize_t n = pread(fd, who, sizeof(who) - 1, 0);

	who[n > 0 ? n : 0] = '\0';
	who[strcspn(who, "\n")] = '\0';
	return sky_fail(err, SKY_E_AGAIN, "%s is locked by %s (%s.lock); try again when it is done", target,
	                who[0] ? who : "another process", target);
}

/* Who holds it, for the message of the next one: not needed for the lock itself. */
static int sign(int fd, const char *path, struct sky_err *err)
{
	char host[100] = "", text[200];
	int n;

	if (gethostname(host, sizeof(host) - 1) != 0) {
		host[0] = '\0';
	}
	n = snprintf(text, sizeof(text), "pid %ld on %s\n", (long)getpid(), host[0] ? host : "this host");
	if (ftruncate(fd, 0) != 0) {
		return sky_fail_sys(err, "writing %s", path);
	}
	return sky_pwrite_full(fd, text, (size_t)n, 0, path, err);
}

int sky_lock_take(struct sky_lock *l, const char *target, double wait_s, struct sky_err *err)
{
	double until = sky_now() + wait_s, pause = 0.01;
	char path[SKY_MAX_PATH];
	size_t n = strlen(target);
	int fd, rc, len;

	while (n > 1 && target[n - 1] == '/') {
		n--;
	}
	len = snprintf(path, sizeof(path), "%.*s.lock", (int)n, target);
	if (len < 0 || (size_t)len >= sizeof(path)) {
		return sky_fail(err, SKY_E_LIMIT, "locking %.200s: the path is too long", target);
	}
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
	if (fd < 0) {
		return sky_fail_sys(err, "opening lock file %s", path);
	}
	while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
		if (errno == EINTR) {
			continue;
		}
		if (errno != EWOULDBLOCK) {
			rc = sky_fail_sys(err, "locking %s", path);
			goto out_close;
		}
		if (sky_now() >= until) {
			rc = held(fd, target, err);
			goto out_close;
		}
		sky_sleep(pause);
		pause = pause < 1 ? pause * 1.5 : 1;
	}
	rc = sign(fd, path, err);
	if (rc < 0) {
		goto out_close;
	}
	l->fd = fd;
	return 0;

out_close:
	close(fd);
	return rc;
}

void sky_lock_drop(struct sky_lock *l)
{
	if (l->fd >= 0) {
		close(l->fd);
	}
	l->fd = -1;
}
