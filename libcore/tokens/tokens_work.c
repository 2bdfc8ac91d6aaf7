/* The writer's work folder: its journal of checkpoints, and the step from finished work to a published set.
 *
 * Journal, one JSON value a line: {"skyrl_tokens_journal":1,"key":"…"}, then a line per checkpoint with the counts and
 * the caller's state. A line counts when its end of line is there, so a torn write is no line. Publishing: marker
 * PREFIX.json ("writing"), the data files, the index of the tokens, and last the manifest over the marker; every step
 * is a rename and the rest can be done again after a kill at any point. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tokens/tokens_out_int.h"

const char *const out_name[OUT_FILES] = { "bin", "idx", "mask.bin", "mask.idx" };

#define MAX_JOURNAL (64u << 20)

char *work_path(const struct sky_tokens_out *o, const char *name, struct sky_err *err)
{
	char slash[64];

	snprintf(slash, sizeof slash, "/%s", name);
	return tok_path(o->work, slash, err);
}

static int take_counts(struct sky_tokens_out *o, const char *path, struct sky_err *err)
{
	const struct sky_jnode *m = sky_json_root(o->state_doc);
	struct { const char *key; int64_t *to; } v[] = {
		{ "rows", &o->n.n_row }, { "tokens", &o->n.n_token }, { "trained", &o->n.n_trained },
		{ "max_id", &o->n.max_id }, { "longest", &o->n.n_longest },
	};
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof v / sizeof *v; i++) {
		rc = sky_j_get_i64(m, v[i].key, -2, v[i].to, err);
		if (!rc && *v[i].to < (i == 3 ? -1 : 0)) {
			rc = sky_fail(err, SKY_E_DATA, "%s: checkpoint without %s; start afresh without --resume",
					path, v[i].key);
		}
	}
	return rc;
}

static int check_key(const struct sky_tokens_out *o, const char *line, size_t n, const char *path, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const char *key;
	int rc = sky_json_parse(line, n, path, 0, &doc, err);

	if (!rc) {
		rc = sky_j_get_str(sky_json_root(doc), "key", "", &key, err);
	}
	if (!rc && strcmp(key, o->key)) {
		rc = sky_fail(err, SKY_E_USAGE,
				"%s: the work to resume was begun with other options or inputs; give the same "
			      "ones, or start afresh without --resume", o->prefix);
	}
	sky_json_free(doc);
	return rc;
}

int journal_read(struct sky_tokens_out *o, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(MAX_JOURNAL);
	char *path = work_path(o, "journal", err), *end, *line;
	size_t n;
	int rc = path ? 0 : SKY_E_LIMIT;

	o->n = (struct out_counts){ .max_id = -1 };
	if (rc || !sky_file_exists(path)) {
		goto out;
	}
	rc = sky_file_read(path, &text, err);
	end = rc || !text.n ? NULL : memchr(text.ptr, '\n', text.n);
	if (!end) {
		goto out;
	}
	rc = check_key(o, text.ptr, (size_t)(end - text.ptr), path, err);
	/* The last complete line behind the first. */
	end = rc ? NULL : memrchr(text.ptr, '\n', text.n);
	line = end ? memrchr(text.ptr, '\n', (size_t)(end - text.ptr)) : NULL;
	if (line) {
		n = (size_t)(end - line - 1);
		rc = sky_json_parse(line + 1, n, path, 0, &o->state_doc, err);
		rc = rc ? rc : take_counts(o, path, err);
		o->has_checkpoint = !rc;
	}
out:
	sky_buf_release(&text);
	free(path);
	return rc;
}

static int journal_line(struct sky_tokens_out *o, const struct sky_buf *line, struct sky_err *err)
{
	int rc = sky_write_full(o->journal_fd, line->ptr, line->n, "journal", err);

	if (!rc && o->durable && fdatasync(o->journal_fd)) {
		rc = sky_fail_sys(err, "%s/journal: flushing to disk", o->work);
	}
	return sky_while(err, rc, "%s", o->work);
}

/* A new journal, or the old one without a torn last line. */
int journal_begin(struct sky_tokens_out *o, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(MAX_JOURNAL);
	char *path = work_path(o, "journal", err), *end = NULL;
	struct sky_jw w;
	int rc = path ? 0 : SKY_E_LIMIT;

	if (!rc && o->has_checkpoint) {
		rc = sky_file_read(path, &text, err);
		end = rc ? NULL : memrchr(text.ptr, '\n', text.n);
		text.n = end ? (size_t)(end - text.ptr) + 1 : 0;
	} else if (!rc) {
		sky_jw_init(&w, &text, err);
		sky_jw_obj(&w);
		sky_jw_ki64(&w, "skyrl_tokens_journal", 1);
		sky_jw_kstr(&w, "key", o->key);
		sky_jw_close_obj(&w);
		rc = sky_jw_end(&w);
		rc = rc ? rc : sky_buf_addc(&text, '\n', err);
	}
	rc = rc ? rc : sky_file_publish(path, text.ptr, text.n, SKY_OUT_REPLACE, err);
	if (!rc) {
		o->journal_fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
		rc = o->journal_fd < 0 ? sky_fail_sys(err, "%s", path) : 0;
	}
	sky_buf_release(&text);
	free(path);
	return rc;
}

