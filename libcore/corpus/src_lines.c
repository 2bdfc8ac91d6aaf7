/* Inputs made of lines (JSONL, lines) or of one text each (text). Lines end at '\n' only; '\r' before it is stripped by
 * whoever reads the row; a byte order mark at the very start is dropped. */
#include <stdlib.h>
#include <string.h>

#include "corpus/source_int.h"

int64_t count_lines(const char *p, size_t n)
{
	const char *end = p + n;
	int64_t count = 0;

	while (p < end && (p = memchr(p, '\n', (size_t)(end - p)))) {
		count++;
		p++;
	}
	return count;
}

/* Reads until want bytes are there or the input ends. */
static int fill(struct line_cutter *c, int64_t (*read)(void *, void *, size_t, struct sky_err *), void *ctx,
                struct sky_buf *to, size_t want, struct sky_err *err)
{
	int64_t got;
	int rc;

	while (!c->eof && to->n < want) {
		rc = sky_buf_reserve(to, want - to->n, err);
		if (rc < 0) {
			return rc;
		}
		got = read(ctx, to->ptr + to->n, want - to->n, err);
		if (got < 0) {
			return (int)got;
		}
		c->eof = got == 0;
		to->n += (size_t)got;
	}
	return 0;
}

static void drop_mark(struct line_cutter *c, struct sky_buf *data)
{
	if (!c->started && data->n >= 3 && !memcmp(data->ptr, "\xef\xbb\xbf", 3)) {
		memmove(data->ptr, data->ptr + 3, data->n - 3);
		data->n -= 3;
		c->byte = 3;
	}
	c->started = true;
}

int cut_lines(struct line_cutter *c, struct source *s, int64_t (*read)(void *, void *, size_t, struct sky_err *), void *ctx,
              struct sky_block *b, struct sky_err *err)
{
	size_t want = s->opt->block_bytes ? s->opt->block_bytes : 1u << 20;
	uint64_t max = source_max_line(s);
	struct sky_buf *data = &b->data;
	const char *last = NULL;
	int rc = sky_buf_reserve(data, want > c->carry.n ? want : c->carry.n, err);

	rc = rc || !c->carry.n ? rc : sky_buf_add(data, c->carry.ptr, c->carry.n, err);
	sky_buf_clear(&c->carry);
	want = data->n > want ? 2 * data->n : want;
	for (; !rc; want *= 2) {
		rc = fill(c, read, ctx, data, want, err);
		if (rc < 0) {
			return rc;
		}
		drop_mark(c, data);
		last = data->n ? memrchr(data->ptr, '\n', data->n) : NULL;
		if (c->eof || last) {
			break;
		}
		if (data->n > max) {
			return sky_fail(err, SKY_E_LIMIT, "%s: line %lld is longer than %llu bytes (--max-line)", s->in->name,
					(long long)c->row, (unsigned long long)max);
		}
	}
	if (rc < 0) {
		return rc;
	}
	if (!data->n) {
		return SKY_EOF;
	}
	if (!c->eof) {
		size_t n = (size_t)(last - data->ptr) + 1;

		rc = sky_buf_add(&c->carry, data->ptr + n, data->n - n, err);
		data->n = n;
	}
	b->row = c->row;
	b->byte = c->byte;
	b->n_row = count_lines(data->ptr, data->n) + (data->ptr[data->n - 1] != '\n');
	c->row += b->n_row;
	c->byte += data->n;
	return rc;
}

struct lines {
	struct line_cutter cut;
	bool first, over;
};

static int64_t read_source(void *ctx, void *p, size_t n, struct sky_err *err)
{
	return source_read(ctx, p, n, err);
}

static int lines_open(struct source *s, struct sky_err *err)
{
	struct lines *l = calloc(1, sizeof *l);

	if (!l) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	sky_buf_init(&l->cut.carry, SIZE_MAX);
	l->cut.row = 1;
	l->first = true;
	s->state = l;
	return 0;
}

static void lines_close(struct source *s)
{
	struct lines *l = s->state;

	if (l) {
		sky_buf_release(&l->cut.carry);
		free(l);
	}
}

