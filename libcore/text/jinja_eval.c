/* jinja: the evaluator (part of text): expressions to values, statements to output. */
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

static bool is_message(struct jv v)
{
	return v.t == JT_DICT && v.u.m->message >= 0;
}

static struct jv load(struct ji *in, const struct jn *n)
{
	for (uint32_t i = 0; i < n->n_ref; i++) {
		const struct jscope *s = in->scope;
		struct jv v;

		for (uint32_t d = n->u.ref[i].depth; d > 0; d--) {
			s = s->up;
		}
		v = s->slot[n->u.ref[i].slot];
		if (v.t != JT_MISSING) {
			return v;
		}
	}
	if (in->ctx[n->name->sym].t != JT_MISSING) {
		return in->ctx[n->name->sym];
	}
	return jv_undef(n->name);
}

/* ---- calls ---- */
bool ji_args(struct ji *in, const struct jargs *args, struct jargroom *room, struct jcallargs *out)
{
	struct jv pos, kw = jv_none();
	struct jv *v = room->v;
	bool star = false;

	*out = (struct jcallargs){ 0 };
	for (uint32_t i = 0; i < args->n; i++) {
		star |= args->v[i].star != 0;
	}
	if (!star && args->n <= 12) {
		for (uint32_t i = 0; i < args->n; i++) {
			v[i] = ji_eval(in, args->v[i].e);
			room->name[i] = args->v[i].name;
		}
		out->pos = v;
		out->n = args->n_pos;
		out->kw = v + args->n_pos;
		out->kw_name = room->name + args->n_pos;
		out->n_kw = args->n - args->n_pos;
		return !in->rc;
	}
	pos = ji_list(in, JT_LIST, args->n);
	kw = ji_list(in, JT_LIST, args->n);
	const struct jname **names = ji_alloc(in, 256 * sizeof(*names));

	for (uint32_t i = 0; i < args->n && !in->rc; i++) {
		struct jv x = ji_eval(in, args->v[i].e);
		struct jiter it;

		if (args->v[i].star == 1) {
			for (int64_t k = 0; ji_iter(in, x, &it) && k < it.n; k++) {
				ji_push(in, pos.u.l, ji_iter_at(in, &it, k));
			}
		} else if (args->v[i].star == 2) {
			if (x.t != JT_DICT) {
				ji_fail(in, SKY_E_DATA, "argument after ** must be a mapping, not %s", ji_type_name(x));
			}
			for (uint32_t k = 0; !in->rc && k < x.u.m->n && kw.u.l->n < 256; k++) {
				struct jv key = x.u.m->e[k].k;
				const struct jname *name = key.t == JT_STR ? ji_name(in, key.u.s) : NULL;

				if (!name) {
					ji_fail(in, SKY_E_DATA, "keywords must be strings");
				}
				if (!in->rc) {
					names[kw.u.l->n] = name;
					ji_push(in, kw.u.l, x.u.m->e[k].v);
				}
			}
		} else if (args->v[i].name && kw.u.l->n < 256) {
			names[kw.u.l->n] = args->v[i].name;
			ji_push(in, kw.u.l, x);
		} else {
			ji_push(in, pos.u.l, x);
		}
	}
	if (!in->rc) {
		*out = (struct jcallargs){ pos.u.l->v, pos.u.l->n, names, kw.u.l->v, kw.u.l->n };
	}
	return !in->rc;
}

/* The macro that a call node calls directly, or NULL. */
static const struct jmacro *called_macro(struct ji *in, const struct jn *n)
{
	struct jv f;

	if (n->a->t != JN_NAME) {
		return NULL;
	}
	f = load(in, n->a);
	return f.t == JT_MACRO ? f.u.macro : NULL;
}

static struct jv eval_call(struct ji *in, const struct jn *n)
{
	const struct jn *callee = n->a;
	struct jargroom room;
	struct jcallargs args;
	struct jv o, fn;

	if (callee->t == JN_ATTR) {
		const struct jname *name = callee->name;

		o = ji_eval(in, callee->a);
		if (in->rc) {
			return jv_undef(NULL);
		}
		in->at = n;
		if ((o.t == JT_STR && name->meth_str >= 0) ||
		    (o.t == JT_DICT && name->meth_dict >= 0 && !jinja_dict_mutates(name->meth_dict))) {
			return ji_args(in, &n->u.args, &room, &args) ? ji_call_method(in, o, name, &args) : jv_undef(NULL);
		}
		fn = ji_getattr(in, o, name);
	} else {
		fn = ji_eval(in, callee);
	}
	if (in->rc || !ji_args(in, &n->u.args, &room, &args)) {
		return jv_undef(NULL);
	}
	in->at = n;
	return ji_call(in, fn, &args);
}

/* ---- expressions ---- */
static struct jv eval_list(struct ji *in, const struct jn *n)
{
	struct jv r = ji_list(in, n->t == JN_LIST ? JT_LIST : JT_TUPLE, n->u.kids.n);

