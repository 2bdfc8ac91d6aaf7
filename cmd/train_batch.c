/* Trajectory files and references to one batch for an update. */
#include "cmd/cmd.h"
#include "cmd/train_cmd.h"
#include "engine/engine.h"
#include "rollout/traj.h"

#include <math.h>
#include <stdlib.h>

void train_batch_clear(struct train_batch *t)
{
	t->b = (struct sky_rl_batch){ 0 };
	t->n_lost = 0;
	free(t->sampling);
	t->sampling = NULL;
}

void train_batch_release(struct train_batch *t)
{
	train_batch_clear(t);
	free(t->start);
	free(t->group);
	free(t->traj);
	free(t->ids);
	free(t->prompt_len);
	free(t->version);
	free(t->mask);
	free(t->last);
	free(t->stop);
	free(t->logprob);
	free(t->reward);
	memset(t, 0, sizeof(*t));
}

static int grow(struct train_batch *t, int64_t n_seq, int64_t n_tok, struct sky_err *err)
{
	if (n_seq + 1 > t->seq_cap) {
		size_t n = (size_t)(t->seq_cap = 2 * (n_seq + 1));

		t->start = sky_realloc_array(t->start, n, sizeof(*t->start));
		t->group = sky_realloc_array(t->group, n, sizeof(*t->group));
		t->traj = sky_realloc_array(t->traj, n, sizeof(*t->traj));
		t->prompt_len = sky_realloc_array(t->prompt_len, n, sizeof(*t->prompt_len));
		t->last = sky_realloc_array(t->last, n, 1);
		t->stop = sky_realloc_array(t->stop, n, 1);
	}
	if (n_tok > t->tok_cap) {
		size_t n = (size_t)(t->tok_cap = 2 * n_tok);

		t->ids = sky_realloc_array(t->ids, n, sizeof(*t->ids));
		t->mask = sky_realloc_array(t->mask, n, 1);
		t->logprob = sky_realloc_array(t->logprob, n, sizeof(*t->logprob));
		t->reward = sky_realloc_array(t->reward, n, sizeof(*t->reward));
	}
	return t->start && t->group && t->traj && t->prompt_len && t->last && t->stop && t->ids && t->mask &&
		t->logprob && t->reward
	               ? 0 : sky_fail_mem(err, "batch of %lld tokens", (long long)n_tok);
}

static int add_row(struct train_batch *t, const struct sky_traj *file, const struct sky_traj_row *row, struct sky_err *err)
{
	int64_t i = t->b.n_seq, at = i ? t->start[i] : 0;
	size_t n = (size_t)row->n_tok;
	int rc;

	/* An episode that its environment lost has no reward: it must not count as a failed one. */
	if (file->stop && row->stop == SKY_END_ERROR) {
		t->n_lost++;
		return 0;
	}
	rc = grow(t, i + 1, at + row->n_tok, err);
	if (rc < 0) {
		return rc;
	}
	t->start[i] = at;
	t->start[i + 1] = at + row->n_tok;
	t->group[i] = row->group;
	t->prompt_len[i] = (int32_t)row->prompt_len;
	t->traj[i] = file->traj ? row->traj : i;
	t->last[i] = (uint8_t)(file->traj ? row->last : 1);
	t->stop[i] = (uint8_t)row->stop;
	memcpy(t->ids + at, row->tokens, n * sizeof(int32_t));
	memcpy(t->logprob + at, row->logprob, n * sizeof(float));
	memcpy(t->reward + at, row->reward, n * sizeof(float));
	if (train.overlong_filter && row->stop != SKY_END_STOP) {
		memset(t->mask + at, 0, n);
	} else {
		memcpy(t->mask + at, row->loss_mask, n);
	}
	t->b.n_seq++;
	return 0;
}

