/* Speed of chat templates: renders every line of CHATS.jsonl and finds its trained spans, in memory.
 *
 *	templatebench TEMPLATE.jinja CHATS.jsonl [ROUNDS [MAX_LINES]]
 *
 * A line is {"messages":[…],"tools":[…]?}. Prints the best round: MB/s of output, by CPU time, for render alone and with masks, and
 * output bytes. */
#include "base/base.h"
#include "text/text.h"

static struct sky_err err;

struct chat { char *messages, *tools; size_t n_messages, n_tools; };

/* CPU seconds, so that a busy machine does not count. */
static double cpu_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int die(const char *what)
{
	fprintf(stderr, "templatebench: %s: %s\n", what, err.msg);
	return 1;
}

static char *printed(const struct sky_jnode *v, size_t *n_p)
{
	struct sky_buf b;

	sky_buf_init(&b, 1u << 30);
	if (sky_j_print(v, &b, &err) < 0) {
		exit(die("print"));
	}
	*n_p = b.n;
	return sky_buf_take(&b);
}

static int64_t load(const char *path, struct chat **chats_p, int64_t max)
{
	struct sky_lines lines;
	struct chat *c = NULL;
	int64_t n = 0;
	const char *line;
	size_t len;
	FILE *f = freopen(path, "r", stdin);

	if (!f) {
		return 0;
	}
	sky_lines_init(&lines, fileno(f), path, 1u << 30);
	while (n < max && sky_lines_next(&lines, -1, &line, &len, &err) == 0) {
		struct sky_json *doc = NULL;

		if (sky_json_parse(line, len, path, SKY_JSON_PYTHON, &doc, &err) < 0) {
			exit(die(path));
		}
		c = n % 1024 == 0 ? sky_realloc_array(c, (size_t)n + 1024, sizeof(*c)) : c;
		c[n].messages = printed(sky_j_get(sky_json_root(doc), "messages"), &c[n].n_messages);
		c[n].tools = sky_j_get(sky_json_root(doc), "tools") ? printed(sky_j_get(sky_json_root(doc), "tools"), &c[n].n_tools) : NULL;
		n++;
		sky_json_free(doc);
	}
	sky_lines_release(&lines);
	*chats_p = c;
	return n;
}

int main(int argc, char **argv)
{
	struct sky_buf src;
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	struct sky_masker *m = NULL;
	struct sky_mask_rule rule;
	struct sky_render_opt opt = { .date = 0 };
	struct chat *chats = NULL;
	int64_t n, rounds = 5, max = INT64_MAX;
	double best[2] = { 1e9, 1e9 };
	uint64_t bytes = 0;

	sky_buf_init(&src, 16u << 20);
	if (argc < 3 || sky_file_read(argv[1], &src, &err) < 0 || sky_template_parse(src.ptr, src.n, argv[1], &t, &err) < 0 ||
	    sky_template_set_special(t, "bos_token", "<s>", &err) < 0 || sky_template_set_special(t, "eos_token", "</s>", &err) < 0 ||
	    sky_renderer_new(t, &r, &err) < 0 || sky_mask_rule_parse("all-assistant", &rule, &err) < 0 ||
	    sky_masker_new(t, NULL, &rule, &opt, &m, &err) < 0 || (argc > 3 && sky_parse_i64(argv[3], &rounds, &err) < 0) ||
	    (argc > 4 && sky_parse_i64(argv[4], &max, &err) < 0)) {
		return die(argc > 1 ? argv[1] : "usage");
	}
	n = load(argv[2], &chats, max);
	for (int64_t k = 0; k < rounds * 2; k++) {
		double t0 = cpu_now();

		bytes = 0;
		for (int64_t i = 0; i < n; i++) {
			const struct sky_render *v;
			const uint32_t (*span)[2];
			int64_t n_span;

			opt.tools_json = chats[i].tools;
			opt.n_tools_json = chats[i].n_tools;
			if (sky_renderer_text(r, chats[i].messages, chats[i].n_messages, &opt, &v, &err) < 0) {
				continue;       /* as the peer does: a chat that the template refuses */
			}
			if ((k & 1) && sky_masker_spans(m, v, &span, &n_span, &err) < 0) {
				return die("mask");
			}
			bytes += v->text.n;
		}
		t0 = cpu_now() - t0;
		best[k & 1] = t0 < best[k & 1] ? t0 : best[k & 1];
	}
	printf("%.1f MB/s render, %.1f MB/s render and mask, %lld chats, %llu bytes\n", (double)bytes / best[0] / 1e6,
	       (double)bytes / best[1] / 1e6, (long long)n, (unsigned long long)bytes);
	return 0;
}
