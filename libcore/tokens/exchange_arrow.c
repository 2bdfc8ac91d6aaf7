/* Arrow folders as SkyRL 0.4.0 and Hugging Face datasets map them: IPC streams with columns input_ids list<int32> and
 * loss_mask list<int8>, record batches of at most 1000 rows, state.json and dataset_info.json beside them.
 *
 * A message is FFFFFFFF, i32 metadata length, a flatbuffer padded to 8 bytes, the body. The flatbuffers are written
 * forwards: a table first, what it points to behind it, the offsets patched in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokens/exchange_int.h"

#define BATCH_ROWS 1000
#define BATCH_TOKENS (1 << 27)          /* offsets in a batch are i32 */
#define SHARD_BYTES 500000000u
#define FB_MAX 2048

struct fbw { uint8_t p[FB_MAX]; size_t n; };

static void pad(struct fbw *b, size_t align, size_t rest)
{
	while (b->n % align != rest) {
		b->p[b->n++] = 0;
	}
}

/* A table: width[i] bytes for field i, 0 = left out. Returns its position; at[i]: where field i stands. The vtable lies
 * before it, and the table begins 4 bytes before an 8-byte boundary, so that every field can be aligned. */
static size_t table(struct fbw *b, int n, const uint8_t *width, size_t *at)
{
	size_t vt, tab, end;

	pad(b, 2, 0);
	while ((b->n + 4 + 2 * (size_t)n) % 8 != 4) {
		b->p[b->n++] = 0;
	}
	vt = b->n;
	tab = vt + 4 + 2 * (size_t)n;
	end = tab + 4;
	for (int i = 0; i < n; i++) {
		at[i] = 0;
		if (width[i]) {
			end += (width[i] - end % width[i]) % width[i];
			at[i] = end;
			end += width[i];
		}
	}
	memset(b->p + vt, 0, end - vt);
	sky_store_u16(b->p + vt, (uint16_t)(4 + 2 * n));
	sky_store_u16(b->p + vt + 2, (uint16_t)(end - tab));
	for (int i = 0; i < n; i++) {
		sky_store_u16(b->p + vt + 4 + 2 * i, (uint16_t)(at[i] ? at[i] - tab : 0));
	}
	sky_store_u32(b->p + tab, (uint32_t)(tab - vt));
	b->n = end;
	return tab;
}

static void point(struct fbw *b, size_t at, size_t to)
{
	sky_store_u32(b->p + at, (uint32_t)(to - at));
}

/* Vector of n elements of bytes each, zeroed. Returns the position of its count. */
static size_t vector(struct fbw *b, size_t n, size_t bytes, size_t align)
{
	size_t at;

	align = align < 4 ? 4 : align;
	pad(b, align, align == 8 ? 4 : 0);
	at = b->n;
	sky_store_u32(b->p + at, (uint32_t)n);
	memset(b->p + at + 4, 0, n * bytes);
	b->n = at + 4 + n * bytes;
	return at;
}

static size_t string(struct fbw *b, const char *s)
{
	size_t n = strlen(s), at = vector(b, n, 1, 4);

	memcpy(b->p + at + 4, s, n);
	b->p[b->n++] = 0;
	return at;
}

/* Message{version, header type, header, body length}; returns where the header offset stands. */
static size_t message(struct fbw *b, uint8_t type, uint64_t body)
{
	static const uint8_t width[] = { 2, 1, 4, 8 };
	size_t at[4];

	b->n = 4;
	sky_store_u32(b->p, (uint32_t)table(b, 4, width, at));
	sky_store_u16(b->p + at[0], 4);         /* V5 */
	b->p[at[1]] = type;
	sky_store_u64(b->p + at[3], body);
	return at[2];
}

/* Field{name, nullable, type_type, type, dictionary, children}; at_p: where the offset of the only child goes, 0: leaf. */
static size_t field(struct fbw *b, const char *name, int bits, size_t *child_p)
{
	static const uint8_t width[] = { 4, 1, 1, 4, 0, 4 }, int_width[] = { 4, 1 };
	size_t at[6], int_at[2], f = table(b, 6, width, at), v;

	b->p[at[1]] = 1;
	point(b, at[0], string(b, name));
	if (bits) {
		b->p[at[2]] = 2;
		point(b, at[3], table(b, 2, int_width, int_at));
		sky_store_u32(b->p + int_at[0], (uint32_t)bits);
		b->p[int_at[1]] = 1;
		point(b, at[5], vector(b, 0, 4, 4));
	} else {
		b->p[at[2]] = 12;
		point(b, at[3], table(b, 0, NULL, NULL));
		v = vector(b, 1, 4, 4);
		point(b, at[5], v);
		*child_p = v + 4;
	}
	return f;
}

