/* jinja: operators (part of text), with the rules of Python. */
#include <math.h>
#include "text/jinja_int.h"

/* ---- truth, equality, order ---- */
bool jv_true(struct ji *in, struct jv v)
{
	switch (v.t) {
	case JT_MISSING:
	case JT_NONE:
		return false;
	case JT_UNDEF:
		if (v.f == JU_UNSAFE) {
			ji_check(in, v);
		}
		return false;
	case JT_BOOL:
	case JT_INT:
		return v.u.i != 0;
	case JT_FLOAT:
		return v.u.d != 0;
	case JT_STR:
		return v.u.s->n > 0;
	case JT_LIST:
	case JT_TUPLE:
		return v.u.l->n > 0;
	case JT_VIEW:
	case JT_DICT:
		return v.u.m->n > 0;
	case JT_RANGE:
		return v.u.r->n > 0;
	case JT_LOOP:
		return v.u.loop->it.n > 0;
	default:
		return true;
	}
}

static bool is_num(struct jv v)
{
	return v.t == JT_INT || v.t == JT_BOOL || v.t == JT_FLOAT;
}

static double as_double(struct jv v)
{
	return v.t == JT_FLOAT ? v.u.d : (double)v.u.i;
}

static bool str_eq(const struct jstr *a, const struct jstr *b)
{
	return a->n == b->n && !memcmp(a->p, b->p, a->n);
}

static bool eq_deep(struct jv a, struct jv b, int depth);

static bool dict_eq(const struct jdict *a, const struct jdict *b, int depth)
{
	if (a->n != b->n) {
		return false;
	}
	for (uint32_t i = 0; i < a->n; i++) {
		const struct jv *v = jdict_get(b, a->e[i].k);

		if (!v || !eq_deep(a->e[i].v, *v, depth + 1)) {
			return false;
		}
	}
	return true;
}

static bool eq_deep(struct jv a, struct jv b, int depth)
{
	if (depth > JINJA_MAX_NEST) {
		return false;
	}
	if (is_num(a) && is_num(b)) {
		return a.t == JT_FLOAT || b.t == JT_FLOAT ? as_double(a) == as_double(b) : a.u.i == b.u.i;
	}
	if (a.t != b.t) {
		return false;
	}
	switch (a.t) {
	case JT_UNDEF:
	case JT_NONE:
		return true;
	case JT_STR:
	case JT_BIG:
		return str_eq(a.u.s, b.u.s);
	case JT_LIST:
	case JT_TUPLE:
		if (a.u.l == b.u.l) {
			return true;
		}
		if (a.u.l->n != b.u.l->n) {
			return false;
		}
		for (uint32_t i = 0; i < a.u.l->n; i++) {
			if (!eq_deep(a.u.l->v[i], b.u.l->v[i], depth + 1)) {
				return false;
			}
		}
		return true;
	case JT_DICT:
		return a.u.m == b.u.m || dict_eq(a.u.m, b.u.m, depth);
	case JT_RANGE:
		return a.u.r->n == b.u.r->n && (a.u.r->n == 0 || (a.u.r->start == b.u.r->start &&
		       (a.u.r->n == 1 || a.u.r->step == b.u.r->step)));
	default:
		return a.u.m == b.u.m;
	}
}

bool jv_eq(struct ji *in, struct jv a, struct jv b)
{
	if (in && (a.t == JT_STR || a.t == JT_DICT || a.t == JT_LIST)) {
		in->steps += a.t == JT_STR ? a.u.s->n >> 5 : 4;
	}
	return eq_deep(a, b, 0);
}

