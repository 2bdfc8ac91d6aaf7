/* Streams: every compression by content, several frames, truncation and damage with offsets, limits, sources. */
#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include "store/store.h"
#include "tests/testlib.h"

#define N_PLAIN 300000

static struct sky_err err;
static char plain[N_PLAIN];

struct blob { char *p; size_t n; };

static struct blob pack_gzip(const char *p, size_t n)
{
	struct blob b = { malloc(n + 1000), 0 };
	z_stream z = { 0 };

	deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)n;
	z.next_out = (Bytef *)b.p;
	z.avail_out = (uInt)n + 1000;
	deflate(&z, Z_FINISH);
	b.n = z.total_out;
	deflateEnd(&z);
	return b;
}

static struct blob pack_zstd(const char *p, size_t n)
{
	struct blob b = { malloc(ZSTD_compressBound(n)), 0 };

	ZSTD_CCtx *c = ZSTD_createCCtx();

	ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);      /* without it some damage cannot be seen */
	b.n = ZSTD_compress2(c, b.p, ZSTD_compressBound(n), p, n);
	ZSTD_freeCCtx(c);
	return b;
}

static struct blob pack_xz(const char *p, size_t n)
{
	struct blob b = { malloc(n + 1000), 0 };

	if (lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, NULL, (const uint8_t *)p, n, (uint8_t *)b.p, &b.n,
	                            n + 1000) != LZMA_OK) {
		t_bail("xz");
	}
	return b;
}

static struct blob pack_bzip2(const char *p, size_t n)
{
	unsigned n_out = (unsigned)n + 1000;
	struct blob b = { malloc(n_out), 0 };

	BZ2_bzBuffToBuffCompress(b.p, &n_out, (char *)(uintptr_t)p, (unsigned)n, 1, 0, 0);
	b.n = n_out;
	return b;
}

static struct blob join(struct blob a, struct blob b)
{
	struct blob c = { malloc(a.n + b.n + 1), a.n + b.n };

	memcpy(c.p, a.p, a.n);
	memcpy(c.p + a.n, b.p, b.n);
	return c;
}

/* Reads everything in steps of `step` bytes; code of the end, *n_p bytes equal to the pattern from its start. */
static int drain(struct sky_stream *s, size_t step, size_t *n_p)
{
	char *buf = malloc(step);
	size_t n = 0;
	int64_t got;
	int same = 1;

	while ((got = sky_stream_read(s, buf, step, &err)) > 0) {
		for (int64_t i = 0; i < got; i++) {
			same &= buf[i] == plain[(n + (size_t)i) % N_PLAIN];
		}
		n += (size_t)got;
	}
	free(buf);
	*n_p = same ? n : SIZE_MAX;
	return (int)got;
}

static int open_blob(struct blob b, const struct sky_stream_opt *opt, struct sky_stream **s_p)
{
	return sky_stream_open(t_write("blob", b.p, b.n), opt, s_p, &err);
}

static void expect(struct blob b, const char *what, const char *kind, size_t step, int code, size_t n_want)
{
	struct sky_stream *s = NULL;
	size_t n = 0;

	if (!T_RC(open_blob(b, NULL, &s), 0, &err, "%s: opens", what)) {
		return;
	}
	T_STR(sky_stream_kind(s), kind, "%s: kind", what);
	T_RC(drain(s, step, &n), code, &err, "%s: ends with %d", what, code);
	if (code == 0) {
		T_I64(n, n_want, "%s: content", what);
		T_I64(sky_stream_offset(s), b.n, "%s: all of the source was read", what);
	} else {
		T_HAS(err.msg, "at byte ", "%s: the message has an offset", what);
		T_RC(drain(s, step, &n), code, &err, "%s: the failure stays", what);
	}
	sky_stream_close(s);
}

