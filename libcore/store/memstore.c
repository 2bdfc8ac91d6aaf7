/* store: objects in memory, for tests of everything above. "mem:name": two handles of one name in one process see the
 * same objects, and the objects stay until the process ends. Tags are generation numbers. */
#include <pthread.h>
#include "store/store_int.h"

struct mem_object {
	struct mem_object *next;
	char *key;
	char *p;
	uint64_t n, generation;
	double mtime;
};

struct mem_space {
	struct mem_space *next;
	char *name;
	struct mem_object *head;
};

/* One lock for all: this backend is for tests, not for speed. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mem_space *spaces;
static uint64_t n_generation;

static int mem_open(struct sky_store *s, const char *rest, struct sky_err *err)
{
	struct mem_space *sp;
	int rc = 0;

	rest += strncmp(rest, "//", 2) == 0 ? 2 : 0;
	pthread_mutex_lock(&lock);
	for (sp = spaces; sp && strcmp(sp->name, rest) != 0; sp = sp->next) {
		;
	}
	if (!sp) {
		sp = calloc(1, sizeof(*sp));
		if (!sp || !(sp->name = strdup(rest))) {
			free(sp);
			rc = sky_fail_mem(err, "store %s", s->url);
		} else {
			sp->next = spaces;
			spaces = sp;
		}
	}
	s->be = sp;
	pthread_mutex_unlock(&lock);
	return rc;
}

static void mem_close(struct sky_store *s)
{
	(void)s;
}

/* Under the lock. */
static struct mem_object *find(struct sky_store *s, const char *key)
{
	struct mem_object *o = ((struct mem_space *)s->be)->head;

	while (o && strcmp(o->key, key) != 0) {
		o = o->next;
	}
	return o;
}

static void fill_object(struct sky_object *to, const struct mem_object *o)
{
	to->bytes = o->n;
	to->mtime = o->mtime;
	snprintf(to->tag, sizeof(to->tag), "%llu", (unsigned long long)o->generation);
}

