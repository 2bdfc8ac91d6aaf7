/* store: decompressors of streams behind one step function. Each takes files of several frames or members one after the
 * other, as `cat a.gz b.gz` makes them, and calls anything else behind a frame damage. */
#include <bzlib.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#include "store/store_int.h"

#define XZ_MEMORY (1ull << 30)          /* most that an xz header may ask for: far above any preset */

/* ---- gzip ---- */

struct gz {
	z_stream z;
	int in_member;          /* inside a member: an end here is a truncation */
	int padding;            /* zero bytes behind the last member have begun */
};

static int gz_match(const uint8_t *p, size_t n)
{
	return n >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8;
}

static void *gz_init(const struct sky_stream_opt *opt)
{
	struct gz *g = calloc(1, sizeof(*g));

	(void)opt;
	if (g && inflateInit2(&g->z, 15 + 16) != Z_OK) {
		free(g);
		return NULL;
	}
	if (g) {
		g->in_member = 1;
	}
	return g;
}

/* Between members: another member, zero padding (tape blocks), or the end. */
static int gz_between(struct gz *g, struct sky_codec_io *io, const char **why_p)
{
	while (io->n_in > 0 && *io->in == 0) {
		io->in++;
		io->n_in--;
		g->padding = 1;
	}
	if (io->n_in == 0) {
		return io->eof ? SKY_EOF : 0;
	}
	if (g->padding || *io->in != 0x1f) {
		*why_p = "data behind the last gzip member";
		return SKY_E_DATA;
	}
	if (inflateReset(&g->z) != Z_OK) {
		*why_p = "zlib state";
		return SKY_E_LIMIT;
	}
	g->in_member = 1;
	return 0;
}

static int gz_step(void *state, struct sky_codec_io *io, const char **why_p)
{
	struct gz *g = state;
	int rc;

	if (!g->in_member) {
		rc = gz_between(g, io, why_p);
		if (rc != 0 || io->n_in == 0) {
			return rc;
		}
	}
	g->z.next_in = (Bytef *)(uintptr_t)io->in;
	g->z.avail_in = (uInt)io->n_in;
	g->z.next_out = io->out;
	g->z.avail_out = (uInt)io->n_out;
	rc = inflate(&g->z, Z_NO_FLUSH);
	if (io->eof && io->n_in == 0 && rc != Z_STREAM_END && g->z.avail_out == io->n_out && io->n_out > 0) {
		*why_p = "truncated gzip data";
		return SKY_E_DATA;
	}
	io->in = g->z.next_in;
	io->n_in = g->z.avail_in;
	io->out = g->z.next_out;
	io->n_out = g->z.avail_out;
	if (rc == Z_STREAM_END) {
		g->in_member = 0;
		return 0;
	}
	if (rc == Z_OK || rc == Z_BUF_ERROR) {
		return 0;
	}
	*why_p = rc == Z_MEM_ERROR ? "out of memory" : g->z.msg ? g->z.msg : "damaged gzip data";
	return rc == Z_MEM_ERROR ? SKY_E_LIMIT : SKY_E_DATA;
}

static void gz_done(void *state)
{
	struct gz *g = state;

	inflateEnd(&g->z);
	free(g);
}

const struct sky_codec sky_codec_gzip = { "gzip", gz_match, gz_init, gz_step, gz_done };

/* ---- zstd ---- */

struct zs {
	ZSTD_DStream *d;
	int in_frame;
};

static int zs_match(const uint8_t *p, size_t n)
{
	if (n < 4) {
		return 0;
	}
	return (p[0] == 0x28 && p[1] == 0xb5 && p[2] == 0x2f && p[3] == 0xfd) ||
	       ((p[0] & 0xf0) == 0x50 && p[1] == 0x2a && p[2] == 0x4d && p[3] == 0x18); /* skippable frame first */
}

static void *zs_init(const struct sky_stream_opt *opt)
{
	struct zs *z = calloc(1, sizeof(*z));
	int log = opt && opt->zstd_window_log > 0 ? opt->zstd_window_log : 27;

	if (!z) {
		return NULL;
	}
	z->d = ZSTD_createDStream();
	if (!z->d || ZSTD_isError(ZSTD_DCtx_setParameter(z->d, ZSTD_d_windowLogMax, log))) {
		ZSTD_freeDStream(z->d);
		free(z);
		return NULL;
	}
	return z;
}

static int zs_step(void *state, struct sky_codec_io *io, const char **why_p)
{
	struct zs *z = state;
	ZSTD_inBuffer in = { io->in, io->n_in, 0 };
	ZSTD_outBuffer out = { io->out, io->n_out, 0 };
	size_t rc;

	if (io->n_in == 0 && io->eof && !z->in_frame) {
		return SKY_EOF;
	}
	rc = ZSTD_decompressStream(z->d, &out, &in);
	if (ZSTD_isError(rc)) {
		if (ZSTD_getErrorCode(rc) == ZSTD_error_frameParameter_windowTooLarge) {
			*why_p = "zstd window larger than allowed (raise it with --long=31)";
			return SKY_E_LIMIT;
		}
		*why_p = ZSTD_getErrorCode(rc) == ZSTD_error_prefix_unknown ? "data that is no zstd frame" :
		                                                              ZSTD_getErrorName(rc);
		return ZSTD_getErrorCode(rc) == ZSTD_error_memory_allocation ? SKY_E_LIMIT : SKY_E_DATA;
	}
	if (in.pos > 0 || out.pos > 0) {
		z->in_frame = rc != 0;
	}
	if (io->n_in == 0 && io->eof && out.pos == 0 && z->in_frame) {
		*why_p = "truncated zstd data";
		return SKY_E_DATA;
	}
	io->in += in.pos;
	io->n_in -= in.pos;
	io->out += out.pos;
	io->n_out -= out.pos;
	return 0;
}

