/* Reader of token datasets: a Megatron pair, the mask pair beside it, the manifest above both. */
#include <stdlib.h>
#include <string.h>

#include "tokens/tokens_int.h"

static const char *const suffixes[] = { ".mask.bin", ".mask.idx", ".bin", ".idx", ".json" };

/* PREFIX of what the user named: PREFIX itself or one of its files. malloc'd. */
static char *find_prefix(const char *given, struct sky_err *err)
{
	char *s = tok_path(given, ".idx", err);
	size_t n = strlen(given), m;

	if (!s) {
		return NULL;
	}
	s[n] = '\0';
	for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
		m = strlen(suffixes[i]);
		if (n > m && !strcmp(given + n - m, suffixes[i]) && sky_file_exists(given)) {
			s[n - m] = '\0';
			break;
		}
	}
	return s;
}

int manifest_seal(struct sky_buf *text, struct sky_err *err)
{
	char hex[33];

	sky_h128_hex(sky_xxh128(text->ptr, text->n), hex);
	return sky_buf_addf(text, err, "%s%s\"}\n", TOK_CHECK_KEY, hex);
}

int manifest_check(const char *text, size_t n, const char *path, struct sky_err *err)
{
	const size_t n_tail = strlen(TOK_CHECK_KEY) + 32 + 3;
	char want[33];

	if (n > n_tail && !memcmp(text + n - n_tail, TOK_CHECK_KEY, strlen(TOK_CHECK_KEY)) &&
	    !memcmp(text + n - 3, "\"}\n", 3)) {
		sky_h128_hex(sky_xxh128(text, n - n_tail), want);
		if (!memcmp(text + n - 35, want, 32)) {
			return 0;
		}
	}
	return sky_fail(err, SKY_E_DATA, "%s: its own checksum does not hold: the manifest is damaged or was edited", path);
}

static int expect_i64(const struct sky_jnode *m, const char *key, int64_t have, const char *path, struct sky_err *err)
{
	int64_t want;
	int rc = sky_j_get_i64(m, key, -1, &want, err);

	if (rc < 0) {
		return sky_while(err, rc, "%s", path);
	}
	if (want != have) {
		return sky_fail(err, SKY_E_DATA, "%s: promises %s %lld, the files have %lld: manifest and data belong to "
				"different sets, or a file is damaged", path, key, (long long)want, (long long)have);
	}
	return 0;
}

/* The cheap promises of the manifest; contents are for sky_tokens_verify. */
static int check_manifest(struct sky_tokens *t, const char *path, struct sky_err *err)
{
	const struct sky_jnode *m = sky_json_root(t->manifest);
	const char *state, *format;
	bool mask;
	int rc;

	rc = sky_j_get_str(m, "format", "", &format, err);
	rc = rc ? rc : sky_j_get_str(m, "state", "", &state, err);
	rc = rc ? rc : sky_j_get_bool(m, "mask", false, &mask, err);
	rc = rc ? rc : sky_j_get_i64(m, "max_id", -1, &t->max_id, err);
	if (rc < 0) {
		return sky_while(err, rc, "%s", path);
	}
	if (strcmp(format, "skyrl-tokens")) {
		return sky_fail(err, SKY_E_DATA, "%s: not the manifest of a token dataset (format is \"%.40s\")", path,
				format);
	}
	if (strcmp(state, "complete")) {
		return sky_fail(err, SKY_E_DATA,
				"%s: the set was never finished (state \"%.40s\"); run its writer again, with "
				"--resume where it has that", path, state);
	}
	rc = expect_i64(m, "rows", t->tok.n_seq, path, err);
	rc = rc ? rc : expect_i64(m, "tokens", t->tok.n_total, path, err);
	if (!rc && mask != t->has_mask) {
		rc = sky_fail(err, mask ? SKY_E_MISSING : SKY_E_DATA, "%s: says %s mask, but %s.mask.idx %s", path,
			      mask ? "there is a" : "there is no", t->prefix, mask ? "is missing" : "exists");
	}
	return rc;
}

