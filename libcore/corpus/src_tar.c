/* tar archives, WebDataset style: members that share their name up to the first dot behind the last slash are one sample.
 * Its .json is the row, its .txt becomes the column "txt" of it, or alone the column "text"; a .jsonl is rows of its own.
 * Other members (classes, images), links, folders and names that begin with a dot are passed over. */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "corpus/source_int.h"

#define READ_BYTES (1u << 18)

struct tar {
	struct source *s;
	struct archive *a;
	char *in;
	uint64_t n_zero;                /* zero bytes at the end of what was read: the end blocks are 1024 */
	struct sky_err err;             /* of the reader below libarchive */
	struct sky_buf key, json, txt, member;
	bool has_json, has_txt, ended;
	int64_t row;
	struct sky_jdoc doc;
};

static la_ssize_t feed(struct archive *a, void *ctx, const void **p)
{
	struct tar *t = ctx;
	int64_t n = source_read(t->s, t->in, READ_BYTES, &t->err);

	if (n < 0) {
		archive_set_error(a, EIO, "%s", t->err.msg);
		return -1;
	}
	for (int64_t i = n; n > 0; i--) {
		if (i == 0 || t->in[i - 1]) {
			t->n_zero = i == 0 ? t->n_zero + (uint64_t)n : (uint64_t)(n - i);
			break;
		}
	}
	*p = t->in;
	return (la_ssize_t)n;
}

static int damaged(struct tar *t, struct sky_err *err)
{
	const char *why = archive_error_string(t->a);

	if (t->err.code < 0) {
		*err = t->err;
		return t->err.code;
	}
	return sky_fail(err, SKY_E_DATA, "%s: damaged or cut tar archive: %s", t->s->in->name, why ? why : "unknown reason");
}

static int tar_open(struct source *s, struct sky_err *err)
{
	struct tar *t = calloc(1, sizeof *t);

	if (!t) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	s->state = t;
	t->s = s;
	t->row = 1;
	t->in = malloc(READ_BYTES);
	t->a = archive_read_new();
	sky_buf_init(&t->key, SKY_MAX_PATH);
	sky_buf_init(&t->json, source_max_line(s) + 1);
	sky_buf_init(&t->txt, source_max_line(s) + 1);
	sky_buf_init(&t->member, source_max_line(s) + 1);
	if (!t->in || !t->a) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	if (archive_read_support_format_tar(t->a) != ARCHIVE_OK || archive_read_open(t->a, t, NULL, feed,
			NULL) != ARCHIVE_OK) {
		return damaged(t, err);
	}
	return 0;
}

static void tar_close(struct source *s)
{
	struct tar *t = s->state;

	if (t) {
		archive_read_free(t->a);
		free(t->in);
		sky_buf_release(&t->key);
		sky_buf_release(&t->json);
		sky_buf_release(&t->txt);
		sky_buf_release(&t->member);
		sky_jdoc_release(&t->doc);
		free(t);
	}
}

static int put_text(struct sky_buf *out, const char *key, const struct sky_buf *text, struct sky_err *err)
{
	struct sky_jw w;
	int rc = sky_buf_addf(out, err, "\"%s\":", key);

	sky_jw_init(&w, out, err);
	sky_jw_strn(&w, text->ptr ? text->ptr : "", text->n);
	return rc ? rc : sky_jw_end(&w);
}

/* Lines of a .jsonl member, or of a .json that holds several values, are rows. */
static int put_lines(struct tar *t, struct sky_buf *text, struct sky_block *b, struct sky_err *err)
{
	int rc;

	if (!text->n) {
		return 0;
	}
	if (text->ptr[text->n - 1] != '\n') {
		rc = sky_buf_addc(text, '\n', err);
		if (rc < 0) {
			return rc;
		}
	}
	rc = sky_buf_add(&b->data, text->ptr, text->n, err);
	b->n_row += count_lines(text->ptr, text->n);
	t->row += count_lines(text->ptr, text->n);
	return rc;
}

