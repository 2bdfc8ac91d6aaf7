/* Ready token ids with any of the masks that people store. */
#include <string.h>

#include "corpus/rows_int.h"

static int room(struct sky_rows *r, int64_t n)
{
	struct sky_sample *s = &r->s;

	if (n > r->cap_ids) {
		int32_t *ids = sky_realloc_array(s->ids, (size_t)n, sizeof *ids);
		uint8_t *mask;

		if (!ids) {
			return sky_fail_mem(r->err, "a row of %lld tokens", (long long)n);
		}
		s->ids = ids;
		mask = sky_realloc_array(s->mask, (size_t)n, 1);
		if (!mask) {
			return sky_fail_mem(r->err, "a row of %lld tokens", (long long)n);
		}
		s->mask = mask;
		r->cap_ids = n;
	}
	return 0;
}

static int take_list(struct sky_rows *r, const char *key, const struct sky_jval **v_p)
{
	*v_p = row_get(r, key);
	if (*v_p && (*v_p)->tag != SKY_JT_ARRAY) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" is no list", key);
	}
	return 0;
}

static int take_ids(struct sky_rows *r, const struct sky_jval *list, const char *key)
{
	int64_t v;
	int rc = room(r, r->s.n_ids + list->n_child);

	for (const struct sky_jval *c = sky_jval_first(&r->doc, list); !rc && c; c = sky_jval_next(&r->doc, list, c)) {
		if (c->tag != SKY_JT_NUMBER) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" holds something that is no number", key);
		}
		if (!sky_jval_i64(c, &v)) {
			bool fraction = memchr(c->str, '.', c->n_str) != NULL;

			return row_bad(r, fraction ? SKY_ROW_BAD_SCHEMA : SKY_ROW_ID_RANGE,
					"\"%s\" holds %.*s, no token id", key,
				       (int)(c->n_str < 40 ? c->n_str : 40), c->str);
		}
		if (v < 0 || v > INT32_MAX) {
			return row_bad(r, SKY_ROW_ID_RANGE, "\"%s\" holds %lld, no token id", key, (long long)v);
		}
		r->s.ids[r->s.n_ids++] = (int32_t)v;
	}
	return rc;
}

/* A 0/1 list (or true/false) for ids [from, n_ids). */
static int take_mask(struct sky_rows *r, const struct sky_jval *list, const char *key, int64_t from)
{
	int64_t i = from, v;

	if (from + list->n_child != r->s.n_ids) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" has %u values for %lld ids", key, list->n_child,
			       (long long)(r->s.n_ids - from));
	}
	for (const struct sky_jval *c = sky_jval_first(&r->doc, list); c; c = sky_jval_next(&r->doc, list, c)) {
		if (c->tag == SKY_JT_TRUE || c->tag == SKY_JT_FALSE) {
			v = c->tag == SKY_JT_TRUE;
		} else if (!sky_jval_i64(c, &v) || v < 0 || v > 1) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" holds something else than 0 and 1", key);
		}
		r->s.mask[i++] = (uint8_t)v;
	}
	if (r->s.n_ids && r->s.mask[0]) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"%s\" trains the first token, which has no log-prob", key);
	}
	return 0;
}

/* labels: −100 is not trained, anything else must be the id. */
static int take_labels(struct sky_rows *r, const struct sky_jval *list)
{
	int64_t i = 0, v;

	if (list->n_child != r->s.n_ids) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"labels\" has %u values for %lld ids", list->n_child,
			       (long long)r->s.n_ids);
	}
	for (const struct sky_jval *c = sky_jval_first(&r->doc, list); c; c = sky_jval_next(&r->doc, list, c), i++) {
		if (!sky_jval_i64(c, &v) || (v != -100 && v != r->s.ids[i])) {
			return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"labels\" differ from \"input_ids\" at position %lld",
					(long long)i);
		}
		r->s.mask[i] = v != -100;
	}
	return 0;
}

static int trajectory(struct sky_rows *r)
{
	const struct sky_jval *prompt, *done, *mask;
	int64_t n_prompt;
	int rc = take_list(r, "prompt_token_ids", &prompt);

	rc = rc ? rc : take_list(r, "response_ids", &done);
	rc = rc ? rc : take_list(r, "loss_masks", &mask);
	if (!rc && !done) {
		rc = row_bad(r, SKY_ROW_BAD_SCHEMA, "\"prompt_token_ids\" without \"response_ids\"");
	}
	rc = rc ? rc : take_ids(r, prompt, "prompt_token_ids");
	n_prompt = r->s.n_ids;
	rc = rc ? rc : take_ids(r, done, "response_ids");
	if (!rc) {
		memset(r->s.mask, 0, (size_t)n_prompt);
		memset(r->s.mask + n_prompt, 1, (size_t)(r->s.n_ids - n_prompt));
	}
	return !rc && mask ? take_mask(r, mask, "loss_masks", n_prompt) : rc;
}

static int masked_ids(struct sky_rows *r, const struct sky_jval *ids)
{
	static const char *const masks[] = { "loss_mask", "completion_mask", "assistant_masks", "assistant_mask" };
	const struct sky_jval *v;
	int64_t n;
	int rc = take_ids(r, ids, "input_ids");

	for (size_t i = 0; !rc && i < sizeof masks / sizeof *masks; i++) {
		rc = take_list(r, masks[i], &v);
		if (!rc && v) {
			return take_mask(r, v, masks[i], 0);
		}
	}
	rc = rc ? rc : take_list(r, "labels", &v);
	if (!rc && v) {
		return take_labels(r, v);
	}
	if (rc < 0) {
		return rc;
	}
	v = row_get(r, "prompt_length");
	if (!v) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"input_ids\" without a mask (loss_mask, labels, completion_mask, "
			       "assistant_masks or prompt_length): what is to be trained?");
	}
	if (!sky_jval_i64(v, &n) || n < 0 || n > r->s.n_ids) {
		return row_bad(r, SKY_ROW_BAD_SCHEMA, "\"prompt_length\" is not between 0 and %lld", (long long)r->s.n_ids);
	}
	for (int64_t i = 0; i < r->s.n_ids; i++) {
		r->s.mask[i] = i >= n;
	}
	return 0;
}

int rows_tokens(struct sky_rows *r)
{
	const struct sky_jval *ids;
	int rc;

	r->s.kind = SKY_SAMPLE_TOKENS;
	if (row_get(r, "prompt_token_ids")) {
		rc = trajectory(r);
	} else {
		rc = take_list(r, "input_ids", &ids);
		if (!rc && !ids) {
			rc = row_bad(r, SKY_ROW_BAD_SCHEMA, "no column \"input_ids\"");
		}
		rc = rc ? rc : room(r, 1);
		rc = rc ? rc : masked_ids(r, ids);
	}
	if (!rc && !r->s.n_ids) {
		return row_bad(r, SKY_ROW_EMPTY, "no tokens");
	}
	if (!rc) {
		r->s.mask[0] = 0;       /* no log-prob exists for a first token */
	}
	return rc;
}