int train_batch_add(struct train_batch *t, const char *path, int64_t first, int64_t count, int64_t vocab, struct sky_err *err)
{
	struct sky_traj_limits lim = { .n_vocab = vocab, .need = SKY_TRAJ_LOGPROB | SKY_TRAJ_REWARD | SKY_TRAJ_GROUP };
	struct sky_traj file;
	struct sky_traj_row row;
	int rc;

	memset(&file, 0, sizeof(file));
	rc = sky_traj_open(path, &lim, &file, err);
	if (rc < 0) {
		return rc;
	}
	if (first < 0 || first > file.n_traj || count > file.n_traj - first) {
		rc = sky_fail(err, SKY_E_DATA, "%s: samples %lld to %lld asked for, it holds %lld", path, (long long)first,
		              (long long)(first + count), (long long)file.n_traj);
	}
	if (rc == 0 && t->sampling) {
		struct sky_traj other = { .how = { 0 } };

		rc = sky_traj_sampling_parse(t->sampling, &other.how, "the first file", err);
		rc = rc < 0 ? rc : sky_traj_same_sampling(&other, "the first file", &file, path, err);
	} else if (rc == 0 && file.sampling) {
		t->sampling = strdup(file.sampling);
		rc = t->sampling ? 0 : sky_fail_mem(err, "batch");
	}
	t->temperature = file.how.set ? file.how.temperature : 1;
	count = count < 0 ? file.n_traj - first : count;
	for (int64_t i = first; i < first + count && rc == 0; i++) {
		sky_traj_row_at(&file, i, &row);
		rc = add_row(t, &file, &row, err);
	}
	sky_traj_close(&file);
	return rc;
}

int train_batch_ref(struct train_batch *t, const char *line, size_t n, int64_t vocab, struct sky_err *err)
{
	const struct sky_jnode *v;
	struct sky_json *doc;
	const char *type, *file;
	int64_t first, count;
	int rc = sky_json_parse(line, n, "reference", 0, &doc, err);

	if (rc < 0) {
		return rc;
	}
	v = sky_json_root(doc);
	type = sky_j_str(sky_j_get(v, "type"));
	file = sky_j_str(sky_j_get(v, "file"));
	if (type && strcmp(type, "trajectories")) {
		rc = 0;         /* a result record, or a type of a later version */
	} else if (!file) {
		rc = sky_fail(err, SKY_E_DATA, "a reference needs \"file\", and \"first\" and \"count\" for a part of it");
	} else {
		rc = sky_j_get_i64(v, "first", 0, &first, err);
		rc = rc < 0 ? rc : sky_j_get_i64(v, "count", -1, &count, err);
		rc = rc < 0 ? rc : train_batch_add(t, file, first, count, vocab, err);
	}
	sky_json_free(doc);
	return rc;
}

struct keyed {
	int64_t group, i;
};

static int by_group(const void *x, const void *y)
{
	const struct keyed *a = x, *b = y;

	if (a->group != b->group) {
		return a->group < b->group ? -1 : 1;
	}
	return a->i < b->i ? -1 : a->i > b->i;
}

