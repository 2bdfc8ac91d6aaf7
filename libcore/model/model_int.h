/* model: private declarations. How a model is put together:
 *
 *   config.json ──sky_conf_read──► struct sky_conf (one spelling of every key)
 *     └─families/NAME.c──► struct sky_plan: slots (what is stored), names (checkpoint tensor → rows of
 *                          a slot), blocks in order (kind, sizes, slots), embedding, head
 *   plan + checkpoint ──model_load.c──► slots filled: packed products, tables, vectors, masters
 *   rows ──model_pass.c──► embedding, blocks, head; backward in reverse
 *
 * A block kind (blk_NAME.c) is a branch of the residual stream: x_out = x_in + f(norm(x_in)), with
 * forward, backward and state in pages. The forward function is prefill, decode step and training
 * forward at once: it reads and writes its state through the pages of the pass, which are those of
 * running sequences or temporary ones. A kind with a recurrent state (gated DeltaNet, Mamba2) keeps in
 * page p the state after the last position written in p: sharing, forking and chunking of sequences
 * then work as for keys and values. A new kind is a new file; a new family is a new file and a row in
 * families/families.c. Letters: T rows, D model width, V vocabulary. */
#ifndef SKY_MODEL_MODEL_INT_H
#define SKY_MODEL_MODEL_INT_H

#include <stdbool.h>
#include "model/model.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SKY_SHARD_BYTES (5ull << 30) /* of one safetensors file, as other tools write them */

/* ---- configuration (model_config.c) ---- */
enum sky_rope_type { SKY_ROPE_DEFAULT, SKY_ROPE_LINEAR, SKY_ROPE_LLAMA3, SKY_ROPE_YARN };

struct sky_rope_conf {
	enum sky_rope_type type;
	double theta, factor, partial;
	double lo, hi, orig_pos;                /* llama3; orig_pos also yarn */
	double beta_fast, beta_slow;            /* yarn */
	double attn_factor, mscale, mscale_all; /* yarn; 0 = not given */
	bool truncate;                          /* yarn: bounds of the ramp are whole numbers */
};

struct sky_conf {
	struct sky_config pub;
	struct sky_rope_conf rope;
	double eps;                   /* rms_norm_eps */
	const struct sky_jnode *top;  /* whole document */
	const struct sky_jnode *text; /* text_config, or the whole document */
	const char *path;             /* of config.json, for messages */
	const char *arch;             /* architectures[0], "" when absent */
};

/* Takes the two strings that choose a family, no more. top and path must outlive *c. */
int sky_conf_read(const struct sky_jnode *top, const char *path, struct sky_conf *c,
		  struct sky_err *err) SKY_MUST_CHECK;
/* The keys that dense decoder families share, under their v4 and v5 names: sizes, rope, norm, tied
 * head, special ids. */
int sky_conf_read_dense(struct sky_conf *c, struct sky_err *err) SKY_MUST_CHECK;
/* End-of-text ids of generation_config.json joined to those of config.json; a missing file is fine. */
int sky_conf_generation(struct sky_conf *c, const char *dir, struct sky_err *err) SKY_MUST_CHECK;
/* Refusals of values that change the arithmetic: each passes when the key is absent, null or equal to
 * want. */
int sky_conf_want_str(const struct sky_conf *c, const char *key, const char *want,
		      struct sky_err *err) SKY_MUST_CHECK;
int sky_conf_want_bool(const struct sky_conf *c, const char *key, bool want,
		       struct sky_err *err) SKY_MUST_CHECK;
int sky_conf_want_num(const struct sky_conf *c, const char *key, double want,
		      struct sky_err *err) SKY_MUST_CHECK;
int sky_conf_want_null(const struct sky_conf *c, const char *key, struct sky_err *err) SKY_MUST_CHECK;

