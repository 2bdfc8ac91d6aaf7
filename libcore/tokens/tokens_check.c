/* The full walk over a token dataset: ids, masks, counts, and every promise of the manifest. */
#include <stdlib.h>
#include <string.h>

#include "tokens/tokens_int.h"

#define CHUNK 65536     /* ids looked at at a time, so that a row of 2^31 tokens needs no memory */

static int check_ids(const struct sky_tokens *t, int64_t row, const int32_t *id, int64_t from, int64_t n, int64_t vocab,
                     int64_t *max_p, struct sky_err *err)
{
	int32_t lo = INT32_MAX, hi = INT32_MIN;

	for (int64_t i = 0; i < n; i++) {
		lo = id[i] < lo ? id[i] : lo;
		hi = id[i] > hi ? id[i] : hi;
	}
	if (n && (lo < 0 || (vocab >= 0 && hi >= vocab))) {
		for (int64_t i = 0; i < n; i++) {
			if (id[i] < 0 || (vocab >= 0 && id[i] >= vocab)) {
				return sky_fail(err, SKY_E_DATA,
						"%s: row %lld, token %lld: id %d is outside the vocabulary of "
						"%lld", t->prefix, (long long)row, (long long)(from + i), id[i],
						(long long)(vocab >= 0 ? vocab : (int64_t)INT32_MAX + 1));
			}
		}
	}
	*max_p = hi > *max_p ? hi : *max_p;
	return 0;
}

static int count_mask(const struct sky_tokens *t, int64_t row, int64_t n, int64_t *trained_p, struct sky_err *err)
{
	const uint8_t *m = sky_tokens_mask(t, row);
	int64_t sum = 0;
	uint8_t any = 0;

	if (!m) {
		*trained_p = n;
		return 0;
	}
	for (int64_t i = 0; i < n; i++) {
		any |= m[i];
		sum += m[i];
	}
	if (any > 1) {
		for (int64_t i = 0; i < n; i++) {
			if (m[i] > 1) {
				return sky_fail(err, SKY_E_DATA, "%s.mask.bin: row %lld, token %lld: mask %d (0 or 1)",
						t->prefix,
						(long long)row, (long long)i, m[i]);
			}
		}
	}
	*trained_p = sum;
	return 0;
}

static void count_row(struct sky_tokens_report *r, int64_t n, int64_t trained, int first)
{
	r->n_row++;
	r->n_token += n;
	r->n_trained += trained;
	r->n_empty += n == 0;
	r->n_untrained += n > 0 && trained == 0;
	r->n_first_trained += first;
	r->min_len = r->min_len < 0 || n < r->min_len ? n : r->min_len;
	r->max_len = n > r->max_len ? n : r->max_len;
	if (n) {
		r->len_log2[63 - __builtin_clzll((unsigned long long)n)]++;
	}
}

int sky_tokens_scan(const struct sky_tokens *t, int64_t vocab, struct sky_tokens_report *r, struct sky_err *err)
{
	struct sky_tokens_report s = { .max_id = -1, .min_len = -1, .max_len = -1 };
	int32_t *id = malloc(CHUNK * sizeof *id);
	int64_t n, part, trained = 0;
	int rc = id ? 0 : sky_fail_mem(err, "reading %s", t->prefix);

	for (int64_t row = 0; !rc && row < t->tok.n_seq; row++) {
		n = pair_len(&t->tok, row);
		for (int64_t from = 0; !rc && from < n; from += part) {
			part = n - from < CHUNK ? n - from : CHUNK;
			rc = sky_tokens_ids(t, row, from, part, id, err);
			rc = rc ? rc : check_ids(t, row, id, from, part, vocab, &s.max_id, err);
		}
		rc = rc ? rc : count_mask(t, row, n, &trained, err);
		if (!rc) {
			count_row(&s, n, trained, n && t->has_mask && sky_tokens_mask(t, row)[0]);
		}
	}
	free(id);
	if (!rc && r) {
		*r = s;
	}
	return rc;
}

