/* skyrl-pretok: before the pipeline (inputs, schema, identity of the work, output, resume) and behind it (manifest, summary). */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_run.h"
#include "cmd/storeopt.h"

static void note_input(void *ctx, const char *file, const char *what)
{
	(void)ctx;
	cmd_verbose(1, "%s: %s", file, what);
}

static void warn_input(void *ctx, const char *file, const char *what)
{
	(void)ctx;
	cmd_warn("%s: %s", file, what);
}

/* Columns that any schema reads, so that tables need not unpack the others. */
static const char *const *wanted_columns(void)
{
	static const char *const known[] = {
		"input_ids", "loss_mask", "completion_mask", "assistant_masks", "assistant_mask", "labels", "prompt_length",
		"prompt_token_ids", "response_ids", "loss_masks", "conversations", "segments", "instruction", "input",
				"output", "history",
		"prompt", "completion", "chosen", "chat_template_kwargs",
	};
	static const char *list[128];
	struct sky_rows_opt o = pretok_rows_opt(SKY_SCHEMA_AUTO);
	size_t n = sizeof known / sizeof *known;

	memcpy(list, known, sizeof known);
	list[n++] = o.text_key ? o.text_key : "text";
	list[n++] = o.messages_key ? o.messages_key : "messages";
	list[n++] = o.tools_key ? o.tools_key : "tools";
	list[n++] = o.system_key ? o.system_key : "system";
	for (const char *const *m = o.map; m[0] && m[1] && n < 126; m += 2) {
		list[n++] = m[0];
	}
	list[n] = NULL;
	return list;
}

static int open_corpus(struct run *run, int argc, char **argv, struct sky_err *err)
{
	static const char *const from_stdin[] = { "-" };
	struct sky_corpus_opt o = { .max_line = pt.max_line, .keep_nulls = pt.keep_nulls, .columns = wanted_columns(),
			.worker = run->share_i,
				    .n_worker = run->share_n, .note = note_input, .warn = warn_input,
				    .stream = { .zstd_window_log = (int)pt.zstd_long, .store = cmd_store_opt() } };
	int rc = sky_input_format_parse(pt.format ? pt.format : "auto", &o.format, err);

	if (rc < 0) {
		return rc;
	}
	return argc ? sky_corpus_open((const char *const *)argv, argc, &o, &run->corpus, err) :
	       sky_corpus_open(from_stdin, 1, &o, &run->corpus, err);
}

/* Schema of the first row that is not blank decides for all inputs. */
static int find_schema(struct run *run, struct sky_err *err)
{
	struct sky_rows_opt o = pretok_rows_opt(SKY_SCHEMA_AUTO);
	struct sky_rows *rows;
	const char *p, *end, *nl;
	int rc = sky_corpus_next(run->corpus, &run->first, err);

	if (rc == SKY_EOF) {
		run->schema = SKY_SCHEMA_TEXT;
		return 0;
	}
	if (rc < 0) {
		return rc;
	}
	if (run->first->kind != SKY_BLOCK_JSON) {
		run->schema = SKY_SCHEMA_TEXT;
		return 0;
	}
	rc = sky_rows_new(&o, &rows, err);
	if (rc < 0) {
		return rc;
	}
	p = run->first->data.ptr;
	end = p + run->first->data.n;
	for (; p < end && run->schema == SKY_SCHEMA_AUTO; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		nl = nl ? nl : end;
		run->schema = sky_rows_detect(rows, p, (size_t)(nl - p));
	}
	sky_rows_free(rows);
	if (run->schema == SKY_SCHEMA_AUTO) {
		return sky_fail(err, SKY_E_DATA, "%s: no row shows a known schema (columns text, messages, conversations, "
				"instruction and output, prompt and completion, segments, input_ids); name one with "
						"--schema, or the "
				"columns with --text-key, --messages-key, --map", run->first->file);
	}
	cmd_note("schema %s (from %s)", sky_schema_name(run->schema), run->first->file);
	return 0;
}

static void put_list(struct sky_jw *w, const char *key, const struct opt_list *l)
{
	sky_jw_key(w, key);
	sky_jw_arr(w);
	for (int64_t i = 0; i < l->n; i++) {
		sky_jw_str(w, l->v[i]);
	}
	sky_jw_close_arr(w);
}

