/* skyrl-pretok: the tokenizer, the chat template and the special tokens that the options name. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

/* bos_token and eos_token of tokenizer_config.json: a string, or an object with "content". */
static char *token_text(const struct sky_jnode *root, const char *key)
{
	const struct sky_jnode *v = sky_j_get(root, key);
	const char *s = sky_j_str(v);

	s = s ? s : sky_j_str(sky_j_get(v, "content"));
	return s ? strdup(s) : NULL;
}

static int read_special(struct pretok_text *t, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct sky_json *doc = NULL;
	int rc;

	if (!sky_is_dir(pt.tokenizer)) {
		return 0;
	}
	rc = sky_path_join(path, sizeof path, pt.tokenizer, "tokenizer_config.json", err);
	if (rc < 0 || !sky_file_exists(path)) {
		return rc;
	}
	rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err);
	if (!rc) {
		t->bos_token = token_text(sky_json_root(doc), "bos_token");
		t->eos_token = token_text(sky_json_root(doc), "eos_token");
	}
	sky_json_free(doc);
	return rc;
}

static int32_t id_of(const struct pretok_text *t, const char *s)
{
	return s ? sky_tokenizer_id(t->tok, s, strlen(s)) : -1;
}

/* --append-eod: the named token, else the end of sequence of the tokenizer. */
static int find_eod(struct pretok_text *t, struct sky_err *err)
{
	const char *s = pt.eod_token ? pt.eod_token : t->eos_token;

	t->bos = id_of(t, t->bos_token);
	t->eos = id_of(t, t->eos_token);
	t->eod = id_of(t, s);
	if ((pt.append_eod || pt.eod_token) && t->eod < 0) {
		return s ? sky_fail(err, SKY_E_USAGE, "--append-eod: \"%s\" is no token of %s (--eod-token)", s,
				pt.tokenizer) :
		       sky_fail(err, SKY_E_USAGE,
				"--append-eod: %s names no end-of-sequence token; name one with --eod-token",
				pt.tokenizer);
	}
	if (pt.bos == BOS_ALWAYS && t->bos < 0) {
		return sky_fail(err, SKY_E_USAGE, "--bos always: %s names no bos_token", pt.tokenizer);
	}
	return 0;
}

static int open_template(struct pretok_text *t, struct sky_err *err)
{
	struct sky_buf src = SKY_BUF_INIT(64u << 20);
	int rc;

	if (pt.chat_template) {
		rc = sky_file_read(pt.chat_template, &src, err);
		rc = rc ? rc : sky_template_parse(src.ptr ? src.ptr : "", src.n, pt.chat_template, &t->tmpl, err);
		sky_buf_release(&src);
		return rc;
	}
	if (!pt.tokenizer || !sky_is_dir(pt.tokenizer)) {
		return 0;
	}
	rc = sky_template_open(pt.tokenizer, &t->tmpl, err);
	return rc == SKY_E_MISSING ? 0 : rc;
}

/* YYYY-MM-DD as seconds; without the option the clock, which makes renders depend on the day. */
static int parse_date(struct pretok_text *t, struct sky_err *err)
{
	int f[6] = { 0 };
	const char *s = pt.date;

	t->date = -1;
	if (!s) {
		return 0;
	}
	if (strlen(s) == 10 && s[4] == '-' && s[7] == '-' && strspn(s, "0123456789-") == 10) {
		f[0] = (s[0] - '0') * 1000 + (s[1] - '0') * 100 + (s[2] - '0') * 10 + (s[3] - '0');
		f[1] = (s[5] - '0') * 10 + (s[6] - '0');
		f[2] = (s[8] - '0') * 10 + (s[9] - '0');
	}
	if (f[0] < 1970 || f[1] < 1 || f[1] > 12 || f[2] < 1 || f[2] > 31) {
		return sky_fail(err, SKY_E_USAGE, "--date \"%s\": a date as 2026-01-31 is expected", s);
	}
	t->date = sky_utc_seconds(f);
	return 0;
}

/* --template-arg k=v: v is JSON when it parses as such, else text. */
static int parse_args(struct pretok_text *t, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 20);
	struct sky_json *doc;
	struct sky_jw w;
	int rc;

	if (!pt.template_arg.n) {
		return 0;
	}
	sky_jw_init(&w, &text, err);
	sky_jw_obj(&w);
	for (int64_t i = 0; i < pt.template_arg.n; i++) {
		const char *s = pt.template_arg.v[i], *eq = strchr(s, '=');
		char key[256];

		if (!eq || eq == s || (size_t)(eq - s) >= sizeof key) {
			sky_buf_release(&text);
			return sky_fail(err, SKY_E_USAGE, "--template-arg \"%s\": NAME=VALUE is expected", s);
		}
		memcpy(key, s, (size_t)(eq - s));
		key[eq - s] = '\0';
		sky_jw_key(&w, key);
		if (!sky_json_parse(eq + 1, strlen(eq + 1), "--template-arg", 0, &doc, NULL)) {
			sky_jw_raw(&w, eq + 1, strlen(eq + 1));
			sky_json_free(doc);
		} else {
			sky_jw_str(&w, eq + 1);
		}
	}
	sky_jw_close_obj(&w);
	rc = sky_jw_end(&w);
	rc = rc ? rc : sky_json_parse(text.ptr, text.n, "--template-arg", 0, &t->args, err);
	sky_buf_release(&text);
	return rc;
}

int pretok_text_open(struct pretok_text *t, struct sky_err *err)
{
	int rc = 0;

	memset(t, 0, sizeof *t);
	t->bos = t->eos = t->eod = -1;
	t->vocab = pt.vocab_size > 0 ? pt.vocab_size : -1;
	if (pt.tokenizer) {
		rc = sky_tokenizer_open(pt.tokenizer, &t->tok, err);
		if (!rc) {
			const char *warn = sky_tokenizer_warnings(t->tok);

			if (*warn) {
				cmd_warn("%s: %s", pt.tokenizer, warn);
			}
			sky_tokenizer_fingerprint(t->tok, t->tok_hash);
			t->vocab = sky_tokenizer_vocab(t->tok);
			rc = read_special(t, err);
		}
		rc = rc ? rc : find_eod(t, err);
	}
	rc = rc ? rc : open_template(t, err);
	if (!rc && t->tmpl) {
		sky_template_fingerprint(t->tmpl, t->tmpl_hash);
	}
	rc = rc ? rc : parse_date(t, err);
	rc = rc ? rc : parse_args(t, err);
	rc = rc ? rc : sky_mask_rule_parse(pt.train_on ? pt.train_on : "last-assistant", &t->rule, err);
	if (rc < 0) {
		pretok_text_close(t);
	}
	return rc;
}

int pretok_need_template(const struct pretok_text *t, struct sky_err *err)
{
	if (t->tmpl) {
		return 0;
	}
	return sky_fail(err, SKY_E_USAGE,
			"conversations need a chat template, and %s has none: give one with --chat-template FILE",
			pt.tokenizer ? pt.tokenizer : "no tokenizer directory was named, so there");
}

void pretok_text_close(struct pretok_text *t)
{
	sky_tokenizer_close(t->tok);
	sky_template_close(t->tmpl);
	sky_json_free(t->args);
	free(t->bos_token);
	free(t->eos_token);
	memset(t, 0, sizeof *t);
}
