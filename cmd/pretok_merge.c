/* skyrl-pretok merge, split, sample, shuffle, dedup: token datasets from token datasets; nothing is encoded again. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

static struct {
	int64_t parts, count;
	double fraction;
} o;

const struct opt_row pretok_merge_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "the merged set"),
	CMD_OPT_FORCE,
	CMD_OPT_JSON,
	OPT_END
};

const struct opt_row pretok_split_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "PREFIX-0, PREFIX-1, …"),
	CMD_OPT_FORCE,
	OPT_COUNT(0, "parts", &o.parts, "N", "0", "that many parts of consecutive rows, equal but for one row",
			.max = 100000),
	OPT_REAL(0, "fraction", &o.fraction, "X", "0", "two parts by lot: this share of the rows, and the rest",
			.min = 0, .max = 1),
	CMD_OPT_SEED,
	OPT_END
};

const struct opt_row pretok_sample_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "the chosen rows, in their order"),
	CMD_OPT_FORCE,
	OPT_COUNT(0, "count", &o.count, "N", "0", "exactly that many rows by lot"),
	OPT_REAL(0, "fraction", &o.fraction, "X", "0", "or that share of them", .min = 0, .max = 1),
	CMD_OPT_SEED,
	OPT_END
};

const struct opt_row pretok_shuffle_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "the rows in an order drawn from the seed"),
	CMD_OPT_FORCE,
	CMD_OPT_SEED,
	OPT_END
};

const struct opt_row pretok_dedup_rows[] = {
	OPT_HEAD("Options"),
	CMD_OPT_OUTPUT("PREFIX", "the first of equal rows (equal tokens), in order; up to 64 bytes of memory a row"),
	CMD_OPT_FORCE,
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

/* Room for one row. */
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

