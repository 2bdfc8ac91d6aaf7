/* text: chat templates and renders (public face of the jinja_*.c files). */
#include "text/jinja_int.h"

const char *const jinja_special_names[JS_COUNT] = { "bos_token", "eos_token", "unk_token", "sep_token", "pad_token",
	"cls_token", "mask_token" };

/* ---- templates ---- */
static void tree_init(struct jtree *t)
{
	*t = (struct jtree){ 0 };
	sky_arena_init(&t->mem, 64u << 10, 64u * JINJA_MAX_SOURCE);
}

static int template_new(const char *name, struct sky_template **t_p, struct sky_err *err)
{
	struct sky_template *t = calloc(1, sizeof(*t));

	if (t) {
		tree_init(&t->tree);
		t->name = strdup(name);
	}
	if (!t || !t->name) {
		sky_template_close(t);
		return sky_fail(err, SKY_E_LIMIT, "%s: out of memory for the template", name);
	}
	*t_p = t;
	return 0;
}

/* Parses the default template, or the one for conversations with tools. */
static int add_source(struct sky_template *t, const char *src, size_t n, int tool_use, struct sky_err *err)
{
	struct jtree *tree = &t->tree;

	if (tool_use) {
		tree = t->tool_use = malloc(sizeof(*tree));
		if (!tree) {
			return sky_fail(err, SKY_E_LIMIT, "%s: out of memory for the template", t->name);
		}
		tree_init(tree);
	}
	return jinja_parse(tree, src, n, t->name, err);
}

static void fingerprint(struct sky_template *t, const char *src, size_t n, const char *tool_src, size_t n_tool)
{
	struct sky_sha256 h;
	uint8_t sum[32];

	sky_sha256_init(&h);
	sky_sha256_update(&h, src, n);
	if (tool_src) {
		sky_sha256_update(&h, "\0tool_use\0", 10);
		sky_sha256_update(&h, tool_src, n_tool);
	}
	sky_sha256_final(&h, sum);
	sky_hex(sum, 32, t->fingerprint);
}

int sky_template_parse(const char *src, size_t n, const char *name, struct sky_template **t_p, struct sky_err *err)
{
	struct sky_template *t = NULL;
	int rc = template_new(name, &t, err);

	rc = rc < 0 ? rc : add_source(t, src, n, 0, err);
	if (rc < 0) {
		sky_template_close(t);
		return rc;
	}
	fingerprint(t, src, n, NULL, 0);
	*t_p = t;
	return 0;
}

void sky_template_close(struct sky_template *t)
{
	if (!t) {
		return;
	}
	sky_arena_release(&t->tree.mem);
	if (t->tool_use) {
		sky_arena_release(&t->tool_use->mem);
		free(t->tool_use);
	}
	for (int i = 0; i < JS_COUNT; i++) {
		free(t->special[i]);
	}
	free(t->name);
	free(t);
}

void sky_template_fingerprint(const struct sky_template *t, char out[65])
{
	memcpy(out, t->fingerprint, 65);
}

static int special_row(const char *name)
{
	for (int i = 0; i < JS_COUNT; i++) {
		if (!strcmp(jinja_special_names[i], name)) {
			return i;
		}
	}
	return -1;
}

const char *sky_template_special(const struct sky_template *t, const char *name)
{
	int i = special_row(name);

	return i < 0 ? NULL : t->special[i];
}

int sky_template_set_special(struct sky_template *t, const char *name, const char *token, struct sky_err *err)
{
	int i = special_row(name);
	char *copy;

	if (i < 0) {
		return sky_fail(err, SKY_E_USAGE, "'%s' is not the name of a special token (bos_token, eos_token, …)", name);
	}
	copy = strdup(token);
	if (!copy) {
		return sky_fail(err, SKY_E_LIMIT, "out of memory for %s", name);
	}
	free(t->special[i]);
	t->special[i] = copy;
	return 0;
}

