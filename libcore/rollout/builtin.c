/* Built-in environments: gsm8k, gsm8k_multi_turn, multiply, with the rewards of SkyRL 0.4.0. */
#include "rollout/builtin.h"

#include <ctype.h>
#include <stdlib.h>

int sky_gsm8k_answer(const char *s, size_t n, struct sky_buf *out, struct sky_err *err)
{
	const char *end = s + n;

	for (const char *p = s; n >= 5 && p <= end - 5; p++) {
		const char *q = p + 5, *first;
		int rc = 0;

		if (memcmp(p, "#### ", 5)) {
			continue;
		}
		q += q < end && *q == '-';
		first = q;
		while (q < end && (isdigit((unsigned char)*q) || *q == '.' || *q == ',')) {
			q++;
		}
		if (q == first) {
			continue;
		}
		for (p += 5; p < q && rc == 0; p++) {
			rc = *p == ',' ? 0 : sky_buf_addc(out, *p, err);
		}
		return rc;
	}
	return SKY_EOF;
}

static void trim(const char **s, size_t *n)
{
	while (*n && isspace((unsigned char)**s)) {
		(*s)++;
		(*n)--;
	}
	while (*n && isspace((unsigned char)(*s)[*n - 1])) {
		(*n)--;
	}
}

int sky_boxed_answer(const char *s, size_t n, struct sky_buf *out, struct sky_err *err)
{
	static const char open[] = "\\boxed{";
	const size_t k = sizeof(open) - 1;

	for (size_t i = 0; i + k <= n; i++) {
		size_t j = i + k;

		if (memcmp(s + i, open, k)) {
			continue;
		}
		while (j < n && s[j] != '}' && s[j] != '{') {
			j++;
		}
		if (j < n && s[j] == '}') {
			const char *a = s + i + k;
			size_t len = j - i - k;

			trim(&a, &len);
			return sky_buf_add(out, a, len, err);
		}
	}
	return SKY_EOF;
}

static int observe(struct sky_env_result *out, const char *text, struct sky_err *err)
{
	struct sky_jw w;

	sky_buf_clear(&out->obs);
	sky_jw_init(&w, &out->obs, err);
	sky_jw_arr(&w);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "role", "user");
	sky_jw_kstr(&w, "content", text);
	sky_jw_close_obj(&w);
	sky_jw_close_arr(&w);
	return sky_jw_end(&w);
}

/* SKY_OK with *found and *right set: does the answer that `extract` finds equal the truth? */
static int judge(const struct sky_episode *ep, const char *action, size_t n,
                 int (*extract)(const char *, size_t, struct sky_buf *, struct sky_err *), int *found, int *right,
                 struct sky_err *err)
{
	struct sky_buf a = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	const char *t = ep->truth;
	size_t nt = strlen(t);
	int rc = extract(action, n, &a, err);

	*found = rc == 0;
	if (extract == sky_boxed_answer) {
		trim(&t, &nt);
	}
	*right = rc == 0 && a.n == nt && !memcmp(a.n ? a.ptr : "", t, nt);
	sky_buf_release(&a);
	return rc < 0 ? rc : 0;
}

static int step_gsm8k(struct sky_episode *ep, const char *action, size_t n, struct sky_env_result *out, struct sky_err *err)
{
	int found, right, rc = judge(ep, action, n, sky_gsm8k_answer, &found, &right, err);

	ep->turns++;
	out->reward = right;
	out->done = 1;
	return rc;
}

static int step_gsm8k_turns(struct sky_episode *ep, const char *action, size_t n, struct sky_env_result *out,
                            struct sky_err *err)
{
	int found, right, rc = judge(ep, action, n, sky_gsm8k_answer, &found, &right, err);

	if (rc < 0) {
		return rc;
	}
	ep->turns++;
	out->reward = right ? 1 : found ? 0.2 / (double)ep->max_turns : 0;
	out->done = right || ep->turns >= ep->max_turns;
	sky_buf_clear(&out->info);
	rc = sky_buf_addf(&out->info, err, "{\"steps\":%lld}", (long long)ep->turns);
	if (rc < 0 || out->done) {
		return rc;
	}
	return observe(out, ep->turns + 1 < ep->max_turns
	                            ? "Reason further, step by step, and give a tentative answer as '#### ANSWER'."
	                            : "Now give only the final answer as '#### ANSWER'.", err);
}

static int step_multiply(struct sky_episode *ep, const char *action, size_t n, struct sky_env_result *out,
                         struct sky_err *err)
{
	int found, right, rc = judge(ep, action, n, sky_boxed_answer, &found, &right, err);

	if (rc < 0) {
		return rc;
	}
	ep->turns++;
	out->done = right || ep->turns >= ep->max_turns;
	out->reward = right ? 1 : out->done && found ? 0.5 : 0;
	if (out->done) {
		return 0;
	}
	return observe(out, found ? "That answer is not right. Check the product and answer again inside \\boxed{}."
	                          : "No answer was found. Put the product inside \\boxed{}.", err);
}

static const struct sky_env_kind table[] = {
	{ "gsm8k", "answer after '#### ', one turn, reward 0 or 1", 1, "reward_spec", step_gsm8k },
	{ "gsm8k_multi_turn", "the same over several turns, 0.2/turns for a wrong answer in the right form", 5, "reward_spec",
	  step_gsm8k_turns },
	{ "multiply", "a product inside \\boxed{}, several turns, 0.5 for a wrong box at the end", 5, "reward_spec",
	  step_multiply },
};

const struct sky_env_kind *sky_env_kind_at(int i)
{
	return i >= 0 && i < (int)(sizeof(table) / sizeof(*table)) ? &table[i] : NULL;
}

const struct sky_env_kind *sky_env_kind_find(const char *name)
{
	for (int i = 0; sky_env_kind_at(i); i++) {
		if (!strcmp(table[i].name, name)) {
			return &table[i];
		}
	}
	return NULL;
}

int sky_episode_init(const struct sky_env_kind *k, struct sky_episode *ep, const struct sky_jnode *row, struct sky_err *err)
{
	const struct sky_jnode *truth = sky_j_get(sky_j_get(row, k->truth_in), "ground_truth");
	const char *text = sky_j_str(truth) ? sky_j_str(truth) : sky_j_raw(truth);
	int rc = sky_j_get_i64(row, "max_turns", k->max_turns, &ep->max_turns, err);

	if (rc < 0) {
		return rc;
	}
	if (!text) {
		return sky_fail(err, SKY_E_DATA, "environment %s: the row has no %s.ground_truth", k->name, k->truth_in);
	}
	if (ep->max_turns < 1) {
		return sky_fail(err, SKY_E_DATA, "environment %s: max_turns %lld is not positive", k->name,
		                (long long)ep->max_turns);
	}
	ep->turns = 0;
	ep->truth = strdup(text);
	return ep->truth ? 0 : sky_fail_mem(err, "episode");
}

void sky_episode_release(struct sky_episode *ep)
{
	free(ep->truth);
	ep->truth = NULL;
}
