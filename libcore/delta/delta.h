/* delta: what changed between two versions of a model, published to a store and applied elsewhere. Layer 3; skyrl-delta(5).
 *
 * In: Hugging Face directories, a store. Out: a chain of versions in the store, and directories that hold one of them.
 * The chain is SkyRL's (format skyrl): STORE/delta-%08d/manifest.json written last, payload files of zstd frames of the XOR
 * of old and new bytes. Our additions are unknown top-level keys of the manifest, under "skyrl_tools": the identity of the
 * chain (run), of its writer, of the base, and a hash over the whole model, so that a reader compares these and never only a
 * number.
 * A publisher keeps the last version it published in STATE/weights; a receiver keeps the version it holds there. STATE/weights
 * is always whole: a version is built beside it and switched in by one rename. */
#ifndef SKY_DELTA_DELTA_H
#define SKY_DELTA_DELTA_H

#include <stdint.h>
#include "base/base.h"
#include "store/store.h"
#include "weights/weights.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SKY_MAX_MANIFEST_BYTES (256ull << 20)

/* ---- manifest ---- */
struct sky_delta_tensor {
	char *name, *dtype;             /* owned; dtype by torch's name: "bfloat16" */
	int n_dim;
	int64_t shape[SKY_MAX_DIMS];
	uint64_t raw_bytes, frame_bytes;
	char *file, *key;               /* owned */
	char *checksum;                 /* owned: hex of the hash of the new bytes */
	int sha256;                     /* 0: xxh3-128 */
};
struct sky_delta_id {                   /* "" where a manifest of another writer does not say */
	char run[33], writer[33], base[33], model[33];
};
struct sky_manifest {
	int64_t version, base_version;
	struct sky_delta_tensor *tensor;        /* [n_tensor] */
	int64_t n_tensor;
	char **file;                            /* [n_file] */
	int64_t n_file;
	struct sky_delta_id id;
};
/* Refuses what must never be acted on: names that are no plain file names, duplicate tensors, sizes that do not fit the
 * shape, unknown algorithms, a version that is not base_version + 1. name is for messages. */
int sky_manifest_parse(const char *text, size_t n, const char *name, struct sky_manifest *m, struct sky_err *err) SKY_MUST_CHECK;
/* As Python's json.dumps writes it, fields in SkyRL's order. */
int sky_manifest_print(const struct sky_manifest *m, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;
void sky_manifest_release(struct sky_manifest *m);
/* "delta-00000001" */
void sky_delta_dir(char out[32], int64_t version);
/* Reads STORE/delta-VERSION/manifest.json; SKY_E_MISSING when that version does not exist. */
int sky_manifest_get(struct sky_store *s, int64_t version, struct sky_manifest *m, struct sky_err *err) SKY_MUST_CHECK;

/* Hash over names, types, shapes and bytes of every tensor, in the order of names; independent of files and shards. */
int sky_model_hash(const struct sky_hf *hf, char out[33], struct sky_err *err) SKY_MUST_CHECK;

/* ---- publish ---- */
struct sky_publish_opt {
	const char *state, *base, *dir;         /* base: needed to begin a chain or to rebuild a lost state */
	uint64_t max_file_bytes;                /* of a payload file, default 1 GiB */
	int allow_missing;                      /* a tensor of the base that dir lacks counts as unchanged */
	int allow_extra;                        /* a tensor that the base lacks is passed over */
	int n_threads;
	bool (*stop)(void);
};
struct sky_delta_result {
	int64_t version, n_changed, n_unchanged, n_missing, n_extra;
	uint64_t raw_bytes, changed_bytes, frame_bytes, read_bytes;     /* changed_bytes: bytes whose XOR is not 0 */
	double seconds_diff, seconds_store, seconds_apply;
	int nothing;                            /* there was nothing to do */
	struct sky_delta_id id;
};
/* SKY_E_AGAIN when another publisher wrote the version first, SKY_E_MISSING when STATE is lost and base was not given. STATE
 * moves on only after the manifest is durable. */
int sky_delta_publish(struct sky_store *s, const struct sky_publish_opt *opt, struct sky_delta_result *r,
                      struct sky_err *err) SKY_MUST_CHECK;

/* ---- receive ---- */
struct sky_receive_opt {
	const char *state, *base;               /* base: needed the first time */
	int64_t version;                        /* target; ≤ 0: the newest */
	int n_threads;
	bool (*stop)(void);
};
/* Downloads manifests and payloads of the versions between what STATE holds and the target into STATE/deltas. Idempotent. */
int sky_delta_fetch(struct sky_store *s, const struct sky_receive_opt *opt, struct sky_delta_result *r,
                    struct sky_err *err) SKY_MUST_CHECK;
/* Applies what was fetched, verifies every changed tensor and (where the manifest tells) the whole model, switches
 * STATE/weights. */
int sky_delta_apply(const struct sky_receive_opt *opt, struct sky_delta_result *r, struct sky_err *err) SKY_MUST_CHECK;

/* ---- look ---- */
/* Newest version in the store, 0 when none. */
int sky_delta_newest(struct sky_store *s, int64_t *version_p, struct sky_err *err) SKY_MUST_CHECK;
/* Chain and payloads of every version: what is listed is there, decodes to the stated length. weights (may be NULL): a directory
 * that must hold the newest version (or `version`). */
int sky_delta_verify(struct sky_store *s, const char *weights, int64_t version, struct sky_delta_result *r,
                     struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
