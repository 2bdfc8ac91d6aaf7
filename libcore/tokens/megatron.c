/* One Megatron pair: BASE.bin holds token arrays one after another, BASE.idx their lengths, byte offsets and document
 * bounds (skyrl-tokens(5)). Everything is checked once, on opening; access afterwards needs no checks. */
#include <stdlib.h>
#include <string.h>

#include "tokens/tokens_int.h"

int idx_code_bytes(int code)
{
	static const uint8_t bytes[] = { 0, 1, 1, 2, 4, 8, 8, 4, 2 };

	return code >= 1 && code <= 8 ? bytes[code] : 0;
}

const char *idx_code_name(int code)
{
	static const char *const name[] = { "?", "uint8", "int8", "int16", "int32", "int64", "float64", "float32", "uint16" };

	return name[code >= 1 && code <= 8 ? code : 0];
}

void idx_header(uint8_t *out, int code, uint64_t n_seq, uint64_t n_bound)
{
	memcpy(out, IDX_MAGIC, IDX_MAGIC_BYTES);
	sky_store_u64(out + 9, 1);
	out[17] = (uint8_t)code;
	sky_store_u64(out + 18, n_seq);
	sky_store_u64(out + 26, n_bound);
}

char *tok_path(const char *prefix, const char *suffix, struct sky_err *err)
{
	size_t a = strlen(prefix), b = strlen(suffix);
	char *s = malloc(a + b + 1);

	if (!s) {
		sky_fail_mem(err, "%s%s", prefix, suffix);
		return NULL;
	}
	memcpy(s, prefix, a);
	memcpy(s + a, suffix, b + 1);
	return s;
}

static int read_header(struct pair *p, struct sky_err *err)
{
	const uint8_t *h = p->idx.ptr;
	const char *name = p->idx.path;
	uint64_t n_seq, n_bound, want;

	if (p->idx.n < IDX_HEADER_BYTES) {
		return sky_fail(err, SKY_E_DATA,
				"%s: %llu bytes are too few for a Megatron index (34 at least); the file is cut",
				name, (unsigned long long)p->idx.n);
	}
	if (memcmp(h, IDX_MAGIC, IDX_MAGIC_BYTES)) {
		return sky_fail(err, SKY_E_DATA, "%s: does not begin with MMIDIDX: not a Megatron index", name);
	}
	if (sky_load_u64(h + 9) != 1) {
		return sky_fail(err, SKY_E_DATA, "%s: index version %llu, only 1 is known", name,
				(unsigned long long)sky_load_u64(h + 9));
	}
	p->code = h[17];
	p->size = idx_code_bytes(p->code);
	if (!p->size) {
		return sky_fail(err, SKY_E_DATA, "%s: unknown element code %d (1 to 8)", name, p->code);
	}
	n_seq = sky_load_u64(h + 18);
	n_bound = sky_load_u64(h + 26);
	/* 13 bytes a sequence and 8 a bound fit the file, so the sums below cannot wrap. */
	if (n_seq > p->idx.n / 12 || n_bound > p->idx.n / 8) {
		return sky_fail(err, SKY_E_DATA,
				"%s: counts of %llu sequences and %llu bounds do not fit %llu bytes; cut or damaged",
				name, (unsigned long long)n_seq, (unsigned long long)n_bound, (unsigned long long)p->idx.n);
	}
	want = IDX_HEADER_BYTES + 12 * n_seq + 8 * n_bound;
	if (p->idx.n != want && p->idx.n != want + n_seq) {
		return sky_fail(err, SKY_E_DATA,
				"%s: %llu bytes, but %llu sequences and %llu bounds make %llu; cut or damaged",
				name, (unsigned long long)p->idx.n, (unsigned long long)n_seq, (unsigned long long)n_bound,
				(unsigned long long)want);
	}
	p->has_modes = n_seq && p->idx.n != want;
	p->n_seq = (int64_t)n_seq;
	p->n_bound = (int64_t)n_bound;
	p->len = h + IDX_HEADER_BYTES;
	p->ptr = p->len + 4 * n_seq;
	p->bound = p->ptr + 8 * n_seq;
	p->mode = p->has_modes ? p->bound + 8 * n_bound : NULL;
	return 0;
}

