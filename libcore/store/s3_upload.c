/* store: streaming uploads to S3. Bytes gather in a buffer; the first full one starts a multipart upload, and from
 * then on full buffers travel in the background while the caller goes on. What fits one part is one put. Whatever
 * ends an upload without success aborts it at the server. */
#include "store/s3_int.h"
#include "store/xml_int.h"

#define PART_DOUBLE 1000 /* part size doubles after so many parts: 10,000 of them hold 8 TiB from 8 MiB */
#define FLIGHT_BYTES    (1ull << 30)    /* at most so much waits in memory */
#define COMPLETE_S      1200.0          /* the server may think long about a completion */

struct part {
	char etag[128];
	uint32_t crc;
	uint64_t n;
};

struct flight {
	struct s3_req r;
	uint8_t *buf;
	uint64_t cap;                   /* of buf */
	int64_t i;                      /* of the part, from 0 */
	char number[24];                /* of the part, from 1 */
	int used;
};

struct s3_up {
	char id[33];                    /* our mark */
	char *upload_id;
	uint64_t part_bytes;
	uint8_t *buf;                   /* the part that is being filled */
	uint64_t n_buf, cap_buf;
	struct part *parts;
	int64_t n_parts, cap_parts;
	struct flight *flights;
	int n_flights;
	struct sky_calls cs;
};

int s3_upload_open(struct sky_upload *u, struct sky_err *err)
{
	struct s3 *b = u->s->be;
	struct s3_up *up = calloc(1, sizeof(*up));
	struct sky_object o = { 0 };
	int rc = 0;

	if (!up) {
		return sky_fail_mem(err, "upload of %s", u->key);
	}
	if (u->flags & SKY_PUT_CREATE) { /* better told now than after the bytes; decided at the end all the same */
		rc = s3_head(u->s, u->key, &o, err);
		rc = rc == 0 ? sky_lost_race(u->s, u->key, err) : rc == SKY_E_MISSING ? 0 : rc;
	}
	s3_make_id(up->id);
	up->part_bytes = u->s->set.part_bytes < SKY_PART_MIN && !b->custom ? SKY_PART_MIN : u->s->set.part_bytes;
	up->n_flights = u->s->set.n_parallel;
	up->flights = calloc((size_t)up->n_flights, sizeof(*up->flights));
	if (rc == 0 && !up->flights) {
		rc = sky_fail_mem(err, "upload of %s", u->key);
	}
	rc = rc < 0 ? rc : sky_calls_init(&up->cs, b->http, u->s, err);
	if (rc < 0) {
		free(up->flights);
		free(up);
		return rc;
	}
	u->be = up;
	return 0;
}

static void free_up(struct s3_up *up)
{
	sky_calls_release(&up->cs);
	for (int i = 0; i < up->n_flights; i++) {
		if (up->flights[i].used) {
			s3_req_release(&up->flights[i].r);
		}
		free(up->flights[i].buf);
	}
	free(up->flights);
	free(up->parts);
	free(up->upload_id);
	free(up->buf);
	free(up);
}

/* ---- starting ---- */

static int with_sums(const struct s3 *b)
{
	return b->d->checksum_crc32c && !b->no_crc && !b->no_sums;
}

struct id_field {
	char *id;
};

static int create_field(void *ctx, const char *path, const char *text, struct sky_err *err)
{
	struct id_field *f = ctx;
	const char *leaf = strchr(path, '/');   /* the root's name differs between stores */

	if (leaf && strcmp(leaf, "/UploadId") == 0 && !f->id) {
		f->id = strdup(text);
		return f->id ? 0 : sky_fail_mem(err, "upload");
	}
	return 0;
}

static int create(struct sky_upload *u, struct sky_err *err)
{
	struct s3_up *up = u->be;
	struct s3 *b = u->s->be;
	struct id_field f = { NULL };
	struct s3_req r;
	int rc = s3_req_init(&r, u->s, "POST", u->key, err);

	s3_req_query(&r, "uploads", "");
	rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, b->d->meta_id, "%s", up->id);
	if (rc == 0 && with_sums(b)) {
		rc = sky_heads_add(&r.heads, err, "x-amz-checksum-algorithm", "CRC32C");
		rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, "x-amz-checksum-type", "FULL_OBJECT");
	}
	rc = rc < 0 ? rc : s3_req_run(&r, err);
	rc = rc < 0 ? rc :
	              sky_xml_walk(r.c.t.answer.ptr ? r.c.t.answer.ptr : "", r.c.t.answer.n, create_field, &f, err);
	if (rc == 0 && (!f.id || !*f.id)) {
		rc = sky_fail(err, SKY_E_DATA, "%s: no UploadId in the answer", r.what);
	}
	if (rc == 0) {
		up->upload_id = f.id;
		f.id = NULL;
	}
	free(f.id);
	s3_req_release(&r);
	return rc;
}

