/* The agent loop: episodes between the environment, which says what comes next, and the engine, which answers. */
#include "rollout/rollout.h"

#include <stdlib.h>

struct group;

struct episode {
	struct group *g;
	int sample;
	int64_t id;             /* towards the environment */
	enum { EP_INIT, EP_GENERATE, EP_STEP, EP_OVER } state;
	struct sky_seq *seq;
	int32_t *prompt;        /* ids of the first prompt, until a sequence holds them */
	int64_t n_prompt;
	float *reward;          /* [n_reward] token rewards so far, then 0 */
	int64_t n_reward;
	enum sky_stop stop;
	int done;
	int64_t n_turn;
	double reward_sum;
	char *info, *why;
};

struct group {
	int64_t row;
	int n_open, n_waiting;  /* episodes not over; episodes whose first prompt is not known yet */
	struct episode *ep;     /* [n_sample] */
	struct group *next;
};

struct sky_rollout {
	struct sky_engine *e;
	const struct sky_tokenizer *tok;
	const struct sky_template *tmpl;
	struct sky_envs *envs;
	const struct sky_config *cfg;
	struct sky_rollout_opt opt;
	struct sky_encoder *enc;
	int32_t *base;          /* ids of the fixed conversation up to its last end of turn */
	int64_t n_base;
	struct sky_ids ids;     /* scratch */
	struct sky_buf text;    /* scratch */
	struct group *first, *last;     /* groups in order of rows, oldest first */
	int64_t n_open;         /* episodes not over */
	int64_t next_id;
};

/* The fixed conversation in front of observations (ref: token-in token-out). */
static const char base_chat[] = "{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},"
                                "{\"role\":\"user\",\"content\":\"I am a user.\"}";

/* Renders and encodes; result in r->ids. */
static int encode_chat(struct sky_rollout *r, const struct sky_jnode *messages, int generation_prompt, struct sky_err *err)
{
	struct sky_render_opt opt = { .add_generation_prompt = generation_prompt, .args = r->opt.template_args, .date = -1 };
	struct sky_render out;
	int rc;

	memset(&out, 0, sizeof(out));
	rc = sky_template_render(r->tmpl, messages, &opt, &out, err);
	if (rc == 0) {
		r->ids.n = 0;
		/* What a template rendered is encoded without the post-processor: no second beginning-of-text. */
		rc = sky_encode(r->enc, out.text.ptr ? out.text.ptr : "", out.text.n, 0, &r->ids, err);
	}
	sky_render_release(&out);
	return rc;
}

static int is_eos(const struct sky_rollout *r, int32_t id)
{
	for (int i = 0; i < r->cfg->n_eos; i++) {
		if (r->cfg->eos[i] == id) {
			return 1;
		}
	}
	return 0;
}

static int make_base(struct sky_rollout *r, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	char text[512];
	int rc;

	snprintf(text, sizeof(text), "[%s]", base_chat);
	rc = sky_json_parse(text, strlen(text), "base conversation", 0, &doc, err);
	if (rc == 0) {
		rc = encode_chat(r, sky_json_root(doc), 0, err);
	}
	sky_json_free(doc);
	if (rc < 0) {
		return rc;
	}
	r->n_base = r->ids.n;
	for (int64_t i = r->ids.n; i-- > 0;) {
		if (is_eos(r, r->ids.id[i])) {
			r->n_base = i + 1;
			break;
		}
	}
	r->base = sky_malloc_array((size_t)r->n_base + 1, sizeof(int32_t));
	if (!r->base) {
		return sky_fail_mem(err, "base conversation");
	}
	memcpy(r->base, r->ids.id, (size_t)r->n_base * sizeof(int32_t));
	return 0;
}

int sky_rollout_new(struct sky_engine *e, const struct sky_tokenizer *tok, const struct sky_template *tmpl, struct sky_envs *envs,
                    const struct sky_config *cfg, const struct sky_rollout_opt *opt, struct sky_rollout **r_p,
                    struct sky_err *err)
{
	struct sky_rollout *r = sky_calloc_array(1, sizeof(*r));
	int rc;

