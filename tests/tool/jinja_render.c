/* For parity scripts: renders conversations with one template.
 *
 *	jinja_render TEMPLATE SPECIALS.json NOW [RULE [TOKENIZER]] < CASES.ndjson
 *
 * SPECIALS is an object of special tokens, NOW seconds since 1970. A case is {"messages":…,"tools":…,"kwargs":…}, or has
 * a "template" of its own; a line
 * {"text":…,"gen":[…],"spans":[[from,to],…],"parts":[[from,to,message,part],…]} or {"error":…} answers it. */
#include "base/base.h"
#include "text/text.h"

static struct sky_err err;

static int die(const char *what)
{
	fprintf(stderr, "jinja_render: %s: %s\n", what, err.msg);
	return 1;
}

static void answer(const struct sky_render *r, const uint32_t (*span)[2], int64_t n_span, struct sky_buf *out)
{
	struct sky_jw w;

	sky_jw_init(&w, out, &err);
	sky_jw_obj(&w);
	sky_jw_key(&w, "text");
	sky_jw_strn(&w, r->text.ptr, r->text.n);
	sky_jw_key(&w, "gen");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < r->n_gen; i++) {
		sky_jw_i64(&w, r->gen[i][0]);
		sky_jw_i64(&w, r->gen[i][1]);
	}
	sky_jw_close_arr(&w);
	sky_jw_key(&w, "spans");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < n_span; i++) {
		sky_jw_arr(&w);
		sky_jw_i64(&w, span[i][0]);
		sky_jw_i64(&w, span[i][1]);
		sky_jw_close_arr(&w);
	}
	sky_jw_close_arr(&w);
	sky_jw_key(&w, "parts");
	sky_jw_arr(&w);
	for (int64_t i = 0; i < r->n_span; i++) {
		sky_jw_arr(&w);
		sky_jw_i64(&w, r->span[i].from);
		sky_jw_i64(&w, r->span[i].to);
		sky_jw_i64(&w, r->span[i].message);
		sky_jw_i64(&w, r->span[i].part);
		sky_jw_close_arr(&w);
	}
	sky_jw_close_arr(&w);
	sky_jw_close_obj(&w);
	if (sky_jw_end(&w) < 0) {
		exit(die("output"));
	}
}

static void fail_line(struct sky_buf *out)
{
	struct sky_jw w;
	struct sky_err e;

	sky_jw_init(&w, out, &e);
	sky_jw_obj(&w);
	sky_jw_kstr(&w, "error", err.msg);
	sky_jw_ki64(&w, "code", err.code);
	sky_jw_close_obj(&w);
	if (sky_jw_end(&w) < 0) {
		exit(1);
	}
}

static void one(struct sky_renderer *rend, struct sky_masker **m, const struct sky_template *t, const struct sky_tokenizer *tok,
                const struct sky_mask_rule *rule, const struct sky_jnode *c, int64_t date, struct sky_buf *out)
{
	const struct sky_jnode *kwargs = sky_j_get(c, "kwargs"), *tools = sky_j_get(c, "tools");
	struct sky_render_opt opt = { .date = date, .args = kwargs, .tools = sky_j_type(tools) == SKY_J_NULL ? NULL : tools };
	const uint32_t (*span)[2] = NULL;
	const struct sky_render *r;
	int64_t n_span = 0;
	bool flag = false;
	int rc;

	sky_j_bool(sky_j_get(kwargs, "add_generation_prompt"), &flag);
	opt.add_generation_prompt = flag;
	sky_buf_clear(out);
	if (rule && !*m && sky_masker_new(t, tok, rule, &opt, m, &err) < 0) {
		exit(die("masker"));
	}
	rc = sky_renderer_nodes(rend, sky_j_get(c, "messages"), &opt, &r, &err);
	if (rc == 0 && rule) {
		rc = sky_masker_spans(*m, r, &span, &n_span, &err);
	}
	if (rc < 0) {
		fail_line(out);
	} else {
		answer(r, span, n_span, out);
	}
}

/* A case that brings its template. */
static void one_with_template(const char *src, const struct sky_jnode *c, int64_t date, struct sky_buf *out)
{
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	struct sky_masker *m = NULL;

	sky_buf_clear(out);
	if (sky_template_parse(src, strlen(src), "case", &t, &err) < 0 || sky_renderer_new(t, &r, &err) < 0) {
		fail_line(out);
	} else {
		one(r, &m, t, NULL, NULL, c, date, out);
	}
	sky_renderer_free(r);
	sky_template_close(t);
}

int main(int argc, char **argv)
{
	struct sky_buf src, out;
	struct sky_json *doc = NULL;
	struct sky_template *t = NULL;
	struct sky_renderer *rend = NULL;
	struct sky_tokenizer *tok = NULL;
	struct sky_masker *m = NULL;
	struct sky_mask_rule rule;
	struct sky_lines lines;
	const char *line;
	size_t n;
	int64_t date = -1;

	sky_buf_init(&src, 16u << 20);
	sky_buf_init(&out, 1u << 30);
	if (argc < 4) {
		fprintf(stderr, "usage: jinja_render TEMPLATE SPECIALS.json NOW [RULE [TOKENIZER]] < CASES.ndjson\n");
		return 2;
	}
	if (sky_file_read(argv[1], &src, &err) < 0 || sky_template_parse(src.ptr ? src.ptr : "", src.n, argv[1], &t, &err) < 0 ||
	    sky_json_load(argv[2], 0, &doc, &err) < 0 || sky_parse_i64(argv[3], &date, &err) < 0 ||
	    sky_renderer_new(t, &rend, &err) < 0) {
		return die(argv[1]);
	}
	for (const struct sky_jnode *e = sky_j_first(sky_json_root(doc)); e; e = sky_j_next(e)) {
		if (sky_template_set_special(t, sky_j_key(e), sky_j_str(e), &err) < 0) {
			return die(argv[2]);
		}
	}
	if ((argc > 4 && sky_mask_rule_parse(argv[4], &rule, &err) < 0) || (argc > 5 && sky_tokenizer_open(argv[5], &tok, &err) < 0)) {
		return die(argv[4]);
	}
	sky_lines_init(&lines, 0, "stdin", 1u << 28);
	while (sky_lines_next(&lines, -1, &line, &n, &err) == 0) {
		struct sky_json *c = NULL;

		if (sky_json_parse(line, n, "case", SKY_JSON_PYTHON, &c, &err) < 0) {
			sky_buf_clear(&out);
			fail_line(&out);
		} else if (sky_j_str(sky_j_get(sky_json_root(c), "template"))) {
			one_with_template(sky_j_str(sky_j_get(sky_json_root(c), "template")), sky_json_root(c), date, &out);
		} else {
			one(rend, &m, t, tok, argc > 4 ? &rule : NULL, sky_json_root(c), date, &out);
		}
		printf("%.*s\n", (int)out.n, out.ptr);
		sky_json_free(c);
	}
	sky_lines_release(&lines);
	sky_masker_free(m);
	sky_tokenizer_close(tok);
	sky_renderer_free(rend);
	sky_template_close(t);
	sky_json_free(doc);
	sky_buf_release(&src);
	sky_buf_release(&out);
	return 0;
}
