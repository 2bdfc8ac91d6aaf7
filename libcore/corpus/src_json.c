/* JSON documents that are not lines: one array of rows, one object that holds such an array, or values one after another
 * over several lines. Arrays are cut into rows while they stream; objects are read whole (at most --max-line). */
#include <stdlib.h>
#include <string.h>

#include "corpus/source_int.h"

#define READ_BYTES (1u << 18)

enum json_mode { JSON_LINES, JSON_ARRAY, JSON_WHOLE };

struct json_doc {
	enum json_mode mode;
	char *buf;
	size_t at, n;                   /* unread bytes of buf */
	uint64_t byte;                  /* of buf[at] in the file */
	int64_t row;
	bool begun, ended, want_value;  /* array: '[' seen, ']' seen, a value must follow */
	struct sky_buf whole;
	struct sky_jdoc doc;
	const struct sky_jval *list, *item;     /* whole: rows still to hand out are siblings in list */
	size_t at_whole;
};

int put_json_line(struct sky_block *b, const char *p, size_t n, struct sky_err *err)
{
	size_t at = b->data.n;
	bool in_string = false, escaped = false;
	int rc = sky_buf_add(&b->data, p, n, err);

	rc = rc ? rc : sky_buf_addc(&b->data, '\n', err);
	if (!rc && memchr(p, '\n', n)) {
		for (char *q = b->data.ptr + at, *end = q + n; q < end; q++) {
			if (*q == '\n') {
				*q = in_string ? '\1' : ' ';    /* inside a string it is an error, and stays one */
			}
			if (in_string) {
				in_string = escaped || *q != '"';
				escaped = !escaped && *q == '\\';
			} else {
				in_string = *q == '"';
			}
		}
	}
	return rc;
}

static int fail_at(const struct source *s, const struct json_doc *j, const char *what, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "%s: byte %llu: %s", s->in->name, (unsigned long long)j->byte, what);
}

/* Next unread byte, or −1 at the end, or a negative code below −1. */
static int peek(struct source *s, struct json_doc *j, struct sky_err *err)
{
	if (j->at == j->n) {
		int64_t got = source_read(s, j->buf, READ_BYTES, err);

		if (got <= 0) {
			return got < 0 ? -1000 + (int)got : -1;
		}
		j->at = 0;
		j->n = (size_t)got;
	}
	return (unsigned char)j->buf[j->at];
}

static void take(struct json_doc *j)
{
	j->at++;
	j->byte++;
}

static int peek_solid(struct source *s, struct json_doc *j, struct sky_err *err)
{
	int c;

	for (;;) {
		c = peek(s, j, err);
		if (c != ' ' && c != '\t' && c != '\r' && c != '\n') {
			return c;
		}
		take(j);
	}
}

/* Copies one element of the array, ended by ',' or ']' at its own depth, as a line of the block. Only quotes and depth are
 * looked at: the row scanner judges the rest. */
static int copy_element(struct source *s, struct json_doc *j, struct sky_block *b, struct sky_err *err)
{
	bool in_string = false, escaped = false;
	uint64_t max = source_max_line(s);
	size_t start = b->data.n;
	int depth = 0, c, rc;

	for (;;) {
		c = peek(s, j, err);
		if (c < 0) {
			return c < -1 ? c + 1000 : fail_at(s, j, "the array is cut inside a row", err);
		}
		if (!in_string && !depth && (c == ',' || c == ']')) {
			break;
		}
		if (in_string) {
			in_string = escaped || c != '"';
			escaped = !escaped && c == '\\';
			c = c == '\n' ? '\1' : c;
		} else {
			in_string = c == '"';
			depth += (c == '{' || c == '[') - (c == '}' || c == ']');
			c = c == '\n' ? ' ' : c;
		}
		rc = sky_buf_addc(&b->data, (char)c, err);
		if (rc < 0) {
			return rc;
		}
		take(j);
		if (b->data.n - start > max) {
			return sky_fail(err, SKY_E_LIMIT, "%s: row %lld is longer than %llu bytes (--max-line)", s->in->name,
					(long long)j->row, (unsigned long long)max);
		}
	}
	return sky_buf_addc(&b->data, '\n', err);
}

