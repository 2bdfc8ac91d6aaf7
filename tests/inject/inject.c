/* Preload library that makes the nth call of some functions fail, or ends the process there.
 *
 *	INJECT_CALLS=write,fsync,rename   which functions count (names below; "all" = every one but the allocators)
 *	INJECT_AT=N                       the Nth of them, from 1; without it calls are only counted
 *	INJECT_DO=fail|kill|torn          fail with INJECT_ERRNO; die by SIGKILL before the call; write half, then die
 *	INJECT_ERRNO=ENOSPC               a name of the table below; default EIO (allocators: always ENOMEM)
 *	INJECT_PROG=skyrl-pretok          only in that program (default: any)
 *	INJECT_COUNT=FILE                 the number of calls counted is appended at exit
 *	INJECT_FROM=1                     every call from the Nth on fails (a full disk stays full)
 *
 * open counts only when it may write, so that loaders and locale files do not shift the numbers. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum call {
	C_OPEN, C_READ, C_PREAD, C_WRITE, C_PWRITE, C_FSYNC, C_RENAME, C_LINK, C_UNLINK, C_MKDIR, C_RMDIR, C_TRUNCATE, C_CLOSE,
	C_MMAP, C_COPY, C_MALLOC, C_COUNT
};

static const char *const call_names[C_COUNT] = { "open", "read", "pread", "write", "pwrite", "fsync", "rename", "link",
	"unlink", "mkdir", "rmdir", "truncate", "close", "mmap", "copy", "malloc" };

enum what { DO_COUNT, DO_FAIL, DO_KILL, DO_TORN };

static bool counted[C_COUNT];
static enum what what;
static long at, n_calls;
static int fail_errno = EIO;
static bool ready, from;
static const char *count_file;

static int errno_named(const char *name)
{
	static const struct { const char *name; int value; } table[] = {
		{ "EIO", EIO }, { "ENOSPC", ENOSPC }, { "EDQUOT", EDQUOT }, { "EROFS", EROFS }, { "EACCES", EACCES },
		{ "ENOMEM", ENOMEM }, { "EMFILE", EMFILE }, { "EINTR", EINTR }, { "EXDEV", EXDEV }, { "EEXIST", EEXIST },
		{ "ESTALE", ESTALE }, { "EBUSY", EBUSY }, { "ENOTSUP", ENOTSUP },
	};
	size_t i;

	for (i = 0; name && i < sizeof(table) / sizeof(table[0]); i++) {
		if (strcmp(table[i].name, name) == 0) {
			return table[i].value;
		}
	}
	return EIO;
}

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (*list) {
		size_t len = strcspn(list, ",");

		if (len == n && memcmp(list, word, n) == 0) {
			return true;
		}
		list += len + (list[len] == ',');
	}
	return false;
}

__attribute__((constructor)) static void setup(void)
{
	const char *calls = getenv("INJECT_CALLS"), *prog = getenv("INJECT_PROG"), *n = getenv("INJECT_AT");
	const char *act = getenv("INJECT_DO");
	int i;

	if (!calls || (prog && strcmp(prog, program_invocation_short_name) != 0)) {
		return;
	}
	for (i = 0; i < C_COUNT; i++) {
		counted[i] = has_word(calls, call_names[i]) || (i != C_MALLOC && has_word(calls, "all"));
	}
	at = n ? strtol(n, NULL, 10) : 0;
	what = at <= 0 || !act            ? DO_COUNT
	       : strcmp(act, "kill") == 0 ? DO_KILL
	       : strcmp(act, "torn") == 0 ? DO_TORN
					  : DO_FAIL;
	fail_errno = errno_named(getenv("INJECT_ERRNO"));
	from = getenv("INJECT_FROM") != NULL;
	count_file = getenv("INJECT_COUNT");
	ready = true;
}

__attribute__((destructor)) static void report(void)
{
	char text[32];
	int fd, n;

	if (!ready || !count_file) {
		return;
	}
	ready = false;
	fd = open(count_file, O_WRONLY | O_CREAT | O_APPEND, 0600);
	n = snprintf(text, sizeof(text), "%ld\n", n_calls);
	if (fd >= 0) {
		if (write(fd, text, (size_t)n) != n) {
			_exit(99);
		}
		close(fd);
	}
}

/* True when this call has to fail, with errno set. Does not return when it has to die. */
static bool hit(enum call c, bool may_tear)
{
	long n;

	if (!ready || !counted[c]) {
		return false;
	}
	n = __atomic_add_fetch(&n_calls, 1, __ATOMIC_SEQ_CST);
	if (what == DO_COUNT || (from ? n < at : n != at)) {
		return false;
	}
	if (what == DO_KILL || (what == DO_TORN && !may_tear)) {
		kill(getpid(), SIGKILL);
		pause();
	}
	errno = c == C_MALLOC ? ENOMEM : fail_errno;
	return true;
}

#define REAL(name) \
	static __typeof__(&name) real; \
	if (!real) { \
		real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); \
	}

static bool writes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT);
}

#define OPEN_BODY(name, ...) \
	mode_t mode = 0; \
	va_list ap; \
	REAL(name) \
	va_start(ap, flags); \
	if (flags & (O_CREAT | O_TMPFILE)) { \
		mode = (mode_t)va_arg(ap, int); \
	} \
	va_end(ap); \
	return writes(flags) && hit(C_OPEN, false) ? -1 : real(__VA_ARGS__, mode);