static void schema(struct fbw *b)
{
	static const uint8_t width[] = { 2, 4 };
	static const char *const name[] = { "input_ids", "loss_mask" };
	size_t header = message(b, 1, 0), at[2], v, child;

	point(b, header, table(b, 2, width, at));
	v = vector(b, 2, 4, 4);
	point(b, at[1], v);
	for (size_t i = 0; i < 2; i++) {
		point(b, v + 4 + 4 * i, field(b, name[i], 0, &child));
		point(b, child, field(b, "item", i ? 8 : 32, NULL));
	}
}

struct arrow_out {
	char *work;
	struct sky_out out;
	int64_t n_shard;
	struct sky_buf ids, mask;               /* values of the batch in hand */
	uint32_t end[BATCH_ROWS + 1];           /* their list offsets */
	int n;
};

static int write_message(struct arrow_out *a, struct fbw *b, struct sky_err *err)
{
	uint8_t head[8];
	int rc;

	pad(b, 8, 0);
	sky_store_u32(head, 0xffffffffu);
	sky_store_u32(head + 4, (uint32_t)b->n);
	rc = sky_out_write(&a->out, head, 8, err);
	return rc ? rc : sky_out_write(&a->out, b->p, b->n, err);
}

static int begin_shard(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct arrow_out *a = d->state;
	char name[64], path[SKY_MAX_PATH];
	struct fbw b = { .n = 0 };
	int rc;

	snprintf(name, sizeof name, "data-%05lld.arrow", (long long)a->n_shard++);
	rc = sky_path_join(path, sizeof path, a->work, name, err);
	rc = rc ? rc : sky_out_open(&a->out, path, d->opt.out_flags, err);
	schema(&b);
	return rc ? rc : write_message(a, &b, err);
}

static uint64_t padded(uint64_t n)
{
	return (n + 7) / 8 * 8;
}

static int write_padded(struct arrow_out *a, const void *p, uint64_t n, struct sky_err *err)
{
	static const uint8_t zero[8];
	int rc = n ? sky_out_write(&a->out, p, n, err) : 0;

	return rc ? rc : sky_out_write(&a->out, zero, padded(n) - n, err);
}

/* RecordBatch{length, nodes, buffers}: for each of the two lists validity (none), offsets, then for its values validity
 * (none) and data. */
static int write_batch(struct arrow_out *a, struct sky_err *err)
{
	static const uint8_t width[] = { 8, 4, 4 };
	uint64_t n_off = 4 * ((uint64_t)a->n + 1), n_tok = a->mask.n, off = 0;
	uint64_t size[8] = { 0, n_off, 0, 4 * n_tok, 0, n_off, 0, n_tok };
	struct fbw b = { .n = 0 };
	size_t at[3], v, header;
	int rc;

	if (!a->n) {
		return 0;
	}
	header = message(&b, 3, 2 * padded(n_off) + padded(4 * n_tok) + padded(n_tok));
	point(&b, header, table(&b, 3, width, at));
	sky_store_u64(b.p + at[0], (uint64_t)a->n);
	v = vector(&b, 4, 16, 8);
	point(&b, at[1], v);
	for (size_t i = 0; i < 4; i++) {
		sky_store_u64(b.p + v + 4 + 16 * i, i & 1 ? n_tok : (uint64_t)a->n);
	}
	v = vector(&b, 8, 16, 8);
	point(&b, at[2], v);
	for (size_t i = 0; i < 8; i++) {
		sky_store_u64(b.p + v + 4 + 16 * i, off);
		sky_store_u64(b.p + v + 12 + 16 * i, size[i]);
		off += padded(size[i]);
	}
	rc = write_message(a, &b, err);
	rc = rc ? rc : write_padded(a, a->end, n_off, err);
	rc = rc ? rc : write_padded(a, a->ids.ptr, 4 * n_tok, err);
	rc = rc ? rc : write_padded(a, a->end, n_off, err);
	rc = rc ? rc : write_padded(a, a->mask.ptr, n_tok, err);
	sky_buf_clear(&a->ids);
	sky_buf_clear(&a->mask);
	a->n = 0;
	return rc;
}

/* The end marker: without it a reader cannot tell a cut stream. */
static int end_shard(struct arrow_out *a, struct sky_err *err)
{
	uint8_t end[8] = { 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0 };
	int rc = write_batch(a, err);

	rc = rc ? rc : sky_out_write(&a->out, end, 8, err);
	return rc ? rc : sky_out_commit(&a->out, err);
}