/* Mask elements are bytes and its rows are the tokens' rows. */
static int check_mask(const struct sky_tokens *t, struct sky_err *err)
{
	const struct pair *a = &t->tok, *m = &t->mask;

	if (m->size != 1) {
		return sky_fail(err, SKY_E_DATA, "%s.mask.idx: elements are %s, a loss mask is uint8", t->prefix,
				idx_code_name(m->code));
	}
	if (m->n_seq != a->n_seq || m->n_bound != a->n_bound) {
		return sky_fail(err, SKY_E_DATA, "%s.mask.idx: %lld rows in %lld documents, the tokens have %lld in %lld",
				t->prefix, (long long)m->n_seq, (long long)m->n_bound - 1, (long long)a->n_seq,
				(long long)a->n_bound - 1);
	}
	for (int64_t i = 0; i < a->n_seq; i++) {
		if (pair_len(m, i) != pair_len(a, i)) {
			return sky_fail(err, SKY_E_DATA, "%s.mask.idx: row %lld has %lld mask bytes for %lld tokens",
					t->prefix,
					(long long)i, (long long)pair_len(m, i), (long long)pair_len(a, i));
		}
	}
	if (memcmp(a->bound, m->bound, (size_t)a->n_bound * 8)) {
		return sky_fail(err, SKY_E_DATA, "%s.mask.idx: document bounds differ from those of the tokens", t->prefix);
	}
	return 0;
}

static int open_manifest(struct sky_tokens *t, const char *path, struct sky_err *err)
{
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	int rc = sky_file_read(path, &text, err);

	rc = rc ? rc : sky_json_parse(text.ptr, text.n, path, 0, &t->manifest, err);
	sky_buf_release(&text);
	return rc;
}

/* A marker left by a writer tells more than the damage it may have left in the files. */
static int refuse_unfinished(const struct sky_tokens *t, const char *path, struct sky_err *err)
{
	const struct sky_jnode *m = sky_json_root(t->manifest);
	const char *state = sky_j_str(sky_j_get(m, "state"));

	if (state && !strcmp(state, "writing")) {
		return sky_fail(err, SKY_E_DATA,
				"%s: the set was never finished (state \"writing\"); run its writer again, with "
				"--resume where it has that", path);
	}
	return 0;
}

static int open_files(struct sky_tokens *t, struct sky_err *err)
{
	char *json = tok_path(t->prefix, ".json", err);
	char *mask = tok_path(t->prefix, ".mask", err);
	char *mask_idx = tok_path(t->prefix, ".mask.idx", err);
	int rc = json && mask && mask_idx ? 0 : SKY_E_LIMIT;

	if (!rc && sky_file_exists(json)) {
		rc = open_manifest(t, json, err);
		rc = rc ? rc : refuse_unfinished(t, json, err);
	}
	rc = rc ? rc : pair_open(t->prefix, &t->tok, err);
	if (!rc && (t->tok.code == IDX_F32 || t->tok.code == IDX_F64)) {
		rc = sky_fail(err, SKY_E_DATA, "%s.idx: elements are %s, ids are integers", t->prefix,
			      idx_code_name(t->tok.code));
	}
	if (!rc && sky_file_exists(mask_idx)) {
		t->has_mask = 1;
		rc = pair_open(mask, &t->mask, err);
		rc = rc ? rc : check_mask(t, err);
	}
	if (!rc && t->manifest) {
		rc = check_manifest(t, json, err);
	}
	free(json);
	free(mask);
	free(mask_idx);
	return rc;
}

int sky_tokens_open(const char *prefix, struct sky_tokens **t_p, struct sky_err *err)
{
	struct sky_tokens *t = calloc(1, sizeof *t);
	int rc;

	if (!t) {
		return sky_fail_mem(err, "opening %s", prefix);
	}
	t->max_id = -1;
	t->prefix = find_prefix(prefix, err);
	rc = t->prefix ? open_files(t, err) : SKY_E_LIMIT;
	if (rc < 0) {
		sky_tokens_close(t);
		return rc;
	}
	*t_p = t;
	return 0;
}

