/* Private to libcore/corpus: one open input and the table of formats that can read it. */
#ifndef SKY_CORPUS_SOURCE_INT_H
#define SKY_CORPUS_SOURCE_INT_H

#include "corpus/corpus_int.h"

#define SOURCE_HEAD 1024        /* bytes looked at to recognise a format */

struct input {
	char *name;             /* owned */
	uint64_t bytes;         /* on disk; 0 when unknown */
	int64_t mtime_ns;
	bool is_file;           /* a local regular file */
};

struct format;
struct source {
	const struct sky_corpus_opt *opt;
	const struct input *in;
	int64_t i_file;
	uint64_t from, to;      /* share of a plain file's bytes: lines that begin in [from, to) */
	struct sky_stream *stream;
	int fd;                 /* behind stream when from > 0; -1 else */
	char head[SOURCE_HEAD];
	size_t n_head, at_head;
	const struct format *format;
	void *state;            /* of the format */
};

struct format {
	enum sky_input_format id;
	const char *name;
	int (*open)(struct source *s, struct sky_err *err);             /* sets s->state */
	int (*next)(struct source *s, struct sky_block **b_p, struct sky_err *err);
	void (*close)(struct source *s);                                /* state may be NULL */
};

extern const struct format format_jsonl, format_json, format_text, format_lines, format_parquet, format_arrow, format_tar;

/* Up to n bytes from the head, then the stream; 0 at the end. */
int64_t source_read(struct source *s, void *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;
int source_block(struct source *s, enum sky_block_kind kind, struct sky_block **b_p, struct sky_err *err) SKY_MUST_CHECK;
uint64_t source_max_line(const struct source *s);
/* The whole input as a mapping: the file itself, or a copy in an unlinked temporary file for pipes, URLs and compressed
 * input. Close with sky_map_close. */
int source_map(struct source *s, struct sky_map *m, struct sky_err *err) SKY_MUST_CHECK;
/* Lines of any reader of bytes, shared by the formats that have them: fills b->data with whole lines. */
struct line_cutter {
	struct sky_buf carry;   /* begun line of the last block */
	uint64_t byte;          /* offset of the next line */
	int64_t row;            /* its number, from 1 */
	bool eof, started;
};
int cut_lines(struct line_cutter *c, struct source *s, int64_t (*read)(void *ctx, void *p, size_t n, struct sky_err *err),
              void *ctx, struct sky_block *b, struct sky_err *err) SKY_MUST_CHECK;
int64_t count_lines(const char *p, size_t n);

/* One value as JSON text with a newline behind it; raw newlines outside strings become spaces. */
int put_json_line(struct sky_block *b, const char *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;

/* inputs.c: expands what the user named. */
int inputs_expand(const char *const *names, int64_t n_name, const struct sky_store_opt *store, struct input **v_p,
		int64_t *n_p,
		struct sky_err *err) SKY_MUST_CHECK;
void inputs_free(struct input *v, int64_t n);
/* Format by suffix (compression suffixes stripped); SKY_IN_AUTO when it tells nothing. */
enum sky_input_format format_by_name(const char *name);
/* Format by content; SKY_IN_AUTO when the bytes show none. */
enum sky_input_format format_by_head(const char *head, size_t n);

#endif
