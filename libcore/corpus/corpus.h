/* corpus: from files to samples. Layer 2.
 *
 * In: JSONL, JSON, text, lines, Parquet, Arrow, tar; plain or compressed; files, stdin, URLs. Out: blocks of raw rows in
 * input order (one reader), and, per row, a sample: text pieces, a conversation as JSON, or ready token ids (any number
 * of threads, each with its own sky_rows). Rows of tables come out as JSON text, so every later step knows one form.
 *
 * Ownership: a block owns its bytes; a sample is valid until the next row of the same sky_rows. */
#ifndef SKY_CORPUS_CORPUS_H
#define SKY_CORPUS_CORPUS_H

#include <stdbool.h>
#include <stdint.h>
#include "base/base.h"
#include "store/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- JSON rows: a strict scanner for one value, made for speed ----
 * RFC 8259, depth at most SKY_MAX_JSON_DEPTH (the row is depth 1); duplicate keys: the last wins. Text that nobody reads
 * must be valid syntax, nothing more: UTF-8 is checked when a string is taken (sky_utf8_valid), and a lone surrogate
 * escape becomes the byte 0xff, which never is. */
enum sky_jtag { SKY_JT_NULL, SKY_JT_FALSE, SKY_JT_TRUE, SKY_JT_NUMBER, SKY_JT_STRING, SKY_JT_ARRAY, SKY_JT_OBJECT };

struct sky_jval {               /* in order of the text; children follow their parent */
	const char *key;        /* NULL outside objects */
	const char *str;        /* string contents; raw text of a number or container */
	uint32_t n_key, n_str;
	uint32_t end;           /* index behind the last value of this subtree */
	uint32_t n_child;
	enum sky_jtag tag;
};

struct sky_jdoc {               /* zero-initialised; one per thread, reused row after row */
	struct sky_jval *val;   /* [0] is the root */
	uint32_t n_val, cap_val;
	struct sky_buf text;    /* unescaped strings */
	size_t err_off;         /* byte of the last failure, from the start of the text */
};