static void put_text(struct sky_jw *w, const char *key, const char *s)
{
	if (s) {
		sky_jw_kstr(w, key, s);
	}
}

/* Everything that decides the bytes, as JSON for the manifest and the key of a resume. */
static int describe(struct run *run, struct sky_err *err)
{
	struct sky_sha256 h;
	struct sky_jw w;
	uint8_t sum[32];
	int rc;

	sky_jw_init(&w, &run->options, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "schema", sky_schema_name(run->schema));
	put_text(&w, "input_format", pt.format);
	put_text(&w, "train_on", pt.train_on);
	put_text(&w, "text_key", pt.text_key);
	put_text(&w, "messages_key", pt.messages_key);
	put_text(&w, "tools_key", pt.tools_key);
	put_text(&w, "system_key", pt.system_key);
	put_text(&w, "date", pt.date);
	put_text(&w, "eod_token", pt.eod_token);
	put_text(&w, "on_error", pt.on_error ? (strncmp(pt.on_error, "quarantine", 10) ? pt.on_error : "quarantine") : NULL);
	put_list(&w, "map", &pt.map);
	put_list(&w, "role", &pt.role);
	put_list(&w, "template_arg", &pt.template_arg);
	sky_jw_ki64(&w, "max_length", pt.max_length);
	sky_jw_ki64(&w, "overlong", pt.overlong);
	sky_jw_ki64(&w, "empty", pt.empty);
	sky_jw_ki64(&w, "invalid_utf8", pt.invalid_utf8);
	sky_jw_ki64(&w, "min_trained", pt.min_trained);
	sky_jw_ki64(&w, "dtype", pt.dtype);
	sky_jw_ki64(&w, "bos", pt.bos);
	sky_jw_ki64(&w, "lost", pt.lost);
	sky_jw_kbool(&w, "append_eod", pt.append_eod);
	sky_jw_kbool(&w, "no_special", pt.no_special);
	sky_jw_kbool(&w, "keep_nulls", pt.keep_nulls);
	sky_jw_kbool(&w, "arguments_as_text", pt.arguments_as_text);
	if (run->share_n > 1) {
		sky_jw_kstr(&w, "worker", run->share);
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_corpus_describe(run->corpus, &run->inputs, err);
	sky_sha256_init(&h);
	if (!rc) {
		sky_sha256_update(&h, run->options.ptr, run->options.n);
		sky_sha256_update(&h, run->inputs.ptr, run->inputs.n);
	}
	sky_sha256_update(&h, run->text.tok_hash, strlen(run->text.tok_hash));
	sky_sha256_update(&h, run->text.tmpl_hash, strlen(run->text.tmpl_hash));
	sky_sha256_final(&h, sum);
	sky_hex(sum, 32, run->key);
	return rc;
}

static int resume(struct run *run, struct sky_err *err)
{
	const struct sky_jnode *s = sky_tokens_state(run->out), *counts;
	int64_t v = 0;
	int rc;

	if (!s) {
		return pretok_rejects_open(&run->rej, 0, err);
	}
	rc = sky_j_get_i64(s, "file", 0, &run->i_file, err);
	rc = rc ? rc : sky_j_get_i64(s, "row", 0, &run->row, err);
	rc = rc ? rc : sky_j_get_i64(s, "text", 0, &run->n_text, err);
	rc = rc ? rc : sky_j_get_i64(s, "seen", 0, &run->rej.n_row, err);
	rc = rc ? rc : sky_j_get_i64(s, "quarantine", 0, &v, err);
	rc = rc ? rc : pretok_rejects_open(&run->rej, (uint64_t)v, err);
	counts = sky_j_get(s, "counts");
	for (int i = 0; !rc && i < SKY_ROW_REASONS; i++) {
		rc = sky_j_get_i64(counts, sky_reason_name((enum sky_reason)i), 0, &run->rej.count[i], err);
	}
	for (int i = 0; i < 3; i++) {
		(void)!sky_j_i64(sky_j_at(sky_j_get(s, "lost"), (size_t)i), &run->n_lost[i]);
	}
	if (rc < 0) {
		return rc;
	}
	cmd_note("resuming behind %s:%lld with %lld rows", sky_corpus_file(run->corpus, run->i_file), (long long)run->row,
		 (long long)sky_tokens_out_rows(run->out));
	return 0;
}

static int choose_width(const struct run *run, int *bytes_p, struct sky_err *err)
{
	int64_t vocab = run->text.vocab;

	*bytes_p = vocab >= 0 ? sky_tokens_width(vocab) : 4;
	if (pt.dtype == DTYPE_U32) {
		*bytes_p = 4;
	} else if (pt.dtype == DTYPE_U16) {
		if (vocab > 65536) {
			return sky_fail(err, SKY_E_USAGE,
					"--dtype u16: the vocabulary of %lld ids, added tokens included, needs u32",
					(long long)vocab);
		}
		*bytes_p = 2;
	}
	return 0;
}

static int create(struct run *run, struct sky_err *err)
{
	struct sky_tokens_opt o = { .with_mask = run->with_mask, .out_flags = cmd.force ? SKY_OUT_REPLACE : 0,
				    .resume = pt.resume, .key = run->key };
	char prefix[SKY_MAX_PATH];
	int rc = choose_width(run, &o.dtype_bytes, err);

	if (run->share_n > 1) {
		snprintf(prefix, sizeof prefix, "%s-%05d-of-%05d", cmd.output, run->share_i, run->share_n);
	} else {
		snprintf(prefix, sizeof prefix, "%s", cmd.output);
	}
	rc = rc ? rc : sky_tokens_create(prefix, &o, &run->out, err);
	if (rc == SKY_E_UNCHANGED) {
		cmd_note("%s", err->msg);
		run->unchanged = true;
		return 0;
	}
	return rc ? rc : resume(run, err);
}

/* Rows in which the template left something of a trained message out. */
static void put_lost(const struct run *run, struct sky_jw *w)
{
	sky_jw_obj(w);
	sky_jw_ki64(w, "content", run->n_lost[0]);
	sky_jw_ki64(w, "reasoning", run->n_lost[1]);
	sky_jw_ki64(w, "tool_calls", run->n_lost[2]);
	sky_jw_close_obj(w);
}

static int extra_members(struct run *run, struct sky_buf *out, struct sky_err *err)
{
	struct sky_jw w;
	int rc;

	sky_jw_init(&w, out, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "tool", "skyrl-pretok " PACKAGE_VERSION);
	if (run->text.tok) {
		sky_jw_key(&w, "tokenizer");
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "sha256", run->text.tok_hash);
		sky_jw_ki64(&w, "vocab", run->text.vocab);
		sky_jw_ki64(&w, "bos", run->text.bos);
		sky_jw_ki64(&w, "eos", run->text.eos);
		sky_jw_ki64(&w, "eod", run->text.eod);
		sky_jw_close_obj(&w);
	}
	if (run->text.tmpl && run->with_mask) {
		sky_jw_key(&w, "chat_template");
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "sha256", run->text.tmpl_hash);
		sky_jw_close_obj(&w);
	}
	sky_jw_key(&w, "options");
	sky_jw_raw(&w, run->options.ptr, run->options.n);
	sky_jw_key(&w, "inputs");
	sky_jw_raw(&w, run->inputs.ptr, run->inputs.n);
	sky_jw_ki64(&w, "rows_read", run->rej.n_row);
	sky_jw_ki64(&w, "text_bytes", run->n_text);
	sky_jw_key(&w, "left_out");
	pretok_counts_json(&run->rej, &w);
	sky_jw_key(&w, "lost");
	put_lost(run, &w);
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	return rc;
}