bool ji_check(struct ji *in, struct jv v)
{
	static const char *const objects[] = { [JT_NONE] = "None", [JT_STR] = "'str object'", [JT_DICT] = "'dict object'",
		[JT_LIST] = "'list object'", [JT_INT] = "'int object'", [JT_BOOL] = "'bool object'",
		[JT_FLOAT] = "'float object'", [JT_TUPLE] = "'tuple object'", [JT_NS] = "'Namespace object'",
		[JT_LOOP] = "'LoopContext object'" };
	const char *o = v.x < sizeof(objects) / sizeof(objects[0]) && objects[v.x] ? objects[v.x] : "the object";

	if (v.t != JT_UNDEF && v.t != JT_MISSING) {
		return !in->rc;
	}
	if (!v.u.name) {
		ji_fail(in, SKY_E_DATA, v.f == JU_ITEM ? "%s has no element %s" : "%s has no such attribute%s", o,
		        v.f == JU_ITEM ? "at this index" : "");
	} else if (v.f == JU_VAR) {
		ji_fail(in, SKY_E_DATA, "'%.*s' is undefined", (int)v.u.name->s.n, v.u.name->s.p);
	} else if (v.f == JU_HINT) {
		ji_fail(in, SKY_E_DATA, "%.*s", (int)v.u.name->s.n, v.u.name->s.p);
	} else if (v.f == JU_UNSAFE) {
		ji_fail(in, SKY_E_DATA, "access to attribute '%.*s' of %s is unsafe (Jinja2's sandbox refuses it)",
		        (int)v.u.name->s.n, v.u.name->s.p, o);
	} else {
		ji_fail(in, SKY_E_DATA, "%s has no attribute '%.*s'", o, (int)v.u.name->s.n, v.u.name->s.p);
	}
	return false;
}

static int sign(int64_t d)
{
	return d < 0 ? -1 : d > 0;
}

int ji_compare(struct ji *in, struct jv a, struct jv b)
{
	if (!ji_check(in, a) || !ji_check(in, b)) {
		return 0;
	}
	if (is_num(a) && is_num(b)) {
		if (a.t != JT_FLOAT && b.t != JT_FLOAT) {
			return (a.u.i > b.u.i) - (a.u.i < b.u.i);
		}
		return (as_double(a) > as_double(b)) - (as_double(a) < as_double(b));
	}
	if (a.t == JT_STR && b.t == JT_STR) {
		uint32_t n = a.u.s->n < b.u.s->n ? a.u.s->n : b.u.s->n;
		int c = memcmp(a.u.s->p, b.u.s->p, n);  /* the order of UTF-8 is that of code points */

		return c ? sign(c) : sign((int64_t)a.u.s->n - b.u.s->n);
	}
	if ((a.t == JT_LIST || a.t == JT_TUPLE) && a.t == b.t) {
		for (uint32_t i = 0; i < a.u.l->n && i < b.u.l->n; i++) {
			if (!jv_eq(in, a.u.l->v[i], b.u.l->v[i])) {
				return ji_compare(in, a.u.l->v[i], b.u.l->v[i]);
			}
		}
		return sign((int64_t)a.u.l->n - b.u.l->n);
	}
	ji_fail(in, SKY_E_DATA, "'<' not supported between instances of '%s' and '%s'", ji_type_name(a), ji_type_name(b));
	return 0;
}

/* Merge sort of an index: stable, and bounded whatever the comparison says. */
static void merge(struct ji *in, const struct jv *keys, uint32_t *ix, uint32_t *tmp, int64_t n, bool reverse)
{
	int64_t half = n / 2, i = 0, j = half, k = 0;

	if (n < 2 || in->rc) {
		return;
	}
	merge(in, keys, ix, tmp, half, reverse);
	merge(in, keys, ix + half, tmp, n - half, reverse);
	ji_step(in, n);
	while (i < half || j < n) {
		int c = i < half && j < n ? ji_compare(in, keys[ix[j]], keys[ix[i]]) : i < half ? 1 : -1;

		if (i < half && j < n) {
			c = reverse ? -c : c;
			c = c < 0 ? -1 : 1;
		}
		tmp[k++] = c < 0 ? ix[j++] : ix[i++];
	}
	memcpy(ix, tmp, (size_t)n * sizeof(*ix));
}

bool ji_sort(struct ji *in, struct jv *v, const struct jv *keys, int64_t n, bool reverse)
{
	uint32_t *ix = ji_alloc(in, (size_t)n * sizeof(*ix) + 8), *tmp = ji_alloc(in, (size_t)n * sizeof(*ix) + 8);
	struct jv *copy = ji_alloc(in, (size_t)n * sizeof(*copy) + 8);

	if (in->rc) {
		return false;
	}
	for (int64_t i = 0; i < n; i++) {
		ix[i] = (uint32_t)i;
		copy[i] = v[i];
	}
	merge(in, keys, ix, tmp, n, reverse);
	for (int64_t i = 0; i < n; i++) {
		v[i] = copy[ix[i]];
	}
	return !in->rc;
}

