/* store: the front. Looks the backend up by scheme, checks keys, forwards. Nothing here knows a protocol. */
#include "store/store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "store/store_int.h"

static const struct sky_store_ops *const backends[] = { &sky_store_file, &sky_store_mem, &sky_store_s3, &sky_store_gs };

static int dup_opt(char **out_p, const char *s, struct sky_err *err)
{
	if (!s || !*s) {
		return 0;
	}
	*out_p = strdup(s);
	return *out_p ? 0 : sky_fail_mem(err, "store options");
}

static int settle_options(struct sky_store_set *t, const struct sky_store_opt *opt, struct sky_err *err)
{
	static const struct sky_store_opt none;
	int rc;

	opt = opt ? opt : &none;
	if (opt->addressing && *opt->addressing && strcmp(opt->addressing, "auto") != 0 &&
	    strcmp(opt->addressing, "path") != 0 && strcmp(opt->addressing, "virtual") != 0) {
		return sky_fail(err, SKY_E_USAGE, "addressing '%s': expected auto, path or virtual", opt->addressing);
	}
	if (opt->part_bytes > SKY_PART_MAX) {
		return sky_fail(err, SKY_E_USAGE, "part size %llu: the stores take at most 5 GiB",
		                (unsigned long long)opt->part_bytes);
	}
	t->no_sign_request = opt->no_sign_request;
	t->n_parallel = opt->n_parallel > 0 ? opt->n_parallel : 8;
	t->n_parallel = t->n_parallel > 256 ? 256 : t->n_parallel;
	t->n_tries = opt->n_tries > 0 ? opt->n_tries : 10;
	t->part_bytes = opt->part_bytes > 0 ? opt->part_bytes : 8ull << 20;
	t->bw_limit = opt->bw_limit;
	t->timeout_s = opt->timeout_s > 0 ? opt->timeout_s : 60;
	t->retry_time_s = opt->retry_time_s > 0 ? opt->retry_time_s : 600;
	if ((rc = dup_opt(&t->endpoint_url, opt->endpoint_url, err)) < 0 ||
	    (rc = dup_opt(&t->region, opt->region, err)) < 0 || (rc = dup_opt(&t->profile, opt->profile, err)) < 0) {
		return rc;
	}
	return dup_opt(&t->addressing, opt->addressing, err);
}

/* "s3://b/p" -> row and "b/p"; a name without a scheme is a path. "mem:name" has no slashes. */
static const struct sky_store_ops *find_backend(const char *url, const char **rest_p)
{
	const char *colon = strstr(url, "://");
	size_t n = colon ? (size_t)(colon - url) : 0;

	*rest_p = url;
	if (strncmp(url, "mem:", 4) == 0) {
		*rest_p = url + 4;
		return &sky_store_mem;
	}
	if (!colon || memchr(url, '/', n)) {
		return &sky_store_file;
	}
	*rest_p = colon + 3;
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (strlen(backends[i]->scheme) == n && strncmp(backends[i]->scheme, url, n) == 0) {
			return backends[i];
		}
	}
	return NULL;
}

static void free_store(struct sky_store *s)
{
	if (s) {
		free(s->set.endpoint_url);
		free(s->set.region);
		free(s->set.profile);
		free(s->set.addressing);
		free(s->url);
		free(s);
	}
}

