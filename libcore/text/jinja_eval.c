/* jinja: expressions to values and to output (part of text). */
#include "text/jinja_int.h"

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
	if (in->loop_kind == JL_NUMBERS && n->b->t == JN_NAME && jv_is_message(v)) {
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

void ji_emit(struct ji *in, const struct jn *n)
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
			ji_emit(in, n->u.kids.v[i]);
		}
		return;
	case JN_COND:
		if (jv_true(in, ji_eval(in, n->a))) {
			ji_emit(in, n->b);
		} else if (n->c && !in->rc) {
			ji_emit(in, n->c);
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