bool ji_contains(struct ji *in, struct jv item, struct jv box)
{
	struct jiter it;

	if (box.t == JT_STR) {
		if (item.t != JT_STR) {
			if (ji_check(in, item)) {
				ji_fail(in, SKY_E_DATA, "'in <string>' requires string as left operand, not %s", ji_type_name(item));
			}
			return false;
		}
		in->steps += box.u.s->n >> 5;
		return jstr_find(box.u.s, item.u.s, 0) >= 0;
	}
	if (box.t == JT_DICT || (box.t == JT_VIEW && box.f == 'k')) {
		return ji_hashable(in, item) && jdict_get(box.u.m, item) != NULL;
	}
	if (box.t == JT_NONE || box.t == JT_BOOL || box.t == JT_INT || box.t == JT_FLOAT || box.t == JT_NS) {
		ji_fail(in, SKY_E_DATA, "argument of type '%s' is not iterable", ji_type_name(box));
		return false;
	}
	if (!ji_iter(in, box, &it) || !ji_step(in, it.n)) {
		return false;
	}
	for (int64_t i = 0; i < it.n; i++) {
		if (jv_eq(in, item, ji_iter_at(in, &it, i))) {
			return true;
		}
	}
	return false;
}

/* ---- arithmetic ---- */
static const char *op_name(enum jop op)
{
	static const char *const names[] = { "+", "-", "*", "/", "//", "%", "** or pow()" };

	return names[op];
}

static struct jv unsupported(struct ji *in, enum jop op, struct jv a, struct jv b)
{
	if (ji_check(in, a) && ji_check(in, b)) {
		if (op == JO_ADD && (a.t == JT_STR || a.t == JT_LIST || a.t == JT_TUPLE)) {
			ji_fail(in, SKY_E_DATA, "can only concatenate %s (not \"%s\") to %s", ji_type_name(a), ji_type_name(b),
			        ji_type_name(a));
		} else {
			ji_fail(in, SKY_E_DATA, "unsupported operand type(s) for %s: '%s' and '%s'", op_name(op), ji_type_name(a),
			        ji_type_name(b));
		}
	}
	return jv_undef(NULL);
}

static struct jv float_op(struct ji *in, enum jop op, double a, double b)
{
	double m;

	switch (op) {
	case JO_ADD:
		return jv_float(a + b);
	case JO_SUB:
		return jv_float(a - b);
	case JO_MUL:
		return jv_float(a * b);
	case JO_POW:
		if (a < 0 && b != floor(b)) {
			ji_fail(in, SKY_E_DATA, "a fractional power of a negative number is complex, which templates cannot hold");
		} else if (a == 0 && b < 0) {
			ji_fail(in, SKY_E_DATA, "0.0 cannot be raised to a negative power");
		}
		return jv_float(pow(a, b));
	default:
		break;
	}
	if (b == 0) {
		ji_fail(in, SKY_E_DATA, op == JO_DIV ? "division by zero" : "float divmod()");
		return jv_undef(NULL);
	}
	if (op == JO_DIV) {
		return jv_float(a / b);
	}
	m = fmod(a, b);
	if (m != 0 && (m < 0) != (b < 0)) {
		m += b;
	}
	if (op == JO_MOD) {
		return jv_float(m == 0 ? copysign(0.0, b) : m);
	}
	return jv_float(floor((a - m) / b + 0.25));
}

static struct jv int_pow(struct ji *in, int64_t a, int64_t b)
{
	int64_t r = 1;

	if (b < 0) {
		return float_op(in, JO_POW, (double)a, (double)b);
	}
	while (b > 0) {
		if ((b & 1) && __builtin_mul_overflow(r, a, &r)) {
			ji_fail(in, SKY_E_LIMIT, "integer beyond 64 bits");
			return jv_undef(NULL);
		}
		b >>= 1;
		if (b && __builtin_mul_overflow(a, a, &a)) {
			ji_fail(in, SKY_E_LIMIT, "integer beyond 64 bits");
			return jv_undef(NULL);
		}
	}
	return jv_int(r);
}

static struct jv int_op(struct ji *in, enum jop op, int64_t a, int64_t b)
{
	int64_t r = 0;
	bool over = false;