/* inv [R] angular frequencies of R pairs, *amp_p the factor of cos and sin (model_rope.c). */
void sky_rope_freq(const struct sky_rope_conf *r, int64_t R, double *inv, double *amp_p);

/* ---- plan (model_plan.c) ---- */
enum sky_slot_use {
	SKY_SLOT_PRODUCT = 1u << 0, /* packed for y = x · Wᵀ */
	SKY_SLOT_LOOKUP = 1u << 1,  /* rows are read by id, in the compute type */
	SKY_SLOT_VECTOR = 1u << 2,  /* f32, rounded through the compute type */
};

struct sky_slot { /* one thing that blocks use: a matrix [N, K], or a vector (K = 1) */
	unsigned use;
	int64_t N, K;
	int64_t name0, n_name; /* the tensors that fill it, consecutive in the name table */
	uint64_t off;          /* element offset in the slabs of masters and gradients */
	kn_weight *w;          /* PRODUCT */
	void *table;           /* LOOKUP: [N, K] of the compute type */
	float *vec;            /* VECTOR */
	float *master, *grad;  /* train mode */
};

struct sky_name { /* a checkpoint tensor: rows row0 … of a slot */
	char *name;
	int32_t slot;
	int64_t row0;
	int n_dim;
	int64_t shape[SKY_MAX_DIMS];
};

struct sky_block_kind;
struct sky_block {
	const struct sky_block_kind *kind;
	int32_t layer;
	void *spec; /* sizes and slots; the kind knows the type */
	void *act;  /* pointers into the workspace of the current pass; the kind knows the type */
	uint64_t page_bytes; /* state per page, 0 = none */
	uint64_t state_off; /* page_bytes of the blocks before: its pages start at state_off × pages of
			       the pool */
};

struct sky_embed_spec {
	int32_t table;
};
struct sky_head_spec {
	int32_t norm, out;
	float eps;
};

struct sky_plan {
	int64_t d_model, vocab, n_layer;
	struct sky_slot *slot;
	int32_t n_slot;
	int64_t cap_slot;
	struct sky_name *name;
	int64_t n_name, cap_name;
	struct sky_block *block;
	int32_t n_block;
	int64_t cap_block;
	struct sky_embed_spec embed;
	struct sky_head_spec head;
	struct sky_rope_conf rope; /* turned pairs: */
	int64_t rope_pairs;        /* R; 0 = no rotation in this family */
	bool failed; /* out of memory while building; every call after that does nothing */
};

int32_t sky_plan_slot(struct sky_plan *p, unsigned use, int64_t N, int64_t K);
/* Checkpoint tensor [d0, d1] (d1 = 0: a vector [d0]) fills rows row0 … of the slot; the name is
 * printf-formatted. */
void sky_plan_name(struct sky_plan *p, int32_t slot, int64_t row0, int64_t d0, int64_t d1,
		   const char *fmt, ...) SKY_PRINTF(6, 7);
/* Appends a block; returns its zeroed spec of kind->spec_bytes, or NULL when failed. */
void *sky_plan_block(struct sky_plan *p, const struct sky_block_kind *kind, int32_t layer);
void sky_plan_release(struct sky_plan *p);

struct sky_family {
	const char *model_type, *architecture;
	/* Reads the rest of the configuration and fills the plan. */
	int (*plan)(struct sky_conf *c, struct sky_plan *p, struct sky_err *err);
};
extern const struct sky_family *const sky_families[]; /* NULL-terminated */
int sky_family_find(const struct sky_conf *c, const struct sky_family **f_p,
		    struct sky_err *err) SKY_MUST_CHECK;

/* Reads path (config.json of dir) and generation_config.json and lays out *p. Strings of *c live in
 * *doc_p, which the caller frees, also after a failure, as it releases *p. */
int sky_plan_read(const char *path, const char *dir, struct sky_json **doc_p, struct sky_conf *c,
		  struct sky_plan *p, struct sky_err *err) SKY_MUST_CHECK;

