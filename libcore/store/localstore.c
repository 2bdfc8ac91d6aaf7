/* store: a directory as a store. Objects are files; a put is a temp beside the target and one rename, so a reader sees
 * the old object or the new one. Tags are made of inode, size and time of change: every put makes a new inode, so a tag
 * is as good as an etag. Conditions are decided under an flock of the root directory. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/store_int.h"

#define COPY_BYTES (1u << 20)
#define LOCK_NAME ".skyrl-store.lock"   /* only on file systems that cannot lock a directory */
#define LOCK_WAIT_S 60.0

struct local {
	char *root;
};

static const char *root_of(const struct sky_store *s)
{
	return ((const struct local *)s->be)->root;
}

static int key_path(const struct sky_store *s, const char *key, char *path, struct sky_err *err)
{
	return sky_path_join(path, SKY_MAX_PATH, root_of(s), key, err);
}

static int local_open(struct sky_store *s, const char *rest, struct sky_err *err)
{
	struct local *be = calloc(1, sizeof(*be));

	if (strncmp(s->url, "file://", 7) == 0 && rest[0] != '/') {
		free(be);
		return sky_fail(err, SKY_E_USAGE, "%s: expected file:///absolute/path", s->url);
	}
	if (rest[0] == '\0') {
		free(be);
		return sky_fail(err, SKY_E_USAGE, "empty store name");
	}
	if (!be || !(be->root = strdup(rest))) {
		free(be);
		return sky_fail_mem(err, "store %s", s->url);
	}
	s->be = be;
	return 0;
}

static void local_close(struct sky_store *s)
{
	struct local *be = s->be;

	free(be->root);
	free(be);
}

static void fill_object(struct sky_object *o, const struct stat *st)
{
	o->bytes = (uint64_t)st->st_size;
	o->mtime = (double)st->st_mtim.tv_sec + 1e-9 * (double)st->st_mtim.tv_nsec;
	snprintf(o->tag, sizeof(o->tag), "%llx-%llx-%llx.%lx", (unsigned long long)st->st_ino,
	         (unsigned long long)st->st_size, (unsigned long long)st->st_mtim.tv_sec,
	         (unsigned long)st->st_mtim.tv_nsec);
}

static int local_head(struct sky_store *s, const char *key, struct sky_object *o, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct stat st;
	int rc = key_path(s, key, path, err);

	if (rc < 0) {
		return rc;
	}
	if (stat(path, &st) < 0) {
		return errno == ENOENT || errno == ENOTDIR ? sky_no_object(s, key, err) : sky_fail_sys(err, "%s", path);
	}
	if (!S_ISREG(st.st_mode)) {
		return sky_no_object(s, key, err);
	}
	fill_object(o, &st);
	return 0;
}

static int open_object(struct sky_store *s, const char *key, struct stat *st, int *fd_p, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc = key_path(s, key, path, err);
	int fd;

	if (rc < 0) {
		return rc;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);     /* not to hang on a FIFO that lies about */
	if (fd < 0) {
		return errno == ENOENT || errno == ENOTDIR ? sky_no_object(s, key, err) :
		                                             sky_fail_sys(err, "%s: open", path);
	}
	if (fstat(fd, st) < 0) {
		rc = sky_fail_sys(err, "%s", path);
	} else if (!S_ISREG(st->st_mode)) {
		rc = sky_no_object(s, key, err);
	}
	if (rc < 0) {
		close(fd);
		return rc;
	}
	*fd_p = fd;
	return 0;
}

static int local_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
                     struct sky_err *err)
{
	struct stat st;
	int64_t got;
	int fd, rc = open_object(s, key, &st, &fd, err);
	uint64_t size;