/* The sample in hand as one row of the block. */
static int put_sample(struct tar *t, struct sky_block *b, struct sky_err *err)
{
	struct sky_buf row = SKY_BUF_INIT(SIZE_MAX);
	const struct sky_jval *root;
	int rc = 0;

	if (!t->has_json && !t->has_txt) {
		return 0;
	}
	if (!t->has_txt && sky_jdoc_parse(&t->doc, t->json.ptr ? t->json.ptr : "", t->json.n, NULL) && t->json.n) {
		t->has_json = false;
		return put_lines(t, &t->json, b, err);
	}
	if (!t->has_txt) {
		rc = put_json_line(b, t->json.ptr ? t->json.ptr : "", t->json.n, err);
	} else if (!t->has_json) {
		rc = sky_buf_addc(&row, '{', err);
		rc = rc ? rc : put_text(&row, "text", &t->txt, err);
		rc = rc ? rc : sky_buf_addc(&row, '}', err);
		rc = rc ? rc : put_json_line(b, row.ptr, row.n, err);
	} else if (sky_jdoc_parse(&t->doc, t->json.ptr ? t->json.ptr : "", t->json.n, NULL) ||
		   t->doc.val[0].tag != SKY_JT_OBJECT) {
		rc = put_json_line(b, t->json.ptr ? t->json.ptr : "", t->json.n, err);  /* a bad row; its reader says why */
	} else {
		root = &t->doc.val[0];
		rc = sky_buf_add(&row, root->str, root->n_str - 1, err);
		rc = rc || !root->n_child ? rc : sky_buf_addc(&row, ',', err);
		rc = rc ? rc : put_text(&row, "txt", &t->txt, err);
		rc = rc ? rc : sky_buf_addc(&row, '}', err);
		rc = rc ? rc : put_json_line(b, row.ptr, row.n, err);
	}
	sky_buf_release(&row);
	t->has_json = t->has_txt = false;
	b->n_row++;
	t->row++;
	return rc;
}

static int read_member(struct tar *t, struct sky_buf *to, const char *name, struct sky_err *err)
{
	la_ssize_t n = 1;
	int rc = 0;

	sky_buf_clear(to);
	while (!rc && n > 0) {
		rc = sky_buf_reserve(to, 1u << 16, err);
		n = rc ? 0 : archive_read_data(t->a, to->ptr + to->n, 1u << 16);
		to->n += n > 0 ? (size_t)n : 0;
		if (rc == SKY_E_LIMIT || to->n > source_max_line(t->s)) {
			return sky_fail(err, SKY_E_LIMIT, "%s: member %s is longer than %llu bytes (--max-line)",
					t->s->in->name, name,
					(unsigned long long)source_max_line(t->s));
		}
	}
	return n < 0 ? damaged(t, err) : rc;
}

/* One member: ends the sample in hand when its key is another. */
static int take_member(struct tar *t, struct archive_entry *e, struct sky_block *b, struct sky_err *err)
{
	const char *name = archive_entry_pathname(e), *base, *dot;
	size_t n_key;
	int rc = 0;

	if (!name || archive_entry_filetype(e) != AE_IFREG || archive_entry_hardlink(e)) {
		return 0;
	}
	base = strrchr(name, '/');
	base = base ? base + 1 : name;
	dot = strchr(base, '.');
	if (*base == '.' || !dot) {
		return 0;
	}
	n_key = (size_t)(dot - name);
	if (t->key.n != n_key || memcmp(t->key.ptr, name, n_key)) {
		rc = put_sample(t, b, err);
		sky_buf_clear(&t->key);
		rc = rc ? rc : sky_buf_add(&t->key, name, n_key, err);
	}
	dot = strrchr(base, '.');
	if (!rc && !strcmp(dot, ".json")) {
		rc = read_member(t, &t->json, name, err);
		t->has_json = !rc;
	} else if (!rc && !strcmp(dot, ".txt")) {
		rc = read_member(t, &t->txt, name, err);
		t->has_txt = !rc;
	} else if (!rc && (!strcmp(dot, ".jsonl") || !strcmp(dot, ".ndjson"))) {
		rc = read_member(t, &t->member, name, err);
		rc = rc ? rc : put_lines(t, &t->member, b, err);
	}
	return rc;
}

static int tar_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	size_t want = s->opt->block_bytes ? s->opt->block_bytes : 1u << 20;
	struct tar *t = s->state;
	struct archive_entry *e;
	struct sky_block *b;
	int rc = source_block(s, SKY_BLOCK_JSON, &b, err);

	if (rc < 0) {
		return rc;
	}
	b->row = t->row;
	while (!rc && !t->ended && b->data.n < want) {
		int got = archive_read_next_header(t->a, &e);

		if (got == ARCHIVE_EOF) {
			t->ended = true;
			rc = put_sample(t, b, err);
			if (t->n_zero < 1024 && s->opt->warn) {
				s->opt->warn(s->opt->note_ctx, s->in->name,
						"the tar archive has no end blocks; is it whole?");
			}
		} else {
			rc = got == ARCHIVE_OK || got == ARCHIVE_WARN ? take_member(t, e, b, err) : damaged(t, err);
		}
	}
	if (!rc && !b->n_row) {
		rc = SKY_EOF;
	}
	if (rc) {
		sky_block_free(b);
		return rc;
	}
	*b_p = b;
	return 0;
}

const struct format format_tar = { SKY_IN_TAR, "tar", tar_open, tar_next, tar_close };
