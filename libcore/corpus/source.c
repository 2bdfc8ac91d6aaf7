/* The reader of a corpus: inputs one after another, each by its format, as blocks of rows in order. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "corpus/source_int.h"

struct sky_corpus {
	struct sky_corpus_opt opt;
	struct input *in;
	int64_t n_in;
	int64_t next;                   /* input to open next */
	int64_t skip_rows;              /* rows of that input that a resume leaves out */
	uint64_t total, done;           /* bytes on disk of all inputs, and of those read to their end */
	struct source *s;               /* open input or NULL */
};

static const struct format *const formats[] = {
	[SKY_IN_JSONL] = &format_jsonl, [SKY_IN_JSON] = &format_json, [SKY_IN_TEXT] = &format_text,
	[SKY_IN_LINES] = &format_lines, [SKY_IN_ARROW] = &format_arrow, [SKY_IN_PARQUET] = &format_parquet,
	[SKY_IN_TAR] = &format_tar,
};

static const char *const format_names[] = {
	[SKY_IN_AUTO] = "auto", [SKY_IN_JSONL] = "jsonl", [SKY_IN_JSON] = "json", [SKY_IN_TEXT] = "text",
	[SKY_IN_LINES] = "lines", [SKY_IN_PARQUET] = "parquet", [SKY_IN_ARROW] = "arrow", [SKY_IN_TAR] = "tar",
};

int sky_input_format_parse(const char *name, enum sky_input_format *f_p, struct sky_err *err)
{
	for (size_t i = 0; i < sizeof format_names / sizeof *format_names; i++) {
		if (!strcmp(name, format_names[i])) {
			*f_p = (enum sky_input_format)i;
			return 0;
		}
	}
	return sky_fail(err, SKY_E_USAGE,
			"unknown input format \"%s\": auto, jsonl, json, text, lines, parquet, arrow, tar", name);
}

const char *sky_input_format_name(enum sky_input_format f)
{
	return format_names[f];
}

uint64_t source_max_line(const struct source *s)
{
	return s->opt->max_line ? s->opt->max_line : SKY_MAX_LINE_BYTES;
}

int64_t source_read(struct source *s, void *p, size_t n, struct sky_err *err)
{
	size_t k = s->n_head - s->at_head;

	if (k) {
		k = k < n ? k : n;
		memcpy(p, s->head + s->at_head, k);
		s->at_head += k;
		return (int64_t)k;
	}
	return sky_stream_read(s->stream, p, n, err);
}

void sky_block_free(struct sky_block *b)
{
	if (b) {
		sky_buf_release(&b->data);
		free(b);
	}
}

int source_block(struct source *s, enum sky_block_kind kind, struct sky_block **b_p, struct sky_err *err)
{
	struct sky_block *b = calloc(1, sizeof *b);

	if (!b) {
		return sky_fail_mem(err, "reading %s", s->in->name);
	}
	sky_buf_init(&b->data, SIZE_MAX);
	b->kind = kind;
	b->i_file = s->i_file;
	b->file = s->in->name;
	*b_p = b;
	return 0;
}

static int copy_to_temp(struct source *s, int fd, struct sky_err *err)
{
	const size_t n = 1u << 20;
	char *buf = malloc(n);
	int64_t got = buf ? 1 : sky_fail_mem(err, "copying %s", s->in->name);
	int rc = 0;

	while (!rc && got > 0) {
		got = source_read(s, buf, n, err);
		rc = got > 0 ? sky_write_full(fd, buf, (size_t)got, "temporary file", err) : 0;
	}
	free(buf);
	return got < 0 ? (int)got : sky_while(err, rc, "unpacking %s", s->in->name);
}

int source_map(struct source *s, struct sky_map *m, struct sky_err *err)
{
	const char *dir = getenv("TMPDIR");
	char path[SKY_MAX_PATH];
	int fd, rc;

	if (s->in->is_file && !strcmp(sky_stream_kind(s->stream), "plain")) {
		return sky_map_open(m, s->in->name, err);
	}
	snprintf(path, sizeof path, "%s/skyrl-XXXXXX", dir && *dir == '/' ? dir : "/tmp");
	fd = mkostemp(path, O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "%s: unpacking %s", path, s->in->name);
	}
	rc = copy_to_temp(s, fd, err);
	close(fd);
	rc = rc ? rc : sky_map_open(m, path, err);
	unlink(path);
	return rc;
}

static void source_close(struct source *s)
{
	if (s) {
		if (s->format) {
			s->format->close(s);
		}
		sky_stream_close(s->stream);
		if (s->fd >= 0) {
			close(s->fd);
		}
		free(s);
	}
}

