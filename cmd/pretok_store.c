/* skyrl-pretok verify, stats, cat: looking at token datasets. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

static int one_prefix(int argc, struct sky_err *err)
{
	return argc == 1 ? 0 : sky_fail(err, SKY_E_USAGE, "one PREFIX is expected");
}

/* Vocabulary to check against: of --tokenizer, else of the manifest, else none. */
static int vocab_of(const struct sky_tokens *t, int64_t *vocab_p, struct sky_err *err)
{
	const struct sky_json *m = sky_tokens_manifest(t);
	const struct sky_jnode *tok = m ? sky_j_get(sky_json_root(m), "tokenizer") : NULL;
	struct pretok_text text;
	const char *have;
	int rc;

	*vocab_p = -1;
	if (!pt.tokenizer) {
		return tok ? sky_j_get_i64(tok, "vocab", -1, vocab_p, err) : 0;
	}
	rc = pretok_text_open(&text, err);
	if (rc < 0) {
		return rc;
	}
	*vocab_p = text.vocab;
	have = tok ? sky_j_str(sky_j_get(tok, "sha256")) : NULL;
	if (have && strcmp(have, text.tok_hash)) {
		rc = sky_fail(err, SKY_E_DATA, "the set was made with another tokenizer than %s (%.16s…, not %.16s…)",
				pt.tokenizer,
			      have, text.tok_hash);
	}
	pretok_text_close(&text);
	return rc;
}

int pretok_verify(int argc, char **argv, struct sky_err *err)
{
	struct sky_tokens_report r;
	struct sky_tokens *t = NULL;
	struct sky_jw *w;
	int64_t vocab = -1;
	bool sealed = false;
	int rc = 0;

	if (!argc) {
		return sky_fail(err, SKY_E_USAGE, "a PREFIX is expected");
	}
	for (int i = 0; !rc && i < argc; i++) {
		rc = sky_tokens_open(argv[i], &t, err);
		if (!rc) {
			sealed = sky_tokens_manifest(t) != NULL;
			rc = vocab_of(t, &vocab, err);
		}
		sky_tokens_close(t);
		t = NULL;
		rc = rc ? rc : sky_tokens_verify(argv[i], vocab, &r, err);
		if (rc < 0) {
			break;
		}
		if (cmd.json) {
			w = cmd_rec("result", err);
			sky_jw_kbool(w, "ok", true);
			sky_jw_kstr(w, "op", "verify");
			sky_jw_kstr(w, "source", argv[i]);
			sky_jw_kbool(w, "checksums", sealed);
			sky_jw_ki64(w, "rows", r.n_row);
			sky_jw_ki64(w, "tokens", r.n_token);
			sky_jw_ki64(w, "trained_tokens", r.n_trained);
			rc = cmd_rec_end(err);
		} else {
			rc = cmd_outf(err, "%s: ok, %lld rows, %lld tokens, %lld trained, %s\n", argv[i], (long long)r.n_row,
				      (long long)r.n_token, (long long)r.n_trained,
				      sealed ? "checksums hold" : "no manifest: contents are unsealed");
		}
	}
	return rc;
}

/* Stop tokens trained: rows whose last trained token is the tokenizer's end of sequence. */
static int count_stops(const struct sky_tokens *t, int64_t *stops_p, struct sky_err *err)
{
	const struct sky_json *m = sky_tokens_manifest(t);
	int64_t eos = -1, n, k;
	int32_t id;
	int rc = m ? sky_j_get_i64(sky_j_get(sky_json_root(m), "tokenizer"), "eos", -1, &eos, err) : 0;

	*stops_p = eos < 0 ? -1 : 0;
	for (int64_t i = 0; !rc && eos >= 0 && i < sky_tokens_rows(t); i++) {
		const uint8_t *mask = sky_tokens_mask(t, i);

		n = sky_tokens_row_len(t, i);
		for (k = n - 1; mask && k >= 0 && !mask[k]; k--) {
		}
		if (k >= 0 && n) {
			rc = sky_tokens_ids(t, i, k, 1, &id, err);
			*stops_p += !rc && id == eos;
		}
	}
	return rc;
}

