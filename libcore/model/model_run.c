/* model: the passes that others call: infer, score, backward. */
#include "model/model_int.h"

#include <stdlib.h>
#include <string.h>

/* ---- inference ---- */
static int fit_logits(struct sky_model *m, int64_t n, struct sky_err *err)
{
	void *q = NULL;
	int rc;

	if (n <= m->logits_cap) {
		return 0;
	}
	m->d.ops->free(m->d.dev, m->logits);
	m->logits = NULL;
	m->logits_cap = 0;
	rc = m->d.ops->alloc(m->d.dev, (uint64_t)(n * m->cfg.vocab) * sizeof(float), &q);
	if (rc) {
		return sky_kn_fail(m, rc, "allocating logits", err);
	}
	m->logits = q;
	m->logits_cap = n;
	return 0;
}

int sky_model_infer(struct sky_model *m, const struct sky_rows *rows, const struct sky_kvview *kv,
		    const int32_t *want, int64_t n_want, float *logits, struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	int rc = sky_pass_forward(m, rows, kv, 0, err);

	m->n_logits = 0;
	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < n_want; i++) {
		if (want[i] < 0 || want[i] >= p->T || (i && want[i] <= want[i - 1])) {
			return sky_fail(
				err, SKY_E_USAGE,
				"row %d whose logits are wanted is not in the batch of %lld or out of order",
				want[i], (long long)p->T);
		}
	}
	if (n_want && (rc = fit_logits(m, n_want, err)) < 0) {
		return rc;
	}
	if (n_want) {
		KN_TRY(rc, sky_head_logits(p, want, n_want, m->logits));
		KN_TRY(rc, p->ops->copy(p->s, logits, m->logits,
					(uint64_t)(n_want * m->cfg.vocab) * sizeof(float)));
	}
	KN_TRY(rc, p->ops->sync(p->s));
	m->n_logits = rc ? 0 : n_want;
	return rc ? sky_kn_fail(m, rc, "logits", err) : 0;
}

/* ---- scoring ---- */
static int fit_rows(struct sky_head_rows *q, int64_t n, struct sky_err *err)
{
	if (n > q->cap) {
		free(q->row);
		free(q->value);
		q->cap = 0;
		q->row = sky_malloc_array((size_t)n, 2 * sizeof *q->row);
		q->value = sky_malloc_array((size_t)n, 5 * sizeof *q->value);
		if (!q->row || !q->value) {
			return sky_fail_mem(err, "scoring %lld rows", (long long)n);
		}
		q->cap = n;
		q->target = q->row + n;
		q->logprob = q->value;
		q->entropy = q->value + n;
		q->lse = q->value + 2 * n;
		q->dlogprob = q->value + 3 * n;
		q->dentropy = q->value + 4 * n;
	}
	q->n = 0;
	return 0;
}

static int ask(struct sky_model *m, const int32_t *target, float inv_temp, bool entropy,
	       struct sky_err *err)
{
	struct sky_head_rows *q = &m->ask;
	int64_t T = m->pass.T;
	int rc = fit_rows(q, T, err);

	for (int64_t r = 0; rc == 0 && r < T; r++) {
		if (target[r] >= m->cfg.vocab || target[r] < -1) {
			return sky_fail(
				err, SKY_E_DATA,
				"target id %d at row %lld of the batch is outside the vocabulary of %s (%lld)",
				target[r], (long long)r, m->dir, (long long)m->cfg.vocab);
		}
		if (target[r] >= 0) {
			q->row[q->n] = (int32_t)r;
			q->target[q->n++] = target[r];
		}
	}
	q->inv_temp = inv_temp;
	q->has_entropy = entropy;
	return rc;
}

/* The forward pass of score, up to the head; m->ask lists what the head is asked for. */
static int forward_whole(struct sky_model *m, const struct sky_rows *rows, const int32_t *target,
			 float inv_temp, int keep, bool entropy, struct sky_err *err)
{
	int rc;

	if (keep && !m->opt.train) {
		return sky_fail(err, SKY_E_USAGE,
				"%s: the model was not opened for training, activations cannot be kept",
				m->dir);
	}
	for (int64_t s = 0; s < rows->n_seq; s++) {
		if (rows->pos0[s] != 0) {
			return sky_fail(err, SKY_E_USAGE,
					"sequence %lld to be scored does not start at position 0",
					(long long)s);
		}
	}
	rc = sky_pass_forward(m, rows, NULL, keep, err);
	return rc < 0 ? rc : ask(m, target, inv_temp, entropy, err);
}

