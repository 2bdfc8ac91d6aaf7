/* Files: whole reads and writes, and outputs that appear complete or not at all.
 *
 * Publish protocol (publish.c): .NAME.tmp.PID.RANDOM in the folder of the target, write, fsync, close (checked), rename,
 * fsync of the folder. Several files commit by publishing the one that readers start from last. */
#ifndef SKY_BASE_FILE_H
#define SKY_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/buf.h"
#include "base/err.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Full transfers: EINTR and short counts are handled. Read returns bytes (less only at end of file) or negative code. */
int64_t sky_read_full(int fd, void *p, size_t n, const char *name, struct sky_err *err) SKY_MUST_CHECK;
int64_t sky_pread_full(int fd, void *p, size_t n, uint64_t off, const char *name, struct sky_err *err) SKY_MUST_CHECK;
int sky_write_full(int fd, const void *p, size_t n, const char *name, struct sky_err *err) SKY_MUST_CHECK;
int sky_pwrite_full(int fd, const void *p, size_t n, uint64_t off, const char *name, struct sky_err *err) SKY_MUST_CHECK;
/* Whole file appended to *out (its max bounds the size). */
int sky_file_read(const char *path, struct sky_buf *out, struct sky_err *err) SKY_MUST_CHECK;
bool sky_file_exists(const char *path);
bool sky_is_dir(const char *path);
int sky_file_size(const char *path, uint64_t *bytes_p, struct sky_err *err) SKY_MUST_CHECK;
int sky_mkdirs(const char *path, struct sky_err *err) SKY_MUST_CHECK;           /* like mkdir -p */
int sky_fsync_dir(const char *dir, struct sky_err *err) SKY_MUST_CHECK;
int sky_remove_tree(const char *path, struct sky_err *err) SKY_MUST_CHECK;      /* does not follow links; missing is fine */
/* Names of a folder sorted by bytes, without . and ..; free with sky_names_free. */
int sky_list_dir(const char *dir, char ***names_p, size_t *n_p, struct sky_err *err) SKY_MUST_CHECK;
void sky_names_free(char **names, size_t n);
/* DIR/NAME into out; fails with SKY_E_LIMIT when too long. Absolute NAME replaces DIR. */
int sky_path_join(char *out, size_t cap, const char *dir, const char *name, struct sky_err *err) SKY_MUST_CHECK;

enum sky_out_flags {
	SKY_OUT_REPLACE = 1u << 0,      /* an existing target is replaced; otherwise it is an error (SKY_E_USAGE) */
	SKY_OUT_NO_FSYNC = 1u << 1,     /* tests only */
};

/* One output file on its way. Written to a temp name; nothing is visible before _commit. */
struct sky_out {
	int fd;                 /* -1 when not open */
	unsigned flags;
	uint64_t n_bytes;       /* written so far through sky_out_write */
	char *path, *tmp;       /* owned */
	char *buf;              /* owned write buffer */
	size_t n_buf;
	int i_temp;             /* slot in the register of temps, -1 when none */
};

/* A device or pipe as path (/dev/null) is written directly; a folder is refused. */
int sky_out_open(struct sky_out *o, const char *path, unsigned flags, struct sky_err *err) SKY_MUST_CHECK;
int sky_out_write(struct sky_out *o, const void *p, size_t n, struct sky_err *err) SKY_MUST_CHECK;
int sky_out_flush(struct sky_out *o, struct sky_err *err) SKY_MUST_CHECK;       /* buffer to the file, no fsync */
int sky_out_commit(struct sky_out *o, struct sky_err *err) SKY_MUST_CHECK;      /* fsync, close, rename, fsync folder */
void sky_out_abort(struct sky_out *o);          /* removes the temp; safe on a zeroed, committed or failed struct */
/* open + write + commit */
int sky_file_publish(const char *path, const void *p, size_t n, unsigned flags, struct sky_err *err) SKY_MUST_CHECK;

/* A folder on its way: the caller fills tmp, commit syncs it and renames it to path. With SKY_OUT_REPLACE the old
 * folder is exchanged in one step and then removed; processes that have its files open keep them. The files inside
 * are the caller's to sync (sky_out does). */
struct sky_outdir {
	unsigned flags;
	int i_temp;             /* slot in the register of temps, -1 when none */
	char *path, *tmp;       /* owned; NULL when not open */
};
int sky_outdir_open(struct sky_outdir *o, const char *path, unsigned flags, struct sky_err *err) SKY_MUST_CHECK;
int sky_outdir_commit(struct sky_outdir *o, struct sky_err *err) SKY_MUST_CHECK;
void sky_outdir_abort(struct sky_outdir *o);    /* removes tmp; safe on a zeroed, committed or failed struct */

/* Remove temps .*.tmp.PID.* of dead processes in dir, older than an hour (age_s < 0: any age). */
int sky_clean_temps(const char *dir, double age_s, struct sky_err *err) SKY_MUST_CHECK;

/* Signal path: unlink every temp that is open now. Async-signal-safe. */
void sky_out_unlink_all(void);
/* Process-wide default for SKY_OUT_NO_FSYNC (option --no-fsync). */
void sky_out_set_fsync(bool on);

#ifdef __cplusplus
}
#endif
#endif