	if (!r) {
		return sky_fail_mem(err, "rollout");
	}
	*r = (struct sky_rollout){ .e = e, .tok = tok, .tmpl = tmpl, .envs = envs, .cfg = cfg, .opt = *opt };
	sky_buf_init(&r->text, SKY_MAX_LINE_BYTES);
	r->opt.n_active = opt->n_active > 0 ? opt->n_active : 256;
	r->opt.max_input = opt->max_input > 0 ? opt->max_input : cfg->max_pos - 1;
	rc = sky_encoder_new(tok, &r->enc, err);
	if (rc == 0 && r->opt.max_turns > 1) {
		rc = make_base(r, err);
	}
	if (rc < 0) {
		sky_rollout_free(r);
		return rc;
	}
	*r_p = r;
	return 0;
}

static void episode_release(struct episode *ep)
{
	sky_seq_free(ep->seq);
	free(ep->prompt);
	free(ep->reward);
	free(ep->info);
	free(ep->why);
}

static void group_free(struct sky_rollout *r, struct group *g)
{
	for (int i = 0; g->ep && i < r->opt.n_sample; i++) {
		episode_release(&g->ep[i]);
	}
	free(g->ep);
	free(g);
}

void sky_rollout_free(struct sky_rollout *r)
{
	if (!r) {
		return;
	}
	while (r->first) {
		struct group *g = r->first;

		r->first = g->next;
		group_free(r, g);
	}
	sky_encoder_free(r->enc);
	sky_ids_release(&r->ids);
	sky_buf_release(&r->text);
	free(r->base);
	free(r);
}

static void over(struct sky_rollout *r, struct episode *ep)
{
	if (ep->state != EP_OVER) {
		ep->state = EP_OVER;
		ep->g->n_open--;
		r->n_open--;
	}
}

static int replace_text(char **p, const char *s, struct sky_err *err)
{
	free(*p);
	*p = strdup(s);
	return *p ? 0 : sky_fail_mem(err, "episode");
}

/* The environment failed this episode: it costs its trajectory, not the run. */
static int lose(struct sky_rollout *r, struct episode *ep, const char *why, struct sky_err *err)
{
	int rc = replace_text(&ep->why, why, err);

	ep->stop = SKY_END_ERROR;
	if (ep->state == EP_INIT) {
		ep->g->n_waiting--;
	}
	over(r, ep);
	return rc;
}

static int add_reward(struct episode *ep, int64_t at, double x, struct sky_err *err)
{
	if (at >= ep->n_reward) {
		float *p = sky_realloc_array(ep->reward, (size_t)at + 1, sizeof(*p));

		if (!p) {
			return sky_fail_mem(err, "rewards");
		}
		memset(p + ep->n_reward, 0, (size_t)(at + 1 - ep->n_reward) * sizeof(*p));
		ep->reward = p;
		ep->n_reward = at + 1;
	}
	ep->reward[at] += (float)x;
	ep->reward_sum += x;
	return 0;
}

static int generate(struct sky_rollout *r, struct episode *ep, struct sky_err *err)
{
	ep->state = EP_GENERATE;
	sky_seq_set_user(ep->seq, ep);
	return sky_seq_run(ep->seq, &r->opt.sampling, err);
}

/* Every first prompt of the group is known: samples with equal prompts share one sequence prefix. */
static int start_group(struct sky_rollout *r, struct group *g, struct sky_err *err)
{
	struct sky_seq **seqs = sky_calloc_array((size_t)r->opt.n_sample, sizeof(*seqs));
	struct episode *lead = NULL;
	bool equal = true;
	int rc = 0, k = 0;

	if (!seqs) {
		return sky_fail_mem(err, "group");
	}
	for (int i = 0; i < r->opt.n_sample; i++) {
		struct episode *ep = &g->ep[i];

		if (ep->state == EP_INIT) {
			lead = lead ? lead : ep;
			equal = equal && ep->n_prompt == lead->n_prompt &&
			        !memcmp(ep->prompt, lead->prompt, (size_t)ep->n_prompt * sizeof(int32_t));
			k++;
		}
	}
	equal = equal && k == r->opt.n_sample;
	if (equal) {
		rc = sky_engine_group(r->e, lead->prompt, lead->n_prompt,
		                      (uint64_t)g->row * (uint64_t)r->opt.n_sample, k, seqs, err);
	}
	for (int i = 0; i < r->opt.n_sample && rc == 0; i++) {
		struct episode *ep = &g->ep[i];

		if (ep->state != EP_INIT) {
			continue;
		}
		if (!equal) {
			rc = sky_engine_group(r->e, ep->prompt, ep->n_prompt,
			                      (uint64_t)g->row * (uint64_t)r->opt.n_sample + (uint64_t)i, 1, &seqs[i], err);
		}
		ep->seq = seqs[i];
		if (rc == 0) {
			rc = generate(r, ep, err);
		}
	}
	free(seqs);
	return sky_while(err, rc, "prompt row %lld", (long long)g->row);
}

