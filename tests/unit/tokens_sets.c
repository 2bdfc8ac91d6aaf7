/* Token datasets: the vector of the reference, round trips, resume, damage at every byte, golden Megatron pairs. */
#include "tokens/tokens_int.h"
#include "tests/testlib.h"

static struct sky_err err;

/* A scratch path or a golden file by printf; a ring of eight results. */
SKY_PRINTF(1, 2) static const char *name_of(const char *fmt, ...)
{
	static char ring[8][256];
	static int at;
	va_list ap;

	at = (at + 1) % 8;
	va_start(ap, fmt);
	vsnprintf(ring[at], sizeof ring[at], fmt, ap);
	va_end(ap);
	return ring[at];
}

static int write_set(const char *prefix, int bytes, int with_mask, int n_row, unsigned flags)
{
	struct sky_tokens_opt opt = { .dtype_bytes = bytes, .with_mask = with_mask, .out_flags = flags | SKY_OUT_NO_FSYNC };
	struct sky_tokens_out *o = NULL;
	int32_t ids[300];
	uint8_t mask[300];
	int rc = sky_tokens_create(prefix, &opt, &o, &err);

	for (int r = 0; !rc && r < n_row; r++) {
		int n = r * 37 % 300;

		for (int i = 0; i < n; i++) {
			ids[i] = (r * 1000 + i * 7) % (bytes == 2 ? 65536 : 200000);
			mask[i] = i > 0 && (i + r) % 3 == 0;
		}
		rc = sky_tokens_add(o, ids, mask, n, &err);
	}
	if (rc < 0) {
		sky_tokens_abort(o);
		return rc;
	}
	return sky_tokens_commit(o, "\"note\":{\"a\":1}", &err);
}

static void reference_vector(void)
{
	static const uint8_t idx[] = {
		0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 4,
				0, 0, 0, 0, 0, 0, 0,
		3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 14, 0, 0, 0, 0, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0,
	};
	static const int32_t ids[] = { 5, 6, 7, 8, 9, 10, 11, 12, 13 };
	struct sky_tokens_opt opt = { .dtype_bytes = 2, .out_flags = SKY_OUT_NO_FSYNC };
	struct sky_tokens_out *o;
	struct sky_buf text = SKY_BUF_INIT(1000);

	T_RC(sky_tokens_create(t_path("v"), &opt, &o, &err), 0, &err, "create");
	T_RC(sky_tokens_add(o, ids, NULL, 3, &err), 0, &err, "row");
	T_RC(sky_tokens_add(o, ids + 3, NULL, 4, &err), 0, &err, "row");
	T_RC(sky_tokens_add(o, ids + 7, NULL, 2, &err), 0, &err, "row");
	T_RC(sky_tokens_commit(o, "", &err), 0, &err, "commit");
	T_RC(sky_file_read(t_path("v.idx"), &text, &err), 0, &err, "index");
	T_I64(text.n, sizeof idx, "102 bytes");
	T_MEM(text.ptr, idx, sizeof idx, "as Megatron writes them");
	sky_buf_clear(&text);
	T_RC(sky_file_read(t_path("v.bin"), &text, &err), 0, &err, "tokens");
	T_OK(text.n == 18 && text.ptr[0] == 5 && text.ptr[16] == 13, "18 bytes of tokens");
	T_OK(!sky_file_exists(t_path("v.mask.idx")) && !sky_is_dir(t_path("v.work")), "no mask, no work left");
	sky_buf_release(&text);
}