/* Row i of t behind the rows written so far. */
static int copy_row(struct merge *m, const struct sky_tokens *t, int64_t i, struct sky_err *err)
{
	int64_t n = sky_tokens_row_len(t, i);
	const uint8_t *mask = sky_tokens_mask(t, i);
	int rc = room(m, n, err);

	if (cmd_stopping()) {
		return cmd_stop_err(err, "nothing was written");
	}
	rc = rc || !n ? rc : sky_tokens_ids(t, i, 0, n, m->ids, err);
	if (!rc && !mask && n) {
		memset(m->mask, 1, (size_t)n);
		m->mask[0] = 0;
	}
	return rc ? rc : sky_tokens_add(m->out, m->ids, mask ? mask : m->mask, n, err);
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

/* One output set from all rows of the inputs that pick(ctx, row) lets pass, or in the order order(ctx, k). */
struct plan {
	const char *op, *prefix;
	bool (*pick)(void *ctx, const struct sky_tokens *t, int64_t row);
	int64_t (*order)(void *ctx, int64_t k);
	void *ctx;
};

static int report(const struct plan *p, int64_t rows, int64_t tokens, struct sky_err *err)
{
	struct sky_jw *w;

	cmd_note("%s: %lld rows, %lld tokens", p->prefix, (long long)rows, (long long)tokens);
	if (!cmd.json) {
		return 0;
	}
	w = cmd_rec("result", err);
	sky_jw_kbool(w, "ok", true);
	sky_jw_kstr(w, "op", p->op);
	sky_jw_kstr(w, "destination", p->prefix);
	sky_jw_ki64(w, "rows", rows);
	sky_jw_ki64(w, "tokens", tokens);
	return cmd_rec_end(err);
}

static int write_plan(struct merge *m, char **names, const struct plan *p, struct sky_err *err)
{
	struct sky_tokens_opt opt = { .dtype_bytes = 2, .out_flags = cmd.force ? SKY_OUT_REPLACE : 0 };
	struct sky_buf extra = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	const struct sky_jnode *tok;
	int64_t rows = 0, tokens = 0;
	int rc = same_tokenizer(m, names, &tok, err);

	for (int i = 0; i < m->n; i++) {
		const char *d = sky_tokens_dtype_name(m->set[i]);

		opt.with_mask |= sky_tokens_has_mask(m->set[i]);
		opt.dtype_bytes = strcmp(d, "uint16") && strcmp(d, "uint8") ? 4 : opt.dtype_bytes;
	}
	rc = rc ? rc : sky_tokens_create(p->prefix, &opt, &m->out, err);
	for (int i = 0; !rc && i < m->n; i++) {
		for (int64_t k = 0; !rc && k < sky_tokens_rows(m->set[i]); k++) {
			int64_t row = p->order ? p->order(p->ctx, k) : k;

			if (!p->pick || p->pick(p->ctx, m->set[i], row)) {
				rc = copy_row(m, m->set[i], row, err);
			}
		}
		rc = sky_while(err, rc, "%s", names[i]);
	}
	rc = rc ? rc : extra_members(m, names, tok, &extra, err);
	if (!rc) {
		rows = sky_tokens_out_rows(m->out);
		tokens = sky_tokens_out_total(m->out);
		extra.ptr[--extra.n] = '\0';
		rc = sky_tokens_commit(m->out, extra.ptr + 1, err);
		m->out = NULL;
	}
	sky_tokens_abort(m->out);
	m->out = NULL;
	sky_buf_release(&extra);
	return rc ? rc : report(p, rows, tokens, err);
}

static int open_sets(struct merge *m, int argc, char **argv, struct sky_err *err)
{
	int rc = 0;

	memset(m, 0, sizeof *m);
	if (!argc || !cmd.output) {
		return sky_fail(err, SKY_E_USAGE, "-o PREFIX and an input PREFIX are expected");
	}
	m->set = sky_calloc_array((size_t)argc, sizeof *m->set);
	if (!m->set) {
		return sky_fail_mem(err, "%d inputs", argc);
	}
	for (; !rc && m->n < argc; m->n++) {
		rc = sky_tokens_open(argv[m->n], &m->set[m->n], err);
	}
	return rc;
}

static void close_sets(struct merge *m)
{
	for (int i = 0; m->set && i < m->n; i++) {
		sky_tokens_close(m->set[i]);
	}
	free(m->set);
	free(m->ids);
	free(m->mask);
}

int pretok_merge(int argc, char **argv, struct sky_err *err)
{
	struct plan p = { .op = "merge", .prefix = cmd.output };
	struct merge m;
	int rc = open_sets(&m, argc, argv, err);

	rc = rc ? rc : write_plan(&m, argv, &p, err);
	close_sets(&m);
	return rc;
}

/* ---- rows by lot or by place ---- */

struct lot {
	int64_t from, to, n;    /* rows [from, to) of n, or those whose place in a permutation is in [from, to) */
	bool permuted;
	int64_t seed;
};

static bool in_lot(void *ctx, const struct sky_tokens *t, int64_t row)
{
	const struct lot *l = ctx;
	int64_t place = row;

	(void)t;
	if (l->permuted) {
		place = (int64_t)sky_rng_permute((uint64_t)l->seed, SKY_RNG_SPLIT, 0, (uint64_t)row, (uint64_t)l->n);
	}
	return place >= l->from && place < l->to;
}

static int64_t share(double fraction, int64_t n)
{
	int64_t k = (int64_t)(fraction * (double)n + 0.5);

	return k < n ? k : n;
}

int pretok_split(int argc, char **argv, struct sky_err *err)
{
	struct lot l = { .seed = cmd.seed };
	struct plan p = { .op = "split", .pick = in_lot, .ctx = &l };
	char prefix[SKY_MAX_PATH];
	struct merge m;
	int64_t parts = o.parts ? o.parts : 2;
	int rc = argc == 1 && (o.parts > 0) != (o.fraction > 0) ? open_sets(&m, argc, argv, err) :
		 sky_fail(err, SKY_E_USAGE, "one PREFIX and either --parts or --fraction are expected");

	if (rc < 0 && !(argc == 1 && (o.parts > 0) != (o.fraction > 0))) {
		return rc;
	}
	l.n = rc ? 0 : sky_tokens_rows(m.set[0]);
	l.permuted = !o.parts;
	for (int64_t i = 0; !rc && i < parts; i++) {
		l.from = o.parts ? (int64_t)((__int128)l.n * i / parts) : i ? share(o.fraction, l.n) : 0;
		l.to = o.parts ? (int64_t)((__int128)l.n * (i + 1) / parts) : i ? l.n : share(o.fraction, l.n);
		snprintf(prefix, sizeof prefix, "%s-%lld", cmd.output, (long long)i);
		p.prefix = prefix;
		rc = write_plan(&m, argv, &p, err);
	}
	close_sets(&m);
	return rc;
}

int pretok_sample(int argc, char **argv, struct sky_err *err)
{
	struct lot l = { .permuted = true, .seed = cmd.seed };
	struct plan p = { .op = "sample", .prefix = cmd.output, .pick = in_lot, .ctx = &l };
	struct merge m;
	int rc;

	if (argc != 1 || (o.count > 0) == (o.fraction > 0)) {
		return sky_fail(err, SKY_E_USAGE, "one PREFIX and either --count or --fraction are expected");
	}
	rc = open_sets(&m, argc, argv, err);
	if (!rc) {
		l.n = sky_tokens_rows(m.set[0]);
		l.to = o.count ? o.count : share(o.fraction, l.n);
		rc = l.to > l.n ? sky_fail(err, SKY_E_USAGE, "--count %lld: the set has %lld rows", (long long)o.count,
				(long long)l.n) :
		     write_plan(&m, argv, &p, err);
	}
	close_sets(&m);
	return rc;
}

static int64_t shuffled(void *ctx, int64_t k)
{
	const struct lot *l = ctx;

	return (int64_t)sky_rng_permute((uint64_t)l->seed, SKY_RNG_ORDER, 0, (uint64_t)k, (uint64_t)l->n);
}

int pretok_shuffle(int argc, char **argv, struct sky_err *err)
{
	struct lot l = { .seed = cmd.seed };
	struct plan p = { .op = "shuffle", .prefix = cmd.output, .order = shuffled, .ctx = &l };
	struct merge m;
	int rc = argc == 1 ? open_sets(&m, argc, argv, err) : sky_fail(err, SKY_E_USAGE, "one PREFIX is expected");

	if (argc != 1) {
		return rc;
	}
	l.n = rc ? 0 : sky_tokens_rows(m.set[0]);
	rc = rc ? rc : write_plan(&m, argv, &p, err);
	close_sets(&m);
	return rc;
}

/* ---- equal rows ---- */

/* Hashes of the rows seen: open addressing, at most half full; 0 is an empty place. */
struct seen {
	struct sky_h128 *slot;
	uint64_t n_slot;
	int64_t n_equal;
	int32_t *ids;
	int64_t cap;
	struct sky_err *err;
	int rc;
};

static bool first_of_its_kind(void *ctx, const struct sky_tokens *t, int64_t row)
{
	struct seen *s = ctx;
	int64_t n = sky_tokens_row_len(t, row);
	struct sky_h128 h;
	uint64_t i;

	if (n > s->cap) {
		int32_t *p = sky_realloc_array(s->ids, (size_t)n, sizeof *p);

		if (!p) {
			s->rc = sky_fail_mem(s->err, "a row of %lld tokens", (long long)n);
			return false;
		}
		s->ids = p;
		s->cap = n;
	}
	if (s->rc || (n && (s->rc = sky_tokens_ids(t, row, 0, n, s->ids, s->err)))) {
		return false;
	}
	h = sky_xxh128(s->ids ? (const void *)s->ids : "", (size_t)n * sizeof *s->ids);
	h.lo |= !h.lo && !h.hi;
	for (i = h.lo & (s->n_slot - 1); s->slot[i].lo || s->slot[i].hi; i = (i + 1) & (s->n_slot - 1)) {
		if (s->slot[i].lo == h.lo && s->slot[i].hi == h.hi) {
			s->n_equal++;
			return false;
		}
	}
	s->slot[i] = h;
	return true;
}

int pretok_dedup(int argc, char **argv, struct sky_err *err)
{
	struct seen s = { .n_slot = 16, .err = err };
	struct plan p = { .op = "dedup", .prefix = cmd.output, .pick = first_of_its_kind, .ctx = &s };
	struct merge m;
	int64_t rows = 0;
	int rc = open_sets(&m, argc, argv, err);

	for (int i = 0; !rc && i < m.n; i++) {
		rows += sky_tokens_rows(m.set[i]);
	}
	while (s.n_slot < 2 * (uint64_t)rows) {
		s.n_slot *= 2;
	}
	s.slot = rc ? NULL : sky_calloc_array(s.n_slot, sizeof *s.slot);
	rc = rc || s.slot ? rc : sky_fail_mem(err, "the hashes of %lld rows", (long long)rows);
	rc = rc ? rc : write_plan(&m, argv, &p, err);
	rc = rc ? rc : s.rc;
	if (!rc) {
		cmd_note("%lld rows were equal to an earlier one", (long long)s.n_equal);
	}
	free(s.slot);
	free(s.ids);
	close_sets(&m);
	return rc;
}