int sky_store_open(const char *url, const struct sky_store_opt *opt, struct sky_store **s_p, struct sky_err *err)
{
	const char *rest;
	const struct sky_store_ops *ops = find_backend(url, &rest);
	struct sky_store *s;
	int rc;

	if (!ops) {
		return sky_fail(err, SKY_E_USAGE,
		                "%s: unknown kind of store; known are a path, file://, s3:// and gs://", url);
	}
	s = calloc(1, sizeof(*s));
	if (!s || !(s->url = strdup(url))) {
		free_store(s);
		return sky_fail_mem(err, "store %s", url);
	}
	s->ops = ops;
	rc = settle_options(&s->set, opt, err);
	if (rc == 0) {
		rc = ops->open(s, rest, err);
	}
	if (rc < 0) {
		free_store(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

void sky_store_close(struct sky_store *s)
{
	if (s) {
		s->ops->close(s);
		free_store(s);
	}
}

const char *sky_store_url(const struct sky_store *s)
{
	return s->url;
}

void sky_store_stats(const struct sky_store *s, struct sky_store_stats *st)
{
	st->bytes_get = s->bytes_get;
	st->bytes_put = s->bytes_put;
	st->n_request = s->n_request;
	st->n_retry = s->n_retry;
}

/* ---- keys and common failures ---- */

int sky_key_check(const char *key, struct sky_err *err)
{
	size_t n = strlen(key);

	if (n == 0 || n > SKY_MAX_KEY) {
		return sky_fail(err, SKY_E_USAGE, "store key of %zu bytes: expected 1 to %d", n, SKY_MAX_KEY);
	}
	for (const char *p = key, *end; ; p = end + 1) {
		size_t n_seg;

		end = strchrnul(p, '/');
		n_seg = (size_t)(end - p);
		if (n_seg == 0 || (n_seg == 1 && p[0] == '.') || (n_seg == 2 && p[0] == '.' && p[1] == '.')) {
			return sky_fail(err, SKY_E_USAGE, "store key '%s': empty, '.' and '..' parts are not allowed",
			                key);
		}
		for (size_t i = 0; i < n_seg; i++) {
			if ((unsigned char)p[i] < 0x20 || p[i] == 0x7f) {
				return sky_fail(err, SKY_E_USAGE,
				                "store key of %zu bytes holds control character 0x%02x", n,
				                (unsigned char)p[i]);
			}
		}
		if (!*end) {
			return 0;
		}
	}
}

int sky_lost_race(struct sky_store *s, const char *key, struct sky_err *err)
{
	return sky_fail(err, SKY_E_AGAIN, "%s: %s was written by another writer first", s->url, key);
}

int sky_no_object(struct sky_store *s, const char *key, struct sky_err *err)
{
	return sky_fail(err, SKY_E_MISSING, "%s: no object %s", s->url, key);
}

/* ---- listings ---- */

int sky_listing_add(struct sky_listing *l, const char *key, size_t n_key, uint64_t bytes, const char *tag, double mtime,
                    struct sky_err *err)
{
	struct sky_object *o;

	if (l->n == l->cap) {
		int64_t cap = l->cap ? l->cap * 2 : 64;
		struct sky_object *v;

		if (cap > SKY_MAX_OBJECTS) {
			return sky_fail(err, SKY_E_LIMIT, "a listing has more than %d objects; list a longer prefix",
			                SKY_MAX_OBJECTS);
		}
		v = realloc(l->v, (size_t)cap * sizeof(*v));
		if (!v) {
			return sky_fail_mem(err, "listing of %lld objects", (long long)cap);
		}
		l->v = v;
		l->cap = cap;
	}
	o = &l->v[l->n];
	memset(o, 0, sizeof(*o));
	o->key = strndup(key, n_key);
	if (!o->key) {
		return sky_fail_mem(err, "listing");
	}
	o->bytes = bytes;
	o->mtime = mtime;
	snprintf(o->tag, sizeof(o->tag), "%s", tag);
	l->n++;
	return 0;
}

int sky_listing_fold(struct sky_listing *l, const char *prefix, unsigned flags, const struct sky_object *o,
                     struct sky_err *err)
{
	const char *slash = flags & SKY_LIST_SHALLOW ? strchr(o->key + strlen(prefix), '/') : NULL;
	size_t n = slash ? (size_t)(slash + 1 - o->key) : 0;
	const char *last = l->n > 0 ? l->v[l->n - 1].key : "";

	if (!slash) {
		return sky_listing_add(l, o->key, strlen(o->key), o->bytes, o->tag, o->mtime, err);
	}
	if (strlen(last) == n &&
	    strncmp(last, o->key, n) == 0) { /* keys come grouped; others are dropped at the end */
		return 0;
	}
	return sky_listing_add(l, o->key, n, 0, "", 0, err);
}

void sky_listing_release(struct sky_listing *l)
{
	sky_objects_free(l->v, l->n);
	memset(l, 0, sizeof(*l));
}

void sky_object_release(struct sky_object *o)
{
	free(o->key);
	memset(o, 0, sizeof(*o));
}

void sky_objects_free(struct sky_object *v, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		free(v[i].key);
	}
	free(v);
}

static int by_key(const void *a, const void *b)
{
	return strcmp(((const struct sky_object *)a)->key, ((const struct sky_object *)b)->key);
}

/* Sorts and drops double entries: a store may repeat a prefix, or a key when a page moves under our feet. */
static void settle_listing(struct sky_listing *l)
{
	int64_t n = 0;

	if (l->n == 0) {
		return;
	}
	qsort(l->v, (size_t)l->n, sizeof(*l->v), by_key);
	for (int64_t i = 0; i < l->n; i++) {
		if (n > 0 && strcmp(l->v[n - 1].key, l->v[i].key) == 0) {
			free(l->v[i].key);
			continue;
		}
		l->v[n++] = l->v[i];
	}
	l->n = n;
}

int sky_store_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_object **v_p, int64_t *n_p,
                   struct sky_err *err)
{
	struct sky_listing l = { 0 };
	int rc = s->ops->list(s, prefix ? prefix : "", flags, &l, err);

	if (rc < 0) {
		sky_listing_release(&l);
		return rc;
	}
	settle_listing(&l);
	*v_p = l.v;
	*n_p = l.n;
	return 0;
}

/* ---- forwarding ---- */

int sky_store_head(struct sky_store *s, const char *key, struct sky_object *o_p, struct sky_err *err)
{
	struct sky_object o = { 0 };
	int rc = sky_key_check(key, err);

	if (rc < 0 || (rc = s->ops->head(s, key, &o, err)) < 0) {
		return rc;
	}
	o.key = strdup(key);
	if (!o.key) {
		return sky_fail_mem(err, "head of %s", key);
	}
	*o_p = o;
	return 0;
}

int sky_store_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
                  struct sky_err *err)
{
	int rc = sky_key_check(key, err);

