/* skyrl-pretok merge: token datasets one behind the other; nothing is encoded again. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

const struct opt_row pretok_merge_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "the merged set"),
	CMD_OPT_FORCE,
	CMD_OPT_JSON,
	OPT_END
};

struct merge {
	struct sky_tokens **set;
	int n;
	int32_t *ids;
	uint8_t *mask;
	int64_t cap;
	struct sky_tokens_out *out;
};

static const struct sky_jnode *tokenizer_of(const struct sky_tokens *t)
{
	const struct sky_json *m = sky_tokens_manifest(t);

	return m ? sky_j_get(sky_json_root(m), "tokenizer") : NULL;
}

/* All inputs that name a tokenizer must name the same one. *first_p: the one, or NULL. */
static int same_tokenizer(const struct merge *m, char **names, const struct sky_jnode **first_p, struct sky_err *err)
{
	const char *hash = NULL, *h;
	int from = 0;

	*first_p = NULL;
	for (int i = 0; i < m->n; i++) {
		const struct sky_jnode *t = tokenizer_of(m->set[i]);

		h = sky_j_str(sky_j_get(t, "sha256"));
		if (h && hash && strcmp(h, hash)) {
			return sky_fail(err, SKY_E_DATA, "%s and %s were made with different tokenizers (%.16s…, %.16s…)",
					names[from], names[i], hash, h);
		}
		if (h && !hash) {
			hash = h;
			from = i;
			*first_p = t;
		}
	}
	return 0;
}

static int room(struct merge *m, int64_t n, struct sky_err *err)
{
	if (n > m->cap) {
		int32_t *ids = sky_realloc_array(m->ids, (size_t)n, sizeof *ids);
		uint8_t *mask;

		m->ids = ids ? ids : m->ids;
		mask = ids ? sky_realloc_array(m->mask, (size_t)n, 1) : NULL;
		if (!mask) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)n);
		}
		m->mask = mask;
		m->cap = n;
	}
	return 0;
}

static int copy_rows(struct merge *m, const struct sky_tokens *t, struct sky_err *err)
{
	int rc = 0;

	for (int64_t i = 0; !rc && i < sky_tokens_rows(t); i++) {
		int64_t n = sky_tokens_row_len(t, i);
		const uint8_t *mask = sky_tokens_mask(t, i);

		if (cmd_stopping()) {
			return cmd_stop_err(err, "nothing was written");
		}
		rc = room(m, n, err);
		rc = rc || !n ? rc : sky_tokens_ids(t, i, 0, n, m->ids, err);
		if (!rc && !mask && n) {
			memset(m->mask, 1, (size_t)n);
			m->mask[0] = 0;
		}
		rc = rc ? rc : sky_tokens_add(m->out, m->ids, mask ? mask : m->mask, n, err);
	}
	return rc;
}

static int extra_members(struct merge *m, char **names, const struct sky_jnode *tok, struct sky_buf *out, struct sky_err *err)
{
	struct sky_jw w;
	int rc = 0;

	sky_jw_init(&w, out, err);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "tool", "skyrl-pretok " PACKAGE_VERSION);
	if (tok) {
		sky_jw_key(&w, "tokenizer");
		rc = sky_j_print(tok, out, err);
		w.comma = true;
		w.keyed = false;
	}
	sky_jw_key(&w, "merged");
	sky_jw_arr(&w);
	for (int i = 0; i < m->n; i++) {
		sky_jw_obj(&w);
		sky_jw_kstr(&w, "name", names[i]);
		sky_jw_ki64(&w, "rows", sky_tokens_rows(m->set[i]));
		sky_jw_ki64(&w, "tokens", sky_tokens_total(m->set[i]));
		sky_jw_close_obj(&w);
	}
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	return rc ? rc : sky_jw_end(&w);
}

static int merge_sets(struct merge *m, char **names, struct sky_err *err)
{
	struct sky_tokens_opt o = { .dtype_bytes = 2, .out_flags = cmd.force ? SKY_OUT_REPLACE : 0 };
	struct sky_buf extra = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	const struct sky_jnode *tok;
	int rc = same_tokenizer(m, names, &tok, err);

	for (int i = 0; i < m->n; i++) {
		const char *d = sky_tokens_dtype_name(m->set[i]);

		o.with_mask |= sky_tokens_has_mask(m->set[i]);
		o.dtype_bytes = strcmp(d, "uint16") && strcmp(d, "uint8") ? 4 : o.dtype_bytes;
	}
	rc = rc ? rc : sky_tokens_create(cmd.output, &o, &m->out, err);
	for (int i = 0; !rc && i < m->n; i++) {
		rc = copy_rows(m, m->set[i], err);
		rc = sky_while(err, rc, "%s", names[i]);
	}
	rc = rc ? rc : extra_members(m, names, tok, &extra, err);
	if (!rc) {
		int64_t rows = sky_tokens_out_rows(m->out), tokens = sky_tokens_out_total(m->out);

		extra.ptr[--extra.n] = '\0';
		rc = sky_tokens_commit(m->out, extra.ptr + 1, err);
		m->out = NULL;
		if (!rc) {
			cmd_note("%s: %lld rows, %lld tokens from %d sets", cmd.output, (long long)rows,
					(long long)tokens, m->n);
		}
		if (!rc && cmd.json) {
			struct sky_jw *w = cmd_rec("result", err);

			sky_jw_kbool(w, "ok", true);
			sky_jw_kstr(w, "op", "merge");
			sky_jw_kstr(w, "destination", cmd.output);
			sky_jw_ki64(w, "rows", rows);
			sky_jw_ki64(w, "tokens", tokens);
			rc = cmd_rec_end(err);
		}
	}
	sky_tokens_abort(m->out);
	sky_buf_release(&extra);
	return rc;
}

int pretok_merge(int argc, char **argv, struct sky_err *err)
{
	struct merge m = { 0 };
	int rc = 0;

	if (!argc || !cmd.output) {
		return sky_fail(err, SKY_E_USAGE, "-o PREFIX and at least one input PREFIX are expected");
	}
	m.set = sky_calloc_array((size_t)argc, sizeof *m.set);
	if (!m.set) {
		return sky_fail_mem(err, "%d inputs", argc);
	}
	for (m.n = 0; !rc && m.n < argc; m.n++) {
		rc = sky_tokens_open(argv[m.n], &m.set[m.n], err);
	}
	rc = rc ? rc : merge_sets(&m, argv, err);
	for (int i = 0; i < argc; i++) {
		sky_tokens_close(m.set[i]);
	}
	free(m.set);
	free(m.ids);
	free(m.mask);
	return rc;
}