int journal_add(struct sky_tokens_out *o, const char *state, struct sky_err *err)
{
	struct sky_buf line = SKY_BUF_INIT(MAX_JOURNAL);
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &line, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "rows", o->n.n_row);
	sky_jw_ki64(&w, "tokens", o->n.n_token);
	sky_jw_ki64(&w, "trained", o->n.n_trained);
	sky_jw_ki64(&w, "max_id", o->n.max_id);
	sky_jw_ki64(&w, "longest", o->n.n_longest);
	sky_jw_key(&w, "state");
	sky_jw_raw(&w, state, strlen(state));
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_buf_addc(&line, '\n', err);
	rc = rc ? rc : journal_line(o, &line, err);
	o->has_checkpoint |= !rc;
	sky_buf_release(&line);
	return rc;
}

int work_is_finished(const struct sky_tokens_out *o, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const char *key;
	char *path = work_path(o, "manifest", err);
	int rc = path ? 0 : SKY_E_LIMIT;

	if (!rc && sky_file_exists(path)) {
		rc = sky_json_load(path, 0, &doc, err);
		rc = rc ? rc : sky_j_get_str(sky_json_root(doc), "key", "", &key, err);
		rc = rc ? rc : !strcmp(key, o->key);
	}
	sky_json_free(doc);
	free(path);
	return rc;
}

/* Rename that a second run after a kill may find done already. */
static int move(const char *from, const char *to, struct sky_err *err)
{
	if (rename(from, to) && errno != ENOENT) {
		return sky_fail_sys(err, "renaming %s to %s", from, to);
	}
	return 0;
}

static int move_file(const char *prefix, const char *work, const char *name, struct sky_err *err)
{
	char from[SKY_MAX_PATH], to[SKY_MAX_PATH];

	if ((size_t)snprintf(from, sizeof from, "%s/%s", work, name) >= sizeof from ||
	    (size_t)snprintf(to, sizeof to, "%s.%s", prefix, strcmp(name, "manifest") ? name : "json") >= sizeof to) {
		return sky_fail(err, SKY_E_LIMIT, "%s: path too long", prefix);
	}
	return move(from, to, err);
}

static int fsync_folder_of(const char *path, struct sky_err *err)
{
	const char *slash = strrchr(path, '/');
	char dir[SKY_MAX_PATH];

	if (!slash) {
		return sky_fsync_dir(".", err);
	}
	if ((size_t)(slash - path) >= sizeof dir) {
		return sky_fail(err, SKY_E_LIMIT, "%s: path too long", path);
	}
	snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return sky_fsync_dir(dir, err);
}

/* A mask of the set that is being replaced by one without. */
static int drop_old_mask(const char *prefix, struct sky_err *err)
{
	static const char *const suffix[] = { ".mask.idx", ".mask.bin" };
	char *path;
	int rc = 0;

	for (size_t i = 0; !rc && i < 2; i++) {
		path = tok_path(prefix, suffix[i], err);
		rc = path ? 0 : SKY_E_LIMIT;
		if (!rc && unlink(path) && errno != ENOENT) {
			rc = sky_fail_sys(err, "removing %s", path);
		}
		free(path);
	}
	return rc;
}

int work_publish(const char *prefix, const char *work, bool with_mask, struct sky_err *err)
{
	static const char marker[] = "{\"format\":\"skyrl-tokens\",\"version\":1,\"state\":\"writing\"}\n";
	static const enum out_file order[] = { OUT_MASK_BIN, OUT_MASK_IDX, OUT_BIN, OUT_IDX };
	char *json = tok_path(prefix, ".json", err);
	int rc = json ? 0 : SKY_E_LIMIT;

	rc = rc ? rc : sky_file_publish(json, marker, sizeof marker - 1, SKY_OUT_REPLACE, err);
	rc = rc || with_mask ? rc : drop_old_mask(prefix, err);
	for (int i = with_mask ? 0 : 2; !rc && i < 4; i++) {
		rc = move_file(prefix, work, out_name[order[i]], err);
	}
	rc = rc ? rc : fsync_folder_of(prefix, err);
	rc = rc ? rc : move_file(prefix, work, "manifest", err);
	rc = rc ? rc : fsync_folder_of(prefix, err);
	rc = rc ? rc : sky_remove_tree(work, err);
	free(json);
	return rc;
}