/* ---- model directories ---- */
static int take_specials(struct sky_template *t, const struct sky_jnode *config, struct sky_err *err)
{
	for (int i = 0; config && i < JS_COUNT; i++) {
		const struct sky_jnode *v = sky_j_get(config, jinja_special_names[i]);
		const char *s;

		if (sky_j_type(v) == SKY_J_OBJECT) {
			v = sky_j_get(v, "content");
		}
		s = sky_j_type(v) == SKY_J_STRING ? sky_j_str(v) : NULL;
		if (s && sky_template_set_special(t, jinja_special_names[i], s, err) < 0) {
			return SKY_E_LIMIT;
		}
	}
	return 0;
}

/* The stop tokens of generation_config.json, where there is one: a number or a list. */
static int take_stops(struct sky_template *t, const char *dir, struct sky_err *err)
{
	struct sky_json *doc = NULL;
	const struct sky_jnode *v, *e;
	char path[SKY_MAX_PATH];
	int64_t id;
	int rc;

	snprintf(path, sizeof(path), "%s/generation_config.json", dir);
	rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err);
	if (rc < 0) {
		return rc == SKY_E_MISSING ? 0 : rc;
	}
	v = sky_j_get(sky_json_root(doc), "eos_token_id");
	for (e = sky_j_type(v) == SKY_J_ARRAY ? sky_j_first(v) : v; e; e = e == v ? NULL : sky_j_next(e)) {
		if (sky_j_i64(e, &id) && id >= 0 && id <= INT32_MAX && t->n_stop < 16) {
			t->stop[t->n_stop++] = (int32_t)id;
		}
	}
	sky_json_free(doc);
	return 0;
}

/* Source texts by the rules of the header; views into *src, *tool_src or the configuration. */
struct sources { const char *p, *tool; size_t n, n_tool; };

static int from_config(const struct sky_jnode *config, const char *path, struct sources *s, struct sky_err *err)
{
	const struct sky_jnode *v = sky_j_get(config, "chat_template");

	if (sky_j_type(v) == SKY_J_STRING) {
		s->p = sky_j_str(v);
		s->n = strlen(s->p);
		return 0;
	}
	for (const struct sky_jnode *e = sky_j_type(v) == SKY_J_ARRAY ? sky_j_first(v) : NULL; e; e = sky_j_next(e)) {
		const char *name = sky_j_str(sky_j_get(e, "name")), *text = sky_j_str(sky_j_get(e, "template"));

		if (!name || !text) {
			return sky_fail(err, SKY_E_DATA, "%s: an element of chat_template lacks \"name\" or \"template\"", path);
		}
		if (!strcmp(name, "default")) {
			s->p = text;
			s->n = strlen(text);
		} else if (!strcmp(name, "tool_use")) {
			s->tool = text;
			s->n_tool = strlen(text);
		}
	}
	if (!s->p && v && sky_j_type(v) != SKY_J_NULL) {
		return sky_fail(err, SKY_E_DATA, "%s: chat_template is neither a text nor a list with a template named \"default\"",
		                path);
	}
	return 0;
}

/* Reads DIR/name when it exists. */
static int slurp(const char *dir, const char *name, struct sky_buf *out, int *found_p, struct sky_err *err)
{
	char path[SKY_MAX_PATH];
	struct sky_err e;
	int rc;

	*found_p = 0;
	if (snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path)) {
		return sky_fail(err, SKY_E_USAGE, "%s: the path is too long", dir);
	}
	rc = sky_file_read(path, out, &e);
	if (rc == SKY_E_MISSING) {
		return 0;
	}
	*found_p = rc == 0;
	return rc < 0 ? sky_fail(err, rc, "%s", e.msg) : 0;
}