static int mem_head(struct sky_store *s, const char *key, struct sky_object *o_p, struct sky_err *err)
{
	struct mem_object *o;
	int rc = 0;

	pthread_mutex_lock(&lock);
	o = find(s, key);
	if (o) {
		fill_object(o_p, o);
	} else {
		rc = sky_no_object(s, key, err);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int mem_get(struct sky_store *s, const char *key, uint64_t off, uint64_t n, struct sky_buf *out,
                   struct sky_err *err)
{
	struct mem_object *o;
	int rc;

	pthread_mutex_lock(&lock);
	o = find(s, key);
	if (!o) {
		rc = sky_no_object(s, key, err);
	} else if (off > o->n || (n != UINT64_MAX && n > o->n - off)) {
		rc = sky_fail(err, SKY_E_DATA, "%s: %s has %llu bytes, range %llu+%llu wanted", s->url, key,
		              (unsigned long long)o->n, (unsigned long long)off, (unsigned long long)n);
	} else {
		n = n == UINT64_MAX ? o->n - off : n;
		rc = sky_buf_add(out, o->p + off, n, err);
		s->bytes_get += rc == 0 ? n : 0;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int mem_get_fd(struct sky_store *s, const char *key, int fd, uint64_t *bytes_p, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(SIZE_MAX / 2);
	int rc = mem_get(s, key, 0, UINT64_MAX, &b, err);

	if (rc == 0) {
		rc = sky_pwrite_full(fd, b.ptr ? b.ptr : "", b.n, 0, key, err);
	}
	if (rc == 0) {
		*bytes_p = b.n;
	}
	sky_buf_release(&b);
	return rc;
}

/* Takes p (malloc) on success. Under the lock. */
static int store_bytes(struct sky_store *s, const char *key, char *p, uint64_t n, struct sky_err *err)
{
	struct mem_space *sp = s->be;
	struct mem_object *o = find(s, key);

	if (!o) {
		o = calloc(1, sizeof(*o));
		if (!o || !(o->key = strdup(key))) {
			free(o);
			return sky_fail_mem(err, "object %s", key);
		}
		o->next = sp->head;
		sp->head = o;
	}
	free(o->p);
	o->p = p;
	o->n = n;
	o->generation = ++n_generation;
	o->mtime = sky_wall();
	s->bytes_put += n;
	return 0;
}

static int put_taken(struct sky_store *s, const char *key, char *p, uint64_t n, unsigned flags, const char *tag_expect,
                     struct sky_err *err)
{
	struct sky_object have = { 0 };
	struct mem_object *o;
	int rc = 0;

	pthread_mutex_lock(&lock);
	o = find(s, key);
	if (o) {
		fill_object(&have, o);
	}
	if ((flags & SKY_PUT_CREATE && o) || (tag_expect && (!o || strcmp(have.tag, tag_expect) != 0))) {
		rc = sky_lost_race(s, key, err);
	} else {
		rc = store_bytes(s, key, p, n, err);
	}
	pthread_mutex_unlock(&lock);
	if (rc < 0) {
		free(p);
	}
	return rc;
}

static int mem_put(struct sky_store *s, const char *key, const void *p, uint64_t n, unsigned flags,
                   const char *tag_expect, struct sky_err *err)
{
	char *copy = malloc(n + 1);

	if (!copy) {
		return sky_fail_mem(err, "object %s", key);
	}
	memcpy(copy, n ? p : "", n);
	return put_taken(s, key, copy, n, flags, tag_expect, err);
}

static int mem_upload_open(struct sky_upload *u, struct sky_err *err)
{
	struct sky_buf *b = malloc(sizeof(*b));

	if (!b) {
		return sky_fail_mem(err, "upload of %s", u->key);
	}
	sky_buf_init(b, SIZE_MAX / 2);
	u->be = b;
	return 0;
}

static int mem_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	return sky_buf_add(u->be, p, n, err);
}

static int mem_upload_commit(struct sky_upload *u, struct sky_err *err)
{
	struct sky_buf *b = u->be;
	uint64_t n = b->n;
	char *p = sky_buf_take(b);
	int rc;

	free(b);
	if (!p && !(p = calloc(1, 1))) {
		return sky_fail_mem(err, "upload of %s", u->key);
	}
	rc = put_taken(u->s, u->key, p, n, u->flags, NULL, err);
	return rc;
}

static void mem_upload_abort(struct sky_upload *u)
{
	sky_buf_release(u->be);
	free(u->be);
}

static int mem_list(struct sky_store *s, const char *prefix, unsigned flags, struct sky_listing *l, struct sky_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	for (struct mem_object *o = ((struct mem_space *)s->be)->head; o && rc == 0; o = o->next) {
		struct sky_object it = { .key = o->key };

		if (strncmp(o->key, prefix, strlen(prefix)) == 0) {
			fill_object(&it, o);
			rc = sky_listing_fold(l, prefix, flags, &it, err);
		}
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int mem_del(struct sky_store *s, const char *key, struct sky_err *err)
{
	(void)err;
	pthread_mutex_lock(&lock);
	for (struct mem_object **at = &((struct mem_space *)s->be)->head; *at; at = &(*at)->next) {
		struct mem_object *o = *at;

		if (strcmp(o->key, key) == 0) {
			*at = o->next;
			free(o->key);
			free(o->p);
			free(o);
			break;
		}
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Uploads live in the memory of their writer and cannot be left behind. */
static int mem_uploads(struct sky_store *s, const char *prefix, double age_s, int abort, int64_t *n_p,
                       struct sky_err *err)
{
	(void)s, (void)prefix, (void)age_s, (void)abort, (void)err;
	*n_p = 0;
	return 0;
}

const struct sky_store_ops sky_store_mem = {
	.scheme = "mem",
	.open = mem_open,
	.close = mem_close,
	.head = mem_head,
	.get = mem_get,
	.get_fd = mem_get_fd,
	.put = mem_put,
	.upload_open = mem_upload_open,
	.upload_write = mem_upload_write,
	.upload_commit = mem_upload_commit,
	.upload_abort = mem_upload_abort,
	.list = mem_list,
	.del = mem_del,
	.uploads = mem_uploads,
};