/* ---- parts ---- */

static int part_landed(struct sky_upload *u, struct sky_call *c, struct sky_err *err)
{
	struct s3_up *up = u->be;
	struct flight *f = &up->flights[c->i_tag];
	struct part *p = &up->parts[f->i];
	int rc = c->rc;

	if (rc < 0 && err) {
		*err = c->err;
	}
	if (rc == 0) {
		/* Quotes and all: it goes back as it came. */
		if (!sky_try_head(&c->t, "etag", p->etag, sizeof(p->etag)) || !p->etag[0]) {
			rc = sky_fail(err, SKY_E_DATA, "%s: no ETag for part %lld", c->what, (long long)f->i + 1);
		}
		u->s->bytes_put += p->n;
	}
	s3_req_release(&f->r);
	f->used = 0;
	return rc;
}

/* Largest number of parts on their way that memory allows. */
static int max_flights(const struct s3_up *up)
{
	uint64_t n = FLIGHT_BYTES / up->part_bytes;

	return n < 1 ? 1 : n < (uint64_t)up->n_flights ? (int)n : up->n_flights;
}

/* Takes a free flight; waits while all are busy. */
static int free_flight(struct sky_upload *u, struct flight **f_p, struct sky_err *err)
{
	struct s3_up *up = u->be;
	int rc = 0;

	for (struct sky_call *c; rc == 0 && (c = sky_calls_poll(&up->cs)); ) {
		rc = part_landed(u, c, err);
	}
	while (rc == 0 && up->cs.n_active >= max_flights(up)) {
		struct sky_call *c = sky_calls_next(&up->cs);

		rc = c ? part_landed(u, c, err) : 0;
	}
	for (int i = 0; rc == 0 && i < up->n_flights; i++) {
		if (!up->flights[i].used) {
			up->flights[i].r.c.i_tag = i;
			*f_p = &up->flights[i];
			return 0;
		}
	}
	return rc;
}

static int grow_parts(struct s3_up *up, struct sky_err *err)
{
	struct part *v;
	int64_t cap = up->cap_parts ? 2 * up->cap_parts : 64;

	if (up->n_parts < up->cap_parts) {
		return 0;
	}
	v = realloc(up->parts, (size_t)cap * sizeof(*v));
	if (!v) {
		return sky_fail_mem(err, "upload");
	}
	up->parts = v;
	up->cap_parts = cap;
	return 0;
}

/* The buffer goes to the flight, the flight's old one becomes the next to fill. */
static void swap_buffers(struct s3_up *up, struct flight *f)
{
	uint8_t *buf = f->buf;
	uint64_t cap = f->cap;

	f->buf = up->buf;
	f->cap = up->cap_buf;
	up->buf = buf;
	up->cap_buf = cap;
	up->n_buf = 0;
}

static int make_part_request(struct sky_upload *u, struct flight *f, struct sky_err *err)
{
	struct s3_up *up = u->be;
	int i_tag = f->r.c.i_tag;
	int rc = s3_req_init(&f->r, u->s, "PUT", u->key, err);

	f->used = 1;
	f->r.c.i_tag = i_tag;
	if (rc < 0) {
		return rc;
	}
	snprintf(f->number, sizeof(f->number), "%lld", (long long)f->i + 1);
	s3_req_query(&f->r, "partNumber", f->number);
	s3_req_query(&f->r, "uploadId", up->upload_id);
	s3_req_body(&f->r, up->buf, up->n_buf);
	return 0;
}