static int on_prompt(struct sky_rollout *r, struct episode *ep, const struct sky_jnode *doc, struct sky_err *err)
{
	int rc = encode_chat(r, sky_j_get(doc, "prompt"), 1, err);

	if (rc < 0) {
		return sky_while(err, rc, "prompt row %lld", (long long)ep->g->row);
	}
	ep->n_prompt = r->ids.n;
	ep->prompt = sky_malloc_array((size_t)r->ids.n + 1, sizeof(int32_t));
	if (!ep->prompt) {
		return sky_fail_mem(err, "prompt");
	}
	memcpy(ep->prompt, r->ids.id, (size_t)r->ids.n * sizeof(int32_t));
	ep->g->n_waiting--;
	if (r->ids.n == 0 || r->ids.n > r->opt.max_input) {
		char why[128];

		snprintf(why, sizeof(why), "the prompt has %lld tokens, the limit is %lld", (long long)r->ids.n,
		         (long long)r->opt.max_input);
		rc = replace_text(&ep->why, why, err);
		ep->stop = SKY_END_LENGTH;
		over(r, ep);
	}
	return rc;
}

/* Observation ids: the fixed conversation plus the new messages, cut behind the fixed part. */
static int append_observation(struct sky_rollout *r, struct episode *ep, const struct sky_jnode *obs, struct sky_err *err)
{
	struct sky_buf chat = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_json *doc = NULL;
	int32_t last = sky_seq_ids(ep->seq)[sky_seq_len(ep->seq) - 1];
	int rc = sky_buf_addf(&chat, err, "[%s", base_chat);

	for (const struct sky_jnode *m = sky_j_first(obs); m && rc == 0; m = sky_j_next(m)) {
		rc = sky_buf_addc(&chat, ',', err);
		rc = rc < 0 ? rc : sky_j_print(m, &chat, err);
	}
	rc = rc < 0 ? rc : sky_buf_addc(&chat, ']', err);
	rc = rc < 0 ? rc : sky_json_parse(chat.ptr, chat.n, "observation", SKY_JSON_PYTHON, &doc, err);
	rc = rc < 0 ? rc : encode_chat(r, sky_json_root(doc), 1, err);
	if (rc == 0 && (r->ids.n < r->n_base || memcmp(r->ids.id, r->base, (size_t)r->n_base * sizeof(int32_t)))) {
		rc = sky_fail(err, SKY_E_DATA, "the chat template changes earlier turns when messages follow: observations "
		              "cannot be encoded without encoding the history again");
	}
	/* A turn that a stop string or the length ended lacks the end-of-turn token that the template would have written. */
	if (rc == 0 && !is_eos(r, last) && r->cfg->n_eos > 0 && r->n_base > 0) {
		rc = sky_seq_append(ep->seq, &r->base[r->n_base - 1], 1, err);
	}
	if (rc == 0) {
		rc = sky_seq_append(ep->seq, r->ids.id + r->n_base, r->ids.n - r->n_base, err);
	}
	sky_json_free(doc);
	sky_buf_release(&chat);
	return rc;
}

static int keep_info(struct sky_rollout *r, struct episode *ep, const struct sky_jnode *doc, struct sky_err *err)
{
	const struct sky_jnode *info = sky_j_get(doc, "info");
	int rc;

	if (sky_j_type(info) != SKY_J_OBJECT) {
		return 0;
	}
	sky_buf_clear(&r->text);
	rc = sky_j_print(info, &r->text, err);
	return rc < 0 ? rc : replace_text(&ep->info, r->text.ptr, err);
}

