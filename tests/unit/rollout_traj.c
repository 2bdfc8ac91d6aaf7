/* traj: what is written reads back; every rule of skyrl-traj(5) is enforced on both sides. */
#include "rollout/traj.h"
#include "weights/weights.h"
#include "../testlib.h"

static struct sky_err err;

/* Two trajectories, the second in two turns; 3 samples, 12 tokens, 5 of them generated. */
static struct {
	int64_t start[4], group[3], traj[3], keep_start[6], route_start[4];
	int32_t tokens[12], prompt_len[3], version[12], keep_ids[9];
	uint8_t mask[12], last[3], stop[3], done[3], routes[9 * 2 * 2];
	float logprob[12], reward[12];
	char env[64];
} a;
static struct sky_traj t;

static void reset(void)
{
	static const int64_t start[] = { 0, 5, 8, 12 }, group[] = { 7, 8, 8 }, traj[] = { 0, 1, 1 },
		keep_start[] = { 0, 2, 3, 5, 6, 9 },
		route_start[] = { 0, 4, 6, 9 };
	static const int32_t tokens[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 }, prompt_len[] = { 2, 2, 2 },
		keep_ids[] = { 3, 9, 4, 5, 8, 8, 0, 12, 13 };
	static const uint8_t mask[] = { 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 1 }, last[] = { 1, 0, 1 },
		stop[] = { 0, 3, 4 }, done[] = { 1, 0, 1 };
	int i;

	memset(&a, 0, sizeof(a));
	memcpy(a.start, start, sizeof(start));
	memcpy(a.group, group, sizeof(group));
	memcpy(a.traj, traj, sizeof(traj));
	memcpy(a.keep_start, keep_start, sizeof(keep_start));
	memcpy(a.route_start, route_start, sizeof(route_start));
	memcpy(a.tokens, tokens, sizeof(tokens));
	memcpy(a.prompt_len, prompt_len, sizeof(prompt_len));
	memcpy(a.keep_ids, keep_ids, sizeof(keep_ids));
	memcpy(a.mask, mask, sizeof(mask));
	memcpy(a.last, last, sizeof(last));
	memcpy(a.stop, stop, sizeof(stop));
	memcpy(a.done, done, sizeof(done));
	a.keep_ids[3] = 2;
	a.keep_ids[4] = 8;
	a.keep_ids[5] = 11;
	for (i = 0; i < 12; i++) {
		a.version[i] = mask[i] ? 3 : -1;
		a.logprob[i] = mask[i] ? -0.5f * (float)i : 0;
		a.reward[i] = mask[i] ? 1 : 0;
	}
	for (i = 0; i < 36; i++) {
		a.routes[i] = (uint8_t)(i % 2 ? i + 100 : i);
	}
	snprintf(a.env, sizeof(a.env), "{\"id\":1}\n{}\n{\"x\":[1]}\n");
	t = (struct sky_traj){
		.n_traj = 3, .n_tok = 12, .n_gen = 5, .start = a.start, .tokens = a.tokens,
			.prompt_len = a.prompt_len, .loss_mask = a.mask,
		.logprob = a.logprob, .version = a.version, .reward = a.reward, .group = a.group, .traj = a.traj,
			.last = a.last, .stop = a.stop,
		.done = a.done, .keep_start = a.keep_start, .keep_ids = a.keep_ids, .route_start = a.route_start,
			.routes = a.routes,
		.route_dtype = SKY_U8, .n_layer = 2, .n_expert = 2, .env = a.env, .env_bytes = strlen(a.env),
			.model = "fp",
		.sampling = "{\"temperature\":0.7,\"top_p\":0.9}", .env_name = "gsm8k",
	};
}

static void compare_rows(const struct sky_traj *b)
{
	struct sky_traj_row r;

	sky_traj_row_at(b, 2, &r);
	T_OK(r.n_tok == 4 && r.n_gen == 2 && r.prompt_len == 2 && r.tokens[0] == 9 && r.group == 8 && r.traj == 1 &&
	     r.last == 1, "a row");
	T_OK(r.logprob[2] == -5 && r.version[3] == 3 && r.reward[3] == 1 && r.stop == 4 && r.done == 1, "its values");
	T_OK(r.keep_start[2] - r.keep_start[0] == 4 && r.keep_ids[0] == 11 && r.keep_ids[1] == 0, "its sets");
	T_OK(r.n_route == 3 && ((const uint8_t *)r.routes)[0] == 24, "its routes");
	T_OK(r.env_bytes == 9 && memcmp(r.env, "{\"x\":[1]}", 9) == 0, "its line");
}