static void one_codec(const char *kind, struct blob (*pack)(const char *p, size_t n))
{
	static char garbage[] = "garbage behind";
	struct blob a = pack(plain, N_PLAIN), e = pack("", 0), two = join(a, a), junk = { garbage, 14 }, t, j;
	char what[64];
	size_t cuts[] = { 11, 20, a.n / 3, a.n / 2, a.n - 9, a.n - 3, a.n - 1 };

	expect(a, kind, kind, 65536, 0, N_PLAIN);
	snprintf(what, sizeof(what), "%s in odd steps", kind);
	expect(a, what, kind, 777, 0, N_PLAIN);
	snprintf(what, sizeof(what), "%s twice", kind);
	expect(two, what, kind, 100000, 0, 2 * N_PLAIN);
	snprintf(what, sizeof(what), "empty %s", kind);
	expect(e, what, kind, 100, 0, 0);
	t = join(e, a);
	snprintf(what, sizeof(what), "empty %s and a full one", kind);
	expect(t, what, kind, 100000, 0, N_PLAIN);
	free(t.p);
	for (size_t i = 0; i < sizeof(cuts) / sizeof(cuts[0]); i++) {
		t = (struct blob){ a.p, cuts[i] };
		snprintf(what, sizeof(what), "%s cut at %zu", kind, cuts[i]);
		expect(t, what, kind, 50000, SKY_E_DATA, 0);
		t = (struct blob){ two.p, a.n + cuts[i] };
		snprintf(what, sizeof(what), "second %s cut at %zu", kind, cuts[i]);
		expect(t, what, kind, 50000, SKY_E_DATA, 0);
	}
	j = join(a, junk);
	snprintf(what, sizeof(what), "%s with garbage behind", kind);
	expect(j, what, kind, 50000, SKY_E_DATA, 0);
	a.p[a.n / 2] ^= 0x41;
	a.p[a.n / 2 + 1] ^= 0x41;
	snprintf(what, sizeof(what), "damaged %s", kind);
	expect(a, what, kind, 50000, SKY_E_DATA, 0);
	free(j.p);
	free(two.p);
	free(a.p);
	free(e.p);
}

static void plain_and_raw(void)
{
	struct sky_stream_opt raw = { .raw = 1 };
	struct blob gz = pack_gzip(plain, 1000), padded = { calloc(1, gz.n + 512), gz.n + 512 };
	struct sky_stream *s;
	char buf[4096];
	int64_t got;

	for (size_t n = 0; n < 12; n++) {
		expect((struct blob){ plain, n }, "short plain file", "plain", 5, 0, n);
	}
	expect((struct blob){ plain, N_PLAIN }, "plain file", "plain", 65536, 0, N_PLAIN);
	T_RC(open_blob(gz, &raw, &s), 0, &err, "raw opens");
	got = sky_stream_read(s, buf, sizeof(buf), &err);
	T_OK(got == (int64_t)gz.n && memcmp(buf, gz.p, gz.n) == 0, "raw gives the compressed bytes");
	sky_stream_close(s);
	memcpy(padded.p, gz.p, gz.n);
	expect(padded, "gzip padded with zeros", "gzip", 100, 0, 1000);
	free(padded.p);
	free(gz.p);
	T_RC(sky_stream_open(t_path("absent"), NULL, &s, &err), SKY_E_MISSING, &err, "a missing file");
	T_RC(sky_stream_open(t_path("."), NULL, &s, &err), SKY_E_USAGE, &err, "a folder");
}

