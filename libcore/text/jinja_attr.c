/* jinja: attributes, subscripts, slices (part of text), with the rules of Python and of Jinja2's sandbox. */
#include "text/jinja_int.h"

static struct jv undef_of(struct jv o, const struct jname *name, enum jundef f)
{
	return (struct jv){ .t = JT_UNDEF, .f = (uint8_t)f, .x = o.t, .u.name = name };
}

static struct jv bound(struct ji *in, struct jv o, const struct jname *name)
{
	struct jmeth *m = ji_alloc(in, sizeof(*m));

	if (!m) {
		return jv_undef(NULL);
	}
	*m = (struct jmeth){ o, name };
	return (struct jv){ .t = JT_METHOD, .org = o.org, .u.meth = m };
}

/* loop.x */
static struct jv loop_attr(struct ji *in, struct jv o, const struct jname *name)
{
	struct jloop *l = o.u.loop;
	const char *s = name->s.p;

	if (!strcmp(s, "index0")) {
		return jv_int(l->i);
	}
	if (!strcmp(s, "index")) {
		return jv_int(l->i + 1);
	}
	if (!strcmp(s, "first")) {
		return jv_bool(l->i == 0);
	}
	if (!strcmp(s, "last")) {
		return jv_bool(l->i == l->it.n - 1);
	}
	if (!strcmp(s, "length")) {
		return jv_int(l->it.n);
	}
	if (!strcmp(s, "revindex")) {
		return jv_int(l->it.n - l->i);
	}
	if (!strcmp(s, "revindex0")) {
		return jv_int(l->it.n - l->i - 1);
	}
	if (!strcmp(s, "depth") || !strcmp(s, "depth0")) {
		return jv_int(l->depth0 + (s[5] == 0));
	}
	if (!strcmp(s, "previtem") || !strcmp(s, "nextitem")) {
		int64_t i = l->i + (s[0] == 'p' ? -1 : 1);

		return i >= 0 && i < l->it.n ? ji_iter_at(in, &l->it, i) : undef_of(o, name, JU_ATTR);
	}
	if (!strcmp(s, "cycle") || !strcmp(s, "changed")) {
		return bound(in, o, name);
	}
	return undef_of(o, name, JU_ATTR);
}

struct jv ji_getattr(struct ji *in, struct jv o, const struct jname *name)
{
	const struct jv *v;

	switch (o.t) {
	case JT_DICT:
		if (name->meth_dict >= 0) {
			return jinja_dict_mutates(name->meth_dict) ? undef_of(o, name, JU_UNSAFE) : bound(in, o, name);
		}
		v = jdict_find(o.u.m, &name->s, name->hash);
		return v ? *v : undef_of(o, name, JU_ATTR);
	case JT_NS:
		v = jdict_find(o.u.m, &name->s, name->hash);
		return v ? *v : undef_of(o, name, JU_ATTR);
	case JT_STR:
		return name->meth_str >= 0 ? bound(in, o, name) : undef_of(o, name, JU_ATTR);
	case JT_LIST:
	case JT_TUPLE:
		if (name->meth_list >= 0 && (o.t == JT_LIST || jinja_tuple_has(name->meth_list))) {
			if (jinja_list_mutates(name->meth_list)) {
				return undef_of(o, name, JU_UNSAFE);
			}
			return bound(in, o, name);
		}
		return undef_of(o, name, JU_ATTR);
	case JT_RANGE:
		return name->meth_list >= 0 && jinja_tuple_has(name->meth_list) ? bound(in, o, name) : undef_of(o, name, JU_ATTR);
	case JT_LOOP:
		return loop_attr(in, o, name);
	case JT_UNDEF:
	case JT_MISSING:
		ji_check(in, o);
		return jv_undef(NULL);
	case JT_CYCLER:
	case JT_JOINER:
		return bound(in, o, name);
	case JT_GLOBAL:
	case JT_MACRO:
	default:
		return undef_of(o, name, JU_ATTR);
	}
}

bool ji_index(struct jv v, int64_t *out)
{
	if (v.t != JT_INT && v.t != JT_BOOL) {
		return false;
	}
	*out = v.u.i;
	return true;
}

int64_t ji_len(struct ji *in, struct jv v)
{
	switch (v.t) {
	case JT_STR:
		return ju_len(v.u.s->p, v.u.s->n);
	case JT_LIST:
	case JT_TUPLE:
		return v.u.l->n;
	case JT_DICT:
	case JT_VIEW:
		return v.u.m->n;
	case JT_RANGE:
		return v.u.r->n;
	case JT_LOOP:
		return v.u.loop->it.n;
	case JT_UNDEF:
		return v.f == JU_UNSAFE && !ji_check(in, v) ? -1 : 0;
	default:
		ji_fail(in, SKY_E_DATA, "object of type '%s' has no len()", ji_type_name(v));
		return -1;
	}
}

const struct jname *ji_name(struct ji *in, const struct jstr *s)
{
	const struct jname *known = jtree_find(in->tree, s->p, s->n);
	struct jname *name;
	char *copy;

	if (known) {
		return known;
	}
	name = ji_alloc(in, sizeof(*name));
	copy = ji_alloc(in, s->n + 1u);
	if (!name || !copy) {
		return NULL;
	}
	memcpy(copy, s->p, s->n);
	copy[s->n] = 0;
	*name = (struct jname){ .s = { .p = copy, .n = s->n }, .hash = jhash(copy, s->n), .sym = -1,
		.meth_str = jinja_str_method(copy, s->n), .meth_list = jinja_list_method(copy, s->n),
		.meth_dict = jinja_dict_method(copy, s->n) };
	return name;
}

struct jv ji_getitem(struct ji *in, struct jv o, struct jv key)
{
	const struct jname *name;
	const struct jv *v;
	int64_t i, n;