EXPORT int open(const char *path, int flags, ...) { OPEN_BODY(open, path, flags) }
EXPORT int open64(const char *path, int flags, ...) { OPEN_BODY(open64, path, flags) }
EXPORT int openat(int dir, const char *path, int flags, ...) { OPEN_BODY(openat, dir, path, flags) }
EXPORT int openat64(int dir, const char *path, int flags, ...) { OPEN_BODY(openat64, dir, path, flags) }

#define WRAP(type, name, c, params, args) \
	EXPORT type name params \
	{ \
		REAL(name) \
		return hit(c, false) ? (type)-1 : real args; \
	}

WRAP(ssize_t, read, C_READ, (int fd, void *p, size_t n), (fd, p, n))
WRAP(ssize_t, pread, C_PREAD, (int fd, void *p, size_t n, off_t off), (fd, p, n, off))
WRAP(ssize_t, pread64, C_PREAD, (int fd, void *p, size_t n, off64_t off), (fd, p, n, off))
WRAP(int, fsync, C_FSYNC, (int fd), (fd))
WRAP(int, fdatasync, C_FSYNC, (int fd), (fd))
WRAP(int, syncfs, C_FSYNC, (int fd), (fd))
WRAP(int, rename, C_RENAME, (const char *a, const char *b), (a, b))
WRAP(int, renameat, C_RENAME, (int da, const char *a, int db, const char *b), (da, a, db, b))
WRAP(int, renameat2, C_RENAME, (int da, const char *a, int db, const char *b, unsigned int flags), (da, a, db, b, flags))
WRAP(int, link, C_LINK, (const char *a, const char *b), (a, b))
WRAP(int, linkat, C_LINK, (int da, const char *a, int db, const char *b, int flags), (da, a, db, b, flags))
WRAP(int, symlink, C_LINK, (const char *a, const char *b), (a, b))
WRAP(int, unlink, C_UNLINK, (const char *path), (path))
WRAP(int, unlinkat, C_UNLINK, (int dir, const char *path, int flags), (dir, path, flags))
WRAP(int, mkdir, C_MKDIR, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, C_MKDIR, (int dir, const char *path, mode_t mode), (dir, path, mode))
WRAP(int, rmdir, C_RMDIR, (const char *path), (path))
WRAP(int, ftruncate, C_TRUNCATE, (int fd, off_t n), (fd, n))
WRAP(int, ftruncate64, C_TRUNCATE, (int fd, off64_t n), (fd, n))
WRAP(ssize_t, writev, C_WRITE, (int fd, const struct iovec *v, int n), (fd, v, n))
WRAP(ssize_t, copy_file_range, C_COPY, (int a, off64_t *ao, int b, off64_t *bo, size_t n, unsigned int flags),
     (a, ao, b, bo, n, flags))

/* close: the descriptor is gone in any case, as with a late error of a network file system. */
EXPORT int close(int fd)
{
	bool bad;
	int e, rc;

	REAL(close)
	bad = hit(C_CLOSE, false);
	e = errno;
	rc = real(fd);
	errno = bad ? e : errno;
	return bad ? -1 : rc;
}

/* Half of the bytes reach the file, then the process dies (torn) or the caller sees the error. */
#define WRITE_BODY(name, ...) \
	REAL(name) \
	if (hit(fd_call, true)) { \
		int e = errno; \
		if (what == DO_TORN) { \
			ssize_t ignored = real(fd, p, n / 2, ##__VA_ARGS__); \
			(void)ignored; \
			kill(getpid(), SIGKILL); \
			pause(); \
		} \
		errno = e; \
		return -1; \
	} \
	return real(fd, p, n, ##__VA_ARGS__);

EXPORT ssize_t write(int fd, const void *p, size_t n)
{
	const enum call fd_call = C_WRITE;

	WRITE_BODY(write)
}

EXPORT ssize_t pwrite(int fd, const void *p, size_t n, off_t off)
{
	const enum call fd_call = C_PWRITE;

	WRITE_BODY(pwrite, off)
}

EXPORT ssize_t pwrite64(int fd, const void *p, size_t n, off64_t off)
{
	const enum call fd_call = C_PWRITE;

	WRITE_BODY(pwrite64, off)
}

EXPORT void *mmap(void *at_p, size_t n, int prot, int flags, int fd, off_t off)
{
	REAL(mmap)
	return fd >= 0 && hit(C_MMAP, false) ? (void *)-1 : real(at_p, n, prot, flags, fd, off);
}

/* Allocators go to the C library by its own names: dlsym allocates. */
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t align, size_t n);

EXPORT void *malloc(size_t n)
{
	return hit(C_MALLOC, false) ? NULL : __libc_malloc(n);
}

EXPORT void *calloc(size_t n, size_t size)
{
	return hit(C_MALLOC, false) ? NULL : __libc_calloc(n, size);
}

EXPORT void *realloc(void *p, size_t n)
{
	return hit(C_MALLOC, false) ? NULL : __libc_realloc(p, n);
}

EXPORT void *aligned_alloc(size_t align, size_t n)
{
	return hit(C_MALLOC, false) ? NULL : __libc_memalign(align, n);
}

EXPORT int posix_memalign(void **p, size_t align, size_t n)
{
	*p = hit(C_MALLOC, false) ? NULL : __libc_memalign(align, n);
	return *p ? 0 : ENOMEM;
}
