/* store: resumable uploads to Google. One session, chunks in order; while one chunk travels the next is filled. After
 * a failure the session is asked how much it has, and goes on from there. The JSON and the XML interface differ only
 * in how a session begins, and a session carries the condition of the put, which parts in parallel cannot there. */
#include "store/gs_int.h"

struct gs_up {
	struct sky_http *http;
	struct gs *gs;                  /* NULL: XML interface */
	char mark[33];
	char *session;                  /* URL; NULL until the first chunk is full */
	uint64_t chunk;
	uint8_t *buf, *fly_buf;         /* being filled; on its way */
	uint64_t n_buf, fly_off, fly_n; /* fly_off: place of fly_buf in the object */
	uint64_t kept;                  /* bytes that the server has */
	uint64_t total;                 /* UINT64_MAX until the last chunk */
	uint32_t crc;                   /* of all that was written */
	int ask;                        /* the next try asks instead of sending */
	struct sky_calls cs;
	struct sky_call c;
	char what[1200], token[8192];
	struct gs_meta meta;            /* of the finished object */
};

static int is_last(const struct gs_up *up)
{
	return up->total != UINT64_MAX;
}

/* ---- a chunk ---- */

static int chunk_range(struct gs_up *up, struct sky_try *t, struct sky_err *err)
{
	uint64_t end = up->fly_off + up->fly_n;
	char total[24] = "*";

	if (is_last(up)) {
		snprintf(total, sizeof(total), "%llu", (unsigned long long)up->total);
	}
	if (up->ask || up->kept == end) {
		return sky_heads_add(&t->heads, err, "content-range", "bytes */%s", total);
	}
	t->body = up->fly_buf + (up->kept - up->fly_off);
	t->n_body = end - up->kept;
	return sky_heads_add(&t->heads, err, "content-range", "bytes %llu-%llu/%s", (unsigned long long)up->kept,
	                     (unsigned long long)(end - 1), total);
}

static int chunk_build(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct gs_up *up = c->ctx;
	int rc;

	t->method = "PUT";
	t->url = strdup(up->session);
	if (!t->url) {
		return sky_fail_mem(err, "upload");
	}
	rc = chunk_range(up, t, err);
	return rc < 0 || !up->gs ? rc : gs_add_auth(up->gs, t, NULL, up->token, sizeof(up->token), err);
}

static int object_done(struct gs_up *up, struct sky_try *t, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	struct sky_err quiet;
	int rc = 0;

	if (!is_last(up)) {
		return sky_fail(err, SKY_E_DATA, "%s: the server ended the upload early", up->what);
	}
	if (t->answer.n > 0 && sky_json_parse(t->answer.ptr, t->answer.n, "answer", 0, &doc, &quiet) == 0) {
		rc = gs_parse_object(sky_json_root(doc), &up->meta, err);
		sky_json_free(doc);
	}
	return rc;
}

static int chunk_kept(struct gs_up *up, struct sky_try *t, struct sky_err *err)
{
	uint64_t end = up->fly_off + up->fly_n, kept = 0;
	struct sky_err quiet;
	char v[128];

	if (sky_try_head(t, "range", v, sizeof(v))) {
		const char *dash = strchr(v, '-');

		if (!dash || sky_parse_u64(dash + 1, &kept, &quiet) < 0) {
			return sky_fail(err, SKY_E_DATA, "%s: bad Range '%s' in an answer", up->what, v);
		}
		kept++;
	}
	if (kept < up->kept || kept > end) {
		return sky_fail(err, SKY_E_AGAIN, "%s: the server lost bytes of the upload; send it again", up->what);
	}
	up->kept = kept;
	up->ask = 0;
	if (kept == end && !is_last(up)) {
		return 0;
	}
	sky_fail(err, SKY_E_AGAIN, "the server kept %llu of %llu bytes", (unsigned long long)kept,
	         (unsigned long long)end);
	return SKY_EOF;
}

static int chunk_judge(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct gs_up *up = c->ctx;
	int rc = sky_judge_common(c, t, err);

	if (rc != 0) {
		up->ask = 1;
		return rc;
	}
	switch (t->status) {
	case 200:
	case 201:
		return object_done(up, t, err);
	case 308:
		return chunk_kept(up, t, err);
	case 404:
	case 410:
		return sky_fail(err, SKY_E_AGAIN, "%s: the upload session is gone; send it again", up->what);
	case 412:
		return sky_fail(err, SKY_E_AGAIN, "%s: the object is not what was expected", up->what);
	default:
		return sky_fail(err, SKY_E_SYS, "%s: HTTP %d %.200s", up->what, t->status,
		                t->answer.ptr ? t->answer.ptr : "");
	}
}

/* ---- a session ---- */

static int take_location(struct gs_up *up, const struct sky_try *t, struct sky_err *err)
{
	char v[8192];

	if (!sky_try_head(t, "location", v, sizeof(v)) || strncmp(v, "http", 4) != 0) {
		return sky_fail(err, SKY_E_DATA, "%s: no session in the answer", up->what);
	}
	up->session = strdup(v);
	return up->session ? 0 : sky_fail_mem(err, "upload");
}