static int on_step(struct sky_rollout *r, struct episode *ep, const struct sky_jnode *doc, struct sky_err *err)
{
	double reward = 0;
	bool done = false;
	int rc;

	if (!sky_j_f64(sky_j_get(doc, "reward"), &reward) || !sky_j_bool(sky_j_get(doc, "done"), &done)) {
		return sky_fail(err, SKY_E_DATA, "an environment's answer without reward or done");
	}
	ep->n_turn++;
	ep->stop = sky_seq_stop(ep->seq);
	/* The last token of a resting sequence is the last sampled one: the reward of the turn sits on it. */
	rc = add_reward(ep, sky_seq_len(ep->seq) - 1, reward, err);
	rc = rc < 0 ? rc : keep_info(r, ep, doc, err);
	if (rc < 0) {
		return rc;
	}
	ep->done = done;
	if (done || ep->n_turn >= r->opt.max_turns) {
		over(r, ep);
		return sky_env_close(r->envs, ep->id, err);
	}
	rc = append_observation(r, ep, sky_j_get(doc, "obs"), err);
	if (rc < 0) {
		return rc;
	}
	if (sky_seq_len(ep->seq) > r->opt.max_input) {
		ep->stop = SKY_END_LENGTH;
		over(r, ep);
		return sky_env_close(r->envs, ep->id, err);
	}
	return generate(r, ep, err);
}

static struct episode *by_id(struct sky_rollout *r, int64_t id)
{
	for (struct group *g = r->first; g; g = g->next) {
		if (id >= g->ep[0].id && id < g->ep[0].id + r->opt.n_sample) {
			return &g->ep[id - g->ep[0].id];
		}
	}
	return NULL;
}

/* A sequence came to rest: its text is the action. */
static int on_rest(struct sky_rollout *r, struct sky_seq *s, struct sky_err *err)
{
	struct episode *ep = sky_seq_user(s);
	int rc;

	sky_buf_clear(&r->text);
	rc = sky_seq_text(s, sky_seq_turn(s), 0, &r->text, err);
	if (rc < 0) {
		return rc;
	}
	ep->state = EP_STEP;
	return sky_env_step(r->envs, ep->id, r->text.ptr ? r->text.ptr : "", r->text.n, err);
}

static int on_event(struct sky_rollout *r, const struct sky_env_reply *reply, struct sky_err *err)
{
	struct episode *ep = by_id(r, reply->id);
	struct group *g;
	int rc;

	if (!ep || ep->state == EP_OVER) {
		return 0;
	}
	g = ep->g;
	switch (reply->event) {
	case SKY_ENV_PROMPT:
		rc = on_prompt(r, ep, reply->doc, err);
		break;
	case SKY_ENV_STEP:
		return on_step(r, ep, reply->doc, err);
	default:
		rc = ep->state == EP_INIT;
		if (ep->seq && ep->state == EP_GENERATE) {
			/* Its child died while the policy was still writing. */
			sky_seq_free(ep->seq);
			ep->seq = NULL;
		}
		if (lose(r, ep, reply->why, err) < 0) {
			return SKY_E_LIMIT;
		}
		if (!rc) {
			return 0;
		}
		rc = 0;
		break;
	}
	return rc == 0 && g->n_waiting == 0 ? start_group(r, g, err) : rc;
}

/* Text of a row with "max_turns" set; the last of equal keys wins, so appending is setting. */
static int row_text(struct sky_rollout *r, const char *text, size_t n, struct sky_err *err)
{
	int rc;

	while (n > 0 && text[n - 1] != '}') {
		n--;
	}
	sky_buf_clear(&r->text);
	rc = sky_buf_add(&r->text, text, n > 0 ? n - 1 : 0, err);
	return rc < 0 ? rc : sky_buf_addf(&r->text, err, ",\"max_turns\":%lld}", (long long)r->opt.max_turns);
}

static int add_group(struct sky_rollout *r, int64_t row, const char *text, size_t n, struct sky_err *err)
{
	struct group *g = sky_calloc_array(1, sizeof(*g));
	int rc;

	if (!g || !(g->ep = sky_calloc_array((size_t)r->opt.n_sample, sizeof(*g->ep)))) {
		free(g);
		return sky_fail_mem(err, "group");
	}
	g->row = row;
	g->n_open = g->n_waiting = r->opt.n_sample;
	if (r->last) {
		r->last->next = g;
	} else {
		r->first = g;
	}
	r->last = g;
	r->n_open += r->opt.n_sample;
	rc = row_text(r, text, n, err);
	for (int i = 0; i < r->opt.n_sample && rc == 0; i++) {
		g->ep[i].g = g;
		g->ep[i].sample = i;
		g->ep[i].id = r->next_id + i;
		rc = sky_env_init(r->envs, g->ep[i].id, r->text.ptr, r->text.n, err);
	}
	r->next_id += r->opt.n_sample;
	return rc;
}