	if (rc < 0) {
		return rc;
	}
	size = (uint64_t)st.st_size;
	if (off > size || (n != UINT64_MAX && n > size - off)) {
		close(fd);
		return sky_fail(err, SKY_E_DATA, "%s: %s has %llu bytes, range %llu+%llu wanted", s->url, key,
		                (unsigned long long)size, (unsigned long long)off, (unsigned long long)n);
	}
	n = n == UINT64_MAX ? size - off : n;
	rc = sky_buf_reserve(out, n, err);
	if (rc == 0 && n > 0) {
		got = sky_pread_full(fd, out->ptr + out->n, n, off, key, err);
		if (got < 0) {
			rc = (int)got;
		} else if ((uint64_t)got < n) {
			rc = sky_fail(err, SKY_E_DATA, "%s: %s shrank while it was read", s->url, key);
		} else {
			out->n += n;
			out->ptr[out->n] = '\0';
			s->bytes_get += n;
		}
	}
	close(fd);
	return rc;
}

/* In-kernel copy where the file systems allow it (also reflinks), else through a buffer. */
static int copy_fd(int in, int out, uint64_t n, const char *name, struct sky_err *err)
{
	char *buf;
	uint64_t done = 0;
	off_t from = 0, to = 0;
	int rc = 0;

	while (done < n) {
		ssize_t got = copy_file_range(in, &from, out, &to, n - done < (1u << 30) ? n - done : 1u << 30, 0);

		if (got <= 0) {
			break;
		}
		done += (uint64_t)got;
	}
	if (done == n) {
		return 0;
	}
	buf = malloc(COPY_BYTES);
	if (!buf) {
		return sky_fail_mem(err, "copy of %s", name);
	}
	while (rc == 0 && done < n) {
		int64_t got = sky_pread_full(in, buf, n - done < COPY_BYTES ? n - done : COPY_BYTES, done, name, err);

		if (got <= 0) {
			rc = got < 0 ? (int)got : sky_fail(err, SKY_E_DATA, "%s shrank while it was read", name);
			break;
		}
		rc = sky_pwrite_full(out, buf, (size_t)got, done, name, err);
		done += (uint64_t)got;
	}
	free(buf);
	return rc;
}

static int local_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
{
	struct stat st;
	int in, rc = open_object(s, key, &st, &in, err);

	if (rc < 0) {
		return rc;
	}
	rc = copy_fd(in, fd, (uint64_t)st.st_size, key, err);
	close(in);
	if (rc == 0) {
		*bytes_p = (uint64_t)st.st_size;
		s->bytes_get += *bytes_p;
	}
	return rc;
}

/* ---- writing ---- */

/* flock of the root directory; where that cannot be locked (some network file systems), of a file in it. */
static int lock_root(struct sky_store *s, int *fd_p, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	double t0 = sky_now();
	int fd = open(root_of(s), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc;

	if (fd < 0) {
		return sky_fail_sys(err, "%s: open", root_of(s));
	}
	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK && errno != EINTR) {
			close(fd);
			rc = sky_path_join(path, sizeof(path), root_of(s), LOCK_NAME, err);
			if (rc < 0) {
				return rc;
			}
			fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
			if (fd < 0 || (flock(fd, LOCK_EX) < 0)) {
				rc = sky_fail_sys(err, "%s: lock", path);
				if (fd >= 0) {
					close(fd);
				}
				return rc;
			}
			break;
		}
		if (sky_now() - t0 > LOCK_WAIT_S) {
			close(fd);
			return sky_fail(err, SKY_E_AGAIN, "%s: locked by another process for %.0f s", root_of(s),
			                LOCK_WAIT_S);
		}
		usleep(1000);
	}
	*fd_p = fd;
	return 0;
}

struct local_up {
	struct sky_out out;
};

/* Opens the temp beside the target. A folder may vanish between its making and its use, when another process deletes
 * the last object in it, so this is tried again. */