int sky_model_score(struct sky_model *m, const struct sky_rows *rows, const int32_t *target,
		    float inv_temp, int keep, float *logprob, float *entropy, struct sky_err *err)
{
	struct sky_head_rows *q = &m->ask;
	int rc;

	rc = forward_whole(m, rows, target, inv_temp, keep, entropy != NULL, err);
	if (rc < 0) {
		return rc;
	}
	KN_TRY(rc, sky_head_score(&m->pass, q));
	KN_TRY(rc, m->d.ops->sync(m->d.stream));
	if (rc) {
		return sky_kn_fail(m, rc, "log-probs", err);
	}
	memset(logprob, 0, (size_t)m->pass.T * sizeof *logprob);
	if (entropy) {
		memset(entropy, 0, (size_t)m->pass.T * sizeof *entropy);
	}
	for (int64_t i = 0; i < q->n; i++) {
		logprob[q->row[i]] = q->logprob[i];
		if (entropy) {
			entropy[q->row[i]] = q->entropy[i];
		}
	}
	m->kept = keep != 0;
	return 0;
}

/* Rows without a gradient are left out: they cost nothing, and a NaN behind a mask goes nowhere. */
static int ask_back(struct sky_model *m, const float *dlogprob, const float *dentropy,
		    struct sky_err *err)
{
	const struct sky_head_rows *a = &m->ask;
	struct sky_head_rows *b = &m->back;
	int rc = fit_rows(b, a->n, err);

	for (int64_t i = 0; rc == 0 && i < a->n; i++) {
		int32_t r = a->row[i];
		float dl = dlogprob[r], de = dentropy ? dentropy[r] : 0;

		if (dl == 0 && de == 0) {
			continue;
		}
		b->row[b->n] = r;
		b->target[b->n] = a->target[i];
		b->lse[b->n] = a->lse[i];
		b->entropy[b->n] = a->has_entropy ? a->entropy[i] : 0;
		b->dlogprob[b->n] = dl;
		b->dentropy[b->n++] = de;
	}
	b->inv_temp = a->inv_temp;
	return rc;
}

static int backward(struct sky_model *m, enum sky_head_mode mode, struct sky_err *err)
{
	int rc = sky_head_backward(&m->pass, &m->back, mode);

	if (rc) {
		return sky_kn_fail(m, rc, "gradient of log-probs", err);
	}
	rc = sky_pass_backward(m, err);
	if (rc == 0 && (rc = m->d.ops->sync(m->d.stream)) != 0) {
		rc = sky_kn_fail(m, rc, "backward", err);
	}
	return rc;
}

int sky_model_backward(struct sky_model *m, const float *dlogprob, const float *dentropy,
		       struct sky_err *err)
{
	int rc;

	if (!m->kept) {
		return sky_fail(
			err, SKY_E_USAGE,
			"%s: backward needs a pass that kept its activations, and no other since",
			m->dir);
	}
	if (dentropy && !m->ask.has_entropy) {
		return sky_fail(err, SKY_E_USAGE,
				"%s: a gradient of the entropy needs a pass that computed it", m->dir);
	}
	m->kept = false;
	rc = ask_back(m, dlogprob, dentropy, err);
	if (rc < 0 || m->back.n == 0) {
		return rc;
	}
	return backward(m, dentropy ? SKY_HEAD_AGAIN_ENTROPY : SKY_HEAD_AGAIN, err);
}

/* Splits m->ask: rows with a gradient go to m->back, the others stay. */
static int split(struct sky_model *m, const float *dlogprob, struct sky_err *err)
{
	struct sky_head_rows *a = &m->ask, *b = &m->back;
	int64_t n = a->n;
	int rc = fit_rows(b, n, err);

	if (rc < 0) {
		return rc;
	}
	a->n = 0;
	for (int64_t i = 0; i < n; i++) {
		float dl = dlogprob[a->row[i]];
		struct sky_head_rows *q = dl == 0 ? a : b;

		q->row[q->n] = a->row[i];
		q->target[q->n] = a->target[i];
		q->dlogprob[q->n++] = dl;
	}
	b->inv_temp = a->inv_temp;
	return 0;
}