/* Groups that arrived in pieces are put together; order within a group stays. */
static int sort_groups(struct train_batch *t, struct sky_err *err)
{
	struct train_batch s = { .temperature = t->temperature, .n_lost = t->n_lost };
	struct keyed *key = sky_calloc_array((size_t)t->b.n_seq + 1, sizeof(*key));
	bool sorted = true;
	int rc = key ? 0 : sky_fail_mem(err, "batch");

	for (int64_t i = 0; i < t->b.n_seq && rc == 0; i++) {
		key[i].group = t->group[i];
		key[i].i = i;
		sorted = sorted && (i == 0 || t->group[i - 1] <= t->group[i]);
	}
	if (rc < 0 || sorted) {
		free(key);
		return rc;
	}
	qsort(key, (size_t)t->b.n_seq, sizeof(*key), by_group);
	rc = grow(&s, t->b.n_seq, t->start[t->b.n_seq], err);
	for (int64_t k = 0; k < t->b.n_seq && rc == 0; k++) {
		int64_t i = key[k].i, at = k ? s.start[k] : 0;
		size_t n = (size_t)(t->start[i + 1] - t->start[i]);

		s.start[k] = at;
		s.start[k + 1] = at + (int64_t)n;
		s.group[k] = t->group[i];
		s.traj[k] = t->traj[i];
		s.prompt_len[k] = t->prompt_len[i];
		s.last[k] = t->last[i];
		s.stop[k] = t->stop[i];
		memcpy(s.ids + at, t->ids + t->start[i], n * sizeof(int32_t));
		memcpy(s.mask + at, t->mask + t->start[i], n);
		memcpy(s.logprob + at, t->logprob + t->start[i], n * sizeof(float));
		memcpy(s.reward + at, t->reward + t->start[i], n * sizeof(float));
	}
	free(key);
	if (rc == 0) {
		s.b.n_seq = t->b.n_seq;
		train_batch_release(t);
		*t = s;
	} else {
		train_batch_release(&s);
	}
	return rc;
}

int train_batch_done(struct train_batch *t, struct sky_err *err)
{
	bool whole = true;
	int rc;

	if (t->b.n_seq == 0) {
		return sky_fail(err, SKY_E_DATA, "no trajectories to train on%s", t->n_lost ? ": every episode was lost" : "");
	}
	rc = sort_groups(t, err);
	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < t->b.n_seq; i++) {
		whole = whole && t->last[i];
	}
	t->b = (struct sky_rl_batch){ .n_seq = t->b.n_seq, .start = t->start, .ids = t->ids, .prompt_len = t->prompt_len,
	                              .mask = t->mask, .logprob = t->logprob, .reward = t->reward, .group = t->group,
	                              .traj = whole ? NULL : t->traj, .last = whole ? NULL : t->last };
	return 0;
}

void train_batch_metrics(const struct train_batch *t, struct sky_metrics *m)
{
	static char pass_name[48];
	double sum = 0, pos = 0, pass = 0, len = 0, len2 = 0, min = INFINITY, max = 0;
	int64_t n = t->b.n_seq, n_group = 0, n_stop = 0, widest = 0;

	for (int64_t i = 0, j; i < n; i = j) {
		double best = -INFINITY;

		for (j = i; j < n && t->group[j] == t->group[i]; j++) {
			double r = 0, k = (double)(t->start[j + 1] - t->start[j] - t->prompt_len[j]);

			for (int64_t q = t->start[j]; q < t->start[j + 1]; q++) {
				r += (double)t->reward[q];
				pos += t->reward[q] > 0 ? (double)t->reward[q] : 0;
			}
			sum += r;
			best = r > best ? r : best;
			len += k;
			len2 += k * k;
			min = k < min ? k : min;
			max = k > max ? k : max;
			n_stop += t->stop[j] == SKY_END_STOP;
		}
		widest = j - i > widest ? j - i : widest;
		pass += best > 0;
		n_group++;
	}
	snprintf(pass_name, sizeof(pass_name), "reward/avg_pass_at_%lld", (long long)widest);
	sky_metric_set(m, "reward/avg_raw_reward", sum / (double)n);
	sky_metric_set(m, "reward/mean_positive_reward", pos / (double)n);
	sky_metric_set(m, pass_name, pass / (double)n_group);
	sky_metric_set(m, "generate/avg_num_tokens", len / (double)n);
	sky_metric_set(m, "generate/std_num_tokens", sqrt(fmax(len2 / (double)n - len / (double)n * (len / (double)n), 0)));
	sky_metric_set(m, "generate/min_num_tokens", min);
	sky_metric_set(m, "generate/max_num_tokens", max);
	sky_metric_set(m, "generate/batch_num_seq", (double)n);
	sky_metric_set(m, "generate/stop_fraction", (double)n_stop / (double)n);
	sky_metric_set(m, "generate/num_lost", (double)t->n_lost);
}
