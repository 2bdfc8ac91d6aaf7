/* skyrl-rollout score: the log-prob of every given token. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/rollout_cmd.h"
#include "base/base.h"
#include "tokens/tokens.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

static struct {
	double temperature;
	int64_t n_tok;
} o;

const struct opt_row score_rows[] = {
	OPT_TABLE(cmd_model_rows),
	OPT_HEAD("Scoring"),
	OPT_REAL(0, "temperature", &o.temperature, "X", "1", "divides the logits", .min = 1e-6, .max = 1000),
	OPT_COUNT(0, "tokens", &o.n_tok, "N", "4096", "tokens of a pass at most; a longer row is a pass of its own", .min = 1),
	OPT_HEAD("Output"),
	CMD_OPT_JSON, CMD_OPT_THREADS,
	OPT_END
};

/* Rows waiting for one pass. */
struct pass {
	struct sky_model *m;
	int32_t *ids, *target, *start, *pos0;
	float *logprob;
	int64_t n, cap, n_seq, seq_cap;
	int64_t first;          /* number of the first row */
};

static int pass_add(struct pass *p, const int32_t *ids, int64_t n, struct sky_err *err)
{
	int64_t vocab = sky_model_config(p->m)->vocab, max = sky_model_config(p->m)->max_pos;

	if (n < 1 || n > max) {
		return sky_fail(err, SKY_E_DATA, "row %lld has %lld tokens, the model takes 1 to %lld",
		                (long long)(p->first + p->n_seq), (long long)n, (long long)max);
	}
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] < 0 || ids[i] >= vocab) {
			return sky_fail(err, SKY_E_DATA, "row %lld: token id %d at position %lld, the model knows 0 to %lld",
			                (long long)(p->first + p->n_seq), ids[i], (long long)i, (long long)vocab - 1);
		}
	}
	if (p->n + n > p->cap) {
		p->cap = 2 * (p->n + n);
		p->ids = sky_realloc_array(p->ids, (size_t)p->cap, sizeof(int32_t));
		p->target = sky_realloc_array(p->target, (size_t)p->cap, sizeof(int32_t));
		p->logprob = sky_realloc_array(p->logprob, (size_t)p->cap, sizeof(float));
	}
	if (p->n_seq + 2 > p->seq_cap) {
		p->seq_cap = 2 * p->n_seq + 16;
		p->start = sky_realloc_array(p->start, (size_t)p->seq_cap, sizeof(int32_t));
		p->pos0 = sky_realloc_array(p->pos0, (size_t)p->seq_cap, sizeof(int32_t));
	}
	if (!p->ids || !p->target || !p->logprob || !p->start || !p->pos0) {
		return sky_fail_mem(err, "rows to score");
	}
	p->start[p->n_seq] = (int32_t)p->n;
	p->pos0[p->n_seq++] = 0;
	memcpy(p->ids + p->n, ids, (size_t)n * sizeof(int32_t));
	for (int64_t i = 0; i < n; i++) {
		p->target[p->n + i] = i + 1 < n ? ids[i + 1] : -1;
	}
	p->n += n;
	p->start[p->n_seq] = (int32_t)p->n;
	return 0;
}

/* One row: {"row":…,"logprob":[null,…],"sum":…}; the first token has nothing before it. */
static int print_row(const struct pass *p, int64_t i, struct sky_err *err)
{
	int64_t n = p->start[i + 1] - p->start[i];
	const float *lp = p->logprob + p->start[i];
	struct sky_jw *w;
	double sum = 0;

	for (int64_t t = 0; t + 1 < n; t++) {
		sum += (double)lp[t];
	}
	if (!cmd.json) {
		return cmd_outf(err, "%lld\t%lld\t%.6f\n", (long long)(p->first + i), (long long)n, sum);
	}
	w = cmd_rec("score", err);
	sky_jw_ki64(w, "row", p->first + i);
	sky_jw_key(w, "logprob");
	sky_jw_arr(w);
	sky_jw_null(w);
	for (int64_t t = 0; t + 1 < n; t++) {
		sky_jw_f32(w, lp[t]);
	}
	sky_jw_close_arr(w);
	sky_jw_kf64(w, "sum", sum);
	return cmd_rec_end(err);
}

static int pass_run(struct pass *p, struct sky_err *err)
{
	struct sky_rows rows = { .n_seq = p->n_seq, .start = p->start, .pos0 = p->pos0, .ids = p->ids };
	int rc = 0;

	if (p->n_seq == 0) {
		return 0;
	}
	rc = sky_model_score(p->m, &rows, p->target, (float)(1 / o.temperature), 0, p->logprob, NULL, err);
	for (int64_t i = 0; i < p->n_seq && rc == 0; i++) {
		rc = print_row(p, i, err);
	}
	p->first += p->n_seq;
	p->n = p->n_seq = 0;
	return rc;
}

