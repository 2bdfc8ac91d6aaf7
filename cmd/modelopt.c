/* Shared options and opening order of programs that run a model. */
#include "cmd/cmd.h"
#include "cmd/modelopt.h"
#include "base/base.h"
#include "weights/weights.h"

struct cmd_model_opt cmd_model;
struct cmd_sampling_opt cmd_sampling;

const struct opt_row cmd_model_rows[] = {
	OPT_HEAD("Model"),
	OPT_DIR('m', "model", &cmd_model.dir, "DIR", NULL,
	        "Hugging Face directory, or ORG/NAME in the Hugging Face cache (nothing is downloaded)"),
	OPT_CHOICE(0, "dtype", &cmd_model.dtype, "bf16|f32", "bf16", "type of matrix products"),
	OPT_TABLE(cmd_dev_rows),
	OPT_END
};

const struct opt_row cmd_sampling_rows[] = {
	OPT_HEAD("Sampling"),
	OPT_REAL(0, "temperature", &cmd_sampling.temperature, "X", "1", "divides the logits; 0 takes the likeliest token", .min = 0,
	         .max = 1000),
	OPT_REAL(0, "top-p", &cmd_sampling.top_p, "X", "1", "keep the likeliest tokens that hold this share; 1 keeps all", .min = 0,
	         .max = 1),
	OPT_INT(0, "top-k", &cmd_sampling.top_k, "N", "-1", "keep the N likeliest tokens; -1 keeps all"),
	OPT_REAL(0, "min-p", &cmd_sampling.min_p, "X", "0", "drop tokens below this share of the likeliest", .min = 0, .max = 1),
	OPT_COUNT(0, "max-new-tokens", &cmd_sampling.max_new, "N", "256", "tokens sampled a turn at most", .min = 1),
	OPT_TEXTS(0, "stop", &cmd_sampling.stop, "TEXT", "end behind this text; may be repeated"),
	OPT_SIZE(0, "kv-cache", &cmd_sampling.kv_bytes, "SIZE", "1GiB", "memory for keys and values"),
	OPT_COUNT(0, "batch", &cmd_sampling.batch, "N", "64", "sequences that run together", .min = 1, .max = 65536),
	OPT_END
};

enum kn_dtype cmd_model_dtype(void)
{
	return cmd_model.dtype == 1 ? KN_F32 : KN_BF16;
}

int cmd_sampling_get(struct sky_sampling *s, struct sky_err *err)
{
	sky_sampling_defaults(s);
	s->temperature = cmd_sampling.temperature;
	s->top_p = cmd_sampling.top_p;
	s->min_p = cmd_sampling.min_p;
	s->top_k = cmd_sampling.top_k;
	s->max_new = cmd_sampling.max_new;
	s->seed = (uint64_t)cmd.seed;
	s->stop = cmd_sampling.stop.v;
	s->n_stop = (int)cmd_sampling.stop.n;
	return sky_sampling_check(s, err);
}

static int open_model(struct cmd_runtime *r, unsigned parts, struct sky_err *err)
{
	struct sky_model_opt mo = { .compute = cmd_model_dtype(), .train = !!(parts & CMD_PART_TRAIN) };
	int rc = cmd_dev_open(&r->dev, err);

	if (rc < 0) {
		return rc;
	}
	r->device.ops = r->dev.ops;
	r->device.dev = r->dev.dev;
	if (r->dev.ops->stream_new(r->dev.dev, &r->device.stream) < 0) {
		return sky_fail(err, SKY_E_DEVICE, "%s: %s", r->dev.ops->name, r->dev.ops->last_error(r->dev.dev));
	}
	rc = sky_model_open(&r->device, cmd_model.dir, &mo, &r->model, err);
	if (rc == 0) {
		cmd_verbose(1, "%s: %s, %lld parameters, %s", sky_model_dir(r->model), sky_model_config(r->model)->family,
		            (long long)sky_model_config(r->model)->n_param, r->dev.ops->describe(r->dev.dev));
	}
	return rc;
}

int cmd_runtime_open(struct cmd_runtime *r, unsigned parts, struct sky_err *err)
{
	int rc;

	memset(r, 0, sizeof(*r));
	if (!cmd_model.dir) {
		return sky_fail(err, SKY_E_USAGE, "--model is required");
	}
	rc = open_model(r, parts, err);
	if (rc == 0 && (parts & (CMD_PART_TEXT | CMD_PART_CHAT))) {
		rc = sky_tokenizer_open(sky_model_dir(r->model), &r->tok, err);
		if (rc == 0 && *sky_tokenizer_warnings(r->tok)) {
			cmd_warn("%s", sky_tokenizer_warnings(r->tok));
		}
		if (rc == 0 && sky_tokenizer_vocab(r->tok) > sky_model_config(r->model)->vocab) {
			rc = sky_fail(err, SKY_E_DATA, "%s: the tokenizer has ids up to %lld, the model a vocabulary of %lld",
			              sky_model_dir(r->model), (long long)sky_tokenizer_vocab(r->tok) - 1,
			              (long long)sky_model_config(r->model)->vocab);
		}
	}
	if (rc == 0 && (parts & CMD_PART_CHAT)) {
		rc = sky_template_open(sky_model_dir(r->model), &r->tmpl, err);
	}
	if (rc == 0 && (parts & CMD_PART_ENGINE)) {
		struct sky_engine_opt eo = { .n_batch = cmd_sampling.batch, .kv_bytes = cmd_sampling.kv_bytes };

		rc = sky_engine_new(r->model, &r->device, r->tok, &eo, &r->engine, err);
	}
	return rc;
}

void cmd_runtime_close(struct cmd_runtime *r)
{
	sky_engine_free(r->engine);
	sky_template_close(r->tmpl);
	sky_tokenizer_close(r->tok);
	sky_model_close(r->model);
	if (r->device.stream) {
		r->dev.ops->stream_free(r->device.stream);
	}
	cmd_dev_close(&r->dev);
	memset(r, 0, sizeof(*r));
}