static int open_temp(struct sky_store *s, const char *key, unsigned flags, struct sky_out *out, struct sky_err *err)
{
	char path[SKY_MAX_PATH], dir[SKY_MAX_PATH];
	int rc = key_path(s, key, path, err);

	if (rc < 0) {
		return rc;
	}
	memcpy(dir, path, sizeof(dir));
	*strrchr(dir, '/') = '\0';      /* a joined path has one */
	for (int i = 0; i < 3; i++) {
		rc = sky_mkdirs(dir[0] ? dir : "/", err);
		if (rc == 0) {
			rc = sky_out_open(out, path, flags & SKY_PUT_CREATE ? 0 : SKY_OUT_REPLACE, err);
		}
		if (rc != SKY_E_MISSING) {
			break;
		}
	}
	/* Without leave to replace, sky_out says that the target exists. */
	return rc == SKY_E_USAGE && flags & SKY_PUT_CREATE ? sky_lost_race(s, key, err) : rc;
}

/* Decides the condition and renames, all under the lock. */
static int publish(struct sky_store *s, const char *key, struct sky_out *out, unsigned flags, const char *tag_expect,
                   struct sky_err *err)
{
	struct sky_object o = { 0 };
	struct sky_err quiet;
	uint64_t n = out->n_bytes;
	int lock = -1, rc = 0;

	if (!(flags & SKY_PUT_CREATE) && !tag_expect) {         /* no condition of ours; others' must see it whole */
		rc = sky_out_flush(out, err);
	}
	if (rc == 0) {
		rc = lock_root(s, &lock, err);
	}
	if (rc == 0 && (flags & SKY_PUT_CREATE || tag_expect)) {
		int have = local_head(s, key, &o, &quiet);

		if (have < 0 && have != SKY_E_MISSING) {
			rc = local_head(s, key, &o, err);
		} else if (flags & SKY_PUT_CREATE ? have == 0 : have < 0 || strcmp(o.tag, tag_expect) != 0) {
			rc = sky_lost_race(s, key, err);
		}
	}
	if (rc == 0) {
		rc = sky_out_commit(out, err);
		if (rc == SKY_E_USAGE && flags & SKY_PUT_CREATE) {              /* a writer that knows no lock */
			rc = sky_lost_race(s, key, err);
		}
	}
	if (rc < 0) {
		sky_out_abort(out);
	} else {
		s->bytes_put += n;
	}
	if (lock >= 0) {
		close(lock);
	}
	return rc;
}

static int local_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags,
                     const char *tag_expect, struct sky_err *err)
{
	struct sky_out out = { .fd = -1 };
	int rc = open_temp(s, key, flags, &out, err);

	if (rc == 0) {
		rc = sky_out_write(&out, p, n, err);
		if (rc < 0) {
			sky_out_abort(&out);
			return rc;
		}
		rc = publish(s, key, &out, flags, tag_expect, err);
	}
	return rc;
}

static int local_upload_open(struct sky_upload *u, struct sky_err *err)
{
	struct local_up *up = calloc(1, sizeof(*up));
	int rc;

	if (!up) {
		return sky_fail_mem(err, "upload of %s", u->key);
	}
	up->out.fd = -1;
	rc = open_temp(u->s, u->key, u->flags, &up->out, err);
	if (rc < 0) {
		free(up);
		return rc;
	}
	u->be = up;
	return 0;
}

static int local_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	return sky_out_write(&((struct local_up *)u->be)->out, p, n, err);
}

static int local_upload_commit(struct sky_upload *u, struct sky_err *err)
{
	struct local_up *up = u->be;
	int rc = publish(u->s, u->key, &up->out, u->flags, NULL, err);

	free(up);
	return rc;
}

static void local_upload_abort(struct sky_upload *u)
{
	struct local_up *up = u->be;

	sky_out_abort(&up->out);
	free(up);
}

/* ---- listing and deleting ---- */

/* Temps of the publish protocol, .NAME.tmp.PID.RANDOM, and our lock are no objects. */
static int is_hidden(const char *name)
{
	return name[0] == '.' && (strstr(name, ".tmp.") || strcmp(name, LOCK_NAME) == 0);
}

