/* Private to skyrl-pretok: options, the tokenizer with what stands beside it, and the steps of the pipeline. */
#ifndef SKY_CMD_PRETOK_INT_H
#define SKY_CMD_PRETOK_INT_H

#include "cmd/cmd.h"

#include "corpus/corpus.h"
#include "text/text.h"
#include "tokens/tokens.h"

enum pretok_overlong { OVERLONG_RIGHT, OVERLONG_LEFT, OVERLONG_DROP, OVERLONG_SPLIT, OVERLONG_ERROR };
enum pretok_empty { EMPTY_SKIP, EMPTY_KEEP, EMPTY_ERROR };
enum pretok_dtype { DTYPE_AUTO, DTYPE_U16, DTYPE_U32 };
enum pretok_lost { LOST_WARN, LOST_REJECT, LOST_ALLOW };
enum pretok_bos { BOS_NONE, BOS_AUTO, BOS_ALWAYS };

/* Options of the encoder; text fields live as long as the program. */
struct pretok_opt {
	const char *tokenizer, *schema, *format, *train_on, *chat_template, *date, *worker, *on_error, *max_errors,
			*eod_token;
	const char *text_key, *messages_key, *tools_key, *system_key;
	struct opt_list map, role, template_arg;
	int64_t max_length, min_trained, vocab_size, checkpoint_every;
	int overlong, empty, invalid_utf8, dtype, bos, lost;
	bool append_eod, resume, no_special, generation_prompt, keep_nulls, arguments_as_text, skip_special, raw, special;
	uint64_t max_line;
	int64_t zstd_long;
};
extern struct pretok_opt pt;

/* Tokenizer, template and special tokens as the options name them. */
struct pretok_text {
	struct sky_tokenizer *tok;      /* NULL without --tokenizer */
	struct sky_template *tmpl;      /* NULL when there is none */
	struct sky_mask_rule rule;
	char *bos_token, *eos_token;    /* texts of tokenizer_config.json, or NULL */
	int32_t bos, eos, eod;          /* ids, −1: none */
	int64_t vocab;                  /* −1 unknown */
	int64_t date;
	struct sky_json *args;          /* object of --template-arg, or NULL */
	char tok_hash[65], tmpl_hash[65];       /* "" when absent */
};
int pretok_text_open(struct pretok_text *t, struct sky_err *err) SKY_MUST_CHECK;
/* The template, which only conversations need: SKY_E_USAGE tells how to give one. */
int pretok_need_template(const struct pretok_text *t, struct sky_err *err) SKY_MUST_CHECK;
void pretok_text_close(struct pretok_text *t);

/* What one thread needs to turn rows into tokens. */
struct pretok_worker {
	const struct pretok_text *text;
	struct sky_rows *rows;
	struct sky_encoder *enc;
	struct sky_renderer *renderer;          /* made at the first conversation */
	struct sky_masker *masker;
	struct sky_buf args, masker_args;       /* template arguments of the row, and those that masker was made for */
	struct sky_ids ids;
	struct sky_buf join;
	uint32_t (*span)[2];                    /* trained bytes of the last render */
	int64_t n_span, cap_span;
	unsigned lost;                          /* what trained messages held and the template did not print */
	uint8_t *seen;                          /* scratch: what each message printed */
	int64_t cap_seen;
	uint32_t *off;                          /* first byte of each token of ids */
	int64_t cap_off;
	uint8_t *mask;
	int64_t cap_mask;
};
int pretok_worker_open(struct pretok_worker *w, const struct pretok_text *t, enum sky_schema schema,
		struct sky_err *err) SKY_MUST_CHECK;
void pretok_worker_close(struct pretok_worker *w);
/* One raw row to w->ids and w->mask (n tokens; with --max-length not applied). *reason_p tells why there are none. */
int pretok_row(struct pretok_worker *w, enum sky_block_kind kind, const char *p, size_t n, enum sky_reason *reason_p,
               struct sky_err *err) SKY_MUST_CHECK;
/* A conversation rendered (*r_p: a view until the next row), its trained bytes in w->span. */
int pretok_chat_spans(struct pretok_worker *w, const struct sky_sample *s, int generation_prompt,
		const struct sky_render **r_p,
                      struct sky_err *err) SKY_MUST_CHECK;
struct sky_rows_opt pretok_rows_opt(enum sky_schema schema);

/* ---- errors of rows: policy, counts, the quarantine file ---- */
struct pretok_rejects {
	enum { ON_FAIL, ON_SKIP, ON_QUARANTINE } how;
	const char *path;               /* of the quarantine */
	int fd;                         /* of PATH.part while running, −1 else */
	uint64_t n_bytes;
	int64_t max;                    /* −1: no limit */
	double max_share;               /* of rows; < 0: no limit */
	int64_t count[SKY_ROW_REASONS], n_row;
};
int pretok_rejects_parse(struct pretok_rejects *r, struct sky_err *err) SKY_MUST_CHECK;
int pretok_rejects_open(struct pretok_rejects *r, uint64_t keep, struct sky_err *err) SKY_MUST_CHECK;
/* Counts one row that gave no sample; SKY_E_DATA when that ends the run. detail: where and why. */
int pretok_reject(struct pretok_rejects *r, enum sky_reason why, const char *file, int64_t row, uint64_t byte,
                  const char *detail, const char *raw, size_t n_raw, struct sky_err *err) SKY_MUST_CHECK;
int pretok_rejects_commit(struct pretok_rejects *r, struct sky_err *err) SKY_MUST_CHECK;
void pretok_rejects_abort(struct pretok_rejects *r);
/* true when a row of this reason is a reject by --on-error, not just left out. */
bool pretok_is_error(enum sky_reason why);
void pretok_counts_json(const struct pretok_rejects *r, struct sky_jw *w);

/* ---- the run ---- */
int pretok_run(int argc, char **argv, struct sky_err *err);             /* cmd/pretok_run.c */
/* "i/n" or, without it, a Slurm array or an MPI rank. */
int pretok_worker_share(int *i_p, int *n_p, char *from, size_t cap, struct sky_err *err) SKY_MUST_CHECK;

/* ---- subcommands ---- */
int pretok_encode(int argc, char **argv, struct sky_err *err);
int pretok_decode(int argc, char **argv, struct sky_err *err);
int pretok_render(int argc, char **argv, struct sky_err *err);
int pretok_verify(int argc, char **argv, struct sky_err *err);
int pretok_stats(int argc, char **argv, struct sky_err *err);
int pretok_cat(int argc, char **argv, struct sky_err *err);
int pretok_merge(int argc, char **argv, struct sky_err *err);
int pretok_convert(int argc, char **argv, struct sky_err *err);
int pretok_split(int argc, char **argv, struct sky_err *err);
int pretok_sample(int argc, char **argv, struct sky_err *err);
int pretok_shuffle(int argc, char **argv, struct sky_err *err);
int pretok_dedup(int argc, char **argv, struct sky_err *err);
extern const struct opt_row pretok_encode_rows[], pretok_decode_rows[], pretok_render_rows[], pretok_store_rows[],
	pretok_cat_rows[], pretok_merge_rows[], pretok_convert_rows[], pretok_split_rows[], pretok_sample_rows[],
			pretok_shuffle_rows[],
	pretok_dedup_rows[];

#endif