int run_finish(struct run *run, struct sky_err *err)
{
	struct sky_buf extra = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	int rc = pretok_rejects_commit(&run->rej, err);

	rc = rc ? rc : extra_members(run, &extra, err);
	if (!rc) {
		extra.ptr[--extra.n] = '\0';    /* the inside of the object */
		rc = sky_tokens_commit(run->out, extra.ptr + 1, err);
		run->out = NULL;
	}
	sky_buf_release(&extra);
	return rc;
}

int run_report(struct run *run, int64_t rows, int64_t tokens, int64_t trained, struct sky_err *err)
{
	static const char *const lost_name[] = { "content", "reasoning", "tool calls" };
	double s = cmd_since_start();
	struct sky_jw *w;

	cmd_meter_stop(&run->meter);
	cmd_note("%s: %lld rows, %lld tokens, %lld trained; %.1f MB of rows in %.2f s, %.1f MB/s", cmd.output,
			(long long)rows,
		 (long long)tokens, (long long)trained, (double)run->n_text * 1e-6, s, (double)run->n_text * 1e-6 / s);
	for (int i = SKY_ROW_BLANK; i < SKY_ROW_REASONS; i++) {
		if (run->rej.count[i]) {
			cmd_note("left out: %lld %s", (long long)run->rej.count[i], sky_reason_name((enum sky_reason)i));
		}
	}
	for (int i = 0; i < 3; i++) {
		if (run->n_lost[i]) {
			cmd_warn("the chat template did not print the %s of trained messages in %lld rows (--lost)",
					lost_name[i],
				 (long long)run->n_lost[i]);
		}
	}
	if (!rows) {
		cmd_warn("%s: no row in the inputs gave tokens; Megatron cannot map an empty set", cmd.output);
	}
	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", "pretok");
	sky_jw_kstr(w, "destination", cmd.output);
	sky_jw_ki64(w, "rows_read", run->rej.n_row);
	sky_jw_ki64(w, "rows", rows);
	sky_jw_ki64(w, "tokens", tokens);
	sky_jw_ki64(w, "trained_tokens", trained);
	sky_jw_ki64(w, "bytes", run->n_text);
	sky_jw_key(w, "left_out");
	pretok_counts_json(&run->rej, w);
	sky_jw_key(w, "lost");
	put_lost(run, w);
	sky_jw_kf64(w, "elapsed_s", s);
	return cmd_rec_end(err);
}

