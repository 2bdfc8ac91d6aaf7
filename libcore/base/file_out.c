/* Outputs that appear complete or not at all; see file.h for the protocol. */
#include "base/file.h"

#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/time.h"

#define BUF_BYTES ((size_t)256 << 10)
#define N_TEMPS 1024
#define MAX_NAME_IN_TEMP 200    /* of NAME, so that the temp name stays below 255 bytes */

/* The register of temps. Paths lie in the slots themselves, so the signal path never meets freed memory. */
enum { SLOT_FREE, SLOT_FILLING, SLOT_FILE, SLOT_DIR };
static struct {
	atomic_int state;
	char path[SKY_MAX_PATH];
} temps[N_TEMPS];
static atomic_bool fsync_on = true;

void sky_out_set_fsync(bool on)
{
	atomic_store(&fsync_on, on);
}

static int temp_add(const char *path, int state)
{
	int i, want;

	for (i = 0; i < N_TEMPS; i++) {
		want = SLOT_FREE;
		if (atomic_compare_exchange_strong(&temps[i].state, &want, SLOT_FILLING)) {
			snprintf(temps[i].path, sizeof(temps[i].path), "%s", path);
			atomic_store(&temps[i].state, state);
			return i;
		}
	}
	return -1;
}

static void temp_drop(int *i_p)
{
	if (*i_p >= 0) {
		atomic_store(&temps[*i_p].state, SLOT_FREE);
	}
	*i_p = -1;
}

/* One level of a folder with system calls only: readdir is not async-signal-safe. */
static void unlink_dir(const char *path)
{
	struct { uint64_t ino; int64_t off; uint16_t len; uint8_t type; char name[]; } *e;
	char buf[4096] __attribute__((aligned(8)));
	long n, at;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0) {
		return;
	}
	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (at = 0; at < n; at += e->len) {
			e = (void *)(buf + at);
			unlinkat(fd, e->name, 0);
		}
	}
	close(fd);
	rmdir(path);
}

void sky_out_unlink_all(void)
{
	int e = errno, i, state;

	for (i = 0; i < N_TEMPS; i++) {
		state = atomic_load(&temps[i].state);
		if (state == SLOT_FILE) {
			unlink(temps[i].path);
		} else if (state == SLOT_DIR) {
			unlink_dir(temps[i].path);
		}
	}
	errno = e;
}

