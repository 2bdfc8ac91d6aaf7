/* skyrl-inspect: trajectory files, token datasets, and files of others by their first bytes. */
#include "cmd/inspect_int.h"

#include <fcntl.h>
#include <unistd.h>

#include "rollout/traj.h"
#include "tokens/tokens.h"

static const char *stop_name(int stop)
{
	static const char *const names[] = { "stop", "length", "?", "aborted", "error" };

	return stop >= 0 && stop <= 4 ? names[stop] : "?";
}

static double reward_of(const struct sky_traj_row *row)
{
	double sum = 0;
	int64_t i;

	for (i = 0; row->reward && i < row->n_tok; i++) {
		sum += (double)row->reward[i];
	}
	return sum;
}

static void traj_rows(struct report *r, const struct sky_traj *t)
{
	struct sky_traj_row row;
	struct sky_jw w, *j;
	int64_t i;

	for (i = 0; i < t->n_traj; i++) {
		sky_traj_row_at(t, i, &row);
		j = rep_row_begin(r, &w, "sample");
		sky_jw_ki64(j, "sample", i);
		sky_jw_ki64(j, "n_tokens", row.n_tok);
		sky_jw_ki64(j, "prompt_len", row.prompt_len);
		sky_jw_ki64(j, "n_generated", row.n_gen);
		sky_jw_ki64(j, "group", row.group);
		sky_jw_ki64(j, "traj", row.traj);
		sky_jw_kf64(j, "reward", reward_of(&row));
		sky_jw_kstr(j, "stop", stop_name(row.stop));
		sky_jw_kbool(j, "done", row.done);
		rep_row_end(r, j,
		            "sample %lld  group %lld  tokens %lld (prompt %lld, generated %lld)  reward %.6g  %s%s", (long long)i,
		            (long long)row.group, (long long)row.n_tok, (long long)row.prompt_len, (long long)row.n_gen,
		            reward_of(&row), stop_name(row.stop), row.done ? ", done" : "");
	}
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Different values in v[n], or -1 when memory is gone. */
static int64_t distinct(const int64_t *v, int64_t n)
{
	int64_t *copy = sky_malloc_array((size_t)n, sizeof(*copy)), i, count = n > 0;

	if (!copy) {
		return -1;
	}
	memcpy(copy, v, (size_t)n * sizeof(*copy));
	qsort(copy, (size_t)n, sizeof(*copy), by_value);
	for (i = 1; i < n; i++) {
		count += copy[i] != copy[i - 1];
	}
	free(copy);
	return count;
}

static void traj_values(struct report *r, const struct sky_traj *t)
{
	static const char *const names[] = { "stop", "length", "?", "aborted", "error" };
	int64_t stops[5] = { 0 }, n_done = 0, longest = 0, i;
	int32_t v_min = INT32_MAX, v_max = -1;
	struct sky_traj_row row;
	double sum = 0;

	for (i = 0; i < t->n_traj; i++) {
		sky_traj_row_at(t, i, &row);
		stops[row.stop]++;
		n_done += row.done;
		sum += reward_of(&row);
		longest = row.n_tok > longest ? row.n_tok : longest;
	}
	for (i = 0; t->version && i < t->n_tok; i++) {
		if (t->version[i] >= 0) {
			v_min = t->version[i] < v_min ? t->version[i] : v_min;
			v_max = t->version[i] > v_max ? t->version[i] : v_max;
		}
	}
	rep_i64(r, "longest", longest);
	if (t->reward && t->n_traj > 0) {
		rep_f64(r, "reward_mean", sum / (double)t->n_traj);
	}
	if (v_max >= 0) {
		rep_i64(r, "version_min", v_min);
		rep_i64(r, "version_max", v_max);
	}
	if (t->stop) {
		rep_counts(r, "stop", names, stops, 5);
	}
	if (t->done) {
		rep_i64(r, "n_done", n_done);
	}
}

static void traj_arrays(struct report *r, const struct sky_traj *t)
{
	const struct { const void *array; const char *name; } list[] = {
		{ t->logprob, "logprob" }, { t->version, "version" }, { t->reward, "reward" }, { t->group, "group" },
			{ t->stop, "stop" },
		{ t->done, "done" }, { t->traj, "traj" }, { t->keep_start, "keep" }, { t->route_start, "routes" },
			{ t->env, "env" },
	};
	char all[128] = "";
	size_t i, n = 0;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (list[i].array) {
			n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", n ? " " : "", list[i].name);
		}
	}
	rep_str(r, "optional_arrays", all);
}

