/* tokbench: the tokenizer alone, in memory.
 *
 *	tokbench TOKENIZER DOCS [-n passes] [-t threads] [-g] [-s scalar|avx2|avx512]     rates, cold and warm
 *	tokbench TOKENIZER -i [-d]         texts on stdin, ids on stdout: for comparing with another implementation
 *
 * DOCS and stdin hold texts, each after its length (uint32, little-endian); -i answers each with the number of ids and
 * the ids, all uint32 (the length 2^32 - 1 asks for all answers so far); -d adds the length of the decoded text and the
 *text. -g: the general path. Each pass of a thread starts with a fresh encoder, so its cache is cold; "warm" is the
 *same encoder again. */
#include <pthread.h>
#include <unistd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/scan.h"

struct docs {
	char *bytes;
	size_t n;
};

static void fail(const struct sky_err *err)
{
	fprintf(stderr, "tokbench: %s\n", err->msg);
	exit(1);
}

static uint32_t length_at(const char *p)
{
	return sky_load_u32(p);
}

struct job {
	const struct sky_tokenizer *t;
	const struct docs *docs;
	int from, step, isa;
	bool general, warm;
	int64_t n_ids;
	double seconds;
};

static void encode_all(struct job *j, struct sky_encoder *e, struct sky_ids *ids)
{
	struct sky_err err;
	size_t at = 0;

	j->n_ids = 0;
	for (int i = 0; at + 4 <= j->docs->n; i++) {
		uint32_t n = length_at(j->docs->bytes + at);

		if (i % j->step == j->from) {
			ids->n = 0;
			if (sky_encode(e, j->docs->bytes + at + 4, n, 0, ids, &err) < 0) {
				fail(&err);
			}
			j->n_ids += ids->n;
		}
		at += 4 + n;
	}
}

/* Seconds that this thread has computed: tells more than the clock on a shared machine. */
static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *pass(void *arg)
{
	struct job *j = arg;
	struct sky_encoder *e;
	struct sky_ids ids = { 0 };
	struct sky_err err;
	double start = cpu_now();

	if (sky_encoder_new(j->t, &e, &err) < 0) {
		fail(&err);
	}
	e->general = j->general;
	e->isa = j->isa;
	encode_all(j, e, &ids);
	if (j->warm) {
		start = cpu_now();
		encode_all(j, e, &ids);
	}
	j->seconds = cpu_now() - start;
	sky_encoder_free(e);
	sky_ids_release(&ids);
	return NULL;
}

static void bench(const struct sky_tokenizer *t, const struct docs *docs, struct job proto, int n_threads, int n_pass)
{
	struct job job[64];
	pthread_t thread[64];

	for (int k = 0; k < n_pass; k++) {
		double start = sky_now(), slowest = 0;
		int64_t n_ids = 0;

		for (int i = 0; i < n_threads; i++) {
			job[i] = proto;
			job[i].t = t;
			job[i].docs = docs;
			job[i].from = i;
			job[i].step = n_threads;
			pthread_create(&thread[i], NULL, pass, &job[i]);
		}
		for (int i = 0; i < n_threads; i++) {
			pthread_join(thread[i], NULL);
			n_ids += job[i].n_ids;
			slowest = job[i].seconds > slowest ? job[i].seconds : slowest;
		}
		printf("%s %.1f MB/s, %.1f MB per second of CPU, %lld ids\n", proto.warm ? "warm and cold" : "cold",
		       (double)docs->n / 1e6 / (sky_now() - start), (double)docs->n / 1e6 / slowest / n_threads,
		       (long long)n_ids);
		fflush(stdout);
	}
}

static int serve(const struct sky_tokenizer *t, struct job proto, bool decode)
{
	struct sky_buf text = SKY_BUF_INIT(1u << 31), back = SKY_BUF_INIT(1u << 31);
	struct sky_ids ids = { 0 };
	struct sky_encoder *e;
	struct sky_err err;
	uint8_t n4[4];

	if (sky_encoder_new(t, &e, &err) < 0) {
		fail(&err);
	}
	e->general = proto.general;
	e->isa = proto.isa;
	while (fread(n4, 1, 4, stdin) == 4) {
		uint32_t n = sky_load_u32(n4);

		if (n == UINT32_MAX) { /* the end of a batch: the other side waits for answers */
			fflush(stdout);
			continue;
		}
		sky_buf_clear(&text);
		ids.n = 0;
		if (sky_buf_reserve(&text, n, &err) < 0) {
			fail(&err);
		}
		if (fread(text.ptr, 1, n, stdin) != n) {
			return 1;
		}
		if (sky_encode(e, text.ptr, n, 0, &ids, &err) < 0) {
			fail(&err);
		}
		sky_store_u32(n4, (uint32_t)ids.n);
		fwrite(n4, 1, 4, stdout);
		fwrite(ids.id, 4, (size_t)ids.n, stdout);
		sky_buf_clear(&back);
		if (decode) {
			if (sky_decode(t, ids.id, ids.n, 0, &back, &err) < 0) {
				fail(&err);
			}
			sky_store_u32(n4, (uint32_t)back.n);
			fwrite(n4, 1, 4, stdout);
			fwrite(back.ptr, 1, back.n, stdout);
		}
	}
	sky_encoder_free(e);
	sky_ids_release(&ids);
	sky_buf_release(&text);
	sky_buf_release(&back);
	return 0;
}

int main(int argc, char **argv)
{
	struct job proto = { .isa = SCAN_AVX512 };
	struct sky_buf bytes = SKY_BUF_INIT(1u << 31);
	struct sky_tokenizer *t;
	struct sky_err err;
	struct docs docs;
	int n_pass = 3, n_threads = 1, c;
	bool ids = false, decode = false;
	double start;

	while ((c = getopt(argc, argv, "n:t:gs:id")) != -1) {
		switch (c) {
		case 'n':
			n_pass = (int)strtol(optarg, NULL, 10);
			break;
		case 't':
			n_threads = (int)strtol(optarg, NULL, 10);
			break;
		case 'g':
			proto.general = true;
			break;
		case 's':
			proto.isa = strcmp(optarg, "scalar") == 0 ? SCAN_SCALAR
				    : strcmp(optarg, "avx2") == 0 ? SCAN_AVX2
								  : SCAN_AVX512;
			break;
		case 'i':
			ids = true;
			break;
		case 'd':
			decode = true;
			break;
		default:
			return 2;
		}
	}
	if (argc - optind != (ids ? 1 : 2) || n_threads < 1 || n_threads > 64) {
		fprintf(stderr, "usage: tokbench [-n passes] [-t threads] [-g] [-s isa] TOKENIZER DOCS\n       "
				"tokbench -i [-d] TOKENIZER\n");
		return 2;
	}
	start = sky_now();
	if (sky_tokenizer_open(argv[optind], &t, &err) < 0) {
		fail(&err);
	}
	if (ids) {
		return serve(t, proto, decode);
	}
	printf("load %.0f ms\n", (sky_now() - start) * 1000);
	if (sky_file_read(argv[optind + 1], &bytes, &err) < 0) {
		fail(&err);
	}
	docs.bytes = bytes.ptr;
	docs.n = bytes.n;
	bench(t, &docs, proto, n_threads, n_pass);
	proto.warm = true;
	bench(t, &docs, proto, n_threads, n_pass > 1);
	sky_tokenizer_close(t);
	sky_buf_release(&bytes);
	return 0;
}
