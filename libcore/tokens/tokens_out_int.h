/* Private to libcore/tokens: the writer's work folder PREFIX.work and its journal. */
#ifndef SKY_TOKENS_OUT_INT_H
#define SKY_TOKENS_OUT_INT_H

#include <stdbool.h>

#include "tokens/tokens_int.h"

enum out_file { OUT_BIN, OUT_IDX, OUT_MASK_BIN, OUT_MASK_IDX, OUT_FILES };
extern const char *const out_name[OUT_FILES];   /* "bin", "idx", … in PREFIX.work and in the manifest */

/* One growing file of the work folder: buffered, hashed on the way. */
struct out_stream {
	int fd;                         /* -1 when closed */
	char *path;                     /* owned */
	uint8_t *buf;                   /* owned */
	size_t n_buf;
	uint64_t n_bytes;               /* with what is still in buf */
	struct sky_xxh_state *hash;     /* of the bytes already written; NULL when not wanted */
	char hex[33];                   /* of the whole file once it is finished */
};

int stream_open(struct out_stream *s, const char *path, uint64_t keep, bool hashed, struct sky_err *err) SKY_MUST_CHECK;
int stream_write(struct out_stream *s, const void *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;
/* Room of n ≤ STREAM_BUF bytes at the end; the caller fills it and adds n to n_buf and n_bytes. */
int stream_room(struct out_stream *s, size_t n, uint8_t **p_p, struct sky_err *err) SKY_MUST_CHECK;
int stream_flush(struct out_stream *s, struct sky_err *err) SKY_MUST_CHECK;
/* Flush, and to the disk when durable. */
int stream_sync(struct out_stream *s, bool durable, struct sky_err *err) SKY_MUST_CHECK;
void stream_close(struct out_stream *s);
#define STREAM_BUF (1u << 20)

struct out_counts {
	int64_t n_row, n_token, n_trained, max_id, n_longest;
};

struct sky_tokens_out {
	char *prefix, *work, *key;      /* owned */
	struct sky_tokens_opt opt;
	struct sky_lock lock;
	struct out_stream file[OUT_FILES];      /* OUT_MASK_IDX is written by _commit only */
	struct out_counts n;
	int journal_fd;
	bool has_checkpoint, failed, durable;   /* durable: fsync what must survive a crash */
	struct sky_json *state_doc;     /* last line of the journal that was resumed from */
};

/* Files and folders of the work; all names are in o->work. */
char *work_path(const struct sky_tokens_out *o, const char *name, struct sky_err *err);
/* Reads the journal: counts, state. SKY_E_USAGE when it belongs to another key; no journal: zero counts. */
int journal_read(struct sky_tokens_out *o, struct sky_err *err) SKY_MUST_CHECK;
int journal_begin(struct sky_tokens_out *o, struct sky_err *err) SKY_MUST_CHECK;
int journal_add(struct sky_tokens_out *o, const char *state, struct sky_err *err) SKY_MUST_CHECK;
/* From a finished work folder (its file "manifest" exists) to the published set; may be called again after a kill. */
int work_publish(const char *prefix, const char *work, bool with_mask, struct sky_err *err) SKY_MUST_CHECK;
/* 1 when the work folder holds a finished set of this key, 0 when not. */
int work_is_finished(const struct sky_tokens_out *o, struct sky_err *err) SKY_MUST_CHECK;

#endif