static int stats_json(const char *prefix, const struct sky_tokens *t, const struct sky_tokens_report *r, int64_t stops,
                      struct sky_err *err)
{
	struct sky_jw *w = cmd_rec("stats", err);

	sky_jw_kstr(w, "source", prefix);
	sky_jw_kstr(w, "dtype", sky_tokens_dtype_name(t));
	sky_jw_ki64(w, "rows", r->n_row);
	sky_jw_ki64(w, "documents", sky_tokens_docs(t));
	sky_jw_ki64(w, "tokens", r->n_token);
	sky_jw_ki64(w, "trained_tokens", r->n_trained);
	sky_jw_kbool(w, "mask", sky_tokens_has_mask(t));
	sky_jw_kbool(w, "manifest", sky_tokens_manifest(t) != NULL);
	sky_jw_ki64(w, "max_id", r->max_id);
	sky_jw_ki64(w, "shortest", r->min_len);
	sky_jw_ki64(w, "longest", r->max_len);
	sky_jw_kf64(w, "mean", r->n_row ? (double)r->n_token / (double)r->n_row : 0);
	sky_jw_ki64(w, "empty_rows", r->n_empty);
	sky_jw_ki64(w, "untrained_rows", r->n_untrained);
	sky_jw_ki64(w, "first_token_trained", r->n_first_trained);
	if (stops >= 0) {
		sky_jw_ki64(w, "rows_with_trained_stop", stops);
	}
	sky_jw_key(w, "length_log2");
	sky_jw_arr(w);
	for (int i = 0; i < 32; i++) {
		sky_jw_i64(w, r->len_log2[i]);
	}
	sky_jw_close_arr(w);
	return cmd_rec_end(err);
}

static int stats_text(const char *prefix, const struct sky_tokens *t, const struct sky_tokens_report *r, int64_t stops,
                      struct sky_err *err)
{
	int rc = cmd_outf(err, "%s\n  rows        %lld in %lld documents\n  tokens      %lld %s, largest id %lld\n"
			  "  trained     %lld (%.1f %%)%s\n  row length  %lld to %lld, mean %.1f\n", prefix,
					(long long)r->n_row,
			  (long long)sky_tokens_docs(t), (long long)r->n_token, sky_tokens_dtype_name(t),
					(long long)r->max_id,
			  (long long)r->n_trained, r->n_token ? 100.0 * (double)r->n_trained / (double)r->n_token : 0.0,
			  sky_tokens_has_mask(t) ? "" : ", no mask", (long long)r->min_len, (long long)r->max_len,
			  r->n_row ? (double)r->n_token / (double)r->n_row : 0.0);

	if (!rc && stops >= 0) {
		rc = cmd_outf(err, "  stops       %lld rows end their training on the stop token\n", (long long)stops);
	}
	if (!rc && (r->n_empty || r->n_untrained)) {
		rc = cmd_outf(err, "  idle        %lld empty rows, %lld rows without a trained token\n",
				(long long)r->n_empty,
			      (long long)r->n_untrained);
	}
	if (!rc && !r->n_token) {
		rc = cmd_outs("  note        no tokens at all: Megatron cannot map such a set\n", err);
	}
	for (int i = 0; !rc && i < 32; i++) {
		if (r->len_log2[i]) {
			rc = cmd_outf(err, "  %10lld rows of %lld to %lld tokens\n", (long long)r->len_log2[i], 1ll << i,
				      (2ll << i) - 1);
		}
	}
	return rc;
}

int pretok_stats(int argc, char **argv, struct sky_err *err)
{
	struct sky_tokens_report r;
	struct sky_tokens *t = NULL;
	int64_t stops = -1;
	int rc = one_prefix(argc, err);

	rc = rc ? rc : sky_tokens_open(argv[0], &t, err);
	rc = rc ? rc : sky_tokens_scan(t, -1, &r, err);
	rc = rc ? rc : count_stops(t, &stops, err);
	if (!rc) {
		rc = cmd.json ? stats_json(argv[0], t, &r, stops, err) : stats_text(argv[0], t, &r, stops, err);
	}
	sky_tokens_close(t);
	return rc;
}