static int begin_json(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	const char *pairs[][2] = { { "uploadType", "resumable" }, { "name", NULL },
	                           { "ifGenerationMatch", u->flags & SKY_PUT_CREATE ? "0" : NULL } };
	char body[128], path[600], *name = NULL;
	struct gs_req r;
	int rc = gs_req_init(&r, u->s, "POST", u->key, err);

	snprintf(path, sizeof(path), "/upload/storage/v1/b/%s/o", up->gs->bucket);
	if (rc == 0 && asprintf(&name, "%s%s", up->gs->prefix, u->key) < 0) {
		name = NULL;
		rc = sky_fail_mem(err, "upload of %s", u->key);
	}
	pairs[1][1] = name;
	rc = rc < 0 ? rc : gs_req_url(&r, path, pairs, 3, err);
	if (rc == 0) {
		snprintf(body, sizeof(body), "{\"metadata\":{\"skyrl-put\":\"%s\"}}", up->mark);
		r.type = "application/json; charset=UTF-8";
		r.body = (const uint8_t *)body;
		r.n_body = strlen(body);
		rc = gs_req_run(&r, err);
		rc = rc == SKY_E_AGAIN && r.c.t.status == 412 ? sky_lost_race(u->s, u->key, err) : rc;
	}
	rc = rc < 0 ? rc : take_location(up, &r.c.t, err);
	free(name);
	gs_req_release(&r);
	return rc;
}

static int begin_xml(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	struct s3_req r;
	int rc = s3_req_init(&r, u->s, "POST", u->key, err);

	rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, "x-goog-resumable", "start");
	rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, r.s3->d->meta_id, "%s", up->mark);
	rc = rc < 0 ? rc : s3_condition(&r, u->flags, NULL, err);
	if (rc == 0) {
		rc = s3_req_run(&r, err);
		rc = rc == SKY_E_AGAIN && r.c.t.status == 412 ? sky_lost_race(u->s, u->key, err) : rc;
	}
	rc = rc < 0 ? rc : take_location(up, &r.c.t, err);
	s3_req_release(&r);
	return rc;
}

int gs_upload_open(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up;
	struct sky_object o = { 0 };
	int is_xml = u->s->ops == &sky_store_gs_xml, rc;

	if (u->flags & SKY_PUT_CREATE) { /* better told now than after the bytes; decided at the end all the same */
		rc = u->s->ops->head(u->s, u->key, &o, err);
		if (rc != SKY_E_MISSING) {
			return rc < 0 ? rc : sky_lost_race(u->s, u->key, err);
		}
	}
	up = calloc(1, sizeof(*up));
	if (!up) {
		return sky_fail_mem(err, "upload of %s", u->key);
	}
	up->gs = is_xml ? NULL : u->s->be;
	up->http = is_xml ? ((struct s3 *)u->s->be)->http : up->gs->http;
	up->chunk = (u->s->set.part_bytes + GS_GRAIN - 1) / GS_GRAIN * GS_GRAIN;
	up->total = UINT64_MAX;
	s3_make_id(up->mark);
	snprintf(up->what, sizeof(up->what), "PUT %.200s/%.900s", u->s->url, u->key);
	up->buf = malloc(up->chunk);
	up->fly_buf = malloc(up->chunk);
	rc = up->buf && up->fly_buf ? sky_calls_init(&up->cs, up->http, u->s, err) :
	                              sky_fail_mem(err, "upload of %s", u->key);
	if (rc < 0) {
		free(up->buf);
		free(up->fly_buf);
		free(up);
		return rc;
	}
	u->be = up;
	return 0;
}

static void free_up(struct gs_up *up)
{
	sky_calls_release(&up->cs);
	sky_call_release(&up->c);
	free(up->session);
	free(up->buf);
	free(up->fly_buf);
	free(up);
}

/* Waits for the chunk that is on its way. */
static int land(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	struct sky_call *c = up->cs.n_active > 0 ? sky_calls_next(&up->cs) : NULL;

	if (!c) {
		return 0;
	}
	if (c->rc < 0 && err) {
		*err = c->err;
	}
	u->s->bytes_put += c->rc == 0 ? up->fly_n : 0;
	return c->rc;
}

static int send_chunk(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	uint8_t *buf = up->buf;
	int rc = up->session ? 0 : up->gs ? begin_json(u, err) : begin_xml(u, err);

	rc = rc < 0 ? rc : land(u, err);
	if (rc < 0) {
		return rc;
	}
	up->crc = sky_crc32c(up->crc, up->buf, up->n_buf);
	up->fly_off += up->fly_n;
	up->fly_n = up->n_buf;
	up->kept = up->fly_off;
	up->ask = 0;
	up->buf = up->fly_buf;
	up->fly_buf = buf;
	up->n_buf = 0;
	sky_call_release(&up->c);
	memset(&up->c, 0, sizeof(up->c));
	up->c.what = up->what;
	up->c.ctx = up;
	up->c.build = chunk_build;
	up->c.judge = chunk_judge;
	sky_calls_start(&up->cs, &up->c);
	return 0;
}

