/* Continuous batching: which sequences go into the next pass over the model, and what comes out of it. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include <stdlib.h>

static int alloc_arrays(struct sky_engine *e, struct sky_err *err)
{
	size_t B = (size_t)e->n_batch, R = (size_t)e->n_chunk, V = (size_t)e->cfg->vocab;

	e->in = sky_calloc_array(B, sizeof(*e->in));
	e->want_seq = sky_calloc_array(B, sizeof(*e->want_seq));
	e->start = sky_calloc_array(B + 1, sizeof(int32_t));
	e->pos0 = sky_calloc_array(B, sizeof(int32_t));
	e->ids = sky_calloc_array(R, sizeof(int32_t));
	e->want = sky_calloc_array(B, sizeof(int32_t));
	e->pick = sky_calloc_array(B, sizeof(int32_t));
	e->inv_temp = sky_calloc_array(B, sizeof(float));
	e->logprob = sky_calloc_array(B, sizeof(float));
	e->cut_logprob = sky_calloc_array(B, sizeof(double));
	e->cut = sky_calloc_array(B, 1);
	e->scratch = sky_malloc_array(2 * V, sizeof(float));
	e->logits = sky_malloc_array(B * V, sizeof(float));
	e->stride = (e->cfg->max_pos + KN_PAGE - 1) / KN_PAGE;
	e->stride = e->stride < e->n_page ? e->stride : e->n_page;
	e->table = sky_calloc_array(B * (size_t)(e->stride + 1), sizeof(int32_t));
	if (!e->in || !e->want_seq || !e->start || !e->pos0 || !e->ids || !e->want || !e->pick || !e->inv_temp ||
	    !e->logprob || !e->cut_logprob || !e->cut || !e->scratch || !e->logits || !e->table) {
		return sky_fail_mem(err, "generation for %lld sequences at once", (long long)e->n_batch);
	}
	return 0;
}

int sky_engine_new(struct sky_model *m, const struct sky_device *d, const struct sky_tokenizer *tok,
                   const struct sky_engine_opt *opt, struct sky_engine **e_p, struct sky_err *err)
{
	const struct sky_config *c = sky_model_config(m);
	struct sky_engine *e = sky_calloc_array(1, sizeof(*e));
	uint64_t kv = opt && opt->kv_bytes ? opt->kv_bytes : 1ull << 30, per_page;
	int rc;

	if (!e) {
		return sky_fail_mem(err, "engine");
	}
	e->m = m;
	e->cfg = c;
	e->tok = tok;
	e->n_batch = opt && opt->n_batch > 0 ? opt->n_batch : 64;
	e->n_chunk = opt && opt->n_chunk > 0 ? opt->n_chunk : 512;
	e->n_chunk = e->n_chunk < e->n_batch ? e->n_batch : e->n_chunk;
	/* A page holds keys and values of every layer; f32 is the wider of the two types. */
	per_page = d->ops->kv_page_bytes(d->dev, KN_F32, c->n_kv_head, c->d_head) * (uint64_t)c->n_layer;
	e->n_page = (int64_t)(kv / (per_page ? per_page : 1));
	e->n_page = e->n_page < 1 ? 1 : e->n_page;
	/* No more than every sequence of the batch at full length can use. */
	if (e->n_page > 2 * e->n_batch * ((c->max_pos + KN_PAGE - 1) / KN_PAGE)) {
		e->n_page = 2 * e->n_batch * ((c->max_pos + KN_PAGE - 1) / KN_PAGE);
	}
	rc = sky_kvpool_new(m, e->n_page, &e->pool, err);
	if (rc == 0) {
		rc = alloc_arrays(e, err);
	}
	if (rc < 0) {
		sky_engine_free(e);
		return rc;
	}
	*e_p = e;
	return 0;
}