static void test_round(void)
{
	struct sky_traj b, bare;
	char path[T_PATH_MAX];

	snprintf(path, sizeof(path), "%s", t_path("a.traj"));
	reset();
	T_RC(sky_traj_write(path, &t, 0, &err), 0, &err, "writing");
	if (!T_OK(sky_traj_open(path, NULL, &b, &err) == 0, "reading")) {
		t_note("%s", err.msg);
		return;
	}
	T_OK(b.n_traj == 3 && b.n_tok == 12 && b.n_gen == 5 && b.n_layer == 2 && b.n_expert == 2 &&
	     b.route_dtype == SKY_U8, "sizes");
	T_MEM(b.tokens, a.tokens, sizeof(a.tokens), "tokens");
	T_MEM(b.logprob, a.logprob, sizeof(a.logprob), "log-probs");
	T_MEM(b.keep_ids, a.keep_ids, sizeof(a.keep_ids), "sets");
	T_MEM(b.routes, a.routes, sizeof(a.routes), "routes");
	T_MEM(b.env, a.env, strlen(a.env), "lines");
	T_OK(b.how.set && b.how.temperature == 0.7 && b.how.top_p == 0.9 && b.how.top_k == 0 && b.how.min_p == 0,
	     "sampling");
	T_STR(b.model, "fp", "model");
	T_STR(b.env_name, "gsm8k", "environment");
	compare_rows(&b);
	t = (struct sky_traj){ .n_traj = 3, .n_tok = 12, .n_gen = 5, .start = a.start, .tokens = a.tokens,
		.prompt_len = a.prompt_len,
		.loss_mask = a.mask };
	T_RC(sky_traj_write(t_path("bare.traj"), &t, 0, &err), 0, &err, "required arrays alone");
	T_RC(sky_traj_open(t_path("bare.traj"), NULL, &bare, &err), 0, &err, "read back");
	T_OK(!bare.logprob && !bare.keep_start && !bare.env && !bare.traj && !bare.how.set, "the others are absent");
	T_RC(sky_traj_same_sampling(&b, "b", &b, "b", &err), 0, &err, "one way of sampling");
	T_RC(sky_traj_same_sampling(&b, "b", &bare, "bare", &err), SKY_E_DATA, &err, "two ways");
	sky_traj_close(&bare);
	sky_traj_close(&b);
	sky_traj_close(&b);
	struct sky_traj_limits need = { .need = SKY_TRAJ_LOGPROB };

	T_RC(sky_traj_open(t_path("bare.traj"), &need, &b, &err), SKY_E_DATA, &err, "an array that is needed");
	T_HAS(err.msg, "bare.traj: array logprob: is absent", "its message");
	need = (struct sky_traj_limits){ .n_vocab = 12 };
	T_RC(sky_traj_open(path, &need, &b, &err), SKY_E_DATA, &err, "an id beyond the vocabulary");
	need = (struct sky_traj_limits){ .n_vocab = 14, .n_layer = 2, .n_expert = 2, .n_expert_all = 136, .need = ~0u };
	T_RC(sky_traj_open(path, &need, &b, &err), 0, &err, "limits that hold");
	sky_traj_close(&b);
	need.n_expert_all = 135;
	T_RC(sky_traj_open(path, &need, &b, &err), SKY_E_DATA, &err, "an expert that does not exist");
}