int gs_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	struct gs_up *up = u->be;
	const uint8_t *from = p;

	while (n > 0) {
		uint64_t room = up->chunk - up->n_buf;
		int rc = room == 0 ? send_chunk(u, err) : 0;

		if (rc < 0) {
			return rc;
		}
		room = up->chunk - up->n_buf;
		room = room < n ? room : n;
		memcpy(up->buf + up->n_buf, from, room);
		up->n_buf += room;
		from += room;
		n -= room;
	}
	return 0;
}

/* ---- the end ---- */

static int drop_build(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	struct gs_up *up = c->ctx;

	t->method = "DELETE";
	t->url = strdup(up->session);
	return t->url ? 0 : sky_fail_mem(err, "upload");
}

static int drop_judge(struct sky_call *c, struct sky_try *t, struct sky_err *err)
{
	return sky_judge_common(c, t, err);     /* 499 is the good answer; others mean that nothing is there */
}

/* Goes on when the program was told to stop. */
static void drop_session(struct sky_upload *u)
{
	struct gs_up *up = u->be;
	struct sky_call c = { .what = up->what, .ctx = up, .build = drop_build, .judge = drop_judge };

	sky_calls_cancel(&up->cs);
	if (up->session) {
		up->cs.no_stop = 1;
		sky_calls_start(&up->cs, &c);
		while (sky_calls_next(&up->cs)) {
			;
		}
		sky_call_release(&c);
	}
}

void gs_upload_abort(struct sky_upload *u)
{
	drop_session(u);
	free_up(u->be);
}

static int ours_after_all(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	int rc;

	if (!up->gs) {
		rc = s3_is_ours(u->s, u->key, up->mark, err);
		return rc;
	}
	rc = gs_stat(u->s, u->key, &up->meta, err);
	return rc == SKY_E_MISSING ? 0 : rc < 0 ? rc : strcmp(up->meta.mark, up->mark) == 0;
}

static int finish(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	int status, ours, rc = land(u, err);

	up->total = up->fly_off + up->fly_n + up->n_buf;
	rc = rc < 0 ? rc : send_chunk(u, err);
	rc = rc < 0 ? rc : land(u, err);
	status = up->c.t.status;
	if (rc == SKY_E_AGAIN && (status == 412 || status == 404 || status == 410)) {
		ours = ours_after_all(u, err);
		rc = ours > 0 ? 0 : ours < 0 ? ours : status == 412 ? sky_lost_race(u->s, u->key, err) : rc;
	}
	if (rc == 0 && up->meta.has_crc && up->meta.crc != up->crc) {
		rc = gs_delete_if(u->s, u->key, up->meta.generation, err);
		rc = rc < 0 ?
		             rc :
		             sky_fail(err, SKY_E_AGAIN, "%s: checksum mismatch of the transfer of %s; it was deleted",
		                      u->s->url, u->key);
	}
	return rc;
}

int gs_upload_commit(struct sky_upload *u, struct sky_err *err)
{
	struct gs_up *up = u->be;
	int rc;

	if (!up->session) {
		rc = up->gs ? gs_put(u->s, u->key, up->buf, up->n_buf, u->flags, NULL, err) :
		     s3_put(u->s, u->key, up->buf, up->n_buf, u->flags, NULL, err);
	} else {
		rc = finish(u, err);
		if (rc < 0) {
			drop_session(u);
		}
	}
	free_up(up);
	return rc;
}

/* ---- the XML interface: parts in parallel unless a condition is wanted ---- */

static int xml_open(struct sky_upload *u, struct sky_err *err)
{
	return u->flags & SKY_PUT_CREATE ? gs_upload_open(u, err) : s3_upload_open(u, err);
}

static int xml_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	return u->flags & SKY_PUT_CREATE ? gs_upload_write(u, p, n, err) : s3_upload_write(u, p, n, err);
}

static int xml_commit(struct sky_upload *u, struct sky_err *err)
{
	return u->flags & SKY_PUT_CREATE ? gs_upload_commit(u, err) : s3_upload_commit(u, err);
}

static void xml_abort(struct sky_upload *u)
{
	if (u->flags & SKY_PUT_CREATE) {
		gs_upload_abort(u);
	} else {
		s3_upload_abort(u);
	}
}

/* Opened by gs_open, which knows the keys. */
const struct sky_store_ops sky_store_gs_xml = {
	.scheme = "gs",
	.close = s3_close,
	.head = s3_head,
	.get = s3_get,
	.get_fd = s3_get_fd,
	.put = s3_put,
	.upload_open = xml_open,
	.upload_write = xml_write,
	.upload_commit = xml_commit,
	.upload_abort = xml_abort,
	.list = s3_list,
	.del = s3_del,
	.uploads = s3_uploads,
};
