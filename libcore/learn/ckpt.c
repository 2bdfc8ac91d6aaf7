/* Run directories: checkpoints whose pointer is written last, metrics that continue where the checkpoint stands. */
#include "learn/optim.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define POINTER "latest_ckpt_global_step.txt"

static int step_dir(char *out, const char *run, int64_t step, struct sky_err *err)
{
	char name[64];

	snprintf(name, sizeof(name), "global_step_%lld", (long long)step);
	return sky_path_join(out, SKY_MAX_PATH, run, name, err);
}

/* Checkpoints beyond the newest `keep` go, oldest first. */
static int prune(const char *run, int64_t step, int64_t keep, struct sky_err *err)
{
	char **names, path[SKY_MAX_PATH];
	int64_t *steps, n_step = 0;
	size_t n;
	int rc = sky_list_dir(run, &names, &n, err);

	if (rc < 0) {
		return rc;
	}
	steps = sky_calloc_array(n + 1, sizeof(*steps));
	for (size_t i = 0; steps && i < n; i++) {
		int64_t s;

		if (!strncmp(names[i], "global_step_", 12) && sky_parse_i64(names[i] + 12, &s, NULL) == 0 && s <= step) {
			int64_t k = n_step++;

			for (; k > 0 && steps[k - 1] > s; k--) {
				steps[k] = steps[k - 1];
			}
			steps[k] = s;
		}
	}
	for (int64_t i = 0; i < n_step - keep && rc == 0; i++) {
		rc = step_dir(path, run, steps[i], err);
		rc = rc < 0 ? rc : sky_remove_tree(path, err);
	}
	free(steps);
	sky_names_free(names, n);
	return rc;
}

int sky_ckpt_save(const char *run, int64_t step, const struct sky_model *m, const struct sky_optim *o, const char *state,
                  int64_t keep, struct sky_err *err)
{
	char dir[SKY_MAX_PATH], tmp[SKY_MAX_PATH], path[SKY_MAX_PATH], text[32];
	int rc = step_dir(dir, run, step, err);

	/* Built beside its final name: a checkpoint that has its name is whole. */
	snprintf(text, sizeof(text), ".global_step_%lld.part", (long long)step);
	rc = rc < 0 ? rc : sky_path_join(tmp, sizeof(tmp), run, text, err);
	rc = rc < 0 ? rc : sky_remove_tree(tmp, err);
	rc = rc < 0 ? rc : sky_mkdirs(tmp, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), tmp, "policy", err);
	rc = rc < 0 ? rc : sky_model_save(m, path, SKY_F32, SKY_OUT_REPLACE, err);
	rc = rc < 0 ? rc : sky_optim_save(o, tmp, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), tmp, "trainer_state.json", err);
	rc = rc < 0 ? rc : sky_file_publish(path, state, strlen(state), SKY_OUT_REPLACE, err);
	rc = rc < 0 ? rc : sky_remove_tree(dir, err);
	if (rc == 0 && rename(tmp, dir) < 0) {
		rc = sky_fail_sys(err, "renaming %s to %s", tmp, dir);
	}
	rc = rc < 0 ? rc : sky_fsync_dir(run, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), run, POINTER, err);
	snprintf(text, sizeof(text), "%lld", (long long)step);
	rc = rc < 0 ? rc : sky_file_publish(path, text, strlen(text), SKY_OUT_REPLACE, err);
	rc = rc < 0 || keep <= 0 ? rc : prune(run, step, keep, err);
	return sky_while(err, rc, "checkpoint of step %lld", (long long)step);
}

int sky_ckpt_latest(const char *run, int64_t *step_p, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(64);
	char path[SKY_MAX_PATH];
	int rc = sky_path_join(path, sizeof(path), run, POINTER, err);

	rc = rc < 0 ? rc : sky_file_read(path, &text, err);
	while (rc == 0 && text.n > 0 && (text.ptr[text.n - 1] == '\n' || text.ptr[text.n - 1] == ' ')) {
		text.ptr[--text.n] = '\0';
	}
	rc = rc < 0 ? rc : sky_parse_i64(text.n ? text.ptr : "", step_p, err);
	sky_buf_release(&text);
	return rc == SKY_E_MISSING ? sky_fail(err, rc, "%s: no checkpoint to resume from (%s is not there)", run, path)
	                           : sky_while(err, rc, "%s", path);
}