/* Each changes one thing; the message must name the array. */
static void test_bad(void)
{
#define BAD(change, array) do { \
		reset(); \
		change; \
		T_RC(sky_traj_check(&t, NULL, "x", &err), SKY_E_DATA, &err, "refused: %s", #change); \
		T_HAS(err.msg, "x: array " array, "its message"); \
	} while (0)
	BAD(t.tokens = NULL, "tokens");
	BAD(a.start[0] = 1, "start");
	BAD(a.start[1] = 9, "start");
	BAD(a.start[3] = 11, "start");
	BAD(a.start[1] = INT64_MAX, "start");
	BAD(a.prompt_len[1] = 4, "prompt_len, sample 1");
	BAD(a.prompt_len[1] = -1, "prompt_len");
	BAD(a.tokens[3] = -1, "tokens, sample 0");
	BAD(a.mask[3] = 2, "");
	BAD((a.mask[0] = 1, t.n_gen = 6, t.keep_start = NULL, t.keep_ids = NULL), "loss_mask, sample 0: token 0");
	BAD((a.prompt_len[0] = 3), "loss_mask, sample 0: token 2");
	BAD(a.logprob[2] = NAN, "logprob");
	BAD(a.logprob[2] = -INFINITY, "logprob");
	BAD(a.logprob[0] = -1, "logprob");
	BAD(a.version[2] = -1, "version");
	BAD(a.version[0] = 0, "version");
	BAD(a.reward[1] = INFINITY, "reward");
	BAD(a.stop[1] = 2, "stop, sample 1");
	BAD(a.done[1] = 2, "done, sample 1");
	BAD(t.last = NULL, "last");
	BAD(a.last[1] = 2, "last");
	BAD(a.last[2] = 0, "last, sample 2");
	BAD(a.last[0] = 0, "last, sample 0");
	BAD((a.last[1] = 1), "traj: trajectory 1 occurs in two places");
	BAD(a.group[2] = 9, "group, sample 2");
	BAD(t.keep_ids = NULL, "keep_ids");
	BAD(a.keep_ids[1] = 3, "keep_ids, sample 0: the set of token 2 is not ascending");
	BAD(a.keep_ids[0] = 2, "keep_ids, sample 0: the set of token 2 lacks");
	BAD(a.keep_ids[0] = -3, "keep_ids");
	BAD(a.keep_start[2] = 2, "keep_ids, sample 0: the set of token 3 lacks");
	BAD(a.keep_start[1] = 4, "keep_start");
	BAD(a.route_start[1] = 6, "routes, sample 0: 6 rows for 5 tokens");
	BAD((a.route_start[1] = 2), "routes, sample 0: 2 rows, the trained token 3");
	BAD(a.routes[1] = a.routes[0], "routes, sample 0: row 0, layer 0 chooses expert 0 twice");
	BAD(t.route_dtype = SKY_U16, "routes");
	BAD(t.env_bytes -= 1, "env, sample 2");
	BAD(a.env[0] = 'x', "env, sample 0");
	BAD((snprintf(a.env, sizeof(a.env), "{}\n{}\n[]\n"), t.env_bytes = 9), "env, sample 2");
	BAD((snprintf(a.env, sizeof(a.env), "{}\n{}\n{}\n{}\n"), t.env_bytes = 12), "env: more lines");
	reset();
	t.sampling = "[]";
	T_RC(sky_traj_check(&t, NULL, "x", &err), SKY_E_DATA, &err, "sampling that is no object");
	reset();
	a.mask[3] = 2;
	T_RC(sky_traj_write(t_path("bad.traj"), &t, 0, &err), SKY_E_DATA, &err, "the writer refuses the same");
	T_OK(!sky_file_exists(t_path("bad.traj")), "and publishes nothing");
}

static int raw(const char *path, const char *format, const char *version, enum sky_dtype tok_dtype, int64_t n_start)
{
	static const int64_t start[] = { 0, 2, 2 };
	static const int32_t tokens[] = { 1, 2, 0, 0 };
	const struct sky_st_spec s[] = {
		{ "start", SKY_I64, 1, { n_start } }, { "tokens", tok_dtype, 1, { 2 } },
		{ "prompt_len", SKY_I32, 1, { 1 } },
		{ "loss_mask", SKY_U8, 1, { 2 } }, { "later", SKY_F64, 0, { 0 } },
	};
	const char *const meta[] = { "format", format, "version", version, NULL };
	const void *data[] = { start, tokens, tokens + 1, tokens + 2, start };
	const uint64_t bytes[] = { (uint64_t)n_start * 8, 2 * (uint64_t)sky_dtype_bits(tok_dtype) / 8, 4, 2, 8 };
	struct sky_st_out *o;
	int i, rc;

	rc = sky_st_create(path, s, 5, meta, 1, SKY_OUT_REPLACE, &o, &err);
	for (i = 0; rc == 0 && i < 5; i++) {
		rc = sky_st_out_write(o, data[i], bytes[i], &err);
	}
	return rc < 0 ? rc : sky_st_out_commit(o, &err);
}