static void zs_done(void *state)
{
	struct zs *z = state;

	ZSTD_freeDStream(z->d);
	free(z);
}

const struct sky_codec sky_codec_zstd = { "zstd", zs_match, zs_init, zs_step, zs_done };

/* ---- xz ---- */

static int xz_match(const uint8_t *p, size_t n)
{
	return n >= 6 && memcmp(p, "\xfd" "7zXZ", 6) == 0;
}

static void *xz_init(const struct sky_stream_opt *opt)
{
	lzma_stream *x = calloc(1, sizeof(*x));

	(void)opt;
	if (x && lzma_stream_decoder(x, XZ_MEMORY, LZMA_CONCATENATED) != LZMA_OK) {
		free(x);
		return NULL;
	}
	return x;
}

static int xz_step(void *state, struct sky_codec_io *io, const char **why_p)
{
	lzma_stream *x = state;
	size_t n_in = io->n_in, n_out = io->n_out;
	lzma_ret rc;

	x->next_in = io->in;
	x->avail_in = io->n_in;
	x->next_out = io->out;
	x->avail_out = io->n_out;
	rc = lzma_code(x, io->eof ? LZMA_FINISH : LZMA_RUN);
	io->in = x->next_in;
	io->n_in = x->avail_in;
	io->out = x->next_out;
	io->n_out = x->avail_out;
	switch (rc) {
	case LZMA_STREAM_END:
		return SKY_EOF;
	case LZMA_OK:
	case LZMA_BUF_ERROR:
		if (io->eof && n_in == io->n_in && n_out == io->n_out && n_out > 0) {
			*why_p = "truncated xz data";
			return SKY_E_DATA;
		}
		return 0;
	case LZMA_MEM_ERROR:
		*why_p = "out of memory";
		return SKY_E_LIMIT;
	case LZMA_MEMLIMIT_ERROR:
		*why_p = "xz data that needs more than 1 GiB of memory to decode";
		return SKY_E_LIMIT;
	case LZMA_FORMAT_ERROR:
		*why_p = "data behind the last xz stream";
		return SKY_E_DATA;
	default:
		*why_p = "damaged xz data";
		return SKY_E_DATA;
	}
}

static void xz_done(void *state)
{
	lzma_end(state);
	free(state);
}

const struct sky_codec sky_codec_xz = { "xz", xz_match, xz_init, xz_step, xz_done };

/* ---- bzip2 ---- */

struct bz {
	bz_stream b;
	int in_stream;
};

static int bz_match(const uint8_t *p, size_t n)
{
	return n >= 10 && p[0] == 'B' && p[1] == 'Z' && p[2] == 'h' && p[3] >= '1' && p[3] <= '9' &&
	       (memcmp(p + 4, "\x31\x41\x59\x26\x53\x59", 6) == 0 || memcmp(p + 4, "\x17\x72\x45\x38\x50\x90", 6) == 0);
}

static void *bz_init(const struct sky_stream_opt *opt)
{
	struct bz *z = calloc(1, sizeof(*z));

	(void)opt;
	if (z && BZ2_bzDecompressInit(&z->b, 0, 0) != BZ_OK) {
		free(z);
		return NULL;
	}
	if (z) {
		z->in_stream = 1;
	}
	return z;
}

static int bz_step(void *state, struct sky_codec_io *io, const char **why_p)
{
	struct bz *z = state;
	int rc;

	if (!z->in_stream) {
		if (io->n_in == 0) {
			return io->eof ? SKY_EOF : 0;
		}
		BZ2_bzDecompressEnd(&z->b);
		memset(&z->b, 0, sizeof(z->b));
		if (BZ2_bzDecompressInit(&z->b, 0, 0) != BZ_OK) {
			*why_p = "out of memory";
			return SKY_E_LIMIT;
		}
		z->in_stream = 1;
	}
	z->b.next_in = (char *)(uintptr_t)io->in;
	z->b.avail_in = (unsigned)io->n_in;
	z->b.next_out = (char *)io->out;
	z->b.avail_out = (unsigned)io->n_out;
	rc = BZ2_bzDecompress(&z->b);
	if (io->eof && io->n_in == 0 && z->b.avail_out == io->n_out && io->n_out > 0 && rc == BZ_OK) {
		*why_p = "truncated bzip2 data";
		return SKY_E_DATA;
	}
	io->in += io->n_in - z->b.avail_in;
	io->n_in = z->b.avail_in;
	io->out += io->n_out - z->b.avail_out;
	io->n_out = z->b.avail_out;
	if (rc == BZ_STREAM_END) {
		z->in_stream = 0;
		return 0;
	}
	if (rc == BZ_OK) {
		return 0;
	}
	*why_p = rc == BZ_MEM_ERROR        ? "out of memory" :
	         rc == BZ_DATA_ERROR_MAGIC ? "data behind the last bzip2 stream" :
	                                     "damaged bzip2 data";
	return rc == BZ_MEM_ERROR ? SKY_E_LIMIT : SKY_E_DATA;
}

static void bz_done(void *state)
{
	struct bz *z = state;

	BZ2_bzDecompressEnd(&z->b);
	free(z);
}

const struct sky_codec sky_codec_bzip2 = { "bzip2", bz_match, bz_init, bz_step, bz_done };
