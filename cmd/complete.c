/* skyrl-rollout complete: text in, text out. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "cmd/rollout_cmd.h"
#include "base/base.h"

#include <stdlib.h>
#include <unistd.h>

static struct {
	const char *prompt, *system;
	bool chat;
} o;

const struct opt_row complete_rows[] = {
	OPT_HEAD("Prompt"),
	OPT_TEXT('p', "prompt", &o.prompt, "TEXT", "-", "the prompt; - reads it from standard input"),
	OPT_FLAG(0, "chat", &o.chat, NULL, "the prompt is a user message, rendered by the model's chat template"),
	OPT_TEXT(0, "system", &o.system, "TEXT", NULL, "system message in front of it (with --chat)"),
	OPT_TABLE(cmd_model_rows), OPT_TABLE(cmd_sampling_rows),
	OPT_HEAD("Output"),
	CMD_OPT_JSON, CMD_OPT_SEED, CMD_OPT_THREADS,
	OPT_END
};

static int read_prompt(struct sky_buf *text, struct sky_err *err)
{
	char chunk[65536];
	ssize_t k;

	if (strcmp(o.prompt, "-")) {
		return sky_buf_adds(text, o.prompt, err);
	}
	while ((k = sky_read_full(STDIN_FILENO, chunk, sizeof(chunk), "standard input", err)) > 0) {
		int rc = sky_buf_add(text, chunk, (size_t)k, err);

		if (rc < 0) {
			return rc;
		}
	}
	return k < 0 ? (int)k : 0;
}

/* A conversation of one or two messages around text, rendered into out. */
static int render_chat(const struct sky_template *t, const struct sky_buf *text, struct sky_render *out, struct sky_err *err)
{
	struct sky_render_opt ro = { .add_generation_prompt = 1, .date = -1 };
	struct sky_buf chat = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_json *doc = NULL;
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, &chat, err);
	sky_jw_arr(&w);
	if (o.system) {
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "role", "system");
		sky_jw_kstr(&w, "content", o.system);
		sky_jw_close_obj(&w);
	}
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "role", "user");
	sky_jw_key(&w, "content");
	sky_jw_strn(&w, text->ptr ? text->ptr : "", text->n);
	sky_jw_close_obj(&w);
	sky_jw_close_arr(&w);
	rc = sky_jw_end(&w);
	rc = rc < 0 ? rc : sky_json_parse(chat.ptr, chat.n, "prompt", 0, &doc, err);
	rc = rc < 0 ? rc : sky_template_render(t, sky_json_root(doc), &ro, out, err);
	sky_json_free(doc);
	sky_buf_release(&chat);
	return rc;
}

static int encode_prompt(const struct cmd_runtime *r, struct sky_ids *ids, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_encoder *enc = NULL;
	struct sky_render out;
	int rc;

	memset(&out, 0, sizeof(out));
	rc = sky_encoder_new(r->tok, &enc, err);
	rc = rc < 0 ? rc : read_prompt(&text, err);
	if (rc == 0 && o.chat) {
		rc = render_chat(r->tmpl, &text, &out, err);
		rc = rc < 0 ? rc : sky_encode(enc, out.text.ptr, out.text.n, 0, ids, err);
	} else if (rc == 0) {
		rc = sky_encode(enc, text.ptr ? text.ptr : "", text.n, SKY_ENC_SPECIAL, ids, err);
	}
	sky_render_release(&out);
	sky_encoder_free(enc);
	sky_buf_release(&text);
	return rc;
}

static const char *stop_name(enum sky_stop s)
{
	return s == SKY_END_STOP ? "stop" : s == SKY_END_LENGTH ? "length" : s == SKY_END_ABORT ? "abort" : "error";
}

static int print_answer(const struct sky_seq *s, const struct sky_buf *text, struct sky_err *err)
{
	struct sky_jw *w;
	int rc;

	if (!cmd.json) {
		rc = cmd_out(text->ptr ? text->ptr : "", text->n, err);
		return rc < 0 ? rc : cmd_outs("\n", err);
	}
	w = cmd_rec("completion", err);
	sky_jw_key(w, "text");
	sky_jw_strn(w, text->ptr ? text->ptr : "", text->n);
	sky_jw_kstr(w, "stop", stop_name(sky_seq_stop(s)));
	sky_jw_ki64(w, "n_prompt", sky_seq_turn(s));
	sky_jw_key(w, "ids");
	sky_jw_arr(w);
	for (int64_t i = sky_seq_turn(s); i < sky_seq_len(s); i++) {
		sky_jw_i64(w, sky_seq_ids(s)[i]);
	}
	sky_jw_close_arr(w);
	sky_jw_key(w, "logprob");
	sky_jw_arr(w);
	for (int64_t i = sky_seq_turn(s); i < sky_seq_len(s); i++) {
		sky_jw_f32(w, sky_seq_logprob(s)[i]);
	}
	sky_jw_close_arr(w);
	return cmd_rec_end(err);
}

int complete_run(int argc, char **argv, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_LINE_BYTES);
	struct sky_seq *const *done = NULL, *seq = NULL;
	struct sky_sampling sampling;
	struct cmd_runtime r;
	struct sky_ids ids = { 0 };
	double t0;
	int rc;

	(void)argc;
	(void)argv;
	cmd_sampling.batch = 1;
	rc = cmd_sampling_get(&sampling, err);
	if (rc < 0) {
		return rc;
	}
	rc = cmd_runtime_open(&r, CMD_PART_TEXT | CMD_PART_ENGINE | (o.chat ? CMD_PART_CHAT : 0u), err);
	rc = rc < 0 ? rc : encode_prompt(&r, &ids, err);
	rc = rc < 0 ? rc : sky_engine_group(r.engine, ids.id, ids.n, 0, 1, &seq, err);
	rc = rc < 0 ? rc : sky_seq_run(seq, &sampling, err);
	t0 = sky_now();
	while (rc == 0) {
		rc = sky_engine_step(r.engine, &done, err);
		if (rc == 0 && cmd_stopping()) {
			rc = cmd_stop_err(err, "the answer is not complete");
		}
	}
	if (rc == SKY_EOF) {
		rc = sky_seq_text(seq, sky_seq_turn(seq), 1, &text, err);
		rc = rc < 0 ? rc : print_answer(seq, &text, err);
		cmd_verbose(1, "%lld tokens in %.2f s", (long long)(sky_seq_len(seq) - sky_seq_turn(seq)), sky_now() - t0);
	}
	sky_buf_release(&text);
	sky_ids_release(&ids);
	cmd_runtime_close(&r);
	return rc;
}