void sky_tokens_close(struct sky_tokens *t)
{
	if (t) {
		pair_close(&t->tok);
		pair_close(&t->mask);
		sky_json_free(t->manifest);
		free(t->prefix);
		free(t);
	}
}

int64_t sky_tokens_rows(const struct sky_tokens *t)
{
	return t->tok.n_seq;
}

int64_t sky_tokens_total(const struct sky_tokens *t)
{
	return t->tok.n_total;
}

int64_t sky_tokens_longest(const struct sky_tokens *t)
{
	return t->tok.n_longest;
}

int sky_tokens_dtype_bytes(const struct sky_tokens *t)
{
	return t->tok.size;
}

const char *sky_tokens_dtype_name(const struct sky_tokens *t)
{
	return idx_code_name(t->tok.code);
}

int64_t sky_tokens_max_id(const struct sky_tokens *t)
{
	return t->max_id;
}

int64_t sky_tokens_row_len(const struct sky_tokens *t, int64_t row)
{
	return pair_len(&t->tok, row);
}

int64_t sky_tokens_docs(const struct sky_tokens *t)
{
	return t->tok.n_bound - 1;
}

void sky_tokens_doc(const struct sky_tokens *t, int64_t doc, int64_t *from_p, int64_t *to_p)
{
	*from_p = pair_bound(&t->tok, doc);
	*to_p = pair_bound(&t->tok, doc + 1);
}

/* Element i of a typed array as int64. */
static int64_t element(const uint8_t *p, int code, int64_t i)
{
	switch (code) {
	case IDX_U8:
		return p[i];
	case IDX_I8:
		return (int8_t)p[i];
	case IDX_I16:
		return (int16_t)sky_load_u16(p + 2 * i);
	case IDX_U16:
		return sky_load_u16(p + 2 * i);
	case IDX_I32:
		return (int32_t)sky_load_u32(p + 4 * i);
	default:
		return (int64_t)sky_load_u64(p + 8 * i);
	}
}

int sky_tokens_ids(const struct sky_tokens *t, int64_t row, int64_t from, int64_t n, int32_t *out, struct sky_err *err)
{
	const struct pair *p = &t->tok;
	const uint8_t *at;
	int64_t v;

	if (row < 0 || row >= p->n_seq || from < 0 || n < 0 || from > pair_len(p, row) || n > pair_len(p, row) - from) {
		return sky_fail(err, SKY_E_USAGE, "%s: no tokens [%lld, %lld) in row %lld", t->prefix, (long long)from,
				(long long)(from + n), (long long)row);
	}
	if (!n) {
		return 0;
	}
	at = p->bin.ptr + pair_ptr(p, row) + from * p->size;
	if (p->code == IDX_I32) {
		memcpy(out, at, (size_t)n * 4);
		return 0;
	}
	if (p->code == IDX_U16) {
		for (int64_t i = 0; i < n; i++) {
			out[i] = at[2 * i] | at[2 * i + 1] << 8;
		}
		return 0;
	}
	for (int64_t i = 0; i < n; i++) {
		v = element(at, p->code, i);
		if (v < INT32_MIN || v > INT32_MAX) {
			return sky_fail(err, SKY_E_DATA, "%s: row %lld, token %lld: %lld is no 32-bit id", t->prefix,
					(long long)row, (long long)(from + i), (long long)v);
		}
		out[i] = (int32_t)v;
	}
	return 0;
}

const uint8_t *sky_tokens_mask(const struct sky_tokens *t, int64_t row)
{
	static const uint8_t none[1];

	if (!t->has_mask) {
		return NULL;
	}
	return t->mask.bin.ptr ? t->mask.bin.ptr + pair_ptr(&t->mask, row) : none;
}

int sky_tokens_has_mask(const struct sky_tokens *t)
{
	return t->has_mask;
}

const struct sky_json *sky_tokens_manifest(const struct sky_tokens *t)
{
	return t->manifest;
}