int sky_template_open(const char *dir, struct sky_template **t_p, struct sky_err *err)
{
	struct sky_buf src, tool;
	struct sky_json *doc = NULL;
	struct sky_template *t = NULL;
	struct sources s = { 0 };
	char path[SKY_MAX_PATH];
	int rc, has_src = 0, has_tool = 0;

	sky_buf_init(&src, JINJA_MAX_SOURCE);
	sky_buf_init(&tool, JINJA_MAX_SOURCE);
	rc = slurp(dir, "chat_template.jinja", &src, &has_src, err);
	if (rc == 0 && has_src) {
		rc = slurp(dir, "additional_chat_templates/tool_use.jinja", &tool, &has_tool, err);
	}
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	if (rc == 0) {
		rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, err);
		rc = rc == SKY_E_MISSING ? 0 : rc;
	}
	if (rc == 0 && has_src) {
		s = (struct sources){ src.ptr ? src.ptr : "", tool.ptr, src.n, tool.n };
	} else if (rc == 0 && doc) {
		rc = from_config(sky_json_root(doc), path, &s, err);
	}
	if (rc == 0 && !s.p) {
		rc = sky_fail(err, SKY_E_MISSING, "%s: no chat template (neither chat_template.jinja nor chat_template in "
		              "tokenizer_config.json); give one with --chat-template FILE", dir);
	}
	if (rc == 0) {
		snprintf(path, sizeof(path), "%s/%s", dir, has_src ? "chat_template.jinja" : "tokenizer_config.json");
		rc = template_new(path, &t, err);
	}
	rc = rc ? rc : add_source(t, s.p, s.n, 0, err);
	rc = rc || !s.tool ? rc : add_source(t, s.tool, s.n_tool, 1, err);
	rc = rc || !doc ? rc : take_specials(t, sky_json_root(doc), err);
	rc = rc ? rc : take_stops(t, dir, err);
	if (rc == 0) {
		fingerprint(t, s.p, s.n, s.tool, s.n_tool);
		*t_p = t;
	} else {
		sky_template_close(t);
	}
	sky_json_free(doc);
	sky_buf_release(&src);
	sky_buf_release(&tool);
	return rc;
}

/* ---- rendering ---- */
struct sky_renderer { struct ji in; struct sky_render out; int64_t cap_message; };

int sky_renderer_new(const struct sky_template *t, struct sky_renderer **r_p, struct sky_err *err)
{
	struct sky_renderer *r = calloc(1, sizeof(*r));

	if (!r) {
		return sky_fail(err, SKY_E_LIMIT, "out of memory for a renderer");
	}
	r->in.t = t;
	ji_keys(&r->in);
	sky_arena_init(&r->in.mem, 1u << 20, 0);
	sky_buf_init(&r->in.out, UINT32_MAX);
	*r_p = r;
	return 0;
}

void sky_renderer_free(struct sky_renderer *r)
{
	if (!r) {
		return;
	}
	sky_arena_release(&r->in.mem);
	sky_buf_release(&r->in.out);
	free(r->in.seg);
	free(r->in.gen);
	free(r->in.ctx);
	free(r->out.span);
	free(r->out.message);
	free(r);
}

/* Clears the state of the last render; context slots are all missing afterwards. */
static int start(struct sky_renderer *r, const struct jtree *tree, const struct sky_render_opt *opt, struct sky_err *err)
{
	struct ji *in = &r->in;
	uint32_t n = tree->n_names + 1;

	if (in->cap_ctx < n) {
		free(in->ctx);
		in->ctx = malloc(n * sizeof(*in->ctx));
		in->cap_ctx = in->ctx ? n : 0;
		if (!in->ctx) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for a render");
		}
	}
	memset(in->ctx, 0, n * sizeof(*in->ctx));
	sky_arena_reset(&in->mem);
	in->free_p = in->free_end = NULL;
	sky_buf_clear(&in->out);
	in->tree = tree;
	in->n_seg = 0;
	in->n_gen = 0;
	in->lit_org = JORG(-1, SKY_PART_TEMPLATE);
	in->capture = in->depth = in->calls = in->flow = 0;
	in->loop_kind = JL_NONE;
	in->steps = 0;
	in->n_input = 0;
	in->max_out = JINJA_MAX_OUTPUT(0);
	in->max_steps = JINJA_MAX_STEPS(0);
	in->date = opt->date;
	in->messages = jv_none();
	in->scope = NULL;
	in->at = NULL;
	in->rc = 0;
	in->err = err;
	return 0;
}