static int open_workers(struct run *run, struct sky_err *err)
{
	int rc = 0;

	run->n_worker = (int)cmd.threads;
	run->worker = sky_calloc_array((size_t)run->n_worker, sizeof *run->worker);
	if (!run->worker) {
		return sky_fail_mem(err, "%d threads", run->n_worker);
	}
	for (int i = 0; !rc && i < run->n_worker; i++) {
		rc = pretok_worker_open(&run->worker[i], &run->text, run->schema, err);
	}
	return rc;
}

int run_prepare(struct run *run, int argc, char **argv, struct sky_err *err)
{
	enum sky_schema s = SKY_SCHEMA_AUTO;
	int rc = sky_schema_parse(pt.schema ? pt.schema : "auto", &s, err);

	rc = rc ? rc : pretok_rejects_parse(&run->rej, err);
	rc = rc ? rc : pretok_worker_share(&run->share_i, &run->share_n, run->share, sizeof run->share, err);
	rc = rc ? rc : pretok_text_open(&run->text, err);
	rc = rc ? rc : open_corpus(run, argc, argv, err);
	run->schema = s;
	if (!rc && s == SKY_SCHEMA_AUTO) {
		rc = find_schema(run, err);
	}
	if (!rc && !run->text.tok && run->schema != SKY_SCHEMA_TOKENS) {
		rc = sky_fail(err, SKY_E_USAGE, "no --tokenizer: only rows of ready ids (--schema tokens) can do without");
	}
	if (!rc && (run->schema == SKY_SCHEMA_MESSAGES || run->schema == SKY_SCHEMA_SHAREGPT ||
		    run->schema == SKY_SCHEMA_ALPACA)) {
		rc = pretok_need_template(&run->text, err);
	}
	run->with_mask = run->schema != SKY_SCHEMA_TEXT;
	rc = rc ? rc : describe(run, err);
	rc = rc ? rc : create(run, err);
	return rc || run->unchanged ? rc : open_workers(run, err);
}

/* A resume begins behind the checkpoint; the block that showed the schema may be read again. */
int run_go_to_start(struct run *run, int argc, char **argv, struct sky_err *err)
{
	int rc = 0;

	if (sky_tokens_state(run->out)) {
		sky_block_free(run->first);
		run->first = NULL;
		sky_corpus_close(run->corpus);
		run->corpus = NULL;
		rc = open_corpus(run, argc, argv, err);
		rc = rc ? rc : sky_corpus_seek(run->corpus, run->i_file, run->row, err);
	}
	return rc;
}

void run_close(struct run *run)
{
	pretok_rejects_abort(&run->rej);
	sky_tokens_abort(run->out);
	sky_block_free(run->first);
	for (int i = 0; run->worker && i < run->n_worker; i++) {
		pretok_worker_close(&run->worker[i]);
	}
	free(run->worker);
	sky_corpus_close(run->corpus);
	pretok_text_close(&run->text);
	sky_buf_release(&run->options);
	sky_buf_release(&run->inputs);
}
