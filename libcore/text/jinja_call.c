/* jinja: calls: macros and the functions of the environment (part of text). */
#include "text/jinja_int.h"

enum jglobal { JG_RANGE, JG_DICT, JG_NAMESPACE, JG_RAISE, JG_STRFTIME, JG_CYCLER, JG_JOINER };
static const char *const global_names[] = { "range", "dict", "namespace", "raise_exception", "strftime_now", "cycler",
	"joiner" };

void jinja_given(struct jtree *t)
{
	static const char *const values[] = { "messages", "tools", "documents", "add_generation_prompt" };

	for (int i = 0; i < JV_COUNT; i++) {
		const char *name = i < JS_COUNT ? jinja_special_names[i] : i < JV_FUNCTIONS ? values[i - JS_COUNT]
		                                                                          : global_names[i - JV_FUNCTIONS];
		const struct jname *n = jtree_find(t, name, strlen(name));

		t->given[i] = n ? n->sym : -1;
	}
}

void ji_globals(struct ji *in)
{
	for (int i = JV_FUNCTIONS; i < JV_COUNT; i++) {
		if (in->tree->given[i] >= 0) {
			in->ctx[in->tree->given[i]] = (struct jv){ .t = JT_GLOBAL, .x = (uint16_t)(i - JV_FUNCTIONS) };
		}
	}
}

/* ---- macros ---- */
/* Binds arguments to the slots of the macro's scope. Defaults see the parameters before them. */
static void bind(struct ji *in, const struct jmacro *m, const struct jcallargs *a, const struct jv *caller)
{
	const struct jn *n = m->n;
	const struct jargs *params = &n->u.args;
	uint32_t n_params = params->n, used_kw = 0;
	struct jv *slot = in->scope->slot, rest = ji_list(in, JT_TUPLE, 0), kw = ji_dict(in, JT_DICT, 0);
	const char *name = m->name ? m->name->s.p : "caller";

	for (uint32_t i = 0; !in->rc && i < a->n; i++) {
		if (i < n_params) {
			slot[i] = a->pos[i];
		} else {
			ji_push(in, rest.u.l, a->pos[i]);
		}
	}
	for (uint32_t k = 0; !in->rc && k < a->n_kw; k++) {
		uint32_t i = 0;

		while (i < n_params && params->v[i].name != a->kw_name[k]) {
			i++;
		}
		if (i < n_params && slot[i].t == JT_MISSING) {
			slot[i] = a->kw[k];
			used_kw++;
		} else if (n->op & 2) {
			ji_dict_set(in, kw.u.m, ji_str(in, a->kw_name[k]->s.p, a->kw_name[k]->s.n, 0), a->kw[k]);
		} else {
			ji_fail(in, SKY_E_DATA, "macro '%s' takes no keyword argument '%s'", name, a->kw_name[k]->s.p);
		}
	}
	if (!in->rc && rest.u.l->n > 0 && !(n->op & 1)) {
		ji_fail(in, SKY_E_DATA, "macro '%s' takes not more than %u argument(s)", name, n_params);
	}
	for (uint32_t i = 0; !in->rc && i < n_params; i++) {
		if (slot[i].t == JT_MISSING) {
			slot[i] = params->v[i].e ? ji_eval(in, params->v[i].e) : jv_undef(params->v[i].name);
		}
	}
	if (in->rc) {
		return;
	}
	slot[n->id] = rest;
	slot[n->id + 1] = kw;
	if (n->t == JN_MACRO && (uint32_t)n->id + 2 < n->scope->n) {
		if (caller && !(n->op & 4)) {
			ji_fail(in, SKY_E_DATA, "macro '%s' takes no keyword argument 'caller'", name);
		}
		slot[n->id + 2] = caller ? *caller : jv_undef(NULL);
	}
}

void ji_run_macro(struct ji *in, const struct jmacro *m, const struct jcallargs *a, const struct jv *caller)
{
	struct jscope *outer = in->scope;
	int kind = in->loop_kind, flow = in->flow;
	uint32_t lit = in->lit_org;

	if (in->calls >= JINJA_MAX_CALLS) {
		ji_fail(in, SKY_E_LIMIT, "macros call macros more than %d deep", JINJA_MAX_CALLS);
		return;
	}
	in->calls++;
	in->scope = ji_scope(in, m->n->scope, m->scope);
	if (in->scope) {
		bind(in, m, a, caller);
		/* a message given as an argument is what the macro speaks of */
		for (uint32_t i = 0; i < a->n && in->loop_kind != JL_MESSAGES; i++) {
			if (a->pos[i].t == JT_DICT && a->pos[i].u.m->message >= 0) {
				in->lit_org = JORG(a->pos[i].u.m->message, SKY_PART_TEMPLATE);
			}
		}
		in->loop_kind = kind == JL_MESSAGES ? JL_MESSAGES : JL_NONE;
		in->flow = 0;
		if (!in->rc) {
			ji_run(in, &m->n->body);
		}
	}
	in->scope = outer;
	in->loop_kind = kind;
	in->flow = flow;
	in->lit_org = lit;
	in->calls--;
}

