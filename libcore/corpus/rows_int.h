/* Private to libcore/corpus: how one row becomes a sample. */
#ifndef SKY_CORPUS_ROWS_INT_H
#define SKY_CORPUS_ROWS_INT_H

#include "corpus/corpus_int.h"

struct sky_rows {
	struct sky_rows_opt opt;
	struct sky_jdoc doc;            /* the row */
	struct sky_jdoc inner;          /* JSON inside a string of the row */
	struct sky_sample s;
	struct sky_buf fixed;           /* repaired UTF-8 */
	struct sky_buf join;            /* texts put together */
	int64_t cap_piece, cap_message, cap_ids, cap_mask;
	enum sky_reason reason;         /* why the row in hand is no sample */
	const struct sky_jval *root;
	struct sky_err *err;            /* of the row in hand */
};

/* Not a sample: sets the reason and err, returns SKY_E_DATA. */
int row_bad(struct sky_rows *r, enum sky_reason why, const char *fmt, ...) SKY_PRINTF(3, 4);
/* Column by its own name or by one that --map gives it; null counts as absent. */
const struct sky_jval *row_get(struct sky_rows *r, const char *key);
/* UTF-8 policy on a string: *p_p, *n_p are the row's bytes or repaired ones (valid until the next row). what names it. */
int row_text(struct sky_rows *r, const struct sky_jval *v, const char *what, const char **p_p, size_t *n_p) SKY_MUST_CHECK;
int row_piece(struct sky_rows *r, const char *p, size_t n, int trained) SKY_MUST_CHECK;
/* One more message, with what it holds. */
int row_message(struct sky_rows *r, unsigned holds) SKY_MUST_CHECK;

/* One schema each: fill r->s from r->doc. */
int rows_text(struct sky_rows *r) SKY_MUST_CHECK;
int rows_prompt_completion(struct sky_rows *r) SKY_MUST_CHECK;
int rows_segments(struct sky_rows *r) SKY_MUST_CHECK;
int rows_messages(struct sky_rows *r) SKY_MUST_CHECK;
int rows_sharegpt(struct sky_rows *r) SKY_MUST_CHECK;
int rows_alpaca(struct sky_rows *r) SKY_MUST_CHECK;
int rows_tokens(struct sky_rows *r) SKY_MUST_CHECK;

/* Conversation under construction: r->s.messages as a JSON array. */
struct chat {
	struct sky_rows *r;
	struct sky_jw w;
};
int chat_begin(struct chat *c, struct sky_rows *r) SKY_MUST_CHECK;
/* Leading system message from the system column, unless the first message is one already. */
int chat_system(struct chat *c, const struct sky_jval *first_role) SKY_MUST_CHECK;
int chat_plain(struct chat *c, const char *role, const char *text, size_t n) SKY_MUST_CHECK;
/* All messages of an array in OpenAI form or ShareGPT form, told apart message by message. */
int chat_list(struct chat *c, const struct sky_jval *list, const char *column) SKY_MUST_CHECK;
int chat_end(struct chat *c) SKY_MUST_CHECK;

/* Writes a value of doc as JSON, strings under the UTF-8 policy, without null members unless they are kept. */
int row_json(struct sky_rows *r, const struct sky_jdoc *doc, const struct sky_jval *v, struct sky_jw *w) SKY_MUST_CHECK;

#endif
