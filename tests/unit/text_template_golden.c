/* chat templates: every golden render that transformers made, byte for byte, with the spans of {% generation %}; and
 * spans that cover the text without gaps. */
#include <dirent.h>
#include "base/base.h"
#include "text/text.h"
#include "../testlib.h"

static struct sky_err err;

/* Byte offset of code point i. */
static uint32_t byte_of(const char *s, size_t n, int64_t i)
{
	size_t at = 0;

	while (i > 0 && at < n) {
		at++;
		while (at < n && ((uint8_t)s[at] & 0xc0) == 0x80) {
			at++;
		}
		i--;
	}
	return (uint32_t)at;
}

static bool spans_cover(const struct sky_render *r)
{
	uint32_t at = 0;

	for (int64_t i = 0; i < r->n_span; i++) {
		if (r->span[i].from != at || r->span[i].to <= at || r->span[i].part > SKY_PART_OTHER) {
			return false;
		}
		at = r->span[i].to;
	}
	return at == r->text.n;
}

static bool generation_agrees(const struct sky_render *r, const struct sky_jnode *want)
{
	if ((int64_t)sky_j_len(want) != r->n_gen) {
		return false;
	}
	for (int64_t i = 0; i < r->n_gen; i++) {
		int64_t from = -1, to = -1;

		if (!sky_j_i64(sky_j_at(sky_j_at(want, (size_t)i), 0), &from) || !sky_j_i64(sky_j_at(sky_j_at(want, (size_t)i), 1), &to) ||
		    byte_of(r->text.ptr, r->text.n, from) != r->gen[i][0] || byte_of(r->text.ptr, r->text.n, to) != r->gen[i][1]) {
			return false;
		}
	}
	return true;
}

static void one_case(struct sky_renderer *rend, const char *name, const struct sky_jnode *c, int64_t date, bool as_text)
{
	const struct sky_jnode *kwargs = sky_j_get(c, "kwargs"), *want = sky_j_get(c, "text"), *tools = sky_j_get(c, "tools");
	struct sky_render_opt opt = { .date = date };
	const struct sky_render *r = NULL;
	struct sky_buf text[3];
	bool flag = false;
	int rc;

	for (int i = 0; i < 3; i++) {
		sky_buf_init(&text[i], 1u << 24);
	}
	sky_j_bool(sky_j_get(kwargs, "add_generation_prompt"), &flag);
	opt.add_generation_prompt = flag;
	opt.continue_final_message = sky_j_get(kwargs, "continue_final_message") != NULL;
	opt.args = opt.continue_final_message ? NULL : kwargs;
	opt.tools = sky_j_type(tools) == SKY_J_NULL ? NULL : tools;
	if (as_text) {
		rc = sky_j_print(sky_j_get(c, "messages"), &text[0], &err);
		if (rc == 0 && opt.tools) {
			rc = sky_j_print(opt.tools, &text[1], &err);
			opt.tools = NULL;
			opt.tools_json = text[1].ptr;
			opt.n_tools_json = text[1].n;
		}
		if (rc == 0 && opt.args) {
			rc = sky_j_print(opt.args, &text[2], &err);
			opt.args = NULL;
			opt.args_json = text[2].ptr;
			opt.n_args_json = text[2].n;
		}
		rc = rc ? rc : sky_renderer_text(rend, text[0].ptr, text[0].n, &opt, &r, &err);
	} else {
		rc = sky_renderer_nodes(rend, sky_j_get(c, "messages"), &opt, &r, &err);
	}
	if (!want) {
		T_OK(rc < 0, "%s %s: fails as in Jinja2 (%s)", name, sky_j_str(sky_j_get(c, "conversation")), rc < 0 ? err.msg : "it did not");
	} else if (rc < 0) {
		T_OK(false, "%s %s: %s", name, sky_j_str(sky_j_get(c, "conversation")), err.msg);
	} else {
		T_STR(r->text.ptr, sky_j_str(want), "%s %s prompt %d", name, sky_j_str(sky_j_get(c, "conversation")), flag);
		if (!spans_cover(r) || (sky_j_get(c, "generation") && !generation_agrees(r, sky_j_get(c, "generation")))) {
			T_OK(false, "%s: spans", name);
		}
	}
	for (int i = 0; i < 3; i++) {
		sky_buf_release(&text[i]);
	}
}

static void one_template(const char *folder, const char *golden)
{
	char path[T_PATH_MAX];
	struct sky_json *doc = NULL;
	struct sky_template *t = NULL;
	struct sky_renderer *rend = NULL;
	struct sky_buf src;
	const struct sky_jnode *root, *e;
	int fields[6] = { 0 };
	int rc;

	sky_buf_init(&src, 1u << 24);
	snprintf(path, sizeof(path), "%s/golden/%s", folder, golden);
	rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, &err);
	root = sky_json_root(doc);
	if (!T_RC(rc, 0, &err, "golden file %s", golden)) {
		return;
	}
	snprintf(path, sizeof(path), "%s/%s", folder, sky_j_str(sky_j_get(root, "template")));
	rc = sky_file_read(path, &src, &err);
	rc = rc ? rc : sky_template_parse(src.ptr, src.n, sky_j_str(sky_j_get(root, "template")), &t, &err);
	for (e = sky_j_first(sky_j_get(root, "special_tokens")); !rc && e; e = sky_j_next(e)) {
		rc = sky_template_set_special(t, sky_j_key(e), sky_j_str(e), &err);
	}
	rc = rc ? rc : sky_renderer_new(t, &rend, &err);
	sscanf(sky_j_str(sky_j_get(root, "now")), "%d-%d-%dT%d:%d:%d", &fields[0], &fields[1], &fields[2], &fields[3], &fields[4],
	       &fields[5]);
	if (T_RC(rc, 0, &err, "%s is parsed", sky_j_str(sky_j_get(root, "template")))) {
		for (e = sky_j_first(sky_j_get(root, "cases")); e; e = sky_j_next(e)) {
			one_case(rend, sky_j_str(sky_j_get(root, "template")), e, sky_utc_seconds(fields), false);
			one_case(rend, sky_j_str(sky_j_get(root, "template")), e, sky_utc_seconds(fields), true);
		}
	}
	sky_renderer_free(rend);
	sky_template_close(t);
	sky_json_free(doc);
	sky_buf_release(&src);
}

int main(int argc, char **argv)
{
	const char *folder = t_shared("data/templates");
	char path[T_PATH_MAX];
	struct dirent **list = NULL;
	int n;

	if (!folder) {
		t_skip_all("no golden templates here (SKYRL_SHARED)");
	}
	snprintf(path, sizeof(path), "%s/golden", folder);
	n = scandir(path, &list, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(list[i]->d_name, '.');

		if (dot && !strcmp(dot, ".json") && (argc < 2 || strstr(list[i]->d_name, argv[1]))) {
			one_template(folder, list[i]->d_name);
		}
		free(list[i]);
	}
	free(list);
	T_OK(t_n_test > 50, "golden files were found");
	return t_done();
}