/* ---- functions ---- */
static struct jv g_range(struct ji *in, const struct jcallargs *a)
{
	struct jrange *r = ji_alloc(in, sizeof(*r));
	int64_t x[3] = { 0, 0, 1 };

	if (!r || !ja_check(in, a, "range", 1, 3)) {
		return jv_undef(NULL);
	}
	for (uint32_t i = 0; i < a->n; i++) {
		if (!ji_index(a->pos[i], &x[i])) {
			if (ji_check(in, a->pos[i])) {
				ji_fail(in, SKY_E_DATA, "'%s' object cannot be interpreted as an integer", ji_type_name(a->pos[i]));
			}
			return jv_undef(NULL);
		}
	}
	if (a->n == 1) {
		x[1] = x[0];
		x[0] = 0;
	}
	if (x[2] == 0) {
		ji_fail(in, SKY_E_DATA, "range() arg 3 must not be zero");
		return jv_undef(NULL);
	}
	*r = (struct jrange){ .start = x[0], .step = x[2], .stop = x[1] };
	if (x[2] > 0 && x[1] > x[0]) {
		r->n = (int64_t)(((uint64_t)x[1] - (uint64_t)x[0] - 1) / (uint64_t)x[2]) + 1;
	} else if (x[2] < 0 && x[1] < x[0]) {
		r->n = (int64_t)(((uint64_t)x[0] - (uint64_t)x[1] - 1) / (0 - (uint64_t)x[2])) + 1;
	}
	if (r->n > JINJA_MAX_RANGE || r->n < 0) {
		ji_fail(in, SKY_E_DATA, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", JINJA_MAX_RANGE);
	}
	return (struct jv){ .t = JT_RANGE, .u.r = r };
}

static struct jv g_dict(struct ji *in, const struct jcallargs *a, enum jtype t)
{
	struct jv m = ji_dict(in, t, a->n_kw + 2);
	struct jiter it;

	if (a->n > 1) {
		ji_fail(in, SKY_E_DATA, "dict expected at most 1 argument, got %u", a->n);
	}
	if (!in->rc && a->n == 1 && (a->pos[0].t == JT_DICT || a->pos[0].t == JT_NS)) {
		for (uint32_t i = 0; i < a->pos[0].u.m->n; i++) {
			ji_dict_set(in, m.u.m, a->pos[0].u.m->e[i].k, a->pos[0].u.m->e[i].v);
		}
	} else if (!in->rc && a->n == 1 && ji_iter(in, a->pos[0], &it)) {
		for (int64_t i = 0; i < it.n && !in->rc; i++) {
			struct jv pair = ji_to_list(in, ji_iter_at(in, &it, i));

			if (!in->rc && pair.u.l->n != 2) {
				ji_fail(in, SKY_E_DATA, "dictionary update sequence element #%lld has length %u; 2 is required",
				        (long long)i, pair.u.l->n);
			}
			if (!in->rc) {
				ji_dict_set(in, m.u.m, pair.u.l->v[0], pair.u.l->v[1]);
			}
		}
	}
	for (uint32_t i = 0; !in->rc && i < a->n_kw; i++) {
		if (t == JT_NS && a->kw_name[i]->s.p[0] == '_') {
			ji_fail(in, SKY_E_DATA, "chat templates cannot store underscore-prefixed attributes on a namespace, but got '%s'",
			        a->kw_name[i]->s.p);
		}
		ji_dict_set(in, m.u.m, ji_str(in, a->kw_name[i]->s.p, a->kw_name[i]->s.n, 0), a->kw[i]);
	}
	return m;
}

static struct jv g_raise(struct ji *in, const struct jcallargs *a)
{
	struct jv s;

	if (a->n + a->n_kw != 1) {
		ji_fail(in, SKY_E_DATA, "raise_exception() takes 1 argument");
		return jv_undef(NULL);
	}
	s = ji_to_str(in, a->n ? a->pos[0] : a->kw[0]);
	if (!in->rc) {
		ji_fail(in, SKY_E_DATA, "%.*s", (int)(s.u.s->n > 600 ? 600 : s.u.s->n), s.u.s->p);
	}
	return jv_undef(NULL);
}

/* A given date is read as UTC, so that renders do not depend on the place; the clock is local as in Python. */
static struct jv g_strftime(struct ji *in, const struct jcallargs *a)
{
	const struct jv *f = ja_get(a, 0, "format");
	time_t t = in->date >= 0 ? (time_t)in->date : (time_t)sky_wall();
	char fmt[256], *out;
	struct tm tm;
	size_t n;