/* Content wins over the suffix where it is unmistakable; a .jsonl may begin with '[' and is JSONL all the same. */
static const struct format *choose(struct source *s)
{
	enum sky_input_format name = format_by_name(s->in->name), head = format_by_head(s->head, s->n_head);
	enum sky_input_format f = s->opt->format;

	if (f == SKY_IN_AUTO) {
		f = head == SKY_IN_AUTO || (head == SKY_IN_JSON && name != SKY_IN_AUTO) ? name : head;
		f = f == SKY_IN_AUTO ? SKY_IN_JSONL : f;
	}
	return formats[f];
}

static int open_stream(struct sky_corpus *c, struct source *s, struct sky_err *err)
{
	struct sky_stream_opt raw = c->opt.stream;

	if (!s->from) {
		return sky_stream_open(s->in->name, &c->opt.stream, &s->stream, err);
	}
	s->fd = open(s->in->name, O_RDONLY | O_CLOEXEC);
	if (s->fd < 0 || lseek(s->fd, (off_t)s->from - 1, SEEK_SET) < 0) {
		return sky_fail_sys(err, "%s", s->in->name);
	}
	raw.raw = 1;
	return sky_stream_fd(s->fd, s->in->name, &raw, &s->stream, err);
}

static int fill_head(struct source *s, struct sky_err *err)
{
	int64_t got = 1;

	while (got > 0 && s->n_head < SOURCE_HEAD) {
		got = sky_stream_read(s->stream, s->head + s->n_head, SOURCE_HEAD - s->n_head, err);
		s->n_head += got > 0 ? (size_t)got : 0;
	}
	return got < 0 ? (int)got : 0;
}

static int source_open(struct sky_corpus *c, int64_t i, uint64_t from, uint64_t to, struct source **s_p, struct sky_err *err)
{
	struct source *s = calloc(1, sizeof *s);
	char what[128];
	int rc;

	if (!s) {
		return sky_fail_mem(err, "opening %s", c->in[i].name);
	}
	s->opt = &c->opt;
	s->in = &c->in[i];
	s->i_file = i;
	s->from = from;
	s->to = to;
	s->fd = -1;
	rc = open_stream(c, s, err);
	rc = rc ? rc : fill_head(s, err);
	if (!rc) {
		s->format = from ? &format_jsonl : choose(s);
		if (from && c->opt.format == SKY_IN_LINES) {
			s->format = &format_lines;
		}
		snprintf(what, sizeof what, "%s%s%s", sky_stream_kind(s->stream), *sky_stream_kind(s->stream) ? " " : "",
			 s->format->name);
		if (c->opt.note) {
			c->opt.note(c->opt.note_ctx, s->in->name, what);
		}
		rc = s->format->open(s, err);
	}
	if (rc < 0) {
		source_close(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

int sky_corpus_open(const char *const *names, int64_t n_name, const struct sky_corpus_opt *opt, struct sky_corpus **c_p,
                    struct sky_err *err)
{
	struct sky_corpus *c = calloc(1, sizeof *c);
	int rc;

	if (!c) {
		return sky_fail_mem(err, "opening the inputs");
	}
	c->opt = *opt;
	rc = inputs_expand(names, n_name, opt->stream.store, &c->in, &c->n_in, err);
	for (int64_t i = 0; !rc && i < c->n_in; i++) {
		c->total += c->in[i].bytes;
		if (opt->n_worker > 1 && !c->in[i].is_file) {
			rc = sky_fail(err, SKY_E_USAGE, "%s: --worker shares files by their sizes, and this is no local file",
				      c->in[i].name);
		}
	}
	if (rc < 0) {
		sky_corpus_close(c);
		return rc;
	}
	*c_p = c;
	return 0;
}

void sky_corpus_close(struct sky_corpus *c)
{
	if (c) {
		source_close(c->s);
		inputs_free(c->in, c->n_in);
		free(c);
	}
}

int sky_corpus_seek(struct sky_corpus *c, int64_t i_file, int64_t row, struct sky_err *err)
{
	if (i_file < 0 || i_file > c->n_in || row < 0) {
		return sky_fail(err, SKY_E_DATA, "the position to resume from lies outside the inputs");
	}
	c->next = i_file;
	c->skip_rows = row;
	for (int64_t i = 0; i < i_file; i++) {
		c->done += c->in[i].bytes;
	}
	return 0;
}

/* Plain text files are cut at lines; whatever cannot be cut goes whole to the worker in whose share its first byte lies. */
static bool can_cut(const struct sky_corpus *c, const struct input *in)
{
	enum sky_input_format f = c->opt.format == SKY_IN_AUTO ? format_by_name(in->name) : c->opt.format;
	unsigned char magic[6] = { 0 };
	int fd;

	if (f != SKY_IN_JSONL && f != SKY_IN_LINES) {
		return false;
	}
	fd = open(in->name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, magic, sizeof magic) < 0) {
		magic[0] = 0x1f;
	}
	if (fd >= 0) {
		close(fd);
	}
	return magic[0] == '{' || magic[0] == 0xef || (f == SKY_IN_LINES && magic[0] != 0x1f && magic[0] != 0x28 &&
						       magic[0] != 0xfd && memcmp(magic, "BZh", 3) != 0);
}

/* This worker's part of input i: [*from_p, *to_p) of its bytes; false when there is none. */
static bool share_of(const struct sky_corpus *c, int64_t i, uint64_t *from_p, uint64_t *to_p)
{
	const struct input *in = &c->in[i];
	uint64_t before = 0, lo, hi;

	*from_p = 0;
	*to_p = UINT64_MAX;
	if (c->opt.n_worker <= 1) {
		return true;
	}
	for (int64_t k = 0; k < i; k++) {
		before += c->in[k].bytes;
	}
	lo = (uint64_t)((__uint128_t)c->total * (unsigned)c->opt.worker / (unsigned)c->opt.n_worker);
	hi = (uint64_t)((__uint128_t)c->total * (unsigned)(c->opt.worker + 1) / (unsigned)c->opt.n_worker);
	if (!can_cut(c, in)) {
		return before >= lo && before < hi;
	}
	if (before + in->bytes <= lo || before >= hi) {
		return false;
	}
	*from_p = lo > before ? lo - before : 0;
	*to_p = hi - before < in->bytes ? hi - before : UINT64_MAX;
	return true;
}

/* A block without its first skip rows; *b_p becomes NULL when none are left. */
static int drop_rows(struct sky_block **b_p, int64_t *skip_p, struct sky_err *err)
{
	struct sky_block *b = *b_p;
	const char *p = b->data.ptr, *end = p + b->data.n;
	int64_t n = *skip_p < b->n_row ? *skip_p : b->n_row;
	size_t cut;

	(void)err;
	*skip_p -= n;
	if (n == b->n_row) {
		sky_block_free(b);
		*b_p = NULL;
		return 0;
	}
	for (int64_t i = 0; i < n; i++) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));

		p = nl ? nl + 1 : end;
	}
	cut = (size_t)(p - b->data.ptr);
	memmove(b->data.ptr, p, (size_t)(end - p) + 1);
	b->data.n -= cut;
	b->row += n;
	b->n_row -= n;
	b->byte += b->byte || b->row > 1 ? cut : 0;
	return 0;
}