static void zstd_limits(void)
{
	ZSTD_CCtx *c = ZSTD_createCCtx();
	size_t cap = 4u << 20, n_out;
	char *out = malloc(cap);
	struct sky_stream_opt more = { .zstd_window_log = 28 };
	struct sky_stream *s;
	ZSTD_inBuffer in = { plain, N_PLAIN, 0 };
	ZSTD_outBuffer o = { out, cap, 0 };
	static const char skippable[] = "\x50\x2a\x4d\x18\x04\x00\x00\x00" "skip";
	struct blob z = pack_zstd(plain, N_PLAIN), k = join((struct blob){ (char *)(uintptr_t)skippable, 12 }, z);
	size_t n;

	ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 28);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_flush);
	ZSTD_compressStream2(c, &o, &in, ZSTD_e_end);
	n_out = o.pos;
	T_RC(open_blob((struct blob){ out, n_out }, NULL, &s), 0, &err, "a window of 2^28 opens");
	T_RC(drain(s, 1000, &n), SKY_E_LIMIT, &err, "and is refused");
	T_HAS(err.msg, "--long", "naming the option");
	sky_stream_close(s);
	T_RC(open_blob((struct blob){ out, n_out }, &more, &s), 0, &err, "with a larger limit");
	T_RC(drain(s, 1000, &n), 0, &err, "it is read");
	T_I64(n, N_PLAIN, "all of it");
	sky_stream_close(s);
	expect(k, "zstd behind a skippable frame", "zstd", 50000, 0, N_PLAIN);
	ZSTD_freeCCtx(c);
	free(out);
	free(z.p);
	free(k.p);
}

static void sources(void)
{
	struct blob z = pack_zstd(plain, N_PLAIN);
	struct sky_store *st;
	struct sky_stream *s;
	int fd[2];
	size_t n;
	char url[4200];

	T_RC(sky_store_open("mem:streams", NULL, &st, &err), 0, &err, "a store");
	T_RC(sky_store_put(st, "x.zst", z.p, z.n, 0, NULL, &err), 0, &err, "an object");
	T_RC(sky_stream_open("mem:streams/y.zst", NULL, &s, &err), SKY_E_MISSING, &err, "a missing object");
	sky_store_close(st);
	T_RC(sky_store_open("mem:deep/er", NULL, &st, &err), 0, &err, "a store");
	T_RC(sky_store_put(st, "x.zst", z.p, z.n, 0, NULL, &err), 0, &err, "an object");
	T_RC(sky_stream_open("mem:deep/er/x.zst", NULL, &s, &err), 0, &err, "stream of an object");
	T_RC(drain(s, 4096, &n), 0, &err, "is read");
	T_I64(n, N_PLAIN, "and decompressed");
	sky_stream_close(s);
	sky_store_close(st);
	snprintf(url, sizeof(url), "file://%s", t_write("u.zst", z.p, z.n));
	T_RC(sky_stream_open(url, NULL, &s, &err), 0, &err, "stream of a file URL");
	T_RC(drain(s, 4096, &n), 0, &err, "is read");
	T_I64(n, N_PLAIN, "and decompressed");
	sky_stream_close(s);
	if (pipe(fd) == 0 && fork() == 0) {
		for (size_t i = 0; i < z.n; i += 100) {
			if (write(fd[1], z.p + i, z.n - i < 100 ? z.n - i : 100) < 0) {
				break;
			}
		}
		_exit(0);
	}
	close(fd[1]);
	T_RC(sky_stream_fd(fd[0], "pipe", NULL, &s, &err), 0, &err, "stream of a pipe");
	T_RC(drain(s, 4096, &n), 0, &err, "is read in dribs");
	T_I64(n, N_PLAIN, "and decompressed");
	sky_stream_close(s);
	close(fd[0]);
	wait(NULL);
	T_RC(sky_stream_open("what://ever/x", NULL, &s, &err), SKY_E_USAGE, &err, "an unknown kind of URL");
	free(z.p);
}

int main(void)
{
	for (size_t i = 0; i < N_PLAIN; i++) {
		plain[i] = (char)('a' + (i * i / 7 + i / 13) % 23);
	}
	one_codec("gzip", pack_gzip);
	one_codec("zstd", pack_zstd);
	one_codec("xz", pack_xz);
	one_codec("bzip2", pack_bzip2);
	plain_and_raw();
	zstd_limits();
	sources();
	return t_done();
}
