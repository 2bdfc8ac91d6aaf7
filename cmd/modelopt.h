/* What programs that run a model share: --model and --dtype, sampling options, opening everything in order. */
#ifndef SKY_CMD_MODELOPT_H
#define SKY_CMD_MODELOPT_H

#include "cmd/dev.h"
#include "cmd/opt.h"
#include "engine/engine.h"
#include "model/model.h"
#include "text/text.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --model, --dtype, --device; put OPT_TABLE(cmd_model_rows) into the program's table, beside CMD_OPT_THREADS. */
extern const struct opt_row cmd_model_rows[];
/* --temperature, --top-p, --top-k, --min-p, --max-new-tokens, --stop, --kv-cache, --batch. */
extern const struct opt_row cmd_sampling_rows[];

struct cmd_model_opt {
	const char *dir;
	int dtype;              /* 0 bf16, 1 f32 */
};
extern struct cmd_model_opt cmd_model;

struct cmd_sampling_opt {
	double temperature, top_p, min_p;
	int64_t top_k, max_new, batch;
	uint64_t kv_bytes;
	struct opt_list stop;
};
extern struct cmd_sampling_opt cmd_sampling;

/* Parts that a program asked for; the others are NULL. */
struct cmd_runtime {
	struct cmd_dev dev;
	struct sky_device device;       /* what libcore takes */
	struct sky_model *model;
	struct sky_tokenizer *tok;
	struct sky_template *tmpl;
	struct sky_engine *engine;
};
enum cmd_parts { CMD_PART_TRAIN = 1u << 0, CMD_PART_TEXT = 1u << 1, CMD_PART_CHAT = 1u << 2, CMD_PART_ENGINE = 1u << 3 };

int cmd_runtime_open(struct cmd_runtime *r, unsigned parts, struct sky_err *err) SKY_MUST_CHECK;
void cmd_runtime_close(struct cmd_runtime *r);  /* safe on a zeroed or half-open struct */
/* Compute type named by --dtype. */
enum kn_dtype cmd_model_dtype(void);
/* The sampling options with --seed; stop strings are borrowed from the options. Checked. */
int cmd_sampling_get(struct sky_sampling *s, struct sky_err *err) SKY_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
