/* weights: named tensors on disk. Layer 2.
 *
 * In: safetensors files and Hugging Face directories (config.json, one file or shards with an index).
 * Out: mapped views, and directories written atomically (index last).
 * A reader owns its mappings; views die with it. Everything is checked before use: header length, JSON, ranges that
 * overlap or leave the file, duplicate names, shape × dtype against byte length. */
#ifndef SKY_WEIGHTS_WEIGHTS_H
#define SKY_WEIGHTS_WEIGHTS_H

#include <stdint.h>
#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SKY_MAX_DIMS 8

struct sky_tensor {
	const char *name;               /* owned by the reader */
	enum sky_dtype dtype;
	int n_dim;
	int64_t shape[SKY_MAX_DIMS];
	int64_t n;                      /* elements */
	uint64_t bytes;
	const void *data;               /* view into the mapping, any alignment */
	int32_t file;                   /* index of the file it lies in */
	uint64_t off;                   /* of data in that file */
};

/* One safetensors file, mapped. */
struct sky_st;
int sky_st_open(const char *path, struct sky_st **st_p, struct sky_err *err) SKY_MUST_CHECK;
/* The first n_head bytes of a file (length, header) in memory: for fuzzers and remote readers. file_bytes is the length
 * of the whole file; data stays NULL. */
int sky_st_parse(const void *head, uint64_t n_head, uint64_t file_bytes, const char *name, struct sky_st **st_p,
                 struct sky_err *err) SKY_MUST_CHECK;
void sky_st_close(struct sky_st *st);
int64_t sky_st_count(const struct sky_st *st);
const struct sky_tensor *sky_st_at(const struct sky_st *st, int64_t i);         /* order of data in the file */
const struct sky_tensor *sky_st_find(const struct sky_st *st, const char *name); /* NULL when absent; hashed */
const char *sky_st_meta(const struct sky_st *st, const char *key);              /* __metadata__, NULL when absent */
int sky_st_meta_at(const struct sky_st *st, int64_t i, const char **key_p, const char **value_p);  /* 0, or SKY_EOF */
uint64_t sky_st_data_off(const struct sky_st *st);                              /* 8 + header length */

/* Writer: declare all tensors, then give data in the declared order, then commit. The safetensors crate's order (alignment of
 * the dtype, largest first, then name) is applied unless keep_order. */
struct sky_st_spec { const char *name; enum sky_dtype dtype; int n_dim; int64_t shape[SKY_MAX_DIMS]; };
struct sky_st_out;
int sky_st_create(const char *path, const struct sky_st_spec *specs, int64_t n, const char *const *meta /* k, v, …, NULL; or NULL */,
                  int keep_order, unsigned out_flags, struct sky_st_out **o_p, struct sky_err *err) SKY_MUST_CHECK;
/* i-th tensor in file order: which spec it is. */
int64_t sky_st_out_spec(const struct sky_st_out *o, int64_t i);
int sky_st_out_write(struct sky_st_out *o, const void *p, uint64_t n, struct sky_err *err) SKY_MUST_CHECK;
int sky_st_out_commit(struct sky_st_out *o, struct sky_err *err) SKY_MUST_CHECK;        /* frees o, also on failure */
void sky_st_out_abort(struct sky_st_out *o);

/* A Hugging Face directory: all tensors of all files of the index (or of the single file). */
struct sky_hf;
/* dir: a path, or org/name[@revision] looked up in the Hugging Face cache (HF_HUB_CACHE, HF_HOME); never downloads.
 * An index decides which files belong to the model; without one there must be model.safetensors or a single file. A name
 * that occurs in two files, or that the index promises and no file has, is an error. */
int sky_hf_open(const char *dir, struct sky_hf **hf_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_hf_close(struct sky_hf *hf);
const char *sky_hf_dir(const struct sky_hf *hf);                /* resolved path */
int64_t sky_hf_count(const struct sky_hf *hf);
const struct sky_tensor *sky_hf_at(const struct sky_hf *hf, int64_t i);         /* sorted by name */
const struct sky_tensor *sky_hf_find(const struct sky_hf *hf, const char *name);
int64_t sky_hf_n_files(const struct sky_hf *hf);
const char *sky_hf_file(const struct sky_hf *hf, int64_t i);    /* name relative to dir */
/* Only the path: for tokenizers and configurations. */
int sky_hf_resolve(const char *name, char *out, size_t cap, struct sky_err *err) SKY_MUST_CHECK;

/* Write a Hugging Face directory: model.safetensors, or shards of at most shard_bytes (0 = no limit) with an index, filled
 * in the order of items; side files (config, tokenizer, template, generation_config …) are copied from like_dir (may be
 * NULL, may be dir). Built in a temp directory, switched in by rename; SKY_OUT_REPLACE replaces an existing one. */
struct sky_hf_item { struct sky_st_spec spec; const void *data; };
int sky_hf_write(const char *dir, const struct sky_hf_item *items, int64_t n, const char *like_dir, uint64_t shard_bytes,
                 unsigned out_flags, struct sky_err *err) SKY_MUST_CHECK;
/* Everything of a model folder but weights, into a folder that has none of it. */
int sky_hf_copy_side(const char *from_dir, const char *to_dir, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