/* ---- workspace ---- */
/* A bump pointer over one region. base NULL: only measures. */
struct sky_ws {
	uint8_t *base;
	uint64_t off;
};
static inline void *sky_ws_take(struct sky_ws *w, uint64_t bytes)
{
	uint64_t at = w->off;

	w->off += (bytes + 63) & ~(uint64_t)63;
	return w->base ? w->base + at : NULL;
}

/* ---- the pass ---- */
struct sky_pass {
	struct sky_model *m;
	const struct kn_ops *ops;
	kn_stream *s;
	enum kn_dtype t; /* compute type, esz its bytes */
	uint64_t esz;
	int64_t T, D;
	int keep; /* activations stay for backward */
	struct kn_rows rows;
	int32_t *ids, *pos;    /* [T]; these five on the device */
	int32_t *start, *pos0; /* behind rows */
	int32_t *table;        /* page table [n_seq, table_stride] */
	int64_t table_stride;
	const struct sky_kvpool
		*pool; /* NULL: temporary pages, shared by all blocks one after the other */
	void *temp_pages;
	int64_t n_temp_page;
	float **x; /* [n_block + 1] residual stream [T, D] f32 before each block and after the last; all
		    * the same array unless keep */
	float *x_in, *x_out; /* of the block that runs */
	float *dx;           /* backward: gradient of the residual stream [T, D] f32 */
	void *dy;            /* the same rounded to the compute type (dx itself in f32) */
	struct sky_ws
		tmp; /* the part of the workspace that blocks and head reuse, one after the other */
};

struct sky_block_kind {
	const char *name;
	size_t spec_bytes, act_bytes;
	/* State per page; NULL: no state. */
	uint64_t (*page_bytes)(const struct sky_model *m, const struct sky_block *b);
	/* Takes the arrays of a pass: what backward needs from kept, the rest from tmp (reused by the
	 * next block; both are the same when nothing is kept). */
	void (*layout)(const struct sky_pass *p, struct sky_block *b, struct sky_ws *kept,
		       struct sky_ws *tmp);
	void (*layout_bwd)(const struct sky_pass *p, struct sky_block *b, struct sky_ws *tmp);
	/* p->x_out = p->x_in + branch; they are the same array unless p->keep. Returns a kn_status, as
	 * backward does. */
	int (*forward)(struct sky_pass *p, struct sky_block *b);
	/* p->dx (and p->dy) hold the gradient of x_out; adds the branch's to p->dx and to the slots. */
	int (*backward)(struct sky_pass *p, struct sky_block *b);
};

extern const struct sky_block_kind sky_blk_attn, sky_blk_mlp;

struct sky_attn_spec {
	struct kn_attn a;
	float eps;                                      /* of the norm before and of q/k norms */
	int32_t norm, qkv, qkv_bias, q_norm, k_norm, o; /* slots; −1 = none */
};
struct sky_mlp_spec {
	int64_t d_ff;
	float eps;
	int32_t norm, gate_up, down;
};

/* ---- model ---- */
struct sky_head_rows { /* what the head was asked for in the last score, on the host; [n] each, row
			  ascending */
	int64_t n, cap;
	int32_t *row, *target; /* one allocation, at row */
	float *value;          /* one allocation behind the five below */
	float *logprob, *entropy, *lse, *dlogprob, *dentropy;
	float inv_temp;
	bool has_entropy;
};