static int end_of_array(struct source *s, struct json_doc *j, struct sky_err *err)
{
	int c;

	take(j);
	j->ended = true;
	c = peek_solid(s, j, err);
	return c == -1 ? 0 : c < -1 ? c + 1000 : fail_at(s, j, "more text behind the array", err);
}

static int array_next(struct source *s, struct json_doc *j, struct sky_block *b, struct sky_err *err)
{
	size_t want = s->opt->block_bytes ? s->opt->block_bytes : 1u << 20;
	int c, rc = 0;

	b->row = j->row;
	b->byte = j->byte;
	while (!rc && !j->ended && b->data.n < want) {
		c = peek_solid(s, j, err);
		if (!j->begun) {
			j->begun = true;        /* the '[' that open() saw */
			take(j);
			continue;
		}
		if (c < 0) {
			return c < -1 ? c + 1000 : fail_at(s, j, "the array is cut: ']' is missing", err);
		}
		if (c == ']' && !j->want_value) {
			rc = end_of_array(s, j, err);
		} else if (c == ',' || c == ']') {
			rc = fail_at(s, j, "a comma without a row", err);
		} else {
			rc = copy_element(s, j, b, err);
			b->n_row++;
			j->row++;
			c = rc ? 0 : peek_solid(s, j, err);
			j->want_value = c == ',';
			if (c == ',') {
				take(j);
			}
		}
	}
	return rc ? rc : b->n_row ? 0 : SKY_EOF;
}

static int read_whole(struct source *s, struct json_doc *j, struct sky_err *err)
{
	uint64_t max = source_max_line(s);
	int64_t got = 1;
	int rc = 0;

	while (!rc && got > 0) {
		got = source_read(s, j->buf, READ_BYTES, err);
		rc = got > 0 ? sky_buf_add(&j->whole, j->buf, (size_t)got, err) : (int)got;
		if (!rc && j->whole.n > max) {
			rc = sky_fail(err, SKY_E_LIMIT,
					"%s: a JSON document longer than %llu bytes (--max-line); as JSON lines or "
				      "as an array of rows it would stream", s->in->name, (unsigned long long)max);
		}
	}
	return rc;
}

/* Bytes of the value at the start of p, by quotes and depth; n when it does not end. */
static size_t value_bytes(const char *p, size_t n)
{
	bool in_string = false, escaped = false;
	int depth = 0;

	for (size_t i = 0; i < n; i++) {
		if (in_string) {
			in_string = escaped || p[i] != '"';
			escaped = !escaped && p[i] == '\\';
			continue;
		}
		in_string = p[i] == '"';
		depth += (p[i] == '{' || p[i] == '[') - (p[i] == '}' || p[i] == ']');
		if (depth <= 0 && (p[i] == '}' || p[i] == ']')) {
			return i + 1;
		}
		if (!depth && p[i] == '\n') {
			return i;
		}
	}
	return n;
}

/* The array of rows inside an object that is no row itself: a list of objects under a key that no schema knows. */
static const struct sky_jval *wrapped_rows(const struct sky_jdoc *d)
{
	static const char *const rows[] = { "messages", "conversations", "segments", "tools", "history", "chosen", "rejected",
					    "prompt", "completion", "input_ids", "text" };
	const struct sky_jval *found = NULL, *root = &d->val[0];

	if (root->tag != SKY_JT_OBJECT) {
		return NULL;
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (sky_jval_get(d, root, rows[i])) {
			return NULL;
		}
	}
	for (const struct sky_jval *v = sky_jval_first(d, root); v; v = sky_jval_next(d, root, v)) {
		if (v->tag == SKY_JT_ARRAY && v->n_child && v[1].tag == SKY_JT_OBJECT) {
			if (found) {
				return NULL;
			}
			found = v;
		}
	}
	return found;
}

