/* One sequence: its tokens, its pages, when it stops. */
#include "engine/engine.h"
#include "engine/engine_int.h"

#include <stdlib.h>

static int grow(struct sky_seq *s, int64_t more, struct sky_err *err)
{
	int64_t cap = s->cap ? s->cap : 64;
	void *p;

	while (cap < s->n + more) {
		cap *= 2;
	}
	if (cap == s->cap) {
		return 0;
	}
	if (!(p = sky_realloc_array(s->ids, (size_t)cap, sizeof(*s->ids)))) {
		return sky_fail_mem(err, "sequence of %lld tokens", (long long)cap);
	}
	s->ids = p;
	if (!(p = sky_realloc_array(s->logprob, (size_t)cap, sizeof(*s->logprob)))) {
		return sky_fail_mem(err, "sequence of %lld tokens", (long long)cap);
	}
	s->logprob = p;
	if (!(p = sky_realloc_array(s->sampled, (size_t)cap, sizeof(*s->sampled)))) {
		return sky_fail_mem(err, "sequence of %lld tokens", (long long)cap);
	}
	s->sampled = p;
	s->cap = cap;
	return 0;
}

int sky_seq_push(struct sky_seq *s, int32_t id, float logprob, int sampled, struct sky_err *err)
{
	int rc = grow(s, 1, err);

	if (rc < 0) {
		return rc;
	}
	s->ids[s->n] = id;
	s->logprob[s->n] = logprob;
	s->sampled[s->n++] = (uint8_t)sampled;
	return 0;
}

int sky_seq_make(struct sky_engine *e, const int32_t *ids, int64_t n, uint64_t stream, struct sky_seq **s_p,
                 struct sky_err *err)
{
	struct sky_seq *s = sky_calloc_array(1, sizeof(*s));
	int rc;

	if (!s) {
		return sky_fail_mem(err, "sequence");
	}
	s->e = e;
	s->stream = stream;
	s->stop_string = -1;
	sky_buf_init(&s->text, SKY_MAX_LINE_BYTES);
	rc = sky_seq_append(s, ids, n, err);
	if (rc < 0) {
		s->e = NULL;
		sky_seq_free(s);
		return rc;
	}
	*s_p = s;
	return 0;
}

int sky_seq_append(struct sky_seq *s, const int32_t *ids, int64_t n, struct sky_err *err)
{
	int rc = grow(s, n, err);

	if (rc < 0) {
		return rc;
	}
	for (int64_t i = 0; i < n; i++) {
		if (ids[i] < 0 || ids[i] >= s->e->cfg->vocab) {
			return sky_fail(err, SKY_E_DATA, "token id %d at position %lld: the model knows ids 0 to %lld", ids[i],
			                (long long)(s->n + i), (long long)(s->e->cfg->vocab - 1));
		}
	}
	for (int64_t i = 0; i < n; i++) {
		s->ids[s->n] = ids[i];
		s->logprob[s->n] = 0;
		s->sampled[s->n++] = 0;
	}
	return 0;
}

void sky_seq_unmap(struct sky_seq *s)
{
	for (int64_t i = 0; i < s->n_page; i++) {
		sky_kvpool_drop(s->e->pool, s->pages[i]);
	}
	s->n_page = 0;
	s->n_cached = 0;
}

static bool add_page(struct sky_seq *s, int32_t page)
{
	if (s->n_page == s->page_cap) {
		int64_t cap = s->page_cap ? 2 * s->page_cap : 8;
		int32_t *p = sky_realloc_array(s->pages, (size_t)cap, sizeof(*p));

		if (!p) {
			return false;
		}
		s->pages = p;
		s->page_cap = cap;
	}
	s->pages[s->n_page++] = page;
	return true;
}

bool sky_seq_map(struct sky_seq *s, int64_t n)
{
	while (s->n_page * KN_PAGE < n) {
		int32_t page = sky_kvpool_take(s->e->pool);

		if (page < 0) {
			return false;
		}
		if (!add_page(s, page)) {
			sky_kvpool_drop(s->e->pool, page);
			return false;
		}
	}
	return true;
}