struct sky_model {
	struct sky_device d;
	struct sky_model_opt opt;
	struct sky_config cfg;
	uint64_t esz; /* bytes of the compute type */
	char *dir;
	struct sky_hf *hf; /* checkpoint as loaded: fingerprint, and tensors that pass through */
	struct sky_plan plan;
	struct sky_param *param; /* [plan.n_name] */
	float *master, *grad;    /* slabs of slab_n elements */
	uint64_t slab_n;
	void *stage;      /* largest product in the compute type: between master and packed weight */
	float *cos, *sin; /* [n_pos, R] */
	int64_t n_pos;
	uint8_t *ws; /* workspace of passes, sized by the largest so far */
	uint64_t ws_bytes;
	struct sky_pass pass;
	bool kept;                      /* the activations of pass are there */
	struct sky_head_rows ask, back; /* rows of the last score; those of them with a gradient */
	int32_t *host_i32;              /* row arrays on their way to the device */
	int64_t host_cap;
	float *logits; /* rows of the last infer, device */
	int64_t logits_cap, n_logits;
	/* Rows at a time, set at open; tests lower them. */
	int64_t head_rows; /* logits exist for that many */
	int64_t mlp_rows;  /* the inner arrays stay in cache, and a long prefill needs no more memory */
};

/* Turns a kn_status into an error that names what ran. */
int sky_kn_fail(const struct sky_model *m, int status, const char *what, struct sky_err *err);
/* In chains of kernel calls: runs the call while rc is still 0. */
#define KN_TRY(rc, call) \
	do { \
		if ((rc) == 0) { \
			(rc) = (call); \
		} \
	} while (0)

static inline struct sky_slot *sky_slot_at(const struct sky_model *m, int32_t i)
{
	return i < 0 ? NULL : &m->plan.slot[i];
}

int sky_rope_fit(struct sky_model *m, int64_t n_pos, struct sky_err *err) SKY_MUST_CHECK;
int sky_load_tensors(struct sky_model *m, struct sky_err *err) SKY_MUST_CHECK; /* from m->hf */
/* True when a checkpoint may hold this tensor although no block uses it (rotary buffers, vision, MTP).
 */
bool sky_load_skips(const struct sky_model *m, const char *name);

/* Pages of block b in the pass. */
void *sky_pass_pages(const struct sky_pass *p, const struct sky_block *b);
/* x_out = x_in where they are different arrays; a block calls it before it adds its branch to x_out. */
int sky_pass_carry(struct sky_pass *p);
/* Checks rows and kv (NULL: temporary pages), lays out the workspace, runs embedding and blocks. */
int sky_pass_forward(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		     int keep, struct sky_err *err) SKY_MUST_CHECK;
/* p->dx holds the gradient of the last residual stream; runs the blocks and the embedding backward. */
int sky_pass_backward(struct sky_model *m, struct sky_err *err) SKY_MUST_CHECK;
void sky_pass_release(struct sky_model *m);

/* ---- head (blk_head.c): final norm, output product, log-probs; chunks of rows ---- */
/* Takes its scratch for one chunk from w, as the pass does; backward with keep. */
uint64_t sky_head_bytes(const struct sky_pass *p);
/* logits [n, V] f32 (device) of rows row[i] of the pass. */
int sky_head_logits(struct sky_pass *p, const int32_t *row, int64_t n, float *logits);
/* Fills q->logprob, lse and, with q->has_entropy, entropy. */
int sky_head_score(struct sky_pass *p, struct sky_head_rows *q);
enum sky_head_mode {
	SKY_HEAD_FIRST,         /* logits for the first time: q->logprob is filled on the way */
	SKY_HEAD_AGAIN,         /* after sky_head_score: q->lse is there */
	SKY_HEAD_AGAIN_ENTROPY, /* and q->entropy, q->dentropy */
};
/* Gradients of the head's slots, and p->dx, from q->dlogprob. */
int sky_head_backward(struct sky_pass *p, struct sky_head_rows *q, enum sky_head_mode mode);

struct sky_kvpool {
	struct sky_model *m;
	int64_t n_page, n_free;
	int32_t *refs, *free_list;
	uint8_t *mem; /* block after block: n_page × page_bytes */
};
void *sky_kvpool_pages(const struct sky_kvpool *p, const struct sky_block *b);

#ifdef __cplusplus
}
#endif
#endif