/* Sends the filled buffer on its way and takes an empty one. */
static int send_part(struct sky_upload *u, struct sky_err *err)
{
	struct s3_up *up = u->be;
	struct flight *f = NULL;
	int rc = up->upload_id ? 0 : create(u, err);

	if (rc == 0 && up->n_parts >= SKY_PARTS_MAX) {
		rc = sky_fail(err, SKY_E_LIMIT, "%s: %s is too large for 10,000 parts; raise --part-size", u->s->url,
		              u->key);
	}
	rc = rc < 0 ? rc : grow_parts(up, err);
	rc = rc < 0 ? rc : free_flight(u, &f, err);
	if (rc < 0) {
		return rc;
	}
	f->i = up->n_parts;
	rc = make_part_request(u, f, err);
	if (rc < 0) {
		return rc;
	}
	memset(&up->parts[f->i], 0, sizeof(up->parts[0]));
	up->parts[f->i].crc = f->r.crc;
	up->parts[f->i].n = up->n_buf;
	swap_buffers(up, f);
	up->n_parts++;
	if (up->n_parts % PART_DOUBLE == 0 && up->part_bytes < SKY_PART_MAX / 2) {
		up->part_bytes *= 2;
	}
	sky_calls_start(&up->cs, &f->r.c);
	return 0;
}

/* Room in the buffer; *p_p: where, *n_p: how much. A full buffer is sent first. */
static int room(struct sky_upload *u, uint8_t **p_p, uint64_t *n_p, struct sky_err *err)
{
	struct s3_up *up = u->be;
	int rc = 0;

	if (up->buf && up->n_buf == up->part_bytes) {
		rc = send_part(u, err);
	}
	if (rc == 0 && (!up->buf || up->cap_buf < up->part_bytes)) {
		uint8_t *buf = realloc(up->buf, up->part_bytes);

		if (!buf) {
			return sky_fail_mem(err, "upload part of %llu bytes", (unsigned long long)up->part_bytes);
		}
		up->buf = buf;
		up->cap_buf = up->part_bytes;
	}
	*p_p = up->buf + up->n_buf;
	*n_p = up->part_bytes - up->n_buf;
	return rc;
}

int s3_upload_write(struct sky_upload *u, const void *p, uint64_t n, struct sky_err *err)
{
	struct s3_up *up = u->be;
	const uint8_t *from = p;

	while (n > 0) {
		uint8_t *to;
		uint64_t n_room;
		int rc = room(u, &to, &n_room, err);

		if (rc < 0) {
			return rc;
		}
		n_room = n_room < n ? n_room : n;
		memcpy(to, from, n_room);
		up->n_buf += n_room;
		from += n_room;
		n -= n_room;
	}
	return 0;
}

/* A file of n bytes: its size is known, so the parts are chosen to fit, and they are read where they are sent from. */
int s3_upload_fd(struct sky_upload *u, int fd, uint64_t n, const char *name, struct sky_err *err)
{
	struct s3_up *up = u->be;

	while (n / up->part_bytes >= SKY_PARTS_MAX - 1 - PART_DOUBLE && up->part_bytes < SKY_PART_MAX / 2) {
		up->part_bytes *= 2;
	}
	for (;;) {
		uint8_t *to;
		uint64_t n_room;
		int64_t got;
		int rc = room(u, &to, &n_room, err);

		if (rc < 0) {
			return rc;
		}
		got = sky_read_full(fd, to, n_room, name, err);
		if (got <= 0) {
			return (int)got;
		}
		up->n_buf += (uint64_t)got;
	}
}

/* ---- the end ---- */

/* Aborting goes on when the program was told to stop: what it leaves behind costs money. */
static void abort_at_server(struct sky_upload *u)
{
	struct s3_up *up = u->be;
	struct sky_err quiet;
	struct sky_calls cs;
	struct s3_req r;

	sky_calls_cancel(&up->cs);
	if (!up->upload_id) {
		return;
	}
	if (s3_req_init(&r, u->s, "DELETE", u->key, &quiet) == 0) {
		s3_req_query(&r, "uploadId", up->upload_id);
		if (sky_calls_init(&cs, ((struct s3 *)u->s->be)->http, u->s, &quiet) == 0) {
			cs.no_stop = 1;
			sky_calls_start(&cs, &r.c);
			while (sky_calls_next(&cs)) {
				;
			}
			sky_calls_release(&cs);
		}
	}
	s3_req_release(&r);
	free(up->upload_id);
	up->upload_id = NULL;
}

void s3_upload_abort(struct sky_upload *u)
{
	abort_at_server(u);
	free_up(u->be);
}