/* Folder part of path ("." when none) and where the name starts. */
static const char *split(const char *path, char *dir, size_t cap)
{
	const char *slash = strrchr(path, '/');

	if (!slash) {
		snprintf(dir, cap, ".");
		return path;
	}
	snprintf(dir, cap, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return slash + 1;
}

static int sync_parent(const char *path, struct sky_err *err)
{
	char dir[SKY_MAX_PATH];

	split(path, dir, sizeof(dir));
	return sky_fsync_dir(dir, err);
}

/* DIR/.NAME.tmp.PID.RANDOM as malloc'ed text. */
static char *temp_name(const char *path)
{
	char dir[SKY_MAX_PATH], *out = NULL;
	const char *name = split(path, dir, sizeof(dir));
	uint64_t r = 0;

	if (getrandom(&r, sizeof(r), GRND_NONBLOCK) != sizeof(r)) {
		r = (uint64_t)(sky_now() * 1e9);
	}
	if (asprintf(&out, "%s/.%.*s.tmp.%ld.%08x", dir, MAX_NAME_IN_TEMP, name, (long)getpid(),
	             (unsigned)(r ^ r >> 32)) < 0) {
		return NULL;
	}
	return out;
}

static int exists(const char *path, struct sky_err *err)
{
	return sky_fail(err, SKY_E_USAGE, "%s exists already; --force replaces it", path);
}

static int check_path(const char *path, struct sky_err *err)
{
	size_t n = strlen(path);

	if (n == 0 || n > SKY_MAX_PATH - 300) {
		return sky_fail(err, SKY_E_USAGE, "output path has %zu bytes, 1 to %d are allowed", n,
		                SKY_MAX_PATH - 300);
	}
	if (path[n - 1] == '/') {
		return sky_fail(err, SKY_E_USAGE, "output %s names a folder, a file is expected", path);
	}
	return 0;
}

/* Devices and pipes cannot be renamed over: they are written as they are. 1 when path is such a thing. */
static int open_direct(struct sky_out *o, const char *path, struct sky_err *err)
{
	struct stat st;

	if (stat(path, &st) != 0) {
		return 0;
	}
	if (S_ISDIR(st.st_mode)) {
		return sky_fail(err, SKY_E_USAGE, "%s is a folder; a file was to be written", path);
	}
	if (S_ISREG(st.st_mode)) {
		return o->flags & SKY_OUT_REPLACE ? 0 : exists(path, err);
	}
	o->fd = open(path, O_WRONLY | O_CLOEXEC);
	return o->fd < 0 ? sky_fail_sys(err, "opening %s", path) : 1;
}

int sky_out_open(struct sky_out *o, const char *path, unsigned flags, struct sky_err *err)
{
	int rc;

	memset(o, 0, sizeof(*o));
	o->fd = -1;
	o->i_temp = -1;
	o->flags = flags;
	rc = check_path(path, err);
	if (rc < 0) {
		return rc;
	}
	rc = open_direct(o, path, err);
	if (rc < 0) {
		return rc;
	}
	o->path = strdup(path);
	o->tmp = rc == 0 ? temp_name(path) : NULL;
	o->buf = malloc(BUF_BYTES);
	if (!o->path || (rc == 0 && !o->tmp) || !o->buf) {
		sky_out_abort(o);
		return sky_fail_mem(err, "opening output %s", path);
	}
	if (rc == 1) {
		return 0;
	}
	o->i_temp = temp_add(o->tmp, SLOT_FILE);
	if (o->i_temp < 0) {
		sky_out_abort(o);
		return sky_fail(err, SKY_E_LIMIT, "opening output %s: more than %d outputs are open", path, N_TEMPS);
	}
	o->fd = open(o->tmp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
	if (o->fd < 0) {
		rc = sky_fail_sys(err, "creating %s (for output %s)", o->tmp, path);
		sky_out_abort(o);
		return rc;
	}
	return 0;
}

int sky_out_flush(struct sky_out *o, struct sky_err *err)
{
	int rc;

	if (o->n_buf == 0) {
		return 0;
	}
	rc = sky_write_full(o->fd, o->buf, o->n_buf, o->path, err);
	if (rc == 0) {
		o->n_buf = 0;
	}
	return rc;
}

int sky_out_write(struct sky_out *o, const void *p, size_t n, struct sky_err *err)
{
	int rc;

	assert(o->fd >= 0);
	if (n > BUF_BYTES - o->n_buf) {
		rc = sky_out_flush(o, err);
		if (rc < 0) {
			return rc;
		}
	}
	if (n > BUF_BYTES) {
		rc = sky_write_full(o->fd, p, n, o->path, err);
		if (rc < 0) {
			return rc;
		}
	} else if (n > 0) {
		memcpy(o->buf + o->n_buf, p, n);
		o->n_buf += n;
	}
	o->n_bytes += n;
	return 0;
}

/* rename that refuses an existing target; link and unlink where the file system has no such rename. */
static int rename_new(const char *from, const char *to, int is_dir, struct sky_err *err)
{
	if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) {
		return 0;
	}
	if ((errno == EINVAL || errno == ENOSYS) && is_dir) {
		/* rename refuses a folder that has entries, and an empty one is no loss. */
		if (rename(from, to) == 0) {
			return 0;
		}
	} else if (errno == EINVAL || errno == ENOSYS) {
		if (link(from, to) == 0) {
			unlink(from);
			return 0;
		}
	}
	if (errno == EEXIST || errno == ENOTEMPTY) {
		return exists(to, err);
	}
	return sky_fail_sys(err, "renaming %s to %s", from, to);
}

static int commit_steps(struct sky_out *o, struct sky_err *err)
{
	bool sync = atomic_load(&fsync_on) && !(o->flags & SKY_OUT_NO_FSYNC) && o->tmp;
	int rc, fd;

	rc = sky_out_flush(o, err);
	if (rc < 0) {
		return rc;
	}
	if (sync && fsync(o->fd) != 0) {
		return sky_fail_sys(err, "syncing %s", o->path);
	}
	fd = o->fd;
	o->fd = -1;
	if (close(fd) != 0) {
		return sky_fail_sys(err, "closing %s", o->path);
	}
	if (!o->tmp) {
		return 0;
	}
	if (!(o->flags & SKY_OUT_REPLACE)) {
		rc = rename_new(o->tmp, o->path, 0, err);
	} else if (rename(o->tmp, o->path) != 0) {
		rc = sky_fail_sys(err, "renaming %s to %s", o->tmp, o->path);
	}
	if (rc < 0) {
		return rc;
	}
	/* Renamed: nothing of ours is left to remove, even when the folder cannot be synced. */
	temp_drop(&o->i_temp);
	free(o->tmp);
	o->tmp = NULL;
	return sync ? sync_parent(o->path, err) : 0;
}

int sky_out_commit(struct sky_out *o, struct sky_err *err)
{
	int rc = commit_steps(o, err);

	sky_out_abort(o);
	return rc;
}

void sky_out_abort(struct sky_out *o)
{
	int e = errno;

	if (!o->path && !o->buf && !o->tmp) {
		/* Zeroed, committed or aborted: fd 0 of a zeroed struct is not ours. */
		return;
	}
	if (o->fd >= 0) {
		close(o->fd);
	}
	if (o->tmp) {
		unlink(o->tmp);
	}
	temp_drop(&o->i_temp);
	free(o->path);
	free(o->tmp);
	free(o->buf);
	memset(o, 0, sizeof(*o));
	o->fd = -1;
	o->i_temp = -1;
	errno = e;
}

int sky_file_publish(const char *path, const void *p, size_t n, unsigned flags, struct sky_err *err)
{
	struct sky_out o;
	int rc;

	rc = sky_out_open(&o, path, flags, err);
	if (rc < 0) {
		return rc;
	}
	rc = sky_out_write(&o, p, n, err);
	if (rc < 0) {
		sky_out_abort(&o);
		return rc;
	}
	return sky_out_commit(&o, err);
}

int sky_outdir_open(struct sky_outdir *o, const char *path, unsigned flags, struct sky_err *err)
{
	size_t n = strlen(path);
	int rc;

	memset(o, 0, sizeof(*o));
	o->i_temp = -1;
	o->flags = flags;
	while (n > 1 && path[n - 1] == '/') {
		n--;
	}
	o->path = strndup(path, n);
	if (!o->path) {
		return sky_fail_mem(err, "opening output folder %s", path);
	}
	rc = check_path(o->path, err);
	if (rc == 0 && sky_file_exists(o->path)) {
		rc = !sky_is_dir(o->path) ? sky_fail(err, SKY_E_USAGE, "%s is a file; a folder was to be written",
		                                     path) :
			flags & SKY_OUT_REPLACE ? 0 : exists(o->path, err);
	}
	if (rc < 0) {
		sky_outdir_abort(o);
		return rc;
	}
	o->tmp = temp_name(o->path);
	o->i_temp = o->tmp ? temp_add(o->tmp, SLOT_DIR) : -1;
	if (o->i_temp < 0) {
		sky_outdir_abort(o);
		return sky_fail_mem(err, "opening output folder %s", path);
	}
	if (mkdir(o->tmp, 0777) != 0) {
		rc = sky_fail_sys(err, "creating %s (for output %s)", o->tmp, path);
		sky_outdir_abort(o);
		return rc;
	}
	return 0;
}

/* Exchange with what is there, then remove that. Without the system call: two renames with a short gap between. */
static int replace_dir(struct sky_outdir *o, struct sky_err *err)
{
	char *old;
	int rc;

	if (rename(o->tmp, o->path) == 0) {
		/* Nothing was there, or an empty folder. */
		return 0;
	}
	if (renameat2(AT_FDCWD, o->tmp, AT_FDCWD, o->path, RENAME_EXCHANGE) == 0) {
		return sky_remove_tree(o->tmp, err);
	}
	if (errno != EINVAL && errno != ENOSYS) {
		return sky_fail_sys(err, "exchanging %s with %s", o->tmp, o->path);
	}
	old = temp_name(o->path);
	if (!old) {
		return sky_fail_mem(err, "replacing %s", o->path);
	}
	if (rename(o->path, old) != 0 || rename(o->tmp, o->path) != 0) {
		rc = sky_fail_sys(err, "replacing %s (its old content may be %s)", o->path, old);
	} else {
		rc = sky_remove_tree(old, err);
	}
	free(old);
	return rc;
}

int sky_outdir_commit(struct sky_outdir *o, struct sky_err *err)
{
	bool sync = atomic_load(&fsync_on) && !(o->flags & SKY_OUT_NO_FSYNC);
	int rc = 0;

	if (sync) {
		rc = sky_fsync_dir(o->tmp, err);
	}
	if (rc == 0) {
		rc = o->flags & SKY_OUT_REPLACE ? replace_dir(o, err) : rename_new(o->tmp, o->path, 1, err);
	}
	if (rc == 0 && sync) {
		rc = sync_parent(o->path, err);
	}
	if (rc == 0) {
		temp_drop(&o->i_temp);
		free(o->tmp);
		o->tmp = NULL;
	}
	sky_outdir_abort(o);
	return rc;
}

void sky_outdir_abort(struct sky_outdir *o)
{
	int e = errno;

	if (!o->path && !o->tmp) {
		return;
	}
	if (o->tmp && sky_remove_tree(o->tmp, NULL) < 0) {
		/* Left for sky_clean_temps; the first error is the caller's already. */
		errno = e;
	}
	temp_drop(&o->i_temp);
	free(o->path);
	free(o->tmp);
	memset(o, 0, sizeof(*o));
	o->i_temp = -1;
	errno = e;
}

/* .NAME.tmp.PID.RANDOM: the PID, or 0 when the name is of another kind. */
static long temp_pid(const char *name)
{
	const char *p = NULL, *q;
	char *end;
	long pid;

	for (q = name; name[0] == '.' && (q = strstr(q, ".tmp.")) != NULL; q += 5) {
		p = q + 5;
	}
	if (!p || !isdigit((unsigned char)*p)) {
		return 0;
	}
	pid = strtol(p, &end, 10);
	return pid > 0 && *end == '.' && strspn(end + 1, "0123456789abcdef") == 8 && end[9] == '\0' ? pid : 0;
}

int sky_clean_temps(const char *dir, double age_s, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct stat st;
	size_t n, i;
	char **names;
	long pid;
	int rc;

	rc = sky_list_dir(dir, &names, &n, err);
	if (rc < 0) {
		return rc;
	}
	for (i = 0; rc == 0 && i < n; i++) {
		pid = temp_pid(names[i]);
		if (pid == 0 || kill((pid_t)pid, 0) == 0 || errno != ESRCH) {
			continue;
		}
		rc = sky_path_join(path, sizeof(path), dir, names[i], err);
		if (rc < 0 || lstat(path, &st) != 0) {
			continue;
		}
		/* Temps bear real times even where a test fixes the clock: compare with the system's. */
		if (age_s < 0 || (double)(time(NULL) - st.st_mtime) > age_s) {
			rc = sky_remove_tree(path, err);
		}
	}
	sky_names_free(names, n);
	return rc;
}