static void give(struct ji *in, int i, struct jv v)
{
	if (in->tree->given[i] >= 0) {
		in->ctx[in->tree->given[i]] = v;
	}
}

/* What transformers passes: special tokens, messages, tools and documents (none when absent), the caller's own. */
static void give_all(struct ji *in, const struct sky_render_opt *opt, struct jv tools, struct jv args)
{
	ji_globals(in);
	for (int i = 0; i < JS_COUNT; i++) {
		const char *own = i == JS_BOS ? opt->bos_token : i == JS_EOS ? opt->eos_token : NULL;
		const char *s = own ? own : in->t->special[i];

		if (s && in->tree->given[i] >= 0) {
			give(in, i, ji_str(in, s, strlen(s), JORG(-1, SKY_PART_TEMPLATE)));
		}
	}
	give(in, JV_MESSAGES, in->messages);
	give(in, JV_TOOLS, tools);
	give(in, JV_DOCUMENTS, jv_none());
	for (uint32_t i = 0; !in->rc && args.t == JT_DICT && i < args.u.m->n; i++) {
		const struct jent *e = &args.u.m->e[i];
		const struct jname *n = jtree_find(in->tree, e->k.u.s->p, e->k.u.s->n);

		if (n) {
			in->ctx[n->sym] = e->v;
		}
	}
	give(in, JV_PROMPT, jv_bool(opt->add_generation_prompt != 0));    /* the option, whatever args say */
}

/* Puts a tag behind the content of the last message, as transformers does, to see where it ends. */
static const char continue_tag[] = "CONTINUE_FINAL_MESSAGE_TAG ";

static bool tag_last(struct ji *in, struct jv *content_p)
{
	struct jlist *l = in->messages.u.l;
	struct jv *c = l->n ? ji_member(in, l->v[l->n - 1].u.m, JK_CONTENT) : NULL;
	struct jmark m;

	if (c && c->t == JT_LIST) {
		struct jlist *parts = c->u.l;

		c = NULL;
		for (uint32_t i = parts->n; i > 0 && !c; i--) {
			c = parts->v[i - 1].t == JT_DICT ? ji_member(in, parts->v[i - 1].u.m, JK_TEXT_KEY) : NULL;
		}
	}
	if (!c || c->t != JT_STR) {
		ji_fail(in, SKY_E_DATA, "the final message has no text to continue");
		return false;
	}
	*content_p = *c;
	m = ji_begin(in);
	ji_put_str(in, *c);
	ji_puts(in, continue_tag, c->org);
	*c = ji_end(in, m);
	return !in->rc;
}

/* Cuts the text where the tag stands. */
static void cut_at_tag(struct ji *in, struct jv content)
{
	uint32_t n_tag = sizeof(continue_tag) - 2, at = (uint32_t)in->out.n;
	const char *p = in->out.ptr;
	struct jstr out = { .p = p, .n = (uint32_t)in->out.n };
	struct jv core = ji_strip(in, content, NULL, 3);
	bool found = false;

	while (!found && at >= n_tag) {
		found = !memcmp(p + at - n_tag, continue_tag, n_tag);
		at -= found ? n_tag : 1;
	}
	if (!found || in->rc || jstr_find(&out, core.u.s, 0) < 0) {
		ji_fail(in, SKY_E_DATA, "the final message does not appear in the render, so it cannot be continued");
		return;
	}
	if (at + n_tag >= in->out.n || p[at + n_tag] != ' ') {
		struct jv head = ji_strip(in, ji_str(in, p, at, 0), NULL, 2);

		at = in->rc ? at : head.u.s->n;
	}
	in->out.n = at;
	in->out.ptr[at] = 0;
	while (in->n_seg > 0 && (at == 0 || in->n_seg > 1) && (in->n_seg > 1 ? in->seg[in->n_seg - 2].end : 0) >= at) {
		in->n_seg--;
	}
	if (in->n_seg > 0) {
		in->seg[in->n_seg - 1].end = at;
	}
	for (int64_t i = 0; i < in->n_gen; i++) {
		in->gen[i][0] = in->gen[i][0] < at ? in->gen[i][0] : at;
		in->gen[i][1] = in->gen[i][1] < at ? in->gen[i][1] : at;
	}
}