void sky_engine_free(struct sky_engine *e)
{
	if (!e) {
		return;
	}
	while (e->n_all > 0) {
		sky_seq_free(e->all[e->n_all - 1]);
	}
	sky_kvpool_free(e->pool);
	free(e->all);
	free(e->done);
	free(e->in);
	free(e->want_seq);
	free(e->start);
	free(e->pos0);
	free(e->ids);
	free(e->want);
	free(e->pick);
	free(e->inv_temp);
	free(e->logprob);
	free(e->cut_logprob);
	free(e->cut);
	free(e->scratch);
	free(e->logits);
	free(e->table);
	free(e);
}

void sky_engine_flush(struct sky_engine *e)
{
	for (int64_t i = 0; i < e->n_all; i++) {
		sky_seq_unmap(e->all[i]);
	}
}

void sky_engine_stats(const struct sky_engine *e, struct sky_engine_stats *st)
{
	*st = e->st;
}

static int list_add(struct sky_engine *e, struct sky_seq *s, struct sky_err *err)
{
	if (e->n_all == e->all_cap) {
		int64_t cap = e->all_cap ? 2 * e->all_cap : 64;
		void *p = sky_realloc_array(e->all, (size_t)cap, sizeof(*e->all));

		if (p) {
			e->all = p;
			p = sky_realloc_array(e->done, (size_t)cap + 1, sizeof(*e->done));
		}
		if (!p) {
			return sky_fail_mem(err, "list of sequences");
		}
		e->done = p;
		e->all_cap = cap;
	}
	e->all[e->n_all++] = s;
	return 0;
}

static void list_remove(struct sky_engine *e, struct sky_seq *s)
{
	int64_t i = 0;

	while (i < e->n_all && e->all[i] != s) {
		i++;
	}
	if (i < e->n_all) {
		memmove(e->all + i, e->all + i + 1, (size_t)(e->n_all - i - 1) * sizeof(*e->all));
		e->n_all--;
	}
}

void sky_seq_free(struct sky_seq *s)
{
	if (!s) {
		return;
	}
	if (s->e) {
		if (s->root && --s->root->n_child == 0) {
			sky_seq_free(s->root);
		}
		sky_seq_unmap(s);
		list_remove(s->e, s);
	}
	sky_buf_release(&s->text);
	free(s->ids);
	free(s->logprob);
	free(s->sampled);
	free(s->pages);
	free(s);
}

static int add_seq(struct sky_engine *e, const int32_t *ids, int64_t n, uint64_t stream, struct sky_seq **s_p,
                   struct sky_err *err)
{
	int rc = sky_seq_make(e, ids, n, stream, s_p, err);

	if (rc == 0) {
		rc = list_add(e, *s_p, err);
		if (rc < 0) {
			(*s_p)->e = NULL;
			sky_seq_free(*s_p);
		}
	}
	return rc;
}

int sky_engine_group(struct sky_engine *e, const int32_t *prompt, int64_t n_prompt, uint64_t stream0, int n,
                     struct sky_seq **seqs, struct sky_err *err)
{
	struct sky_seq *root = NULL;
	int rc = 0, i = 0;

	if (n_prompt < 1 || n_prompt > e->cfg->max_pos) {
		return sky_fail(err, SKY_E_DATA, "a prompt of %lld tokens: the model takes 1 to %lld", (long long)n_prompt,
		                (long long)e->cfg->max_pos);
	}
	/* The last token of the prompt is each sample's own: its row gives the logits of the first draw. */
	if (n > 1 && n_prompt > 1) {
		rc = add_seq(e, prompt, n_prompt - 1, 0, &root, err);
		if (rc < 0) {
			return rc;
		}
		root->state = SEQ_ROOT;
	}
	for (; i < n && rc == 0; i++) {
		rc = add_seq(e, prompt, n_prompt, stream0 + (uint64_t)i, &seqs[i], err);
		if (rc == 0 && root) {
			seqs[i]->root = root;
			root->n_child++;
		}
	}
	if (rc < 0) {
		/* The last child to go takes the root with it. */
		if (i == 1 && root) {
			sky_seq_free(root);
		}
		for (i -= 1; i-- > 0;) {
			sky_seq_free(seqs[i]);
		}
	}
	return rc;
}