/* A share [from, to): the reader stands on from − 1; what precedes the first '\n' belongs to the share before, and the
 * share ends with the last line that begins before to. */
static int trim_share(struct source *s, struct lines *l, struct sky_block *b)
{
	char *nl;
	size_t cut;

	if (l->first && s->from) {
		nl = memchr(b->data.ptr, '\n', b->data.n);
		cut = nl ? (size_t)(nl - b->data.ptr) + 1 : b->data.n;
		memmove(b->data.ptr, b->data.ptr + cut, b->data.n - cut);
		b->data.n -= cut;
		b->n_row -= 1;
		l->cut.row -= 1;
		l->cut.byte += s->from - 1;
		b->byte = s->from - 1 + cut;
	}
	l->first = false;
	if (b->byte + b->data.n >= s->to) {
		/* Lines that begin at to or later: behind the first '\n' at or behind to − 1. */
		cut = s->to - 1 > b->byte ? (size_t)(s->to - 1 - b->byte) : 0;
		nl = b->byte >= s->to ? b->data.ptr - 1 : cut < b->data.n ? memchr(b->data.ptr + cut, '\n',
				b->data.n - cut) : NULL;
		if (nl) {
			b->n_row -= count_lines(nl + 1, (size_t)(b->data.ptr + b->data.n - nl - 1));
			b->n_row -= b->data.ptr + b->data.n > nl + 1 && b->data.ptr[b->data.n - 1] != '\n';
			b->data.n = (size_t)(nl + 1 - b->data.ptr);
			l->over = true;
		}
	}
	return b->data.n ? 0 : SKY_EOF;
}

static int lines_next_kind(struct source *s, enum sky_block_kind kind, struct sky_block **b_p, struct sky_err *err)
{
	struct lines *l = s->state;
	struct sky_block *b;
	int rc;

	do {
		if (l->over) {
			return SKY_EOF;
		}
		rc = source_block(s, kind, &b, err);
		if (rc < 0) {
			return rc;
		}
		rc = cut_lines(&l->cut, s, read_source, s, b, err);
		if (rc) {
			break;
		}
		rc = trim_share(s, l, b);
		if (rc == SKY_EOF) {
			sky_block_free(b);
		}
	} while (rc == SKY_EOF);
	if (rc) {
		sky_block_free(b);
		return rc;
	}
	*b_p = b;
	return 0;
}

static int jsonl_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	return lines_next_kind(s, SKY_BLOCK_JSON, b_p, err);
}

static int lines_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	return lines_next_kind(s, SKY_BLOCK_LINES, b_p, err);
}

const struct format format_jsonl = { SKY_IN_JSONL, "JSON lines", lines_open, jsonl_next, lines_close };
const struct format format_lines = { SKY_IN_LINES, "text lines", lines_open, lines_next, lines_close };

/* One document a file. */
static int text_next(struct source *s, struct sky_block **b_p, struct sky_err *err)
{
	struct lines *l = s->state;
	struct sky_block *b;
	uint64_t max = source_max_line(s);
	int rc;

	if (l->over) {
		return SKY_EOF;
	}
	l->over = true;
	rc = source_block(s, SKY_BLOCK_DOC, &b, err);
	if (rc < 0) {
		return rc;
	}
	for (size_t want = 1u << 16; !rc && !l->cut.eof; want *= 2) {
		rc = fill(&l->cut, read_source, s, &b->data, want, err);
		if (!rc && b->data.n > max) {
			rc = sky_fail(err, SKY_E_LIMIT,
					"%s: a document longer than %llu bytes (--max-line, or --input-format "
				      "lines for one document a line)", s->in->name, (unsigned long long)max);
		}
	}
	if (!rc) {
		rc = sky_buf_reserve(&b->data, 1, err);
		drop_mark(&l->cut, &b->data);
	}
	if (rc < 0) {
		sky_block_free(b);
		return rc;
	}
	b->row = b->n_row = 1;
	*b_p = b;
	return 0;
}

const struct format format_text = { SKY_IN_TEXT, "text", lines_open, text_next, lines_close };