static int whole_next(struct source *s, struct json_doc *j, struct sky_block *b, struct sky_err *err)
{
	size_t n, want = s->opt->block_bytes ? s->opt->block_bytes : 1u << 20;
	const char *p;
	int rc = 0;

	b->row = j->row;
	while (!rc && b->data.n < want) {
		if (j->list) {
			if (!j->item) {
				break;
			}
			rc = put_json_line(b, j->item->str, j->item->n_str, err);
			j->item = sky_jval_next(&j->doc, j->list, j->item);
		} else {
			p = j->whole.ptr + j->at_whole;
			n = j->whole.n - j->at_whole;
			while (n && strchr(" \t\r\n", *p) && *p) {
				p++;
				n--;
			}
			if (!n) {
				break;
			}
			n = value_bytes(p, n);
			rc = put_json_line(b, p, n, err);
			j->at_whole = (size_t)(p + n - j->whole.ptr);
		}
		b->n_row++;
		j->row++;
	}
	return rc ? rc : b->n_row ? 0 : SKY_EOF;
}

static void json_close(struct source *s)
{
	struct json_doc *j = s->state;

	if (j) {
		free(j->buf);
		sky_buf_release(&j->whole);
		sky_jdoc_release(&j->doc);
		free(j);
	}
}

static size_t skip_head(const struct source *s)
{
	size_t i = s->n_head >= 3 && !memcmp(s->head, "\xef\xbb\xbf", 3) ? 3 : 0;

	while (i < s->n_head && s->head[i] && strchr(" \t\r\n", s->head[i])) {
		i++;
	}
	return i;
}

/* What kind of document: by its first byte, for '{' by whether a first line is a whole row. */
static int choose_mode(struct source *s, struct json_doc *j, struct sky_err *err)
{
	size_t i = skip_head(s);
	const char *nl;
	size_t n;
	int rc;

	j->mode = i < s->n_head && s->head[i] == '[' ? JSON_ARRAY : JSON_LINES;
	if (j->mode == JSON_ARRAY || i == s->n_head) {
		s->at_head = i;
		j->byte = i;
		return 0;
	}
	/* A head of 1 KiB may hold no whole line; an object that ends on its line in the head is JSON lines. */
	nl = memchr(s->head + i, '\n', s->n_head - i);
	n = nl ? (size_t)(nl - s->head) - i : s->n_head - i;
	if (value_bytes(s->head + i, n) < n || (nl && sky_jdoc_parse(&j->doc, s->head + i, n, NULL) == 0 &&
						!wrapped_rows(&j->doc) && j->doc.val[0].tag == SKY_JT_OBJECT)) {
		return 0;
	}
	if (!nl && s->n_head == SOURCE_HEAD && memchr(s->head + i, '"', n) && s->in->bytes > source_max_line(s)) {
		return 0;               /* too large to be one document: lines longer than the head */
	}
	j->mode = JSON_WHOLE;
	s->at_head = i;
	rc = read_whole(s, j, err);
	if (rc < 0 || sky_jdoc_parse(&j->doc, j->whole.ptr, j->whole.n, NULL)) {
		return rc;              /* several values, or damage that its row will show */
	}
	j->list = wrapped_rows(&j->doc);
	j->item = sky_jval_first(&j->doc, j->list);
	return 0;
}

static int json_open(struct source *s, struct sky_err *err)
{
	struct json_doc *j = calloc(1, sizeof *j);
	int rc;

	if (!j) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	s->state = j;
	sky_buf_init(&j->whole, SIZE_MAX);
	j->row = 1;
	j->buf = malloc(READ_BYTES);
	if (!j->buf) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	rc = choose_mode(s, j, err);
	if (!rc && j->mode == JSON_LINES) {
		json_close(s);
		s->state = NULL;
		s->format = &format_jsonl;
		rc = format_jsonl.open(s, err);
	}
	return rc;
}

static int json_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	struct json_doc *j = s->state;
	struct sky_block *b;
	int rc = source_block(s, SKY_BLOCK_JSON, &b, err);

	if (rc < 0) {
		return rc;
	}
	rc = j->mode == JSON_ARRAY ? array_next(s, j, b, err) : whole_next(s, j, b, err);
	if (rc) {
		sky_block_free(b);
		return rc;
	}
	*b_p = b;
	return 0;
}

const struct format format_json = { SKY_IN_JSON, "JSON", json_open, json_next, json_close };