int sky_seq_run(struct sky_seq *s, const struct sky_sampling *sampling, struct sky_err *err)
{
	int64_t max_len = sampling->max_len > 0 ? sampling->max_len : s->e->cfg->max_pos;
	int rc = sky_sampling_check(sampling, err);

	if (rc < 0) {
		return rc;
	}
	if (sampling->n_stop > 0 && !s->e->tok) {
		return sky_fail(err, SKY_E_USAGE, "stop strings need a tokenizer");
	}
	if (s->n >= max_len) {
		return sky_fail(err, SKY_E_LIMIT, "a sequence of %lld tokens cannot go on: the limit is %lld", (long long)s->n,
		                (long long)max_len);
	}
	s->s = sampling;
	s->state = SEQ_RUN;
	s->turn = s->n;
	s->n_new = 0;
	s->stop_string = -1;
	sky_buf_clear(&s->text);
	return 0;
}

/* Tokens that s has still to put through the model. */
static int64_t pending(const struct sky_seq *s)
{
	return s->state == SEQ_REST ? 0 : s->n - s->n_cached;
}

/* Pages of one sequence that can wait: a resting one first, else the youngest that is not in this pass and younger than s. */
static bool make_room(struct sky_engine *e, const struct sky_seq *s)
{
	for (int64_t i = 0; i < e->n_all; i++) {
		if (e->all[i]->state == SEQ_REST && e->all[i]->n_page > 0) {
			sky_seq_unmap(e->all[i]);
			return true;
		}
	}
	for (int64_t i = e->n_all - 1; i >= 0 && e->all[i] != s; i--) {
		if (e->all[i]->take == 0 && e->all[i]->n_page > 0) {
			sky_seq_unmap(e->all[i]);
			e->st.n_setback++;
			return true;
		}
	}
	return false;
}

/* Puts up to max rows of s into the pass. */
static int enlist(struct sky_engine *e, struct sky_seq *s, int64_t max, struct sky_err *err)
{
	int64_t take = pending(s) < max ? pending(s) : max;

	if ((s->n + KN_PAGE - 1) / KN_PAGE > e->stride) {
		return sky_fail(err, SKY_E_LIMIT, "a sequence of %lld tokens does not fit into the key/value cache of %lld pages "
		                "of %d tokens (--kv-cache)", (long long)s->n, (long long)e->n_page, KN_PAGE);
	}
	s->take = take;
	while (!sky_seq_map(s, s->n_cached + take)) {
		if (!make_room(e, s)) {
			s->take = 0;
			if (e->n_in == 0) {
				return sky_fail(err, SKY_E_LIMIT, "the key/value cache of %lld pages of %d tokens is too small "
				                "for one sequence (--kv-cache)", (long long)e->n_page, KN_PAGE);
			}
			return 0;
		}
	}
	e->in[e->n_in++] = s;
	return 0;
}

/* Sequences that wait for one token first, then prompts, both in order of arrival. */
static int choose(struct sky_engine *e, struct sky_err *err)
{
	int64_t rows = 0;
	int rc = 0;

	e->n_in = 0;
	for (int64_t i = 0; i < e->n_all; i++) {
		e->all[i]->take = 0;
	}
	for (int prompts = 0; prompts < 2; prompts++) {
		for (int64_t i = 0; i < e->n_all && rc == 0 && e->n_in < e->n_batch && rows < e->n_chunk; i++) {
			struct sky_seq *s = e->all[i];
			int64_t p = pending(s);

			if (p == 0 || s->root || s->take || (prompts == 0) != (p == 1 && s->n_cached > 0)) {
				continue;
			}
			rc = enlist(e, s, e->n_chunk - rows, err);
			rows += s->take;
		}
	}
	return rc;
}