static int check_bounds(struct pair *p, struct sky_err *err)
{
	const char *name = p->idx.path;
	int64_t before = 0, b;

	if (p->n_bound < 1) {
		return sky_fail(err, SKY_E_DATA, "%s: no document bounds, not even the leading 0", name);
	}
	if (pair_bound(p, 0) != 0) {
		return sky_fail(err, SKY_E_DATA, "%s: the first document bound is %lld, not 0", name,
				(long long)pair_bound(p, 0));
	}
	p->one_doc_each = p->n_bound == p->n_seq + 1;
	for (int64_t i = 1; i < p->n_bound; i++) {
		b = pair_bound(p, i);
		if (b < before) {
			return sky_fail(err, SKY_E_DATA, "%s: document bound %lld is %lld, behind the one before it, %lld",
					name, (long long)i, (long long)b, (long long)before);
		}
		p->one_doc_each &= b == i;
		before = b;
	}
	if (before != p->n_seq) {
		return sky_fail(err, SKY_E_DATA, "%s: the last document bound is %lld, but there are %lld sequences%s", name,
				(long long)before, (long long)p->n_seq, before ? "" : "; did its writer end no document?");
	}
	return 0;
}

static int check_sequences(struct pair *p, struct sky_err *err)
{
	const char *name = p->idx.path;
	uint64_t bin = p->bin.n, next = 0, at, bytes;
	int64_t n;

	p->contiguous = 1;
	for (int64_t i = 0; i < p->n_seq; i++) {
		n = pair_len(p, i);
		at = (uint64_t)pair_ptr(p, i);
		if (n < 0) {
			return sky_fail(err, SKY_E_DATA, "%s: sequence %lld has length %lld", name, (long long)i,
					(long long)n);
		}
		bytes = (uint64_t)n * (unsigned)p->size;
		if (at > bin || bytes > bin - at) {
			return sky_fail(err, SKY_E_DATA,
					"%s: sequence %lld lies at %lld with %llu bytes, but %s.bin has %llu; "
					"the .bin is cut or belongs to another index", name, (long long)i, (long long)at,
					(unsigned long long)bytes, p->base, (unsigned long long)bin);
		}
		if (at % (unsigned)p->size) {
			return sky_fail(err, SKY_E_DATA,
					"%s: sequence %lld lies at byte %lld, inside an element of %d bytes", name,
					(long long)i, (long long)at, p->size);
		}
		p->contiguous &= at == next;
		next = at + bytes;
		p->n_total += n;
		p->n_longest = n > p->n_longest ? n : p->n_longest;
		if (p->mode && p->mode[i] > 1) {
			return sky_fail(err, SKY_E_DATA, "%s: sequence %lld has mode %d (0 text, 1 image)", name,
					(long long)i,
					(int)(int8_t)p->mode[i]);
		}
	}
	return 0;
}

int pair_open(const char *base, struct pair *p, struct sky_err *err)
{
	char *bin = NULL, *idx = NULL;
	int rc = SKY_E_LIMIT;

	memset(p, 0, sizeof *p);
	p->bin = (struct sky_map)SKY_MAP_INIT;
	p->idx = (struct sky_map)SKY_MAP_INIT;
	p->base = tok_path(base, "", err);
	bin = tok_path(base, ".bin", err);
	idx = tok_path(base, ".idx", err);
	if (!p->base || !bin || !idx) {
		goto out;
	}
	rc = sky_map_open(&p->idx, idx, err);
	if (!rc) {
		rc = sky_map_open(&p->bin, bin, err);
	}
	if (!rc) {
		sky_map_advise(&p->idx, 0, p->idx.n, SKY_MAP_SEQUENTIAL);
		rc = read_header(p, err);
	}
	rc = rc ? rc : check_bounds(p, err);
	rc = rc ? rc : check_sequences(p, err);
	if (!rc) {
		sky_map_advise(&p->idx, 0, p->idx.n, SKY_MAP_NORMAL);
	}
out:
	free(bin);
	free(idx);
	if (rc < 0) {
		pair_close(p);
	}
	return rc;
}

void pair_close(struct pair *p)
{
	if (p->base) {
		sky_map_close(&p->bin);
		sky_map_close(&p->idx);
		free(p->base);
	}
	memset(p, 0, sizeof *p);
}