static void round_trip(int bytes, int with_mask)
{
	struct sky_tokens *t = NULL;
	struct sky_tokens_report r;
	char p[T_PATH_MAX];
	int32_t ids[300];
	int bad = 0;

	snprintf(p, sizeof p, "%s%d%d", t_path("rt"), bytes, with_mask);
	if (!T_RC(write_set(p, bytes, with_mask, 1000, 0), 0, &err, "1000 rows of %d bytes", bytes)) {
		return;
	}
	T_RC(sky_tokens_open(p, &t, &err), 0, &err, "open");
	T_I64(sky_tokens_rows(t), 1000, "rows");
	T_OK(sky_tokens_has_mask(t) == with_mask, "mask");
	for (int r0 = 0; r0 < 1000; r0++) {
		int n = r0 * 37 % 300;
		const uint8_t *m = sky_tokens_mask(t, r0);

		bad += sky_tokens_row_len(t, r0) != n || sky_tokens_ids(t, r0, 0, n, ids, &err) != 0;
		for (int i = 0; i < n; i++) {
			bad += ids[i] != (r0 * 1000 + i * 7) % (bytes == 2 ? 65536 : 200000);
			bad += with_mask && m[i] != (i > 0 && (i + r0) % 3 == 0);
		}
	}
	T_I64(bad, 0, "every id and mask comes back");
	T_RC(sky_tokens_ids(t, 3, 100, 100, ids, &err), SKY_E_USAGE, &err, "a range outside its row is refused");
	sky_tokens_close(t);
	T_RC(sky_tokens_verify(p, -1, &r, &err), 0, &err, "verify");
	T_I64(r.n_empty, 1000 / 300 + 1, "empty rows are counted");
	T_RC(sky_tokens_verify(p, 1000, &r, &err), SKY_E_DATA, &err, "an id outside the vocabulary is found");
	T_RC(write_set(p, bytes, with_mask, 10, 0), SKY_E_USAGE, &err, "an existing set is not replaced");
	T_HAS(err.msg, "--force", "the remedy is named");
	T_RC(write_set(p, bytes, !with_mask, 10, SKY_OUT_REPLACE), 0, &err, "unless asked");
	T_RC(sky_tokens_verify(p, -1, &r, &err), 0, &err, "the new one verifies");
	T_OK(sky_file_exists(t_path(name_of("rt%d%d.mask.idx", bytes, with_mask))) == !with_mask,
			"no mask of the old one stays");
}

static void limits(void)
{
	struct sky_tokens_opt opt = { .dtype_bytes = 2, .out_flags = SKY_OUT_NO_FSYNC };
	struct sky_tokens_out *o, *second;
	const int32_t big[] = { 1, 65536 }, negative[] = { -1 };

	T_RC(sky_tokens_create(t_path("lim"), &opt, &o, &err), 0, &err, "create");
	T_RC(sky_tokens_create(t_path("lim"), &opt, &second, &err), SKY_E_AGAIN, &err,
			"a second writer is told to come back");
	T_RC(sky_tokens_add(o, big, NULL, 2, &err), SKY_E_DATA, &err, "65536 does not wrap into uint16 (Megatron PR 604)");
	T_HAS(err.msg, "65536", "the id is named");
	sky_tokens_abort(o);
	T_OK(!sky_is_dir(t_path("lim.work")) && !sky_file_exists(t_path("lim.idx")), "nothing stays");
	opt.dtype_bytes = 4;
	T_RC(sky_tokens_create(t_path("lim"), &opt, &o, &err), 0, &err, "create");
	T_RC(sky_tokens_add(o, negative, NULL, 1, &err), SKY_E_DATA, &err, "a negative id is refused");
	T_RC(sky_tokens_commit(o, "", &err), SKY_E_USAGE, &err, "nothing is published after a failed row");
	T_OK(sky_tokens_width(65500) == 2 && sky_tokens_width(65536) == 2 && sky_tokens_width(65537) == 4,
	     "uint16 holds vocabularies up to 65536 (json2binidx 6)");
}

/* One id per row; the file .work/journal is where a killed run begins again. */
static void resume(void)
{
	struct sky_tokens_opt opt = { .dtype_bytes = 4, .with_mask = 1, .out_flags = SKY_OUT_NO_FSYNC, .resume = 1,
			.key = "k" };
	struct sky_tokens_out *o;
	struct sky_buf a = SKY_BUF_INIT(1 << 20), b = SKY_BUF_INIT(1 << 20);
	int64_t v = -1;
	int32_t id;
	uint8_t m;

	for (int run = 0; run < 2; run++) {
		int64_t from = 0;
		char p[T_PATH_MAX];

		snprintf(p, sizeof p, "%s", t_path(run ? "whole" : "cut"));

		for (int part = run; part < 2; part++) {
			T_RC(sky_tokens_create(p, &opt, &o, &err), 0, &err, "create");
			if (sky_tokens_state(o)) {
				T_OK(sky_j_i64(sky_tokens_state(o), &v), "state");
				from = v;
			}
			T_I64(sky_tokens_out_rows(o), from, "rows of the checkpoint");
			for (int64_t i = from; i < 500; i++) {
				id = (int32_t)i * 3;
				m = i % 2;
				if (sky_tokens_add(o, &id, &m, 1, &err)) {
					break;
				}
				if (!part && i == 299) {
					T_RC(sky_tokens_checkpoint(o, "300", &err), 0, &err, "checkpoint");
				}
			}
			if (!part) {
				sky_tokens_abort(o);
			}
		}
		T_RC(sky_tokens_commit(o, "", &err), 0, &err, "commit");
	}
	T_RC(sky_file_read(t_path("cut.idx"), &a, &err), 0, &err, "index");
	T_RC(sky_file_read(t_path("whole.idx"), &b, &err), 0, &err, "index");
	T_OK(a.n == b.n && !memcmp(a.ptr, b.ptr, a.n), "a resumed run writes the same index");
	sky_buf_clear(&a);
	sky_buf_clear(&b);
	T_RC(sky_file_read(t_path("cut.json"), &a, &err), 0, &err, "manifest");
	T_RC(sky_file_read(t_path("whole.json"), &b, &err), 0, &err, "manifest");
	T_OK(a.n == b.n && !memcmp(a.ptr, b.ptr, a.n), "and the same checksums");
	T_RC(sky_tokens_create(t_path("cut"), &opt, &o, &err), SKY_E_UNCHANGED, &err, "a complete set is left alone");
	opt.key = "other";
	T_RC(sky_tokens_create(t_path("cut"), &opt, &o, &err), SKY_E_USAGE, &err, "unless the work is another one");
	sky_buf_release(&a);
	sky_buf_release(&b);
}

