/* text: between characters and token ids. Layer 2.
 *
 * In: tokenizer.json, *.tiktoken, chat templates, UTF-8 text, conversations as JSON.
 * Out: ids equal to those of Hugging Face tokenizers; text; renders equal to Jinja2 with the origin of every byte.
 * A tokenizer and a template are immutable once loaded and may be shared by threads; per-thread state lives in an
 * encoder, which its user owns. */
#ifndef SKY_TEXT_TEXT_H
#define SKY_TEXT_TEXT_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- tokenizer ---- */
struct sky_tokenizer;
struct sky_encoder;             /* word cache and scratch of one thread */

/* path: a model directory (tokenizer.json, else tiktoken.model), a tokenizer.json or a .tiktoken file. */
int sky_tokenizer_open(const char *path, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;
/* From memory, for fuzzers and tests: text of a tokenizer.json. */
int sky_tokenizer_parse(const char *json, size_t n, const char *name, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_tokenizer_close(struct sky_tokenizer *t);
int64_t sky_tokenizer_vocab(const struct sky_tokenizer *t);     /* largest id + 1, added tokens included */
void sky_tokenizer_fingerprint(const struct sky_tokenizer *t, char out[65]);    /* SHA-256 of the file(s), hex */
/* Id of the exact token text (added tokens first), or −1. */
int32_t sky_tokenizer_id(const struct sky_tokenizer *t, const char *s, size_t n);
/* Bytes of a token as decode writes them (view), n_p set; NULL for an id without token. *special_p (may be NULL): 1 for
 * a special added token. */
const char *sky_tokenizer_token(const struct sky_tokenizer *t, int32_t id, size_t *n_p, int *special_p);
/* Warnings of loading, one a line; "" when none. */
const char *sky_tokenizer_warnings(const struct sky_tokenizer *t);

enum sky_encode_flags {
	SKY_ENC_SPECIAL = 1u << 0,      /* run the post-processor (adds BOS and the like): add_special_tokens=True */
	SKY_ENC_NO_ADDED = 1u << 1,     /* added special tokens in the text are ordinary text */
};

struct sky_ids { int32_t *id; int64_t n, cap; uint32_t *off; };  /* owned; off: start byte of each token, when asked for */
void sky_ids_release(struct sky_ids *v);

int sky_encoder_new(const struct sky_tokenizer *t, struct sky_encoder **e_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_encoder_free(struct sky_encoder *e);
/* Appends to *out. text must be valid UTF-8 (the caller's policy has been applied). */
int sky_encode(struct sky_encoder *e, const char *text, size_t n, unsigned flags, struct sky_ids *out, struct sky_err *err) SKY_MUST_CHECK;
/* As sky_encode, and out->off[i] = byte offset in text where token i starts (for masks): off has out->cap elements. */
int sky_encode_offsets(struct sky_encoder *e, const char *text, size_t n, unsigned flags, struct sky_ids *out, struct sky_err *err) SKY_MUST_CHECK;
/* Appends the text of ids; skip_special leaves special added tokens out. Exactly as tokenizers' decode. */
int sky_decode(const struct sky_tokenizer *t, const int32_t *ids, int64_t n, int skip_special, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;

/* ---- chat template ---- */
struct sky_template;
/* Source text of a Jinja chat template. name is for messages. */
int sky_template_parse(const char *src, size_t n, const char *name, struct sky_template **t_p, struct sky_err *err) SKY_MUST_CHECK;
/* That of a model directory: chat_template.jinja, else tokenizer_config.json. SKY_E_MISSING when it has none. */
int sky_template_open(const char *dir, struct sky_template **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_template_close(struct sky_template *t);
void sky_template_fingerprint(const struct sky_template *t, char out[65]);

/* Where a byte of the render came from. */
struct sky_span {
	uint32_t from, to;      /* bytes of the render */
	int32_t message;        /* index in the list of messages; −1: template text outside any message */
	uint8_t part;           /* enum sky_part */
};
enum sky_part {
	SKY_PART_TEMPLATE = 0,  /* literal text of the template */
	SKY_PART_ROLE = 1,
	SKY_PART_CONTENT = 2,
	SKY_PART_REASONING = 3, /* reasoning_content, thinking */
	SKY_PART_TOOL_CALL = 4,
	SKY_PART_OTHER = 5,     /* any other value of the message, tools, template arguments */
};
struct sky_render {             /* owned; release with sky_render_release */
	struct sky_buf text;
	struct sky_span *span;  /* cover the text without gaps, in order */
	int64_t n_span;
	/* [generation] blocks of the template, if it has any: pairs of byte offsets */
	uint32_t (*gen)[2];
	int64_t n_gen;
};
struct sky_render_opt {
	int add_generation_prompt;
	const struct sky_jnode *tools;  /* array or NULL */
	const struct sky_jnode *args;   /* object of extra variables (enable_thinking, documents, …) or NULL */
	const char *bos_token, *eos_token;      /* NULL: from the template's directory */
	int64_t date;                   /* seconds since 1970 for strftime_now; −1: the clock */
};
/* messages: a JSON array. What the template raises is SKY_E_DATA with its message. */
int sky_template_render(const struct sky_template *t, const struct sky_jnode *messages, const struct sky_render_opt *opt,
                        struct sky_render *out, struct sky_err *err) SKY_MUST_CHECK;
void sky_render_release(struct sky_render *r);

/* ---- loss masks ---- */
enum sky_train_on {
	SKY_TRAIN_LAST_ASSISTANT, SKY_TRAIN_ALL_ASSISTANT, SKY_TRAIN_LAST_RUN, SKY_TRAIN_ALL, SKY_TRAIN_COMPLETION,
	SKY_TRAIN_ROLES, SKY_TRAIN_PARTS,
};
/* "last-assistant", …, "roles:assistant,tool", "parts:content,tool_call". */
struct sky_mask_rule { enum sky_train_on on; char names[256]; };
int sky_mask_rule_parse(const char *s, struct sky_mask_rule *r, struct sky_err *err) SKY_MUST_CHECK;
/* Trained byte spans of a render (pairs from, to; malloc, the caller frees): what the policy would have sampled, its stop
 * token included. */
int sky_mask_spans(const struct sky_render *r, const struct sky_jnode *messages, const struct sky_tokenizer *tok,
                   const struct sky_mask_rule *rule, uint32_t (**spans_p)[2], int64_t *n_p, struct sky_err *err) SKY_MUST_CHECK;
/* Mask of tokens: 1 where the token's first byte lies in a span. off as from sky_encode_offsets. */
void sky_mask_tokens(const uint32_t (*spans)[2], int64_t n_span, const uint32_t *off, int64_t n, uint8_t *mask);

#ifdef __cplusplus
}
#endif
#endif