static void test_files(void)
{
	struct sky_traj b;
	char *text, *odd;
	size_t n;

	T_RC(raw(t_path("r"), "skyrl-traj", "1", SKY_I32, 2), 0, &err, "a file by hand");
	T_RC(sky_traj_open(t_path("r"), NULL, &b, &err), 0, &err, "an array that we do not know is ignored");
	sky_traj_close(&b);
	/* One blank more in the header puts every array at an odd address. */
	text = t_read(t_path("r"), &n);
	odd = malloc(n + 1);
	uint64_t head = sky_load_u64(text);
	sky_store_u64(odd, head + 1);
	memcpy(odd + 8, text + 8, head);
	odd[8 + head] = ' ';
	memcpy(odd + 9 + head, text + 8 + head, n - 8 - head);
	t_write("odd", odd, n + 1);
	T_RC(sky_traj_open(t_path("odd"), NULL, &b, &err), 0, &err, "arrays at odd addresses");
	T_OK(b.tokens && b.tokens[1] == 2 && (uintptr_t)b.start % 8 == 0, "are copied");
	sky_traj_close(&b);
	free(text);
	free(odd);
	T_RC(raw(t_path("r"), "pt", "1", SKY_I32, 2), 0, &err, "another format");
	T_RC(sky_traj_open(t_path("r"), NULL, &b, &err), SKY_E_DATA, &err, "is refused");
	T_RC(raw(t_path("r"), "skyrl-traj", "2", SKY_I32, 2), 0, &err, "another version");
	T_RC(sky_traj_open(t_path("r"), NULL, &b, &err), SKY_E_DATA, &err, "is refused");
	T_HAS(err.msg, "version \"2\"", "and named");
	T_RC(raw(t_path("r"), "skyrl-traj", "1", SKY_I64, 2), 0, &err, "another type");
	T_RC(sky_traj_open(t_path("r"), NULL, &b, &err), SKY_E_DATA, &err, "is refused");
	T_HAS(err.msg, "array tokens is I64", "and named");
	T_RC(raw(t_path("r"), "skyrl-traj", "1", SKY_I32, 3), 0, &err, "lengths that disagree");
	T_RC(sky_traj_open(t_path("r"), NULL, &b, &err), SKY_E_DATA, &err, "are refused");
	T_HAS(err.msg, "prompt_len has 1 entries, must have 2", "and named");
}

static void test_builder(void)
{
	struct sky_traj_build_opts opts = { .model = "fp", .route_dtype = SKY_U8, .n_layer = 2, .n_expert = 2,
		.arrays = ~0u };
	struct sky_traj_build *b = NULL;
	struct sky_traj_row r;
	struct sky_traj src, copy;
	char *one, *two;
	size_t n, m;
	int round;
	int64_t i;

	T_RC(sky_traj_open(t_path("a.traj"), NULL, &src, &err), 0, &err, "a source");
	opts.sampling = src.sampling;
	opts.env_name = src.env_name;
	T_RC(sky_traj_build_new(&opts, &b, &err), 0, &err, "a builder");
	T_RC(sky_traj_build_write(b, t_path("none"), 0, &err), SKY_E_USAGE, &err, "nothing to write");
	for (round = 0; round < 2; round++) {
		for (i = 0; i < src.n_traj; i++) {
			sky_traj_row_at(&src, i, &r);
			T_RC(sky_traj_build_add(b, &r, &err), 0, &err, "adding sample %lld", (long long)i);
		}
		T_I64(sky_traj_build_count(b), 3, "are counted");
		T_RC(sky_traj_build_write(b, t_path("built"), SKY_OUT_REPLACE, &err), 0, &err, "writing, round %d",
		     round);
		one = t_read(t_path("a.traj"), &n);
		two = t_read(t_path("built"), &m);
		T_OK(one && two && n == m && memcmp(one, two, n) == 0, "the same bytes as the source");
		free(one);
		free(two);
	}
	r.tokens = NULL;
	T_RC(sky_traj_build_add(b, &r, &err), SKY_E_USAGE, &err, "a sample without tokens");
	sky_traj_build_free(b);
	/* No generated token at all: an environment that failed at once. */
	opts = (struct sky_traj_build_opts){ .arrays = SKY_TRAJ_KEEP | SKY_TRAJ_STOP | SKY_TRAJ_LOGPROB };
	T_RC(sky_traj_build_new(&opts, &b, &err), 0, &err, "another builder");
	r = (struct sky_traj_row){ .stop = 4 };
	T_RC(sky_traj_build_add(b, &r, &err), 0, &err, "an empty sample");
	T_RC(sky_traj_build_write(b, t_path("empty"), 0, &err), 0, &err, "is written");
	T_RC(sky_traj_open(t_path("empty"), NULL, &copy, &err), 0, &err, "and read");
	T_OK(copy.n_tok == 0 && copy.n_traj == 1 && copy.stop[0] == 4 && copy.keep_start && copy.keep_ids,
	     "with its arrays");
	sky_traj_close(&copy);
	sky_traj_build_free(b);
	sky_traj_build_free(NULL);
	sky_traj_close(&src);
}

int main(void)
{
	test_round();
	test_bad();
	test_files();
	test_builder();
	return t_done();
}