#define MAX_DEPTH 64

struct walk {
	struct sky_store *s;
	const char *prefix;
	unsigned flags;
	struct sky_listing *l;
	int any;                /* only whether there is an object: stops at the first */
};

static int walk(struct walk *w, const char *at, int depth, struct sky_err *err);

/* A folder of a shallow listing: one entry when any object is in it. */
static int fold_folder(struct walk *w, const char *key, int depth, struct sky_err *err)
{
	struct sky_listing none = { 0 };
	struct walk look = { w->s, key, 0, &none, 1 };
	int rc = walk(&look, key, depth, err);

	if (rc == 0 && none.n > 0) {
		rc = sky_listing_add(w->l, key, strlen(key), 0, "", 0, err);
	}
	sky_listing_release(&none);
	return rc;
}

/* What stands at KEY, which has room for one more byte. */
static int walk_entry(struct walk *w, char *key, size_t n_key, int depth, struct sky_err *err)
{
	size_t n_prefix = strlen(w->prefix);
	struct sky_object o = { .key = key };
	char path[SKY_MAX_PATH];
	struct stat st;
	int rc = sky_path_join(path, sizeof(path), root_of(w->s), key, err);

	if (rc < 0 || stat(path, &st) < 0) {
		return rc;              /* deleted a moment ago */
	}
	if (S_ISDIR(st.st_mode)) {
		key[n_key++] = '/';
		key[n_key] = '\0';
		if (strncmp(key, w->prefix, n_key < n_prefix ? n_key : n_prefix) != 0) {
			return 0;
		}
		return w->flags & SKY_LIST_SHALLOW && n_key > n_prefix ? fold_folder(w, key, depth + 1, err) :
		                                                         walk(w, key, depth + 1, err);
	}
	if (!S_ISREG(st.st_mode) || strncmp(key, w->prefix, n_prefix) != 0) {
		return 0;
	}
	fill_object(&o, &st);
	return sky_listing_add(w->l, key, n_key, o.bytes, o.tag, o.mtime, err);
}

/* Walks the folder of keys that begin with AT ("" or ending in '/') and adds what begins with the prefix. */
static int walk(struct walk *w, const char *at, int depth, struct sky_err *err)
{
	char dir[SKY_MAX_PATH], key[SKY_MAX_PATH];
	char **names = NULL;
	size_t n = 0;
	int rc = sky_path_join(dir, sizeof(dir), root_of(w->s), at[0] ? at : ".", err);

	if (rc == 0 && depth > MAX_DEPTH) {
		rc = sky_fail(err, SKY_E_LIMIT, "%s: folders nest deeper than %d", dir, MAX_DEPTH);
	}
	if (rc == 0) {
		rc = sky_list_dir(dir, &names, &n, err);
		if (rc == SKY_E_MISSING) {
			return 0;               /* a store that nobody wrote to yet is empty */
		}
	}
	for (size_t i = 0; rc == 0 && i < n && !(w->any && w->l->n > 0); i++) {
		size_t n_key;

		if (is_hidden(names[i])) {
			continue;
		}
		n_key = (size_t)snprintf(key, sizeof(key) - 1, "%s%s", at, names[i]);
		if (n_key >= sizeof(key) - 2) {
			rc = sky_fail(err, SKY_E_LIMIT, "%s/%s: path too long", dir, names[i]);
			break;
		}
		rc = walk_entry(w, key, n_key, depth, err);
	}
	sky_names_free(names, n);
	return rc;
}

static int local_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l,
                      struct sky_err *err)
{
	struct walk w = { .s = s, .flags = flags, .l = l };
	char at[SKY_MAX_PATH];
	const char *slash = strrchr(prefix, '/');
	size_t n = slash ? (size_t)(slash + 1 - prefix) : 0;