static int hand_over(struct sky_rollout *r, struct episode *ep, sky_rollout_sink *sink, void *ctx, struct sky_err *err)
{
	struct sky_episode_out out = { .row = ep->g->row, .sample = ep->sample, .n_prompt = ep->n_prompt, .stop = ep->stop,
	                               .done = ep->done, .n_turn = ep->n_turn, .reward_sum = ep->reward_sum,
	                               .info = ep->info ? ep->info : "{}", .why = ep->why ? ep->why : "" };
	uint8_t *none_mask = NULL;
	float *none = NULL;
	int rc;

	out.n = ep->seq ? sky_seq_len(ep->seq) : ep->n_prompt;
	/* Observations behind the last sampled token are not part of the trajectory. */
	while (ep->seq && out.n > ep->n_prompt && !sky_seq_sampled(ep->seq)[out.n - 1]) {
		out.n--;
	}
	rc = add_reward(ep, out.n > 0 ? out.n - 1 : 0, 0, err);
	if (rc < 0) {
		return rc;
	}
	if (r->opt.zero_reward_on_non_stop && ep->stop != SKY_END_STOP) {
		memset(ep->reward, 0, (size_t)ep->n_reward * sizeof(float));
		out.reward_sum = 0;
	}
	out.reward = ep->reward;
	if (ep->seq) {
		out.ids = sky_seq_ids(ep->seq);
		out.mask = sky_seq_sampled(ep->seq);
		out.logprob = sky_seq_logprob(ep->seq);
	} else {
		none_mask = sky_calloc_array((size_t)out.n + 1, 1);
		none = sky_calloc_array((size_t)out.n + 1, sizeof(float));
		out.ids = ep->prompt;
		out.mask = none_mask;
		out.logprob = none;
	}
	rc = out.mask && out.logprob ? sink(ctx, &out, err) : sky_fail_mem(err, "trajectory");
	free(none_mask);
	free(none);
	return rc;
}

/* Groups that are over, oldest first, go to the sink. */
static int drain(struct sky_rollout *r, sky_rollout_sink *sink, void *ctx, struct sky_err *err)
{
	while (r->first && r->first->n_open == 0) {
		struct group *g = r->first;
		int rc = 0;

		for (int i = 0; i < r->opt.n_sample && rc == 0; i++) {
			rc = hand_over(r, &g->ep[i], sink, ctx, err);
		}
		if (rc < 0) {
			return rc;
		}
		r->first = g->next;
		r->last = r->first ? r->last : NULL;
		group_free(r, g);
	}
	return 0;
}

static int take_events(struct sky_rollout *r, double wait_s, struct sky_err *err)
{
	struct sky_env_reply reply;
	int rc;

	while ((rc = sky_env_poll(r->envs, wait_s, &reply, err)) == 0) {
		rc = on_event(r, &reply, err);
		if (rc < 0) {
			return rc;
		}
		wait_s = 0;
	}
	return rc < 0 ? rc : 0;
}

int sky_rollout_run(struct sky_rollout *r, int64_t row0, sky_rollout_source *source, sky_rollout_sink *sink, void *ctx,
                    bool (*stop)(void), struct sky_err *err)
{
	int64_t row = row0;
	bool more = true;
	int rc = 0, idle;

	while (more || r->first) {
		struct sky_seq *const *done = NULL;

		while (more && (r->n_open == 0 || r->n_open + r->opt.n_sample <= r->opt.n_active)) {
			const char *text;
			size_t n;

			rc = source(ctx, row, &text, &n, err);
			if (rc == SKY_EOF) {
				more = false;
				break;
			}
			rc = rc < 0 ? rc : add_group(r, row++, text, n, err);
			if (rc < 0) {
				return rc;
			}
		}
		rc = sky_engine_step(r->e, &done, err);
		if (rc < 0) {
			return rc;
		}
		idle = rc == SKY_EOF;
		for (rc = 0; !idle && done && *done && rc == 0; done++) {
			rc = on_rest(r, *done, err);
		}
		/* With nothing to compute there is nothing to do but wait for the environment. */
		rc = rc < 0 ? rc : take_events(r, idle && sky_envs_outstanding(r->envs) ? 0.25 : 0, err);
		rc = rc < 0 ? rc : drain(r, sink, ctx, err);
		if (rc < 0) {
			return rc;
		}
		if (stop && stop()) {
			return sky_fail(err, SKY_E_STOP, "stopped with %lld episodes in flight", (long long)r->n_open);
		}
	}
	return 0;
}