int sky_corpus_next(struct sky_corpus *c, struct sky_block **b_p, struct sky_err *err)
{
	uint64_t from, to;
	int rc;

	for (;;) {
		if (!c->s) {
			if (c->next == c->n_in) {
				return SKY_EOF;
			}
			if (!share_of(c, c->next, &from, &to)) {
				c->done += c->in[c->next++].bytes;
				continue;
			}
			rc = source_open(c, c->next, from, to, &c->s, err);
			if (rc < 0) {
				return rc;
			}
			c->next++;
		}
		rc = c->s->format->next(c->s, b_p, err);
		if (rc == SKY_EOF) {
			c->done += c->s->in->bytes;
			c->skip_rows = 0;
			source_close(c->s);
			c->s = NULL;
			continue;
		}
		if (rc < 0) {
			return rc;
		}
		rc = c->skip_rows ? drop_rows(b_p, &c->skip_rows, err) : 0;
		if (rc || *b_p) {
			return rc;
		}
	}
}

int64_t sky_corpus_files(const struct sky_corpus *c)
{
	return c->n_in;
}

const char *sky_corpus_file(const struct sky_corpus *c, int64_t i)
{
	return c->in[i].name;
}

uint64_t sky_corpus_total_bytes(const struct sky_corpus *c)
{
	return c->total;
}

uint64_t sky_corpus_read_bytes(const struct sky_corpus *c)
{
	return c->done + (c->s ? sky_stream_offset(c->s->stream) : 0);
}

int sky_corpus_describe(const struct sky_corpus *c, struct sky_buf *out, struct sky_err *err)
{
	struct sky_jw w;

	sky_jw_init(&w, out, err);
	sky_jw_arr(&w);
	for (int64_t i = 0; i < c->n_in; i++) {
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "name", c->in[i].name);
		if (c->in[i].is_file) {
			sky_jw_ki64(&w, "bytes", (int64_t)c->in[i].bytes);
			sky_jw_ki64(&w, "mtime_ns", c->in[i].mtime_ns);
		}
		sky_jw_close_obj(&w);
	}
	sky_jw_close_arr(&w);
	return sky_jw_end(&w);
}