	if (o.t == JT_UNDEF || o.t == JT_MISSING) {
		ji_check(in, o);
		return jv_undef(NULL);
	}
	if (o.t == JT_DICT && (v = jdict_get(o.u.m, key)) != NULL) {
		return *v;
	}
	if ((o.t == JT_LIST || o.t == JT_TUPLE || o.t == JT_RANGE || o.t == JT_STR) && ji_index(key, &i)) {
		n = ji_len(in, o);
		i += i < 0 ? n : 0;
		if (i < 0 || i >= n) {
			return undef_of(o, NULL, JU_ITEM);
		}
		if (o.t == JT_RANGE) {
			return jv_int(o.u.r->start + i * o.u.r->step);
		}
		if (o.t == JT_STR) {
			uint32_t from = ju_off(o.u.s->p, o.u.s->n, i), to = from;

			ju_next(o.u.s->p, o.u.s->n, &to);
			return ji_substr(in, o, from, to);
		}
		return o.u.l->v[i];
	}
	if (key.t == JT_STR && o.t != JT_NS) {
		/* subscript first, then attribute: message['items'] may be the method */
		name = ji_name(in, key.u.s);
		return !name || (o.t == JT_DICT && name->meth_dict < 0) ? undef_of(o, name, JU_ATTR) : ji_getattr(in, o, name);
	}
	return undef_of(o, NULL, JU_ITEM);
}

/* Python's slice of n elements: from, to and step resolved. False with rc set for bad ones. */
static bool slice_bounds(struct ji *in, struct jv a, struct jv b, struct jv c, int64_t n, int64_t out[3])
{
	int64_t i, step = 1, from, to;

	if ((c.t != JT_NONE && !ji_index(c, &step)) || (a.t != JT_NONE && !ji_index(a, &i)) ||
	    (b.t != JT_NONE && !ji_index(b, &i)) || step == 0) {
		if (ji_check(in, a) && ji_check(in, b) && ji_check(in, c)) {
			ji_fail(in, SKY_E_DATA, step == 0 ? "slice step cannot be zero" :
			        "slice indices must be integers or None or have an __index__ method");
		}
		return false;
	}
	from = step > 0 ? 0 : n - 1;
	to = step > 0 ? n : -1;
	if (a.t != JT_NONE) {
		from = a.u.i < 0 ? a.u.i + n : a.u.i;
		from = from < 0 ? (step > 0 ? 0 : -1) : from >= n ? (step > 0 ? n : n - 1) : from;
	}
	if (b.t != JT_NONE) {
		to = b.u.i < 0 ? b.u.i + n : b.u.i;
		to = to < 0 ? (step > 0 ? 0 : -1) : to >= n ? (step > 0 ? n : n - 1) : to;
	}
	if (step > n) {
		step = n > 0 ? n : 1;
	} else if (step < -n) {
		step = n > 0 ? -n : -1;
	}
	out[0] = from;
	out[1] = to;
	out[2] = step;
	return true;
}

static struct jv slice_range(struct ji *in, const struct jrange *r, int64_t from, int64_t to, int64_t step)
{
	struct jrange *part = ji_alloc(in, sizeof(*part));
	/* the sums may leave int64 behind the last element: unsigned, so that they wrap */
	uint64_t start = (uint64_t)r->start, by = (uint64_t)r->step;

	if (part) {
		*part = (struct jrange){ .start = (int64_t)(start + (uint64_t)from * by), .stop = (int64_t)(start + (uint64_t)to * by),
			.step = (int64_t)(by * (uint64_t)step),
			.n = step > 0 ? (to - from + step - 1) / step : (from - to - step - 1) / -step };
		part->n = (step > 0 ? from < to : from > to) ? part->n : 0;
	}
	return (struct jv){ .t = JT_RANGE, .u.r = part };
}

struct jv ji_slice(struct ji *in, struct jv o, struct jv a, struct jv b, struct jv c)
{
	int64_t at[3], i;
	struct jv r;
	struct jmark m;

	if (!ji_check(in, o)) {
		return jv_undef(NULL);
	}
	if (o.t != JT_STR && o.t != JT_LIST && o.t != JT_TUPLE && o.t != JT_RANGE) {
		ji_fail(in, SKY_E_DATA, o.t == JT_DICT ? "unhashable type: 'slice'" : "'%s' object is not subscriptable",
		        ji_type_name(o));
		return jv_undef(NULL);
	}
	if (!slice_bounds(in, a, b, c, ji_len(in, o), at)) {
		return jv_undef(NULL);
	}
	if (o.t == JT_STR && at[2] == 1) {
		uint32_t lo = ju_off(o.u.s->p, o.u.s->n, at[0]), hi = at[1] > at[0] ? ju_off(o.u.s->p, o.u.s->n, at[1]) : lo;

		in->steps += o.u.s->n >> 5;
		return ji_substr(in, o, lo, hi);
	}
	if (o.t == JT_STR) {
		r = ji_to_list(in, o);
		if (in->rc) {
			return r;
		}
		m = ji_begin(in);
		for (i = at[0]; at[2] > 0 ? i < at[1] : i > at[1]; i += at[2]) {
			ji_put_str(in, r.u.l->v[i]);
		}
		return ji_end(in, m);
	}
	if (o.t == JT_RANGE) {
		return slice_range(in, o.u.r, at[0], at[1], at[2]);
	}
	r = ji_list(in, o.t == JT_TUPLE ? JT_TUPLE : JT_LIST, (uint32_t)o.u.l->n);
	r.org = o.org;
	for (i = at[0]; !in->rc && (at[2] > 0 ? i < at[1] : i > at[1]); i += at[2]) {
		ji_push(in, r.u.l, o.u.l->v[i]);
	}
	return r;
}