static int run_pass(struct sky_engine *e, int64_t *n_want_p, struct sky_err *err)
{
	struct sky_rows rows = { .n_seq = e->n_in, .start = e->start, .pos0 = e->pos0, .ids = e->ids };
	struct sky_kvview view = { .pool = e->pool, .table = e->table, .stride = e->stride };
	int64_t n = 0, n_want = 0;

	for (int64_t i = 0; i < e->n_in; i++) {
		struct sky_seq *s = e->in[i];

		e->start[i] = (int32_t)n;
		e->pos0[i] = (int32_t)s->n_cached;
		memcpy(e->ids + n, s->ids + s->n_cached, (size_t)s->take * sizeof(int32_t));
		memcpy(e->table + i * e->stride, s->pages, (size_t)s->n_page * sizeof(int32_t));
		n += s->take;
		if (s->state == SEQ_RUN && s->n_cached + s->take == s->n) {
			e->want_seq[n_want] = s;
			e->want[n_want++] = (int32_t)(n - 1);
		}
		e->st.n_decode += s->take == 1 && s->n_cached > 0;
		e->st.n_prefill += s->take == 1 && s->n_cached > 0 ? 0 : s->take;
	}
	e->start[e->n_in] = (int32_t)n;
	e->st.n_pass++;
	*n_want_p = n_want;
	return sky_model_infer(e->m, &rows, &view, e->want, n_want, e->logits, err);
}

static int draw(struct sky_engine *e, int64_t n_want, struct sky_err *err)
{
	int64_t V = e->cfg->vocab;

	for (int64_t i = 0; i < n_want; i++) {
		const struct sky_seq *s = e->want_seq[i];
		const struct sky_sampling *p = s->s;
		double u = p->temperature > 0 ? sky_rng_uniform(p->seed, SKY_RNG_SAMPLE, s->stream, (uint64_t)s->n) : 0;
		int cut;

		e->pick[i] = sky_sample(e->logits + i * V, V, p, u, e->scratch, &cut, &e->cut_logprob[i]);
		e->cut[i] = (uint8_t)cut;
		e->inv_temp[i] = p->temperature > 0 ? (float)(1 / p->temperature) : 1;
	}
	return n_want ? sky_model_logprob(e->m, e->pick, e->inv_temp, e->logprob, err) : 0;
}

/* A root that is done hands its pages to its children and goes. */
static int release_children(struct sky_engine *e, struct sky_seq *root, struct sky_err *err)
{
	int rc = 0;

	for (int64_t i = 0; i < e->n_all && rc == 0; i++) {
		if (e->all[i]->root == root) {
			rc = sky_seq_inherit(e->all[i], root, err);
			e->all[i]->root = NULL;
			root->n_child--;
		}
	}
	if (rc == 0) {
		sky_seq_free(root);
	}
	return rc;
}

int sky_engine_step(struct sky_engine *e, struct sky_seq *const **done_p, struct sky_err *err)
{
	int64_t n_want;
	int rc = choose(e, err);

	e->n_done = 0;
	if (rc < 0) {
		return rc;
	}
	if (e->n_in == 0) {
		return SKY_EOF;
	}
	rc = run_pass(e, &n_want, err);
	if (rc == 0) {
		rc = draw(e, n_want, err);
	}
	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < e->n_in; i++) {
		e->in[i]->n_cached += e->in[i]->take;
	}
	for (int64_t i = 0; i < n_want; i++) {
		struct sky_seq *s = e->want_seq[i];
		int ended;

		rc = sky_seq_push(s, e->pick[i], e->cut[i] ? (float)e->cut_logprob[i] : e->logprob[i], 1, err);
		s->n_new++;
		if (rc == 0) {
			rc = sky_seq_check_stop(s, &ended, err);
		}
		if (rc < 0) {
			return rc;
		}
		if (ended) {
			s->state = SEQ_REST;
			e->done[e->n_done++] = s;
		}
	}
	for (int64_t i = 0; i < e->n_in && rc == 0; i++) {
		if (e->in[i]->state == SEQ_ROOT && pending(e->in[i]) == 0) {
			rc = release_children(e, e->in[i], err);
		}
	}
	if (rc < 0) {
		return rc;
	}
	if (e->done) {
		e->done[e->n_done] = NULL;
		*done_p = e->done;
	}
	return 0;
}
