/* Fuzz target: source of a chat template and messages, with a NUL byte between them. What renders has spans that cover it
 * without gaps, trained spans that ascend inside it, and renders the same a second time. */
#include <stdlib.h>
#include <string.h>

#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_render(const struct sky_render *v)
{
	uint32_t at = 0;

	for (int64_t i = 0; i < v->n_span; i++) {
		if (v->span[i].from != at || v->span[i].to <= at || v->span[i].message >= v->n_message ||
		    v->span[i].part > SKY_PART_OTHER) {
			abort();
		}
		at = v->span[i].to;
	}
	if (at != v->text.n || v->text.ptr[v->text.n] != 0) {
		abort();
	}
	for (int64_t i = 0; i < v->n_gen; i++) {
		if (v->gen[i][0] > v->gen[i][1] || v->gen[i][1] > v->text.n) {
			abort();
		}
	}
}

static void check_mask(struct sky_masker *m, const struct sky_render *v)
{
	const uint32_t (*span)[2];
	uint32_t at = 0;
	struct sky_err err;
	int64_t n;

	if (sky_masker_spans(m, v, &span, &n, &err) < 0) {
		abort();
	}
	for (int64_t i = 0; i < n; i++) {
		if (span[i][0] < at || span[i][1] <= span[i][0] || span[i][1] > v->text.n) {
			abort();
		}
		at = span[i][1];
	}
}

static void masks(const struct sky_template *t, const struct sky_render *v, const struct sky_render_opt *opt)
{
	static const char *const rules[] = { "all-assistant", "last-run", "parts:reasoning,tool_call", "roles:user,assistant", "all" };
	struct sky_err err;

	for (int i = 0; i < 5; i++) {
		struct sky_masker *m = NULL;
		struct sky_mask_rule rule;

		if (sky_mask_rule_parse(rules[i], &rule, &err) < 0) {
			abort();
		}
		if (sky_masker_new(t, NULL, &rule, opt, &m, &err) == 0) {
			check_mask(m, v);
		}
		sky_masker_free(m);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const uint8_t *sep = memchr(data, 0, size);
	size_t n_src = sep ? (size_t)(sep - data) : size;
	const char *chat = sep ? (const char *)sep + 1 : "[{\"role\":\"user\",\"content\":\"a\"}]";
	size_t n_chat = sep ? size - n_src - 1 : strlen(chat);
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	const struct sky_render *v = NULL;
	struct sky_render_opt opt = { .date = 0, .max_steps = 100000, .add_generation_prompt = size & 1,
		.continue_final_message = size % 16 == 0, .tools_json = chat, .n_tools_json = n_chat };
	struct sky_err err;
	char *first;
	size_t n;

	if (sky_template_parse((const char *)data, n_src, "in", &t, &err) < 0) {
		return 0;
	}
	if (sky_renderer_new(t, &r, &err) < 0) {
		abort();
	}
	if (sky_renderer_text(r, chat, n_chat, &opt, &v, &err) == 0) {
		check_render(v);
		n = v->text.n;
		first = malloc(n + 1);
		memcpy(first, v->text.ptr, n);
		masks(t, v, &opt);
		if (sky_renderer_text(r, chat, n_chat, &opt, &v, &err) < 0 || v->text.n != n || memcmp(v->text.ptr, first, n) != 0) {
			abort();
		}
		free(first);
	}
	sky_renderer_free(r);
	sky_template_close(t);
	return 0;
}