	if (rc < 0) {
		return rc;
	}
	if (n != UINT64_MAX && n > UINT64_MAX - off) {
		return sky_fail(err, SKY_E_USAGE, "%s: range of %s wraps", s->url, key);
	}
	return s->ops->get(s, key, off, n, out, err);
}

int sky_store_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
{
	int rc = sky_key_check(key, err);

	return rc < 0 ? rc : s->ops->get_fd(s, key, fd, bytes_p, err);
}

int sky_store_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags,
                  const char *tag_expect, struct sky_err *err)
{
	int rc = sky_key_check(key, err);

	if (rc == 0 && tag_expect && (flags & SKY_PUT_CREATE || !*tag_expect)) {
		rc = sky_fail(err, SKY_E_USAGE, "%s: a put of %s can expect a tag or absence, not both", s->url, key);
	}
	return rc < 0 ? rc : s->ops->put(s, key, p, n, flags, tag_expect, err);
}

int sky_store_delete(struct sky_store *s, const char *key, struct sky_err *err)
{
	int rc = sky_key_check(key, err);

	return rc < 0 ? rc : s->ops->del(s, key, err);
}

int sky_store_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p,
                      struct sky_err *err)
{
	return s->ops->uploads(s, prefix ? prefix : "", age_s, abort, n_p, err);
}

static void free_upload(struct sky_upload *u)
{
	if (u) {
		free(u->key);
		free(u);
	}
}

int sky_upload_open(struct sky_store *s, const char *key, unsigned flags, struct sky_upload **u_p, struct sky_err *err)
{
	struct sky_upload *u;
	int rc = sky_key_check(key, err);

	if (rc < 0) {
		return rc;
	}
	u = calloc(1, sizeof(*u));
	if (!u || !(u->key = strdup(key))) {
		free_upload(u);
		return sky_fail_mem(err, "upload of %s", key);
	}
	u->s = s;
	u->flags = flags;
	rc = s->ops->upload_open(u, err);
	if (rc < 0) {
		free_upload(u);
		return rc;
	}
	*u_p = u;
	return 0;
}

int sky_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	return n == 0 ? 0 : u->s->ops->upload_write(u, p, n, err);
}

int sky_upload_commit(struct sky_upload *u, struct sky_err *err)
{
	int rc = u->s->ops->upload_commit(u, err);

	free_upload(u);
	return rc;
}

void sky_upload_abort(struct sky_upload *u)
{
	if (u) {
		u->s->ops->upload_abort(u);
		free_upload(u);
	}
}

#define COPY_BYTES (1u << 20)

static int copy_to_upload(struct sky_upload *u, int fd, const char *path, struct sky_err *err)
{
	struct stat st;
	char *buf;
	int64_t n = 0;
	int rc = 0;

	if (u->s->ops->upload_fd && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
		return u->s->ops->upload_fd(u, fd, (uint64_t)st.st_size, path, err);
	}
	buf = malloc(COPY_BYTES);
	if (!buf) {
		return sky_fail_mem(err, "upload of %s", path);
	}
	while (rc == 0 && (n = sky_read_full(fd, buf, COPY_BYTES, path, err)) > 0) {
		rc = sky_upload_write(u, buf, (uint64_t)n, err);
	}
	free(buf);
	return n < 0 ? (int)n : rc;
}

int sky_store_put_file(struct sky_store *s, const char *key, const char *path, unsigned flags, struct sky_err *err)
{
	struct sky_upload *u = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0) {
		return sky_fail_sys(err, "%s: open", path);
	}
	rc = sky_upload_open(s, key, flags, &u, err);
	if (rc == 0) {
		rc = copy_to_upload(u, fd, path, err);
		if (rc < 0) {
			sky_upload_abort(u);
		} else {
			rc = sky_upload_commit(u, err);
		}
	}
	close(fd);
	return rc;
}