/* Every byte of every file, changed: found by verify. */
static void every_byte(void)
{
	static const char *const files[] = { "bin", "idx", "mask.bin", "mask.idx", "json" };
	struct sky_buf text = SKY_BUF_INIT(1 << 20);
	int64_t found, n = 0, missed = 0;

	T_RC(write_set(t_path("flip"), 2, 1, 5, 0), 0, &err, "a small set");
	for (size_t f = 0; f < 5; f++) {
		char p[T_PATH_MAX];

		snprintf(p, sizeof p, "%s.%s", t_path("flip"), files[f]);

		sky_buf_clear(&text);
		T_RC(sky_file_read(p, &text, &err), 0, &err, "%s", files[f]);
		found = 0;
		for (size_t i = 0; i < text.n; i++) {
			text.ptr[i] ^= 0x41;
			if (sky_file_publish(p, text.ptr, text.n, SKY_OUT_REPLACE | SKY_OUT_NO_FSYNC, &err)) {
				break;
			}
			found += sky_tokens_verify(t_path("flip"), -1, NULL, &err) < 0;
			text.ptr[i] ^= 0x41;
			n++;
		}
		missed += (int64_t)text.n - found;
		T_I64(found, text.n, "every changed byte of .%s is found", files[f]);
		T_RC(sky_file_publish(p, text.ptr, text.n - 1, SKY_OUT_REPLACE, &err), 0, &err, "cut");
		T_OK(sky_tokens_verify(t_path("flip"), -1, NULL, &err) < 0, "a cut .%s is found", files[f]);
		T_RC(sky_file_publish(p, text.ptr, text.n, SKY_OUT_REPLACE, &err), 0, &err, "restored");
	}
	T_RC(sky_tokens_verify(t_path("flip"), -1, NULL, &err), 0, &err, "the restored set verifies");
	sky_buf_release(&text);
}

static void unfinished(void)
{
	struct sky_tokens *t;
	static const char marker[] = "{\"format\":\"skyrl-tokens\",\"version\":1,\"state\":\"writing\"}\n";

	T_RC(write_set(t_path("un"), 2, 1, 5, 0), 0, &err, "a set");
	T_RC(sky_file_publish(t_path("un.json"), marker, sizeof marker - 1, SKY_OUT_REPLACE, &err), 0, &err, "marker");
	T_RC(sky_tokens_open(t_path("un"), &t, &err), SKY_E_DATA, &err, "a set that was never finished is refused");
	T_HAS(err.msg, "never finished", "and says so");
	T_RC(write_set(t_path("un"), 2, 1, 5, 0), 0, &err, "its writer may replace it without being forced");
}

/* Positions beyond 2^32 in a sparse .bin: four rows of 2^31 − 1 tokens, 17 GB that occupy nothing. */
static void beyond_32_bits(void)
{
	const int64_t n = INT32_MAX;
	uint8_t idx[34 + 12 * 4 + 8 * 5], last[2] = { 0x34, 0x12 };
	struct sky_tokens *t = NULL;
	struct sky_tokens_report r;
	int32_t id;
	FILE *f;

	idx_header(idx, IDX_U16, 4, 5);
	for (int i = 0; i < 4; i++) {
		sky_store_u32(idx + 34 + 4 * i, (uint32_t)n);
		sky_store_u64(idx + 34 + 16 + 8 * i, (uint64_t)(2 * n * i));
	}
	for (int i = 0; i < 5; i++) {
		sky_store_u64(idx + 34 + 48 + 8 * i, (uint64_t)i);
	}
	T_RC(sky_file_publish(t_path("big.idx"), idx, sizeof idx, 0, &err), 0, &err, "index");
	f = fopen(t_path("big.bin"), "w");
	T_OK(f && !fseeko(f, (off_t)(8 * n - 2), SEEK_SET) && fwrite(last, 1, 2, f) == 2 && !fclose(f), "a sparse .bin");
	T_RC(sky_tokens_open(t_path("big"), &t, &err), 0, &err, "open (Megatron 1672)");
	T_I64(sky_tokens_total(t), 4 * n, "8,589,934,588 tokens");
	T_RC(sky_tokens_ids(t, 3, n - 1, 1, &id, &err), 0, &err, "the last token");
	T_I64(id, 0x1234, "lies at its place");
	T_I64(sky_tokens_longest(t), n, "rows of 2^31 - 1 tokens");
	sky_tokens_close(t);
	(void)r;
}