	switch (op) {
	case JO_ADD:
		over = __builtin_add_overflow(a, b, &r);
		break;
	case JO_SUB:
		over = __builtin_sub_overflow(a, b, &r);
		break;
	case JO_MUL:
		over = __builtin_mul_overflow(a, b, &r);
		break;
	case JO_POW:
		return int_pow(in, a, b);
	default:
		if (b == 0) {
			ji_fail(in, SKY_E_DATA, op == JO_DIV ? "division by zero" : "integer division or modulo by zero");
			return jv_undef(NULL);
		}
		if (op == JO_DIV) {
			return jv_float((double)a / (double)b);
		}
		if (b == -1) {
			return op == JO_MOD ? jv_int(0) : int_op(in, JO_SUB, 0, a);
		}
		r = a % b;
		if (r != 0 && (r < 0) != (b < 0)) {
			r += b;
		}
		return jv_int(op == JO_MOD ? r : (a - r) / b);
	}
	if (over) {
		ji_fail(in, SKY_E_LIMIT, "integer beyond 64 bits");
	}
	return jv_int(r);
}

static struct jv repeat(struct ji *in, struct jv s, int64_t n)
{
	struct jv r;
	struct jmark m;

	if (s.t == JT_STR) {
		if (n > 0 && s.u.s->n > 0 && (uint64_t)n > in->max_out / s.u.s->n) {
			ji_fail(in, SKY_E_LIMIT, "a repeated string is longer than %zu MiB", in->max_out >> 20);
			return s;
		}
		m = ji_begin(in);
		for (int64_t i = 0; i < n && s.u.s->n > 0 && ji_step(in, 1) && !in->rc; i++) {
			ji_put_str(in, s);
		}
		return ji_end(in, m);
	}
	r = ji_list(in, (enum jtype)s.t, 0);
	for (int64_t i = 0; i < n && s.u.l->n > 0 && ji_step(in, s.u.l->n) && !in->rc; i++) {
		for (uint32_t k = 0; k < s.u.l->n; k++) {
			ji_push(in, r.u.l, s.u.l->v[k]);
		}
	}
	return r;
}

struct jv ji_binary(struct ji *in, enum jop op, struct jv a, struct jv b)
{
	struct jmark m;
	struct jv r;

	if (in->rc) {
		return jv_undef(NULL);
	}
	if (is_num(a) && is_num(b)) {
		return a.t == JT_FLOAT || b.t == JT_FLOAT ? float_op(in, op, as_double(a), as_double(b))
		                                           : int_op(in, op, a.u.i, b.u.i);
	}
	if (op == JO_ADD && a.t == JT_STR && b.t == JT_STR) {
		bool markup = a.f || b.f;

		if (markup) {           /* what is not marked safe is escaped when it meets what is */
			a = ji_escape(in, a);
			b = ji_escape(in, b);
			if (in->rc) {
				return a;
			}
		}
		m = ji_begin(in);
		ji_put_str(in, a);
		ji_put_str(in, b);
		r = ji_end(in, m);
		r.f = markup && !in->rc;
		return r;
	}
	if (op == JO_ADD && a.t == b.t && (a.t == JT_LIST || a.t == JT_TUPLE)) {
		r = ji_list(in, (enum jtype)a.t, a.u.l->n + b.u.l->n);
		for (uint32_t i = 0; !in->rc && i < a.u.l->n; i++) {
			ji_push(in, r.u.l, a.u.l->v[i]);
		}
		for (uint32_t i = 0; !in->rc && i < b.u.l->n; i++) {
			ji_push(in, r.u.l, b.u.l->v[i]);
		}
		return r;
	}
	if (op == JO_MUL && (a.t == JT_INT || a.t == JT_BOOL) && (b.t == JT_STR || b.t == JT_LIST || b.t == JT_TUPLE)) {
		return repeat(in, b, a.u.i);
	}
	if (op == JO_MUL && (b.t == JT_INT || b.t == JT_BOOL) && (a.t == JT_STR || a.t == JT_LIST || a.t == JT_TUPLE)) {
		return repeat(in, a, b.u.i);
	}
	if (op == JO_MOD && a.t == JT_STR) {
		return ji_percent(in, a, b);
	}
	return unsupported(in, op, a, b);
}
