/* jinja: statements (part of text): assignments, loops, blocks, macros' definitions. */
#include "text/jinja_int.h"

struct jscope *ji_scope(struct ji *in, const struct jscope_def *d, struct jscope *up)
{
	struct jscope *s = ji_alloc(in, sizeof(*s) + d->n * sizeof(struct jv));

	if (!s) {
		return NULL;
	}
	s->up = up;
	s->slot = (struct jv *)(s + 1);
	memset(s->slot, 0, d->n * sizeof(struct jv));   /* JT_MISSING */
	return s;
}

void ji_assign(struct ji *in, const struct jn *target, struct jv v)
{
	struct jiter it;
	struct jv ns;

	if (target->t == JN_NAME) {
		in->scope->slot[target->id] = v;
		return;
	}
	if (target->t == JN_NSREF) {
		ns = ji_eval(in, target->a);
		if (ns.t != JT_NS) {
			ji_fail(in, SKY_E_DATA, "cannot assign attribute on non-namespace object");
		} else if (target->name->s.p[0] == '_') {
			ji_fail(in, SKY_E_DATA, "chat templates cannot store underscore-prefixed attributes on a namespace, but got '%s'",
			        target->name->s.p);
		} else {
			struct jv key = { .t = JT_STR, .u.s = &target->name->s };

			ji_dict_set(in, ns.u.m, key, v);
		}
		return;
	}
	if (!ji_iter(in, v, &it)) {
		return;
	}
	if (it.n != target->u.kids.n) {
		ji_fail(in, SKY_E_DATA, it.n < target->u.kids.n ? "not enough values to unpack (expected %u, got %lld)" :
		        "too many values to unpack (expected %u, got %lld)", target->u.kids.n, (long long)it.n);
		return;
	}
	for (uint32_t i = 0; i < target->u.kids.n && !in->rc; i++) {
		ji_assign(in, target->u.kids.v[i], ji_iter_at(in, &it, i));
	}
}

/* Keeps the elements of it whose filter expression holds. */
static bool filter_items(struct ji *in, const struct jn *n, struct jiter *it)
{
	struct jv *keep = ji_alloc(in, ((size_t)it->n + 1) * sizeof(*keep));
	int64_t k = 0;

	for (int64_t i = 0; i < it->n && ji_step(in, 1) && !in->rc; i++) {
		struct jv v = ji_iter_at(in, it, i);

		ji_assign(in, n->a, v);
		if (!in->rc && jv_true(in, ji_eval(in, n->c))) {
			keep[k++] = v;
		}
	}
	it->v = keep;
	it->n = k;
	return !in->rc;
}

void ji_for(struct ji *in, const struct jn *n, struct jv over, int depth0)
{
	struct jscope *outer = in->scope, *s = ji_scope(in, n->scope, outer);
	struct jloop *loop = ji_alloc(in, sizeof(*loop));
	uint32_t lit = in->lit_org;
	int kind = in->loop_kind;
	struct jiter it;

	if (!s || !loop || !ji_iter(in, over, &it)) {
		return;
	}
	in->scope = s;
	if (n->c && !filter_items(in, n, &it)) {
		in->scope = outer;
		return;
	}
	*loop = (struct jloop){ .it = it, .depth0 = depth0, .node = n, .scope = outer };
	for (int64_t i = 0; i < it.n && ji_step(in, 1) && !in->rc; i++) {
		struct jv v = ji_iter_at(in, &it, i);

		if (i > 0 && n->scope->captured) {
			in->scope = s = ji_scope(in, n->scope, outer);
			if (!s) {
				break;
			}
		} else if (i > 0) {
			memset(s->slot, 0, n->scope->n * sizeof(*s->slot));
		}
		loop->i = i;
		s->slot[n->id] = (struct jv){ .t = JT_LOOP, .u.loop = loop };
		ji_assign(in, n->a, v);
		in->lit_org = jv_is_message(v) ? JORG(v.u.m->message, SKY_PART_TEMPLATE) : lit;
		in->loop_kind = jv_is_message(v) ? JL_MESSAGES : v.t == JT_INT ? JL_NUMBERS : JL_OTHER;
		ji_run(in, &n->body);
		if (in->flow == 1) {
			in->flow = 0;
			break;
		}
		in->flow = 0;
	}
	in->scope = outer;
	in->lit_org = lit;
	in->loop_kind = kind;
	if (it.n == 0 && n->orelse.n) {
		ji_run(in, &n->orelse);
	}
}

static void run_set(struct ji *in, const struct jn *n)
{
	struct jv v = ji_eval(in, n->b);

	if (in->rc) {
		return;
	}
	in->at = n;
	ji_assign(in, n->a, v);
	if (in->loop_kind == JL_NUMBERS && jv_is_message(v)) {
		in->lit_org = JORG(v.u.m->message, SKY_PART_TEMPLATE);
	}
}

/* A chain of filters whose innermost operand is NULL, applied to v. */
static struct jv apply_chain(struct ji *in, const struct jn *n, struct jv v)
{
	struct jargroom room;
	struct jcallargs args;

	if (n->a) {
		v = apply_chain(in, n->a, v);
	}
	if (n->id < 0) {
		ji_fail(in, SKY_E_DATA, "No filter named '%s' found.", n->name->s.p);
	}
	return !in->rc && ji_args(in, &n->u.args, &room, &args) ? ji_filter(in, n->id, v, &args) : v;
}