	if (!f || f->t != JT_STR || f->u.s->n >= sizeof(fmt)) {
		ji_fail(in, SKY_E_DATA, "strftime_now() needs a format of less than %zu bytes", sizeof(fmt));
		return jv_undef(NULL);
	}
	memcpy(fmt, f->u.s->p, f->u.s->n);
	fmt[f->u.s->n] = 0;
	if (!(in->date >= 0 ? gmtime_r(&t, &tm) : localtime_r(&t, &tm))) {
		ji_fail(in, SKY_E_DATA, "the date %lld is out of range", (long long)t);
		return jv_undef(NULL);
	}
	out = ji_alloc(in, 4096);
	if (!out) {
		return jv_undef(NULL);
	}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
	n = strftime(out, 4096, fmt, &tm);
#pragma GCC diagnostic pop
	return ji_str(in, out, n, 0);
}

/* cycler(a, b): .next(), .current, .reset(); joiner(sep)(): "" once, then sep. Both are a list: [state, items…]. */
static struct jv stateful(struct ji *in, enum jtype t, const struct jcallargs *a)
{
	struct jv r = ji_list(in, t, a->n + 2);

	ji_push(in, in->rc ? NULL : r.u.l, jv_int(0));
	for (uint32_t i = 0; !in->rc && i < a->n; i++) {
		ji_push(in, r.u.l, a->pos[i]);
	}
	if (!in->rc && t == JT_JOINER && a->n == 0) {
		ji_push(in, r.u.l, ji_str(in, ", ", 2, 0));
	}
	if (!in->rc && r.u.l->n < 2) {
		ji_fail(in, SKY_E_DATA, "at least one item has to be provided");
	}
	return r;
}

static struct jv cycler_method(struct ji *in, struct jv self, const struct jname *name)
{
	struct jlist *l = self.u.l;
	struct jv now = l->v[1 + l->v[0].u.i % (l->n - 1)];

	if (!strcmp(name->s.p, "next")) {
		l->v[0].u.i++;
	} else if (!strcmp(name->s.p, "reset")) {
		l->v[0].u.i = 0;
		return jv_none();
	} else {
		ji_fail(in, SKY_E_DATA, "a cycler has no method '%s'", name->s.p);
	}
	return now;
}

static struct jv call_global(struct ji *in, uint16_t id, const struct jcallargs *a)
{
	switch ((enum jglobal)id) {
	case JG_RANGE:
		return g_range(in, a);
	case JG_DICT:
		return g_dict(in, a, JT_DICT);
	case JG_NAMESPACE:
		return g_dict(in, a, JT_NS);
	case JG_RAISE:
		return g_raise(in, a);
	case JG_STRFTIME:
		return g_strftime(in, a);
	case JG_CYCLER:
		return stateful(in, JT_CYCLER, a);
	case JG_JOINER:
		return stateful(in, JT_JOINER, a);
	}
	return jv_undef(NULL);
}

struct jv ji_call(struct ji *in, struct jv fn, const struct jcallargs *a)
{
	struct jmark m;

	switch (fn.t) {
	case JT_MACRO:
		m = ji_begin(in);
		ji_run_macro(in, fn.u.macro, a, NULL);
		return ji_end(in, m);
	case JT_METHOD:
		if (fn.u.meth->self.t == JT_CYCLER) {
			return cycler_method(in, fn.u.meth->self, fn.u.meth->name);
		}
		return ji_call_method(in, fn.u.meth->self, fn.u.meth->name, a);
	case JT_GLOBAL:
		return call_global(in, fn.x, a);
	case JT_JOINER:
		return fn.u.l->v[0].u.i++ ? fn.u.l->v[1] : ji_str(in, "", 0, 0);
	case JT_LOOP:
		if (!fn.u.loop->node->op || a->n != 1) {
			ji_fail(in, SKY_E_DATA, "the loop must have the 'recursive' marker to be called recursively");
			return jv_undef(NULL);
		}
		m = ji_begin(in);
		struct jscope *keep = in->scope;

		in->scope = fn.u.loop->scope;
		ji_for(in, fn.u.loop->node, a->pos[0], fn.u.loop->depth0 + 1);
		in->scope = keep;
		return ji_end(in, m);
	case JT_UNDEF:
	case JT_MISSING:
		ji_check(in, fn);
		return jv_undef(NULL);
	default:
		ji_fail(in, SKY_E_DATA, "'%s' object is not callable", ji_type_name(fn));
		return jv_undef(NULL);
	}
}