/* Does the message opt out of training? weight 0, or one of the usual switches false. */
static bool untrained(const struct ji *in, const struct jdict *m)
{
	for (int k = JK_WEIGHT; k <= JK_LOSS_MASK; k++) {
		const struct jv *v = ji_member(in, m, (enum jknown)k);

		if (v && (v->t == JT_INT || v->t == JT_BOOL || v->t == JT_FLOAT) && (v->t == JT_FLOAT ? v->u.d == 0 : v->u.i == 0)) {
			return true;
		}
	}
	return false;
}

static int describe_messages(struct sky_renderer *r, struct sky_err *err)
{
	const struct jlist *l = r->in.messages.u.l;

	if (r->cap_message < l->n) {
		struct sky_render_message *m = sky_realloc_array(r->out.message, l->n * 2u, sizeof(*m));

		if (!m) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for the messages of a render");
		}
		r->out.message = m;
		r->cap_message = l->n * 2;
	}
	for (uint32_t i = 0; i < l->n; i++) {
		const struct jv *role = ji_member(&r->in, l->v[i].u.m, JK_ROLE);
		struct sky_render_message *m = &r->out.message[i];
		uint32_t n = role && role->t == JT_STR ? role->u.s->n : 0;

		n = n < sizeof(m->role) ? n : sizeof(m->role) - 1;
		memcpy(m->role, n ? role->u.s->p : "", n);
		m->role[n] = 0;
		m->untrained = untrained(&r->in, l->v[i].u.m);
	}
	r->out.n_message = l->n;
	return 0;
}

/* Segments to public spans. */
static int finish(struct sky_renderer *r, struct sky_err *err)
{
	struct ji *in = &r->in;
	uint32_t from = 0;

	if (in->cap_span < in->n_seg) {
		struct sky_span *span = sky_realloc_array(r->out.span, in->cap_seg, sizeof(*span));

		if (!span) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for the spans of a render");
		}
		r->out.span = span;
		in->cap_span = in->cap_seg;
	}
	for (uint32_t i = 0; i < in->n_seg; i++) {
		r->out.span[i] = (struct sky_span){ from, in->seg[i].end, JORG_MESSAGE(in->seg[i].org), JORG_PART(in->seg[i].org) };
		from = in->seg[i].end;
	}
	r->out.n_span = in->n_seg;
	r->out.text = in->out;
	r->out.gen = in->gen;
	r->out.n_gen = in->n_gen;
	return describe_messages(r, err);
}

static int run(struct sky_renderer *r, struct jv tools, const struct sky_render_opt *opt, const struct sky_render **out_p,
               struct sky_err *err)
{
	struct ji *in = &r->in;
	struct jv args = jv_none(), content = jv_none();