/* Size and XXH3-128 of one mapped file against files.NAME of the manifest. */
static int check_file(const struct sky_jnode *files, const char *name, const struct sky_map *map, struct sky_err *err)
{
	const struct sky_jnode *f = sky_j_get(files, name);
	const char *hex;
	struct sky_h128 want, have;
	int64_t bytes;
	int rc = sky_j_get_i64(f, "bytes", -1, &bytes, err);

	rc = rc ? rc : sky_j_get_str(f, "xxh3_128", "", &hex, err);
	if (rc < 0) {
		return rc;
	}
	if (sky_h128_parse(hex, &want)) {
		return sky_fail(err, SKY_E_DATA, "manifest names no checksum of \"%s\"", name);
	}
	if (bytes < 0 || (uint64_t)bytes != map->n) {
		return sky_fail(err, SKY_E_DATA, "%s: %llu bytes, the manifest promises %lld", map->path,
				(unsigned long long)map->n, (long long)bytes);
	}
	sky_map_advise(map, 0, map->n, SKY_MAP_SEQUENTIAL);
	have = sky_xxh128(map->ptr ? (const void *)map->ptr : "", map->n);
	if (have.hi != want.hi || have.lo != want.lo) {
		return sky_fail(err, SKY_E_DATA, "%s: contents do not have the checksum of the manifest; the file is damaged",
				map->path);
	}
	return 0;
}

static int check_promises(const struct sky_tokens *t, const char *json, struct sky_err *err)
{
	const struct sky_jnode *files = sky_j_get(sky_json_root(t->manifest), "files");
	struct sky_buf text = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	int rc = sky_file_read(json, &text, err);

	rc = rc ? rc : manifest_check(text.ptr, text.n, json, err);
	sky_buf_release(&text);
	rc = rc ? rc : check_file(files, "bin", &t->tok.bin, err);
	rc = rc ? rc : check_file(files, "idx", &t->tok.idx, err);
	if (!rc && t->has_mask) {
		rc = check_file(files, "mask.bin", &t->mask.bin, err);
		rc = rc ? rc : check_file(files, "mask.idx", &t->mask.idx, err);
	}
	return rc;
}

static int check_counts(const struct sky_tokens *t, const struct sky_tokens_report *r, const char *json,
                        struct sky_err *err)
{
	const struct sky_jnode *m = sky_json_root(t->manifest);
	const struct { const char *key; int64_t have; } want[] = {
		{ "trained_tokens", r->n_trained }, { "max_id", r->max_id }, { "longest_row", r->max_len < 0 ? 0 :
				r->max_len },
	};
	int64_t v;
	int rc = 0;

	for (size_t i = 0; !rc && i < sizeof want / sizeof *want; i++) {
		rc = sky_j_get_i64(m, want[i].key, -2, &v, err);
		if (!rc && v != want[i].have) {
			rc = sky_fail(err, SKY_E_DATA, "%s: promises %s %lld, the data have %lld", json, want[i].key,
				      (long long)v, (long long)want[i].have);
		}
	}
	return rc;
}

int sky_tokens_verify(const char *prefix, int64_t vocab, struct sky_tokens_report *r, struct sky_err *err)
{
	struct sky_tokens_report s;
	struct sky_tokens *t = NULL;
	char *json = NULL;
	int rc = sky_tokens_open(prefix, &t, err);

	if (rc < 0) {
		return rc;
	}
	json = tok_path(t->prefix, ".json", err);
	rc = json ? 0 : SKY_E_LIMIT;
	if (!rc && t->manifest) {
		rc = check_promises(t, json, err);
	}
	rc = rc ? rc : sky_tokens_scan(t, vocab, &s, err);
	if (!rc && t->manifest) {
		rc = check_counts(t, &s, json, err);
	}
	if (!rc && r) {
		*r = s;
	}
	free(json);
	sky_tokens_close(t);
	return rc;
}