int inspect_traj(struct report *r, const char *path, struct sky_err *err)
{
	struct sky_traj t;
	int64_t n;
	int rc;

	rc = sky_traj_open(path, NULL, &t, err);
	if (rc < 0) {
		return rc;
	}
	rep_kind(r, "trajectory file");
	rep_i64(r, "n_samples", t.n_traj);
	if (t.traj) {
		rep_i64(r, "n_trajectories", distinct(t.traj, t.n_traj));
	}
	n = t.group ? distinct(t.group, t.n_traj) : -1;
	if (n >= 0) {
		rep_i64(r, "n_groups", n);
	}
	rep_i64(r, "n_tokens", t.n_tok);
	rep_i64(r, "n_generated", t.n_gen);
	traj_arrays(r, &t);
	if (t.route_start) {
		rep_i64(r, "route_layers", t.n_layer);
		rep_i64(r, "route_experts", t.n_expert);
	}
	traj_values(r, &t);
	rep_str(r, "model", t.model);
	rep_str(r, "sampling", t.sampling);
	rep_str(r, "env", t.env_name);
	if (r->list) {
		traj_rows(r, &t);
	}
	sky_traj_close(&t);
	return 0;
}

static void token_rows(struct report *r, const struct sky_tokens *t)
{
	struct sky_jw w, *j;
	const uint8_t *mask;
	int64_t i, k, n, n_on;

	for (i = 0; i < sky_tokens_rows(t); i++) {
		n = sky_tokens_row_len(t, i);
		mask = sky_tokens_mask(t, i);
		for (k = 0, n_on = mask ? 0 : n; mask && k < n; k++) {
			n_on += mask[k];
		}
		j = rep_row_begin(r, &w, "row");
		sky_jw_ki64(j, "row", i);
		sky_jw_ki64(j, "n_tokens", n);
		sky_jw_ki64(j, "n_trained", n_on);
		rep_row_end(r, j, "row %lld  tokens %lld  trained %lld", (long long)i, (long long)n, (long long)n_on);
	}
}

int inspect_tokens(struct report *r, const char *prefix, struct sky_err *err)
{
	struct sky_tokens_report rep = { 0 };
	const struct sky_json *manifest;
	struct sky_tokens *t;
	int rc = 0;

	if (r->check) {
		rc = sky_tokens_verify(prefix, -1, &rep, err);
	}
	rc = rc < 0 ? rc : sky_tokens_open(prefix, &t, err);
	if (rc < 0) {
		return rc;
	}
	manifest = sky_tokens_manifest(t);
	rep_kind(r, "token dataset");
	rep_i64(r, "n_rows", sky_tokens_rows(t));
	rep_i64(r, "n_documents", sky_tokens_docs(t));
	rep_i64(r, "n_tokens", sky_tokens_total(t));
	rep_i64(r, "longest", sky_tokens_longest(t));
	rep_str(r, "dtype", sky_tokens_dtype_name(t));
	rep_bool(r, "mask", sky_tokens_has_mask(t));
	rep_bool(r, "manifest", manifest != NULL);
	if (r->check) {
		rep_i64(r, "n_trained", rep.n_trained);
		rep_i64(r, "max_id", rep.max_id);
	} else if (sky_tokens_max_id(t) >= 0) {
		rep_i64(r, "max_id", sky_tokens_max_id(t));
	}
	if (sky_tokens_total(t) == 0) {
		rep_note(r, "has no tokens: Megatron cannot map it");
	}
	if (r->list) {
		token_rows(r, t);
	}
	sky_tokens_close(t);
	return 0;
}