/* Set block, filter block: the body in its own scope as a value. */
static struct jv captured_body(struct ji *in, const struct jn *n)
{
	struct jscope *outer = in->scope, *s = ji_scope(in, n->scope, outer);
	struct jmark m = ji_begin(in);
	struct jv v;

	if (s) {
		in->scope = s;
		ji_run(in, &n->body);
		in->scope = outer;
	}
	v = ji_end(in, m);
	return in->rc || !n->b ? v : apply_chain(in, n->b, v);
}

static void run_scoped(struct ji *in, const struct jn *n)
{
	struct jscope *outer = in->scope, *s = ji_scope(in, n->scope, outer);

	if (!s) {
		return;
	}
	for (uint32_t i = 0; i < n->orelse.n && !in->rc; i++) {         /* with a = b: b is of the outer scope */
		struct jv v = ji_eval(in, n->orelse.v[i]->b);

		in->scope = s;
		ji_assign(in, n->orelse.v[i]->a, v);
		in->scope = outer;
	}
	in->scope = s;
	ji_run(in, &n->body);
	in->scope = outer;
}

static void run_generation(struct ji *in, const struct jn *n)
{
	size_t from = in->out.n;

	run_scoped(in, n);
	if (in->rc || in->capture) {
		return;
	}
	if (in->n_gen == in->cap_gen) {
		int64_t cap = in->cap_gen ? in->cap_gen * 2 : 16;
		uint32_t (*gen)[2] = sky_realloc_array(in->gen, (size_t)cap, sizeof(*gen));

		if (!gen) {
			ji_fail(in, SKY_E_LIMIT, "out of memory for generation spans");
			return;
		}
		in->gen = gen;
		in->cap_gen = cap;
	}
	in->gen[in->n_gen][0] = (uint32_t)from;
	in->gen[in->n_gen++][1] = (uint32_t)in->out.n;
}

static void run_macro_definition(struct ji *in, const struct jn *n)
{
	struct jmacro *m = ji_alloc(in, sizeof(*m));

	if (m) {
		*m = (struct jmacro){ n, in->scope, n->name };
		in->scope->slot[n->u.args.n_pos] = (struct jv){ .t = JT_MACRO, .u.macro = m };
	}
}

static void run_call_block(struct ji *in, const struct jn *n)
{
	struct jmacro *m = ji_alloc(in, sizeof(*m));
	struct jargroom room;
	struct jcallargs args;
	struct jv fn, caller;

	if (!m) {
		return;
	}
	*m = (struct jmacro){ n, in->scope, NULL };
	caller = (struct jv){ .t = JT_MACRO, .u.macro = m };
	fn = ji_eval(in, n->b->a);
	if (in->rc || !ji_args(in, &n->b->u.args, &room, &args)) {
		return;
	}
	in->at = n;
	if (fn.t != JT_MACRO) {
		if (ji_check(in, fn)) {
			ji_fail(in, SKY_E_DATA, "a call block needs a macro, not '%s'", ji_type_name(fn));
		}
		return;
	}
	ji_run_macro(in, fn.u.macro, &args, &caller);
}

static void run_if(struct ji *in, const struct jn *n)
{
	for (;;) {
		in->at = n;
		if (jv_true(in, ji_eval(in, n->a))) {
			ji_run(in, &n->body);
			return;
		}
		if (in->rc || n->orelse.n == 0) {
			return;
		}
		if (n->orelse.n > 1 || n->orelse.v[0]->t != JN_IF) {
			ji_run(in, &n->orelse);
			return;
		}
		n = n->orelse.v[0];     /* elif */
	}
}

static void run_one(struct ji *in, const struct jn *n)
{
	struct jv v;

	switch (n->t) {
	case JN_TEXT:
		ji_put(in, n->v.u.s->p, n->v.u.s->n, 0);
		return;
	case JN_PRINT:
		ji_emit(in, n->a);
		return;
	case JN_IF:
		run_if(in, n);
		return;
	case JN_SET:
		run_set(in, n);
		return;
	case JN_FOR:
		v = ji_eval(in, n->b);
		if (!in->rc) {
			in->at = n;
			ji_for(in, n, v, 0);
		}
		return;
	case JN_SETBLOCK:
		v = captured_body(in, n);
		if (!in->rc) {
			ji_assign(in, n->a, v);
		}
		return;
	case JN_FILTERBLOCK:
		v = captured_body(in, n);
		if (!in->rc) {
			ji_put_value(in, v);
		}
		return;
	case JN_MACRO:
		run_macro_definition(in, n);
		return;
	case JN_CALLBLOCK:
		run_call_block(in, n);
		return;
	case JN_WITH:
		run_scoped(in, n);
		return;
	case JN_GEN:
		run_generation(in, n);
		return;
	default:
		in->flow = n->t == JN_BREAK ? 1 : 2;
	}
}

void ji_run(struct ji *in, const struct jbody *b)
{
	if (in->depth >= JINJA_MAX_DEPTH) {
		ji_fail(in, SKY_E_LIMIT, "macros and blocks are nested deeper than %d", JINJA_MAX_DEPTH);
		return;
	}
	in->depth++;
	for (uint32_t i = 0; i < b->n && !in->rc && !in->flow && ji_step(in, 1); i++) {
		in->at = b->v[i];
		run_one(in, b->v[i]);
	}
	in->depth--;
}
