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

/* path: a model directory (tokenizer.json, else tiktoken.model), a tokenizer.json or a .tiktoken file. BPE only: Unigram,
 * WordPiece and steps that are not known are refused by name (SKY_E_DATA). A rank file's pattern follows from its name
 * (cl100k…, o200k…, r50k…, p50k…, qwen…, tiktoken.model for the Kimi family). */
int sky_tokenizer_open(const char *path, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;
/* From memory, for fuzzers and tests: text of a tokenizer.json. */
int sky_tokenizer_parse(const char *json, size_t n, const char *name, struct sky_tokenizer **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_tokenizer_close(struct sky_tokenizer *t);
int64_t sky_tokenizer_vocab(const struct sky_tokenizer *t);     /* largest id + 1, added tokens included */
void sky_tokenizer_fingerprint(const struct sky_tokenizer *t, char out[65]);    /* SHA-256 of the file(s), hex */
/* Id of the exact token text (added tokens first), or −1. */
int32_t sky_tokenizer_id(const struct sky_tokenizer *t, const char *s, size_t n);
/* Bytes of a token (view), n_p set; NULL for an id without token: what decode writes for it in a byte-level tokenizer, its
 * spelling ("▁the", "<0x0A>") in a SentencePiece-style one. *special_p (may be NULL): 1 for a special added token. */
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
/* That of a model directory: chat_template.jinja (and additional_chat_templates/tool_use.jinja), else chat_template of
 * tokenizer_config.json, a text or a list of named ones: "default", and "tool_use" for conversations with tools. Special
 * tokens come from tokenizer_config.json, the ids that stop generation from generation_config.json where it exists.
 * SKY_E_MISSING when the directory has no template. */
int sky_template_open(const char *dir, struct sky_template **t_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_template_close(struct sky_template *t);
void sky_template_fingerprint(const struct sky_template *t, char out[65]);     /* SHA-256 of the source(s), hex */
/* "bos_token", "eos_token", "pad_token", "unk_token" …: as the directory names it, or as set; NULL when unknown. */
const char *sky_template_special(const struct sky_template *t, const char *name);
/* Sets one, for templates that were parsed from text; before the template is shared. */
int sky_template_set_special(struct sky_template *t, const char *name, const char *token, struct sky_err *err) SKY_MUST_CHECK;

/* Where a byte of the render came from. */
struct sky_span {
	uint32_t from, to;      /* bytes of the render */
	int32_t message;        /* index in the list of messages; −1: text outside any message. Text of the template itself
	                         * belongs to the message whose turn of a loop over messages printed it */
	uint8_t part;           /* enum sky_part */
};
enum sky_part {
	SKY_PART_TEMPLATE = 0,  /* literal text of the template, special tokens it prints */
	SKY_PART_ROLE = 1,
	SKY_PART_CONTENT = 2,
	SKY_PART_REASONING = 3, /* reasoning_content, thinking */
	SKY_PART_TOOL_CALL = 4,
	SKY_PART_OTHER = 5,     /* any other value of the message, tools, template arguments; a value of another message
	                         * that is quoted in this one's turn */
};
struct sky_render_message {
	char role[24];          /* cut to 23 bytes; "" when it is not a string */
	uint8_t untrained;      /* 1: weight 0, or train, trainable, training or loss_mask false */
};
struct sky_render {
	struct sky_buf text;
	struct sky_span *span;  /* cover the text without gaps, in order */
	int64_t n_span;
	uint32_t (*gen)[2];     /* {% generation %} blocks of the template, if it has any: pairs of byte offsets */
	int64_t n_gen;
	struct sky_render_message *message;
	int64_t n_message;
};
struct sky_render_opt {
	int add_generation_prompt;
	int continue_final_message;     /* leave the last message open: cut the text behind its content */
	const struct sky_jnode *tools;  /* array or NULL */
	const struct sky_jnode *args;   /* object of extra variables (enable_thinking, documents, …) or NULL */
	const char *tools_json, *args_json;     /* the same as JSON text, used where the node is NULL */
	size_t n_tools_json, n_args_json;
	const char *bos_token, *eos_token;      /* NULL: from the template's directory */
	int64_t date;                   /* seconds since 1970 for strftime_now, read as UTC; −1: the clock, local time */
	int64_t max_steps;              /* budget of the evaluator; 0: by the size of the input */
};
/* messages: a JSON array. What the template raises is SKY_E_DATA with its message; over a limit: SKY_E_LIMIT. *out is
 * filled on success and then owned by the caller: sky_render_release. */
int sky_template_render(const struct sky_template *t, const struct sky_jnode *messages, const struct sky_render_opt *opt,
                        struct sky_render *out, struct sky_err *err) SKY_MUST_CHECK;
void sky_render_release(struct sky_render *r);

/* The renderer of one thread keeps its memory: a warm one allocates nothing. Its results are views, valid until its
 * next call. */
struct sky_renderer;
int sky_renderer_new(const struct sky_template *t, struct sky_renderer **r_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_renderer_free(struct sky_renderer *r);
int sky_renderer_nodes(struct sky_renderer *r, const struct sky_jnode *messages, const struct sky_render_opt *opt,
                       const struct sky_render **out_p, struct sky_err *err) SKY_MUST_CHECK;
/* As above from JSON text, which is faster than parsing it to nodes first. */
int sky_renderer_text(struct sky_renderer *r, const char *messages, size_t n, const struct sky_render_opt *opt,
                      const struct sky_render **out_p, struct sky_err *err) SKY_MUST_CHECK;

/* ---- loss masks ---- */
enum sky_train_on {
	SKY_TRAIN_LAST_ASSISTANT, SKY_TRAIN_ALL_ASSISTANT, SKY_TRAIN_LAST_RUN, SKY_TRAIN_ALL, SKY_TRAIN_COMPLETION,
	SKY_TRAIN_ROLES, SKY_TRAIN_PARTS,
};
/* "last-assistant", …, "roles:assistant,tool", "parts:content,tool_call". */
struct sky_mask_rule { enum sky_train_on on; char names[256]; };
int sky_mask_rule_parse(const char *s, struct sky_mask_rule *r, struct sky_err *err) SKY_MUST_CHECK;

/* Finds what the policy would have sampled in the renders of one template with one set of options; one per thread. It
 * learns the generation prompt by rendering two tiny conversations when it is made. tok tells which texts are special
 * tokens (NULL: by their look). opt and rule are copied, what opt points to is needed during the call only. */
struct sky_masker;
int sky_masker_new(const struct sky_template *t, const struct sky_tokenizer *tok, const struct sky_mask_rule *rule,
                   const struct sky_render_opt *opt, struct sky_masker **m_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_masker_free(struct sky_masker *m);
/* Trained byte spans of a render (pairs from, to; ascending, disjoint): a view, valid until the next call. */
int sky_masker_spans(struct sky_masker *m, const struct sky_render *r, const uint32_t (**spans_p)[2], int64_t *n_p,
                     struct sky_err *err) SKY_MUST_CHECK;
/* Mask of tokens: 1 where the token's first byte lies in a span. off as from sky_encode_offsets. */
void sky_mask_tokens(const uint32_t (*spans)[2], int64_t n_span, const uint32_t *off, int64_t n, uint8_t *mask);

#ifdef __cplusplus
}
#endif
#endif