int sky_seq_inherit(struct sky_seq *s, const struct sky_seq *root, struct sky_err *err)
{
	int64_t n_whole = root->n_cached / KN_PAGE;

	for (int64_t i = 0; i < n_whole; i++) {
		if (!add_page(s, root->pages[i])) {
			return sky_fail_mem(err, "page table");
		}
		sky_kvpool_ref(s->e->pool, root->pages[i]);
	}
	s->n_cached = n_whole * KN_PAGE;
	if (root->n_cached > s->n_cached) {
		int32_t page = sky_kvpool_fork(s->e->pool, root->pages[n_whole]);

		/* Without a free page the rest of the prompt is computed again: same bits, some time lost. */
		if (page >= 0) {
			if (!add_page(s, page)) {
				sky_kvpool_drop(s->e->pool, page);
				return sky_fail_mem(err, "page table");
			}
			s->n_cached = root->n_cached;
		}
	}
	return 0;
}

static bool is_stop_id(const struct sky_seq *s, int32_t id)
{
	const struct sky_config *c = s->e->cfg;

	for (int i = 0; i < s->s->n_stop_id; i++) {
		if (s->s->stop_ids[i] == id) {
			return true;
		}
	}
	for (int i = 0; !s->s->ignore_eos && i < c->n_eos; i++) {
		if (c->eos[i] == id) {
			return true;
		}
	}
	return false;
}

/* Looks for stop strings that end inside the bytes of the last token; the one that begins first wins. */
static int find_stop_string(struct sky_seq *s, int32_t id, struct sky_err *err)
{
	size_t n, before = s->text.n;
	int special = 0, rc;
	const char *bytes = sky_tokenizer_token(s->e->tok, id, &n, &special);
	const char *best = NULL;

	if (!bytes || special) {
		return 0;
	}
	rc = sky_buf_add(&s->text, bytes, n, err);
	if (rc < 0) {
		return rc;
	}
	for (int i = 0; i < s->s->n_stop; i++) {
		size_t k = strlen(s->s->stop[i]);
		size_t from = before >= k ? before - k + 1 : 0;
		const char *at = k ? memmem(s->text.ptr + from, s->text.n - from, s->s->stop[i], k) : NULL;

		if (at && (!best || at < best)) {
			best = at;
			s->stop_string = i;
		}
	}
	return 0;
}

int sky_seq_check_stop(struct sky_seq *s, int *ended_p, struct sky_err *err)
{
	int32_t id = s->ids[s->n - 1];
	int64_t max_len = s->s->max_len > 0 ? s->s->max_len : s->e->cfg->max_pos;
	int rc;

	*ended_p = 1;
	s->stop = SKY_END_STOP;
	if (is_stop_id(s, id)) {
		return 0;
	}
	if (s->s->n_stop > 0) {
		rc = find_stop_string(s, id, err);
		if (rc < 0 || s->stop_string >= 0) {
			return rc;
		}
	}
	s->stop = SKY_END_LENGTH;
	*ended_p = s->n_new >= s->s->max_new || (max_len > 0 && s->n >= max_len);
	return 0;
}

void sky_seq_set_user(struct sky_seq *s, void *user)
{
	s->user = user;
}

void *sky_seq_user(const struct sky_seq *s)
{
	return s->user;
}

int64_t sky_seq_len(const struct sky_seq *s)
{
	return s->n;
}

const int32_t *sky_seq_ids(const struct sky_seq *s)
{
	return s->ids;
}

const float *sky_seq_logprob(const struct sky_seq *s)
{
	return s->logprob;
}

const uint8_t *sky_seq_sampled(const struct sky_seq *s)
{
	return s->sampled;
}

int64_t sky_seq_turn(const struct sky_seq *s)
{
	return s->turn;
}

enum sky_stop sky_seq_stop(const struct sky_seq *s)
{
	return s->stop;
}

int sky_seq_text(const struct sky_seq *s, int64_t from, int cut_stop, struct sky_buf *out, struct sky_err *err)
{
	size_t at = out->n;
	const char *stop, *hit;
	int rc;

	rc = sky_decode(s->e->tok, s->ids + from, s->n - from, 1, out, err);
	if (rc < 0 || !cut_stop || s->stop_string < 0 || !s->s) {
		return rc;
	}
	stop = s->s->stop[s->stop_string];
	hit = memmem(out->ptr + at, out->n - at, stop, strlen(stop));
	if (hit) {
		out->n = (size_t)(hit - out->ptr);
		out->ptr[out->n] = '\0';
	}
	return 0;
}