int sky_ckpt_load(const char *run, int64_t step, struct sky_model *m, struct sky_optim *o, struct sky_json **state_p,
                  struct sky_err *err)
{
	char dir[SKY_MAX_PATH], path[SKY_MAX_PATH];
	int rc = step_dir(dir, run, step, err);

	*state_p = NULL;
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), dir, "trainer_state.json", err);
	rc = rc < 0 ? rc : sky_json_load(path, 0, state_p, err);
	rc = rc < 0 ? rc : sky_path_join(path, sizeof(path), dir, "policy", err);
	rc = rc < 0 ? rc : sky_model_reload(m, path, err);
	rc = rc < 0 ? rc : sky_optim_load(o, dir, err);
	if (rc < 0) {
		sky_json_free(*state_p);
		*state_p = NULL;
	}
	return sky_while(err, rc, "checkpoint of step %lld", (long long)step);
}

/* ---- metrics ---- */

/* Length of the leading lines of text that belong to steps up to `step`. A torn last line is dropped. */
static size_t keep_lines(const char *text, size_t n, int64_t step)
{
	size_t at = 0;

	while (at < n) {
		const char *nl = memchr(text + at, '\n', n - at);
		struct sky_json *doc = NULL;
		int64_t s;
		bool keep;

		if (!nl) {
			break;
		}
		keep = sky_json_parse(text + at, (size_t)(nl - text) - at, "metrics", 0, &doc, NULL) == 0 &&
		       sky_j_i64(sky_j_get(sky_json_root(doc), "step"), &s) && s <= step;
		sky_json_free(doc);
		if (!keep) {
			break;
		}
		at = (size_t)(nl - text) + 1;
	}
	return at;
}

int sky_metrics_open(struct sky_metrics_file *f, const char *run, int64_t after_step, struct sky_err *err)
{
	struct sky_buf old = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	char path[SKY_MAX_PATH];
	int rc = sky_path_join(path, sizeof(path), run, "metrics.ndjson", err);

	f->fd = -1;
	f->path = NULL;
	if (rc == 0 && after_step > 0 && sky_file_exists(path)) {
		rc = sky_file_read(path, &old, err);
		rc = rc < 0 ? rc : sky_file_publish(path, old.ptr, keep_lines(old.ptr, old.n, after_step), SKY_OUT_REPLACE, err);
	}
	sky_buf_release(&old);
	if (rc < 0) {
		return rc;
	}
	f->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (after_step > 0 ? 0 : O_TRUNC), 0666);
	f->path = strdup(path);
	if (f->fd < 0 || !f->path) {
		return sky_fail_sys(err, "%s", path);
	}
	return 0;
}

int sky_metrics_write(struct sky_metrics_file *f, int64_t step, const struct sky_metrics *m, struct sky_err *err)
{
	struct sky_buf line = SKY_BUF_INIT(SKY_MAX_RECORD_BYTES);
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &line, err);
	sky_jw_obj(&w);
	sky_jw_ki64(&w, "step", step);
	for (int i = 0; i < m->n; i++) {
		double v = m->m[i].v;

		if (v == floor(v) && fabs(v) < 9e15) {
			sky_jw_ki64(&w, m->m[i].name, (int64_t)v);
		} else {
			sky_jw_kf64(&w, m->m[i].name, v);
		}
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc < 0 ? rc : sky_buf_addc(&line, '\n', err);
	/* One write a line: a reader that follows the file never sees half of one. */
	rc = rc < 0 ? rc : sky_write_full(f->fd, line.ptr, line.n, f->path, err);
	sky_buf_release(&line);
	return rc;
}

void sky_metrics_close(struct sky_metrics_file *f)
{
	if (f->fd >= 0) {
		close(f->fd);
	}
	free(f->path);
	f->fd = -1;
	f->path = NULL;
}