static int other_kind(const uint8_t *p, int64_t n, const char **kind_p)
{
	static const struct { int at, n; const char *magic, *kind; } list[] = {
		{ 0, 4, "PAR1", "Parquet file" }, { 0, 6, "ARROW1", "Arrow IPC file" }, { 0, 4, "\xff\xff\xff\xff",
		                                                                         "Arrow IPC stream" },
		{ 0, 4, "\x28\xb5\x2f\xfd", "zstd stream" }, { 0, 2, "\x1f\x8b", "gzip stream" }, { 0, 3, "BZh", "bzip2 stream" },
		{ 0, 6, "\xfd" "7zXZ\0", "xz stream" }, { 257, 5, "ustar", "tar archive" }, { 0, 4, "GGUF", "GGUF model" },
		{ 0, 6, "\x93NUMPY", "NumPy array" }, { 0, 8, "MMIDIDX\0", "Megatron index" }, { 0, 4, "PK\3\4", "zip archive" },
		{ 0, 8, "\x89PNG\r\n\x1a\n", "PNG picture" }, { 0, 15, "SQLite format 3", "SQLite database" },
	};
	size_t i;

	for (i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
		if (n >= list[i].at + list[i].n && memcmp(p + list[i].at, list[i].magic, (size_t)list[i].n) == 0) {
			*kind_p = list[i].kind;
			return 1;
		}
	}
	return 0;
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);

	return n >= m && strcmp(s + n - m, end) == 0;
}

/* One JSON document, or a record a line. */
static int inspect_json(struct report *r, const char *path, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const struct sky_jnode *root;
	struct sky_lines l;
	const char *text;
	int64_t n = 0;
	size_t len;
	int fd, rc;

	if (ends_with(path, ".json")) {
		rc = sky_json_load(path, SKY_JSON_PYTHON | SKY_JSON_NUL, &doc, err);
		if (rc < 0) {
			return rc;
		}
		root = sky_json_root(doc);
		rep_kind(r, sky_j_get(root, "added_tokens") && sky_j_get(root, "model") ? "tokenizer" :
		         sky_j_get(root, "weight_map") ? "index of a sharded model" :
		         sky_j_get(root, "model_type") ? "model configuration" : "JSON document");
		rep_i64(r, "n_members", (int64_t)sky_j_len(root));
		rep_str(r, "model_type", sky_j_str(sky_j_get(root, "model_type")));
		sky_json_free(doc);
		return 0;
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening %s", path);
	}
	sky_lines_init(&l, fd, path, SKY_MAX_LINE_BYTES);
	rep_kind(r, "JSON lines");
	while ((rc = sky_lines_next(&l, -1, &text, &len, err)) == 0) {
		char where[SKY_MAX_PATH];

		if (len == 0) {
			continue;
		}
		n++;
		if (r->check) {
			snprintf(where, sizeof(where), "%.3900s, line %lld", path, (long long)l.n_line);
			rc = sky_json_parse(text, len, where, SKY_JSON_PYTHON | SKY_JSON_NUL, &doc, err);
			if (rc < 0) {
				break;
			}
			sky_json_free(doc);
		}
	}
	rep_i64(r, "n_records", n);
	sky_lines_release(&l);
	close(fd);
	return rc == SKY_EOF ? 0 : rc;
}

int inspect_other(struct report *r, const char *path, struct sky_err *err)
{
	const char *kind = NULL;
	uint8_t head[512];
	uint64_t bytes = 0;
	int64_t n;
	int fd, rc;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		return sky_fail_sys(err, "opening %s", path);
	}
	n = sky_read_full(fd, head, sizeof(head), path, err);
	close(fd);
	if (n < 0) {
		return (int)n;
	}
	if (!other_kind(head, n, &kind) && (ends_with(path, ".json") || ends_with(path, ".jsonl") || ends_with(path, ".ndjson"))) {
		return inspect_json(r, path, err);
	}
	if (!kind) {
		return sky_fail(err, SKY_E_DATA, "%s is of no kind that this program knows (first bytes %02x %02x %02x %02x)", path,
		                n > 0 ? head[0] : 0, n > 1 ? head[1] : 0, n > 2 ? head[2] : 0, n > 3 ? head[3] : 0);
	}
	rc = sky_file_size(path, &bytes, err);
	rep_kind(r, kind);
	rep_bytes(r, "bytes", bytes);
	if (r->check) {
		rep_note(r, "a %s is only named here, not checked", kind);
	}
	return rc;
}