static int complete_body(struct sky_upload *u, struct sky_buf *b, uint32_t *crc_p, struct sky_err *err)
{
	struct s3_up *up = u->be;
	struct s3 *st = u->s->be;
	uint32_t crc = 0;
	int rc = sky_buf_adds(b, "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">", err);

	for (int64_t i = 0; rc == 0 && i < up->n_parts; i++) {
		const struct part *p = &up->parts[i];
		uint8_t raw[4] = { (uint8_t)(p->crc >> 24), (uint8_t)(p->crc >> 16), (uint8_t)(p->crc >> 8),
			           (uint8_t)p->crc };
		char sum[16];

		crc = i == 0 ? p->crc : sky_crc32c_combine(crc, p->crc, p->n);
		rc = sky_buf_adds(b, "<Part>", err);
		if (rc == 0 && with_sums(st)) {
			sky_base64(raw, 4, sum, sizeof(sum));
			rc = sky_buf_addf(b, err, "<ChecksumCRC32C>%s</ChecksumCRC32C>", sum);
		}
		rc = rc < 0 ? rc : sky_buf_adds(b, "<ETag>", err);
		rc = rc < 0 ? rc : sky_xml_escape(b, p->etag, err);
		rc = rc < 0 ? rc :
		              sky_buf_addf(b, err, "</ETag><PartNumber>%lld</PartNumber></Part>", (long long)i + 1);
	}
	*crc_p = crc;
	return rc < 0 ? rc : sky_buf_adds(b, "</CompleteMultipartUpload>", err);
}

/* Was the upload that the server does not know (any more), or whose condition fails, our own success? */
static int look_after(struct sky_upload *u, const struct s3_req *r, int rc, struct sky_err *err)
{
	struct s3_up *up = u->be;
	int gone = rc == SKY_E_MISSING, lost = rc == SKY_E_AGAIN && (r->c.t.status == 412 || r->c.t.status == 409);
	int ours;

	if (!gone && !lost) {
		return rc;
	}
	ours = s3_is_ours(u->s, u->key, up->id, err);
	if (ours != 0) {
		return ours < 0 ? ours : 0;
	}
	return lost ? sky_lost_race(u->s, u->key, err) :
	       sky_fail(err, SKY_E_AGAIN, "%s: the upload of %s was aborted by someone else", u->s->url, u->key);
}

static int complete(struct sky_upload *u, struct sky_err *err)
{
	struct s3_up *up = u->be;
	struct s3 *b = u->s->be;
	struct sky_buf body = SKY_BUF_INIT(16u << 20);
	struct s3_req r;
	uint32_t crc;
	uint8_t raw[4];
	char sum[16];
	int rc = s3_req_init(&r, u->s, "POST", u->key, err);

	s3_req_query(&r, "uploadId", up->upload_id);
	rc = rc < 0 ? rc : complete_body(u, &body, &crc, err);
	rc = rc < 0 ? rc : s3_condition(&r, u->flags, NULL, err);
	rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, "content-type", "application/xml");
	if (rc == 0 && with_sums(b)) {
		for (int i = 0; i < 4; i++) {
			raw[i] = (uint8_t)(crc >> (24 - 8 * i));
		}
		sky_base64(raw, 4, sum, sizeof(sum));
		rc = sky_heads_add(&r.heads, err, "x-amz-checksum-crc32c", "%s", sum);
		rc = rc < 0 ? rc : sky_heads_add(&r.heads, err, "x-amz-checksum-type", "FULL_OBJECT");
	}
	if (rc == 0) {
		r.body = (const uint8_t *)body.ptr;
		r.n_body = body.n;
		r.may_lie = 1;
		r.timeout_s = COMPLETE_S;
		rc = s3_req_run(&r, err);
		rc = rc < 0 ? look_after(u, &r, rc, err) : rc;
	}
	sky_buf_release(&body);
	s3_req_release(&r);
	return rc;
}

int s3_upload_commit(struct sky_upload *u, struct sky_err *err)
{
	struct s3_up *up = u->be;
	int rc = 0;

	if (!up->upload_id) {           /* it all fits one part */
		rc = s3_put(u->s, u->key, up->n_buf ? up->buf : (uint8_t *)"", up->n_buf, u->flags, NULL, err);
		free_up(up);
		return rc;
	}
	if (up->n_buf > 0) {
		rc = send_part(u, err);
	}
	while (rc == 0 && up->cs.n_active > 0) {
		struct sky_call *c = sky_calls_next(&up->cs);

		rc = c ? part_landed(u, c, err) : 0;
	}
	rc = rc < 0 ? rc : complete(u, err);
	if (rc < 0) {
		abort_at_server(u);
	}
	free_up(up);
	return rc;
}