int sky_model_score_backward(struct sky_model *m, const struct sky_rows *rows, const int32_t *target,
			     float inv_temp, const float *dlogprob, float *logprob, struct sky_err *err)
{
	const struct sky_head_rows *lists[2] = { &m->ask, &m->back };
	int rc = forward_whole(m, rows, target, inv_temp, 1, false, err);

	if (rc < 0 || (rc = split(m, dlogprob, err)) < 0) {
		return rc;
	}
	rc = sky_head_score(&m->pass, &m->ask);
	rc = rc ? sky_kn_fail(m, rc, "log-probs", err) : 0;
	if (rc == 0 && m->back.n) {
		rc = backward(m, SKY_HEAD_FIRST, err);
	}
	memset(logprob, 0, (size_t)m->pass.T * sizeof *logprob);
	for (int k = 0; rc == 0 && k < 2; k++) {
		for (int64_t i = 0; i < lists[k]->n; i++) {
			logprob[lists[k]->row[i]] = lists[k]->logprob[i];
		}
	}
	return rc;
}

int sky_model_hidden(struct sky_model *m, int64_t layer, float *out, struct sky_err *err)
{
	struct sky_pass *p = &m->pass;
	const struct sky_head_spec *head = &m->plan.head;
	uint64_t bytes = (uint64_t)(p->T * p->D) * sizeof(float);
	int32_t i = 0;
	int rc;

	if (!m->kept || layer < -1 || layer > m->plan.n_layer) {
		return sky_fail(err, SKY_E_USAGE,
				"%s: no hidden states of layer %lld: they need a pass that kept them",
				m->dir, (long long)layer);
	}
	while (i < m->plan.n_block && m->plan.block[i].layer <= layer) {
		i++;
	}
	if (layer == m->plan.n_layer) { /* the last pass is over: its temporary part is free */
		struct sky_ws w = p->tmp;
		float *y = sky_ws_take(&w, bytes);

		if (w.off > m->ws_bytes) {
			return sky_fail(err, SKY_E_LIMIT,
					"%s: no room in the workspace for the final norm", m->dir);
		}
		rc = p->ops->rmsnorm(p->s, p->T, p->D, KN_F32, p->x[i], sky_slot_at(m, head->norm)->vec,
				     head->eps, KN_F32, y, NULL);
		KN_TRY(rc, p->ops->copy(p->s, out, y, bytes));
	} else {
		rc = p->ops->copy(p->s, out, p->x[i], bytes);
	}
	KN_TRY(rc, p->ops->sync(p->s));
	return rc ? sky_kn_fail(m, rc, "hidden states", err) : 0;
}

/* ---- log-probs of chosen tokens, after infer ---- */
int sky_model_logprob(struct sky_model *m, const int32_t *target, const float *inv_temp, float *logprob,
		      struct sky_err *err)
{
	int64_t n = m->n_logits, V = m->cfg.vocab;
	struct sky_ws w = m->pass.tmp;
	int32_t *t = sky_ws_take(&w, (uint64_t)n * sizeof *t);
	float *lp = sky_ws_take(&w, (uint64_t)n * sizeof *lp);
	int rc = 0;

	for (int64_t i = 0; i < n; i++) {
		if (target[i] < 0 || target[i] >= V) {
			return sky_fail(err, SKY_E_DATA,
					"token id %d is outside the vocabulary of %s (%lld)", target[i],
					m->dir, (long long)V);
		}
	}
	if (w.off > m->ws_bytes) {
		return sky_fail(err, SKY_E_LIMIT, "%s: no room in the workspace for %lld log-probs",
				m->dir, (long long)n);
	}
	KN_TRY(rc, m->d.ops->copy(m->d.stream, t, target, (uint64_t)n * sizeof *t));
	for (int64_t i = 0, k; rc == 0 && i < n; i = k) { /* runs of equal temperature */
		for (k = i + 1; k < n && inv_temp[k] == inv_temp[i]; k++) {
		}
		rc = m->d.ops->logprob(m->d.stream, k - i, V, m->logits + i * V, t + i, inv_temp[i],
				       lp + i, NULL, NULL);
	}
	KN_TRY(rc, m->d.ops->copy(m->d.stream, logprob, lp, (uint64_t)n * sizeof *lp));
	KN_TRY(rc, m->d.ops->sync(m->d.stream));
	return rc ? sky_kn_fail(m, rc, "log-probs", err) : 0;
}