	if (opt->args) {
		args = ji_jnode(in, opt->args, JIN_PLAIN);
	} else if (opt->args_json) {
		args = ji_json(in, opt->args_json, opt->n_args_json, "template arguments", JIN_PLAIN);
	}
	if (!in->rc && in->n_input > JINJA_MAX_INPUT) {
		ji_fail(in, SKY_E_LIMIT, "messages, tools and arguments have %zu bytes, the limit is %u MiB", in->n_input,
		        JINJA_MAX_INPUT >> 20);
	}
	in->mem.n_max = JINJA_MAX_MEMORY(in->n_input);
	in->max_out = JINJA_MAX_OUTPUT(in->n_input);
	in->max_steps = opt->max_steps > 0 ? opt->max_steps : JINJA_MAX_STEPS(in->n_input);
	if (!in->rc && in->messages.t != JT_LIST) {
		ji_fail(in, SKY_E_DATA, "messages must be an array of objects");
	}
	for (uint32_t i = 0; !in->rc && i < in->messages.u.l->n; i++) {
		if (in->messages.u.l->v[i].t != JT_DICT) {
			ji_fail(in, SKY_E_DATA, "message %u is not an object", i);
		}
	}
	if (!in->rc && args.t != JT_NONE && args.t != JT_DICT) {
		ji_fail(in, SKY_E_DATA, "template arguments must be an object");
	}
	if (!in->rc && tools.t != JT_NONE && tools.t != JT_LIST) {
		ji_fail(in, SKY_E_DATA, "tools must be an array");
	}
	if (!in->rc && (!opt->continue_final_message || tag_last(in, &content))) {
		give_all(in, opt, tools, args);
		in->scope = ji_scope(in, in->tree->root, NULL);
		if (in->scope) {
			ji_run(in, &in->tree->body);
		}
	}
	if (!in->rc && sky_buf_reserve(&in->out, 1, err) < 0) {
		in->rc = SKY_E_LIMIT;
	}
	if (!in->rc) {
		in->out.ptr[in->out.n] = 0;
	}
	if (!in->rc && opt->continue_final_message) {
		cut_at_tag(in, content);
	}
	if (in->rc) {
		return in->rc;
	}
	*out_p = &r->out;
	return finish(r, err);
}

static const struct jtree *tree_for(const struct sky_template *t, const struct sky_render_opt *opt)
{
	return t->tool_use && (opt->tools ? sky_j_len(opt->tools) > 0 : opt->n_tools_json > 2) ? t->tool_use : &t->tree;
}

static struct jv tools_of(struct ji *in, const struct sky_render_opt *opt)
{
	if (opt->tools) {
		return ji_jnode(in, opt->tools, JIN_PLAIN);
	}
	return opt->tools_json ? ji_json(in, opt->tools_json, opt->n_tools_json, "tools", JIN_PLAIN) : jv_none();
}

int sky_renderer_nodes(struct sky_renderer *r, const struct sky_jnode *messages, const struct sky_render_opt *opt,
                       const struct sky_render **out_p, struct sky_err *err)
{
	struct sky_err own;
	int rc = start(r, tree_for(r->in.t, opt), opt, err ? err : &own);

	if (rc < 0) {
		return rc;
	}
	r->in.messages = ji_jnode(&r->in, messages, JIN_MESSAGES);
	return run(r, tools_of(&r->in, opt), opt, out_p, r->in.err);
}

int sky_renderer_text(struct sky_renderer *r, const char *messages, size_t n, const struct sky_render_opt *opt,
                      const struct sky_render **out_p, struct sky_err *err)
{
	struct sky_err own;
	int rc = start(r, tree_for(r->in.t, opt), opt, err ? err : &own);

	if (rc < 0) {
		return rc;
	}
	r->in.messages = ji_json(&r->in, messages, n, "messages", JIN_MESSAGES);
	return run(r, tools_of(&r->in, opt), opt, out_p, r->in.err);
}

int sky_template_render(const struct sky_template *t, const struct sky_jnode *messages, const struct sky_render_opt *opt,
                        struct sky_render *out, struct sky_err *err)
{
	struct sky_renderer *r = NULL;
	const struct sky_render *view;
	int rc = sky_renderer_new(t, &r, err);

	rc = rc ? rc : sky_renderer_nodes(r, messages, opt, &view, err);
	if (rc == 0) {
		/* hand the memory over */
		*out = *view;
		r->in.out = (struct sky_buf){ .max = UINT32_MAX };
		r->in.gen = NULL;
		r->out.span = NULL;
		r->out.message = NULL;
	}
	sky_renderer_free(r);
	return rc;
}

void sky_render_release(struct sky_render *r)
{
	sky_buf_release(&r->text);
	free(r->span);
	free(r->gen);
	free(r->message);
	*r = (struct sky_render){ 0 };
}