static int arrow_open(struct sky_tokens_dst *d, struct sky_err *err)
{
	struct arrow_out *a = calloc(1, sizeof *a);
	int rc;

	if (!a) {
		return sky_fail_mem(err, "creating %s", d->path);
	}
	d->state = a;
	a->out.fd = -1;
	sky_buf_init(&a->ids, SIZE_MAX);
	sky_buf_init(&a->mask, SIZE_MAX);
	rc = folder_begin(d->path, &a->work, err);
	return rc ? rc : begin_shard(d, err);
}

static void arrow_abort(struct sky_tokens_dst *d)
{
	struct arrow_out *a = d->state;

	sky_out_abort(&a->out);
	if (a->work) {
		(void)!sky_remove_tree(a->work, NULL);
	}
	sky_buf_release(&a->ids);
	sky_buf_release(&a->mask);
	free(a->work);
	free(a);
}

static int arrow_add(struct sky_tokens_dst *d, const int32_t *ids, const uint8_t *mask, int64_t n, struct sky_err *err)
{
	struct arrow_out *a = d->state;
	uint64_t limit = d->opt.shard_bytes ? d->opt.shard_bytes : SHARD_BYTES;
	int rc = 0;

	if (a->n == BATCH_ROWS || (a->n && (uint64_t)n + a->mask.n > BATCH_TOKENS)) {
		rc = write_batch(a, err);
		if (!rc && a->out.n_bytes >= limit) {
			rc = end_shard(a, err);
			rc = rc ? rc : begin_shard(d, err);
		}
	}
	rc = rc ? rc : dst_pack(d, ids, n, 4, err);
	rc = rc ? rc : sky_buf_add(&a->ids, d->bytes, 4 * (size_t)n, err);
	rc = rc ? rc : dst_pack_mask(d, mask, n, err);
	rc = rc ? rc : sky_buf_add(&a->mask, d->bytes, (size_t)n, err);
	sky_store_u32(&a->end[0], 0);
	sky_store_u32(&a->end[++a->n], (uint32_t)a->mask.n);
	return rc;
}

/* data-00000.arrow → data-00000-of-00003.arrow, and the list of them. */
static int name_shards(struct sky_tokens_dst *d, struct sky_buf *list, struct sky_err *err)
{
	struct arrow_out *a = d->state;
	char from[SKY_MAX_PATH], to[SKY_MAX_PATH], name[64];
	int rc = 0;

	for (int64_t i = 0; !rc && i < a->n_shard; i++) {
		snprintf(name, sizeof name, "data-%05lld.arrow", (long long)i);
		rc = sky_path_join(from, sizeof from, a->work, name, err);
		snprintf(name, sizeof name, "data-%05lld-of-%05lld.arrow", (long long)i, (long long)a->n_shard);
		rc = rc ? rc : sky_path_join(to, sizeof to, a->work, name, err);
		if (!rc && rename(from, to)) {
			rc = sky_fail_sys(err, "renaming %s", from);
		}
		rc = rc ? rc : sky_buf_addf(list, err, "%s    {\n      \"filename\": \"%s\"\n    }", i ? ",\n" : "", name);
	}
	return rc;
}

static int publish_in(struct sky_tokens_dst *d, const char *name, const char *text, size_t n, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	int rc = sky_path_join(path, sizeof path, ((struct arrow_out *)d->state)->work, name, err);

	return rc ? rc : sky_file_publish(path, text, n, d->opt.out_flags, err);
}

static int arrow_commit(struct sky_tokens_dst *d, struct sky_err *err)
{
	static const char info[] = "{\n  \"citation\": \"\",\n  \"description\": \"\",\n  \"homepage\": \"\",\n  "
			"\"license\": \"\"\n}";
	struct arrow_out *a = d->state;
	struct sky_buf list = SKY_BUF_INIT(SKY_MAX_JSON_BYTES), state = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	int rc = end_shard(a, err);

	rc = rc ? rc : name_shards(d, &list, err);
	rc = rc ? rc : sky_buf_addf(&state, err, "{\n  \"_data_files\": [\n%s\n  ],\n  \"_fingerprint\": \"%016llx\",\n  "
				    "\"_format_columns\": null,\n  \"_format_kwargs\": {},\n  \"_format_type\": null,\n  "
				    "\"_output_all_columns\": false,\n  \"_split\": null\n}", list.ptr,
				    (unsigned long long)((uint64_t)d->n_token * 0x9e3779b97f4a7c15ull + (uint64_t)d->n_row));
	rc = rc ? rc : publish_in(d, "dataset_info.json", info, sizeof info - 1, err);
	rc = rc ? rc : publish_in(d, "state.json", state.ptr, state.n, err);
	rc = rc ? rc : folder_commit(a->work, d->path, err);
	sky_buf_release(&list);
	sky_buf_release(&state);
	return rc;
}

const struct dst_ops dst_arrow = { arrow_open, arrow_add, arrow_commit, arrow_abort };
