/* Private to skyrl-pretok: one run, shared by the pipeline (pretok_run.c) and what stands before and behind it (pretok_job.c). */
#ifndef SKY_CMD_PRETOK_RUN_H
#define SKY_CMD_PRETOK_RUN_H

#include "cmd/pretok_int.h"

struct run {
	struct pretok_text text;
	struct sky_corpus *corpus;
	struct sky_block *first;        /* read ahead to find the schema */
	enum sky_schema schema;
	struct pretok_worker *worker;
	int n_worker;
	struct sky_tokens_out *out;
	bool with_mask;
	struct pretok_rejects rej;
	struct cmd_meter meter;
	int64_t n_text, since_checkpoint, n_lost[3];
	int64_t i_file, row;            /* position behind the last block written */
	char key[65];
	struct sky_buf options;         /* JSON of what decides the bytes */
	struct sky_buf inputs;
	char share[64];
	int share_i, share_n;
	bool unchanged;
};

/* Tokenizer, inputs, schema, output, threads, as the options say; run->unchanged when there is nothing to do. */
int run_prepare(struct run *run, int argc, char **argv, struct sky_err *err) SKY_MUST_CHECK;
/* To the first row that is still to be done. */
int run_go_to_start(struct run *run, int argc, char **argv, struct sky_err *err) SKY_MUST_CHECK;
/* Quarantine, manifest, the published set; then the summary. */
int run_finish(struct run *run, struct sky_err *err) SKY_MUST_CHECK;
int run_report(struct run *run, int64_t rows, int64_t tokens, int64_t trained, struct sky_err *err) SKY_MUST_CHECK;
void run_close(struct run *run);

#endif