/* A prefix: t_shared answers for files only. */
static const char *golden_path(const char *name)
{
	static char path[T_PATH_MAX];
	const char *idx = t_shared(name_of("data/formats/megatron/%s.idx", name));

	snprintf(path, sizeof path, "%.*s", idx ? (int)strlen(idx) - 4 : 0, idx ? idx : "");
	return path;
}

static int golden_set(const char *name, const struct sky_jnode *want)
{
	struct sky_tokens *t = NULL;
	const struct sky_jnode *seqs = sky_j_get(want, "sequences");
	const char *dtype = sky_j_str(sky_j_get(want, "dtype"));
	int floats = dtype && !strncmp(dtype, "float", 5), bad = 0;
	int rc = sky_tokens_open(golden_path(name), &t, &err);
	size_t row = 0;

	if (floats) {
		return rc != SKY_E_DATA;
	}
	if (!seqs && sky_j_get(want, "ours")) {
		return rc >= 0;
	}
	if (rc < 0) {
		t_note("%s: %s", name, err.msg);
		return 1;
	}
	bad += sky_tokens_rows(t) != (int64_t)sky_j_len(seqs);
	for (const struct sky_jnode *s = sky_j_first(seqs); s && !bad; s = sky_j_next(s), row++) {
		int64_t k = 0, n = (int64_t)sky_j_len(s), v;
		int32_t id;

		bad += sky_tokens_row_len(t, (int64_t)row) != n;
		for (const struct sky_jnode *e = sky_j_first(s); e && !bad; e = sky_j_next(e), k++) {
			bad += !sky_j_i64(e, &v);
			if (v > INT32_MAX || v < INT32_MIN) {
				bad += sky_tokens_ids(t, (int64_t)row, k, 1, &id, &err) != SKY_E_DATA;
			} else {
				bad += sky_tokens_ids(t, (int64_t)row, k, 1, &id, &err) != 0 || id != v;
			}
		}
	}
	sky_tokens_close(t);
	return bad;
}

static void golden(void)
{
	const char *truth = t_shared("data/formats/megatron/truth.json");
	struct sky_json *doc = NULL;
	struct sky_tokens *t;
	int n = 0, bad = 0;

	if (!truth) {
		t_skip("golden data are not here");
		return;
	}
	T_RC(sky_json_load(truth, SKY_JSON_PYTHON, &doc, &err), 0, &err, "truth");
	for (const struct sky_jnode *s = sky_j_first(sky_j_get(sky_json_root(doc), "datasets")); s; s = sky_j_next(s), n++) {
		const struct sky_jnode *seqs = sky_j_get(s, "sequences");

		if (!seqs) {
			continue;
		}
		if (golden_set(sky_j_key(s), s)) {
			t_note("%s differs", sky_j_key(s));
			bad++;
		}
	}
	T_I64(bad, 0, "%d Megatron sets read as its own reader reads them", n);
	sky_json_free(doc);
	doc = NULL;
	T_RC(sky_json_load(t_shared("data/formats/megatron/refuse.json"), 0, &doc, &err), 0, &err, "hostile sets");
	n = bad = 0;
	for (const struct sky_jnode *s = sky_j_first(sky_json_root(doc)); s; s = sky_j_next(s), n++) {
		if (sky_tokens_open(golden_path(sky_j_key(s)), &t, &err) != SKY_E_DATA) {
			t_note("%s is not refused", sky_j_key(s));
			bad++;
		}
	}
	T_OK(n == 30 && !bad, "30 hostile pairs are refused");
	sky_json_free(doc);
}

int main(void)
{
	reference_vector();
	round_trip(2, 1);
	round_trip(4, 0);
	limits();
	resume();
	unfinished();
	every_byte();
	beyond_32_bits();
	golden();
	return t_done();
}