static int add_or_run(struct pass *p, const int32_t *ids, int64_t n, struct sky_err *err)
{
	int rc = p->n > 0 && p->n + n > o.n_tok ? pass_run(p, err) : 0;

	if (rc == 0 && cmd_stopping()) {
		return cmd_stop_err(err, "later rows are not scored");
	}
	return rc < 0 ? rc : pass_add(p, ids, n, err);
}

static int score_dataset(struct pass *p, const char *prefix, struct sky_err *err)
{
	struct sky_tokens *t = NULL;
	int32_t *ids = NULL;
	int64_t cap = 0;
	int rc = sky_tokens_open(prefix, &t, err);

	for (int64_t i = 0; rc == 0 && i < sky_tokens_rows(t); i++) {
		int64_t n = sky_tokens_row_len(t, i);

		if (n > cap) {
			cap = 2 * n;
			free(ids);
			ids = sky_malloc_array((size_t)cap, sizeof(int32_t));
			if (!ids) {
				rc = sky_fail_mem(err, "row");
				break;
			}
		}
		rc = sky_tokens_ids(t, i, 0, n, ids, err);
		rc = rc < 0 ? rc : add_or_run(p, ids, n, err);
		rc = sky_while(err, rc, "%s", prefix);
	}
	free(ids);
	sky_tokens_close(t);
	return rc;
}

/* One line: an array of ids, or an object with a member "ids". */
static int score_line(struct pass *p, const char *name, int64_t line, const char *text, size_t n, struct sky_err *err)
{
	const struct sky_jnode *v;
	struct sky_json *doc;
	int32_t *ids;
	int64_t k = 0;
	int rc = sky_json_parse(text, n, name, 0, &doc, err);

	if (rc < 0) {
		return sky_while(err, rc, "line %lld", (long long)line);
	}
	v = sky_json_root(doc);
	v = sky_j_type(v) == SKY_J_OBJECT ? sky_j_get(v, "ids") : v;
	ids = sky_malloc_array(sky_j_len(v) + 1, sizeof(int32_t));
	if (!ids) {
		rc = sky_fail_mem(err, "row");
	} else if (sky_j_type(v) != SKY_J_ARRAY) {
		rc = sky_fail(err, SKY_E_DATA, "an array of token ids, or an object with \"ids\", expected");
	}
	for (const struct sky_jnode *x = sky_j_first(v); x && rc == 0; x = sky_j_next(x)) {
		int64_t id;

		if (!sky_j_i64(x, &id) || id < 0 || id > INT32_MAX) {
			rc = sky_fail(err, SKY_E_DATA, "element %lld is no token id", (long long)k);
		} else {
			ids[k++] = (int32_t)id;
		}
	}
	rc = rc < 0 ? rc : add_or_run(p, ids, k, err);
	free(ids);
	sky_json_free(doc);
	return sky_while(err, rc, "%s: line %lld", name, (long long)line);
}

static int score_ndjson(struct pass *p, const char *path, struct sky_err *err)
{
	const char *name = strcmp(path, "-") ? path : "standard input", *text;
	struct sky_lines in;
	size_t n;
	int rc = 0, fd = STDIN_FILENO;

	if (strcmp(path, "-") && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) {
		return sky_fail_sys(err, "%s", path);
	}
	sky_lines_init(&in, fd, name, SKY_MAX_LINE_BYTES);
	while (rc == 0 && (rc = sky_lines_next(&in, -1, &text, &n, err)) == 0) {
		rc = n == 0 ? 0 : score_line(p, name, in.n_line, text, n, err);
	}
	sky_lines_release(&in);
	if (fd != STDIN_FILENO) {
		close(fd);
	}
	return rc == SKY_EOF ? 0 : rc;
}

int score_run(int argc, char **argv, struct sky_err *err)
{
	struct pass p = { 0 };
	struct cmd_runtime r;
	char path[SKY_MAX_PATH];
	int rc;

	if (argc < 1) {
		return sky_fail(err, SKY_E_USAGE, "a token dataset (PREFIX) or a file of ids (IDS.ndjson, -) expected");
	}
	rc = cmd_runtime_open(&r, 0, err);
	p.m = r.model;
	for (int i = 0; i < argc && rc == 0; i++) {
		snprintf(path, sizeof(path), "%s.idx", argv[i]);
		rc = sky_file_exists(path) ? score_dataset(&p, argv[i], err) : score_ndjson(&p, argv[i], err);
	}
	rc = rc < 0 ? rc : pass_run(&p, err);
	free(p.ids);
	free(p.target);
	free(p.logprob);
	free(p.start);
	free(p.pos0);
	cmd_runtime_close(&r);
	return rc;
}