	for (uint32_t i = 0; !in->rc && i < n->u.kids.n; i++) {
		ji_push(in, r.u.l, ji_eval(in, n->u.kids.v[i]));
	}
	return r;
}

static struct jv eval_dict(struct ji *in, const struct jn *n)
{
	struct jv r = ji_dict(in, JT_DICT, n->u.kids.n / 2);

	for (uint32_t i = 0; !in->rc && i < n->u.kids.n; i += 2) {
		struct jv k = ji_eval(in, n->u.kids.v[i]), v = ji_eval(in, n->u.kids.v[i + 1]);

		if (!in->rc) {
			ji_dict_set(in, r.u.m, k, v);
		}
	}
	return r;
}

static struct jv eval_compare(struct ji *in, const struct jn *n)
{
	struct jv a = ji_eval(in, n->u.kids.v[0]), b;
	bool ok = true;

	for (uint32_t i = 1; ok && i < n->u.kids.n; i++) {
		b = ji_eval(in, n->u.kids.v[i]);
		if (in->rc) {
			break;
		}
		switch (n->ops[i - 1]) {
		case JO_EQ:
			ok = jv_eq(in, a, b);
			break;
		case JO_NE:
			ok = !jv_eq(in, a, b);
			break;
		case JO_LT:
			ok = ji_compare(in, a, b) < 0;
			break;
		case JO_LE:
			ok = ji_compare(in, a, b) <= 0;
			break;
		case JO_GT:
			ok = ji_compare(in, a, b) > 0;
			break;
		case JO_GE:
			ok = ji_compare(in, a, b) >= 0;
			break;
		default:
			ok = ji_contains(in, a, b) == (n->ops[i - 1] == JO_IN);
		}
		a = b;
	}
	return jv_bool(ok);
}

static struct jv eval_sign(struct ji *in, const struct jn *n)
{
	struct jv v = ji_eval(in, n->a);

	if (in->rc) {
		return v;
	}
	if (v.t == JT_FLOAT) {
		return n->t == JN_NEG ? jv_float(-v.u.d) : v;
	}
	if (v.t == JT_INT || v.t == JT_BOOL) {
		return n->t == JN_NEG ? ji_binary(in, JO_SUB, jv_int(0), v) : jv_int(v.u.i);
	}
	if (ji_check(in, v)) {
		ji_fail(in, SKY_E_DATA, "bad operand type for unary %c: '%s'", n->t == JN_NEG ? '-' : '+', ji_type_name(v));
	}
	return jv_undef(NULL);
}

static struct jv eval_filter(struct ji *in, const struct jn *n)
{
	struct jv v = ji_eval(in, n->a);
	struct jargroom room;
	struct jcallargs args;

	if (n->id < 0) {
		in->at = n;
		ji_fail(in, SKY_E_DATA, "No filter named '%s' found.", n->name->s.p);
	}
	if (in->rc || !ji_args(in, &n->u.args, &room, &args)) {
		return jv_undef(NULL);
	}
	in->at = n;
	return ji_filter(in, n->id, v, &args);
}

static struct jv eval_test(struct ji *in, const struct jn *n)
{
	struct jv v = ji_eval(in, n->a);
	struct jargroom room;
	struct jcallargs args;

	if (n->id < 0) {
		in->at = n;
		ji_fail(in, SKY_E_DATA, "No test named '%s' found.", n->name->s.p);
	}
	if (in->rc || !ji_args(in, &n->u.args, &room, &args)) {
		return jv_undef(NULL);
	}
	in->at = n;
	return jv_bool(ji_test(in, n->id, v, &args) != (n->op != 0));
}

static struct jv eval_item(struct ji *in, const struct jn *n)
{
	struct jv o = ji_eval(in, n->a), k = ji_eval(in, n->b), v;

	if (in->rc) {
		return jv_undef(NULL);
	}
	in->at = n;
	v = ji_getitem(in, o, k);
	/* messages[i] in a loop over numbers: from here on the template speaks of that message */
	if (in->loop_kind == JL_NUMBERS && n->b->t == JN_NAME && is_message(v)) {
		in->lit_org = JORG(v.u.m->message, SKY_PART_TEMPLATE);
	}
	return v;
}

static struct jv eval_slice(struct ji *in, const struct jn *n)
{
	struct jv o = ji_eval(in, n->a), part[3];

	for (int i = 0; i < 3; i++) {
		part[i] = n->u.kids.v[i] ? ji_eval(in, n->u.kids.v[i]) : jv_none();
	}
	in->at = n;
	return in->rc ? jv_undef(NULL) : ji_slice(in, o, part[0], part[1], part[2]);
}

static struct jv eval_inner(struct ji *in, const struct jn *n)
{
	struct jv v;
	struct jmark m;