	if (n >= sizeof(at)) {
		return sky_fail(err, SKY_E_USAGE, "%s: prefix too long", s->url);
	}
	if (prefix[0] == '/' || strstr(prefix, "../") || strcmp(prefix, "..") == 0) {
		return sky_fail(err, SKY_E_USAGE, "%s: prefix '%s' leaves the store", s->url, prefix);
	}
	memcpy(at, prefix, n);
	at[n] = '\0';
	w.prefix = prefix;
	return walk(&w, at, 0, err);
}

static int local_del(struct sky_store *s, const char *key, struct sky_err *err)
{
	char path[SKY_MAX_PATH], *slash;
	size_t n_root = strlen(root_of(s));
	int lock, rc = key_path(s, key, path, err);

	if (rc < 0) {
		return rc;
	}
	if (!sky_is_dir(root_of(s))) {
		return 0;
	}
	rc = lock_root(s, &lock, err);
	if (rc < 0) {
		return rc;
	}
	if (unlink(path) < 0 && errno != ENOENT && errno != ENOTDIR) {
		rc = sky_fail_sys(err, "%s: delete", path);
	}
	/* A store has no empty folders. */
	while (rc == 0 && (slash = strrchr(path + n_root, '/')) && slash > path + n_root) {
		*slash = '\0';
		if (rmdir(path) < 0) {
			break;
		}
	}
	close(lock);
	return rc;
}

/* What a dead writer left: temps. They are not parts of a listing, so they are looked for in every folder. */
static int count_temps(struct sky_store *s, const char *dir, double age_s, int abort, int64_t *n_p, int depth,
                       struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	char **names = NULL;
	size_t n = 0;
	int rc = depth > MAX_DEPTH ? 0 : sky_list_dir(dir, &names, &n, err);

	if (rc == SKY_E_MISSING) {
		return 0;
	}
	for (size_t i = 0; rc == 0 && i < n; i++) {
		struct stat st;

		rc = sky_path_join(path, sizeof(path), dir, names[i], err);
		if (rc < 0 || lstat(path, &st) < 0) {
			continue;
		}
		if (S_ISDIR(st.st_mode)) {
			rc = count_temps(s, path, age_s, abort, n_p, depth + 1, err);
		} else if (S_ISREG(st.st_mode) && names[i][0] == '.' && strstr(names[i], ".tmp.") &&
		           sky_wall() - (double)st.st_mtim.tv_sec >= age_s) {
			if (abort && unlink(path) < 0 && errno != ENOENT) {
				rc = sky_fail_sys(err, "%s: delete", path);
			}
			++*n_p;
		}
	}
	sky_names_free(names, n);
	return rc;
}

static int local_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p,
                         struct sky_err *err)
{
	char dir[SKY_MAX_PATH];
	const char *slash = strrchr(prefix, '/');
	char *at = slash ? strndup(prefix, (size_t)(slash - prefix)) : strdup(".");
	int64_t n = 0;
	int rc;

	if (!at) {
		return sky_fail_mem(err, "prefix of %s", s->url);
	}
	rc = at[0] == '/' || strstr(at, "..") ?
	             sky_fail(err, SKY_E_USAGE, "%s: prefix '%s' leaves the store", s->url, prefix) :
	             sky_path_join(dir, sizeof(dir), root_of(s), at, err);
	free(at);
	if (rc == 0) {
		rc = count_temps(s, dir, age_s, abort, &n, 0, err);
	}
	if (rc == 0) {
		*n_p = n;
	}
	return rc;
}

const struct sky_store_ops sky_store_file = {
	.scheme = "file",
	.open = local_open,
	.close = local_close,
	.head = local_head,
	.get = local_get,
	.get_fd = local_get_fd,
	.put = local_put,
	.upload_open = local_upload_open,
	.upload_write = local_upload_write,
	.upload_commit = local_upload_commit,
	.upload_abort = local_upload_abort,
	.list = local_list,
	.del = local_del,
	.uploads = local_uploads,
};