/* n < 2^32. Failure: SKY_E_DATA, the message says what and at which byte. p must outlive the values. */
int sky_jdoc_parse(struct sky_jdoc *d, const char *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;
void sky_jdoc_release(struct sky_jdoc *d);
/* Member of an object (the last of that key); NULL when absent or v is no object. */
const struct sky_jval *sky_jval_get(const struct sky_jdoc *d, const struct sky_jval *v, const char *key);
const struct sky_jval *sky_jval_first(const struct sky_jdoc *d, const struct sky_jval *v);
/* Next sibling inside parent; NULL behind the last. */
const struct sky_jval *sky_jval_next(const struct sky_jdoc *d, const struct sky_jval *parent, const struct sky_jval *v);
/* Exact integer ("5.0" and "1e2" too); false when v is no number, has a fraction or leaves int64. */
bool sky_jval_i64(const struct sky_jval *v, int64_t *out);

/* Bytes of the longest valid UTF-8 prefix. */
size_t sky_utf8_valid(const char *p, size_t n);
/* Appends p with every maximal invalid part replaced by U+FFFD, as Python's errors="replace" does. */
int sky_utf8_replace(const char *p, size_t n, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

/* ---- reading ---- */
enum sky_input_format {
	SKY_IN_AUTO, SKY_IN_JSONL, SKY_IN_JSON, SKY_IN_TEXT, SKY_IN_LINES, SKY_IN_PARQUET, SKY_IN_ARROW, SKY_IN_TAR,
};
int sky_input_format_parse(const char *name, enum sky_input_format *f_p, struct sky_err *err) SKY_MUST_CHECK;
const char *sky_input_format_name(enum sky_input_format f);

enum sky_block_kind {
	SKY_BLOCK_JSON,         /* one JSON value a line, or blank lines */
	SKY_BLOCK_LINES,        /* one text a line */
	SKY_BLOCK_DOC,          /* all bytes are one text */
};
struct sky_block {
	enum sky_block_kind kind;
	struct sky_buf data;
	int64_t i_file;         /* index in the list of inputs */
	const char *file;       /* borrowed from the corpus */
	int64_t row;            /* number of its first row in the file (line of a text file), from 1 */
	int64_t n_row;          /* rows (lines) in it, blank ones included */
	uint64_t byte;          /* offset of data in the uncompressed file; 0 where rows are not text of the file */
};
void sky_block_free(struct sky_block *b);

struct sky_corpus;
struct sky_corpus_opt {
	enum sky_input_format format;
	uint64_t max_line;              /* 0 = SKY_MAX_LINE_BYTES */
	size_t block_bytes;             /* 0 = 1 MiB */
	int keep_nulls;                 /* null members of table rows are written out */
	const char *const *columns;     /* top-level columns of tables to read, ends with NULL; NULL: all */
	int worker, n_worker;           /* share of the input: worker of n_worker; 0, 0 or 0, 1 = all */
	struct sky_stream_opt stream;
	/* Told once per input, what was found in it, and what looks odd but is read all the same. May be NULL. */
	void (*note)(void *ctx, const char *file, const char *what);
	void (*warn)(void *ctx, const char *file, const char *what);
	void *note_ctx;
};
/* names: paths, folders of save_to_disk, globs that the shell did not expand, URLs, "-". */
int sky_corpus_open(const char *const *names, int64_t n_name, const struct sky_corpus_opt *opt, struct sky_corpus **c_p,
                    struct sky_err *err) SKY_MUST_CHECK;
void sky_corpus_close(struct sky_corpus *c);
/* Next block in input order; SKY_EOF at the end. The caller frees it. Damage of a container is SKY_E_DATA. */
int sky_corpus_next(struct sky_corpus *c, struct sky_block **b_p, struct sky_err *err) SKY_MUST_CHECK;
/* Goes on behind row `row` of input i_file, for a resume; before the first _next. */
int sky_corpus_seek(struct sky_corpus *c, int64_t i_file, int64_t row, struct sky_err *err) SKY_MUST_CHECK;
int64_t sky_corpus_files(const struct sky_corpus *c);
const char *sky_corpus_file(const struct sky_corpus *c, int64_t i);
/* Bytes of all inputs as they lie on disk (0 when unknown: stdin), and read so far. */
uint64_t sky_corpus_total_bytes(const struct sky_corpus *c);
uint64_t sky_corpus_read_bytes(const struct sky_corpus *c);
/* Appends a JSON array with name, size and modification time of every input: identity of the work. */
int sky_corpus_describe(const struct sky_corpus *c, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

/* ---- rows to samples ---- */
enum sky_schema {
	SKY_SCHEMA_AUTO, SKY_SCHEMA_TEXT, SKY_SCHEMA_MESSAGES, SKY_SCHEMA_SHAREGPT, SKY_SCHEMA_ALPACA,
	SKY_SCHEMA_PROMPT_COMPLETION, SKY_SCHEMA_SEGMENTS, SKY_SCHEMA_TOKENS,
};
int sky_schema_parse(const char *name, enum sky_schema *s_p, struct sky_err *err) SKY_MUST_CHECK;
const char *sky_schema_name(enum sky_schema s);

enum sky_utf8_policy { SKY_UTF8_ERROR, SKY_UTF8_REPLACE, SKY_UTF8_SKIP };

/* Why a row gave no sample. */
enum sky_reason {
	SKY_ROW_OK, SKY_ROW_BLANK, SKY_ROW_EMPTY, SKY_ROW_BAD_JSON, SKY_ROW_BAD_UTF8, SKY_ROW_BAD_SCHEMA, SKY_ROW_ID_RANGE,
	SKY_ROW_TEMPLATE, SKY_ROW_NO_TRAINED, SKY_ROW_TOO_LONG, SKY_ROW_LOST_CONTENT, SKY_ROW_DUPLICATE, SKY_ROW_REASONS
};
const char *sky_reason_name(enum sky_reason r);         /* "bad_json", … */

struct sky_rows_opt {
	enum sky_schema schema;
	enum sky_utf8_policy utf8;
	const char *text_key, *messages_key, *tools_key, *system_key;   /* NULL: text, messages, tools, system */
	const char *const *map;         /* pairs from, to: column "from" is read as "to"; NULL-terminated */
	const char *const *role;        /* pairs from, to of role names; NULL-terminated */
	int keep_nulls;                 /* null members inside tools and calls are kept */
	int arguments_as_text;          /* tool-call arguments as JSON text, not as an object */
};

enum sky_sample_kind { SKY_SAMPLE_PIECES, SKY_SAMPLE_CHAT, SKY_SAMPLE_TOKENS };
/* Of a message: not blank content, reasoning, tool calls. A template that prints less loses it. */
enum sky_holds { SKY_HOLDS_CONTENT = 1u << 0, SKY_HOLDS_REASONING = 1u << 1, SKY_HOLDS_CALLS = 1u << 2 };
struct sky_piece { const char *p; size_t n; int trained; };
struct sky_sample {
	enum sky_sample_kind kind;
	enum sky_schema schema;
	/* PIECES: text to encode one after another. joined: as one string (prompt and completion). */
	struct sky_piece *piece;
	int64_t n_piece;
	/* CHAT: JSON of the messages array; of the tools array and of extra template arguments (n = 0 when none). holds[i]: what
	 * message i has to say (enum sky_holds). n_completion: messages of the completion, 0 when it is not told apart */
	struct sky_buf messages, tools, args;
	uint8_t *holds;
	int64_t n_message, n_completion;
	/* TOKENS */
	int32_t *ids;
	uint8_t *mask;
	int64_t n_ids;
};

struct sky_rows;        /* scratch of one thread */
int sky_rows_new(const struct sky_rows_opt *opt, struct sky_rows **r_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_rows_free(struct sky_rows *r);
/* One raw row (a line without its end, or a document). Returns 0 with *reason_p: SKY_ROW_OK and *s_p set, or why there is
 * no sample, with err->msg telling where ("column 17: …"). Negative only when memory is gone. */
int sky_rows_sample(struct sky_rows *r, enum sky_block_kind kind, const char *p, size_t n, const struct sky_sample **s_p,
                    enum sky_reason *reason_p, struct sky_err *err) SKY_MUST_CHECK;
/* Schema that a row shows by its columns; SKY_SCHEMA_AUTO when none fits. */
enum sky_schema sky_rows_detect(struct sky_rows *r, const char *p, size_t n);
/* Fixes the schema once it is known. */
void sky_rows_set_schema(struct sky_rows *r, enum sky_schema s);

#ifdef __cplusplus
}
#endif
#endif