	switch (n->t) {
	case JN_ATTR:
		v = ji_eval(in, n->a);
		if (in->rc) {
			return v;
		}
		in->at = n;
		return ji_getattr(in, v, n->name);
	case JN_ITEM:
		return eval_item(in, n);
	case JN_SLICE:
		return eval_slice(in, n);
	case JN_CALL:
		return eval_call(in, n);
	case JN_FILTER:
		return eval_filter(in, n);
	case JN_TEST:
		return eval_test(in, n);
	case JN_NOT:
		return jv_bool(!jv_true(in, ji_eval(in, n->a)));
	case JN_NEG:
	case JN_POS:
		return eval_sign(in, n);
	case JN_BIN:
		v = ji_eval(in, n->a);
		return ji_binary(in, (enum jop)n->op, v, ji_eval(in, n->b));
	case JN_CONCAT:
		m = ji_begin(in);
		for (uint32_t i = 0; i < n->u.kids.n && !in->rc; i++) {
			v = ji_eval(in, n->u.kids.v[i]);
			if (!in->rc) {
				ji_put_value(in, v);
			}
		}
		return ji_end(in, m);
	case JN_AND:
	case JN_OR:
		v = ji_eval(in, n->a);
		return in->rc || jv_true(in, v) == (n->t == JN_OR) ? v : ji_eval(in, n->b);
	case JN_CMP:
		return eval_compare(in, n);
	case JN_COND:
		if (jv_true(in, ji_eval(in, n->a))) {
			return ji_eval(in, n->b);
		}
		return n->c && !in->rc ? ji_eval(in, n->c) : jv_undef(NULL);
	case JN_LIST:
	case JN_TUPLE:
		return eval_list(in, n);
	default:
		return eval_dict(in, n);
	}
}

struct jv ji_eval(struct ji *in, const struct jn *n)
{
	struct jv v;

	if (n->t == JN_CONST) {
		return n->v;
	}
	if (n->t == JN_NAME) {
		return load(in, n);
	}
	if (in->rc || !ji_step(in, 1)) {
		return jv_undef(NULL);
	}
	if (in->depth >= JINJA_MAX_DEPTH) {
		ji_fail(in, SKY_E_LIMIT, "macros and expressions are nested deeper than %d", JINJA_MAX_DEPTH);
		return jv_undef(NULL);
	}
	in->depth++;
	v = eval_inner(in, n);
	in->depth--;
	return v;
}

/* ---- printing without intermediate strings ---- */
static void emit(struct ji *in, const struct jn *n);

/* A sum: pieces that are strings go straight out. True when all of it was printed, else *v_p is the sum so far and
 * nothing was printed. */
static bool emit_sum(struct ji *in, const struct jn *n, struct jmark start, struct jv *v_p)
{
	struct jv r, left;
	bool out = false;

	if (n->t != JN_BIN || n->op != JO_ADD) {
		*v_p = ji_eval(in, n);
		if (in->rc || v_p->t != JT_STR || v_p->f) {
			return false;
		}
		ji_put_str(in, *v_p);
		return true;
	}
	out = emit_sum(in, n->a, start, &left);
	if (in->rc) {
		return false;
	}
	r = ji_eval(in, n->b);
	if (in->rc) {
		return false;
	}
	if (out && r.t == JT_STR && !r.f) {
		ji_put_str(in, r);
		return true;
	}
	if (out) {
		in->capture++;  /* ji_end takes one back */
		left = ji_end(in, start);
	}
	in->at = n;
	*v_p = ji_binary(in, JO_ADD, left, r);
	if (in->rc || v_p->t != JT_STR || v_p->f) {
		return false;
	}
	ji_put_str(in, *v_p);
	return true;
}

static void emit_call(struct ji *in, const struct jn *n)
{
	const struct jmacro *m = called_macro(in, n);
	struct jargroom room;
	struct jcallargs args;
	struct jv v;

	if (!m) {
		v = ji_eval(in, n);
		if (!in->rc) {
			ji_put_value(in, v);
		}
		return;
	}
	if (ji_step(in, 1) && ji_args(in, &n->u.args, &room, &args)) {
		in->at = n;
		ji_run_macro(in, m, &args, NULL);
	}
}

static void emit(struct ji *in, const struct jn *n)
{
	struct jv v;

	switch (n->t) {
	case JN_BIN:
		if (emit_sum(in, n, (struct jmark){ in->out.n, in->n_seg }, &v)) {
			return;
		}
		break;
	case JN_CONCAT:
		for (uint32_t i = 0; i < n->u.kids.n && !in->rc; i++) {
			emit(in, n->u.kids.v[i]);
		}
		return;
	case JN_COND:
		if (jv_true(in, ji_eval(in, n->a))) {
			emit(in, n->b);
		} else if (n->c && !in->rc) {
			emit(in, n->c);
		}
		return;
	case JN_CALL:
		emit_call(in, n);
		return;
	default:
		v = ji_eval(in, n);
	}
	if (!in->rc) {
		ji_put_value(in, v);
	}
}

/* ---- statements ---- */
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
		in->lit_org = is_message(v) ? JORG(v.u.m->message, SKY_PART_TEMPLATE) : lit;
		in->loop_kind = is_message(v) ? JL_MESSAGES : v.t == JT_INT ? JL_NUMBERS : JL_OTHER;
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
	if (in->loop_kind == JL_NUMBERS && is_message(v)) {
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
		emit(in, n->a);
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
