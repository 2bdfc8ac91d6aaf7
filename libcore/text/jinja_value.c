/* jinja: memory of a render, values, containers, strings with provenance (part of text). */
#include "text/jinja_int.h"

/* ---- memory, budget, errors ---- */
void ji_fail(struct ji *in, int code, const char *fmt, ...)
{
	char msg[700];
	va_list ap;

	if (in->rc) {
		return;         /* the first error is the one to tell */
	}
	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	in->rc = in->at ? sky_fail(in->err, code, "%s: line %u: %s", in->t->name, (unsigned)in->at->line, msg)
	                : sky_fail(in->err, code, "%s: %s", in->t->name, msg);
}

bool ji_step(struct ji *in, int64_t n)
{
	in->steps += n;
	if (in->steps > in->max_steps) {
		ji_fail(in, SKY_E_LIMIT, "the template ran for more than %lld steps and was stopped", (long long)in->max_steps);
		return false;
	}
	return true;
}

void *ji_alloc(struct ji *in, size_t n)
{
	char *r;

	n = (n + 7) & ~(size_t)7;
	if (n > (size_t)(in->free_end - in->free_p)) {
		size_t block = n > (64u << 10) ? n : 256u << 10;

		r = sky_arena_alloc(&in->mem, block);
		if (!r) {
			ji_fail(in, SKY_E_LIMIT, "the values of the render need more than %zu MiB", in->mem.n_max >> 20);
			return NULL;
		}
		if (n > (64u << 10)) {
			return ji_step(in, (int64_t)(n / 256)) ? r : NULL;
		}
		in->free_p = r;
		in->free_end = r + block;
	}
	r = in->free_p;
	in->free_p += n;
	return r;
}

const char *ji_type_name(struct jv v)
{
	switch (v.t) {
	case JT_NONE:
		return "NoneType";
	case JT_BOOL:
		return "bool";
	case JT_INT:
	case JT_BIG:
		return "int";
	case JT_FLOAT:
		return "float";
	case JT_STR:
		return "str";
	case JT_LIST:
		return "list";
	case JT_TUPLE:
		return "tuple";
	case JT_GEN:
		return "generator";
	case JT_VIEW:
		return v.f == 'k' ? "dict_keys" : v.f == 'v' ? "dict_values" : "dict_items";
	case JT_DICT:
		return "dict";
	case JT_RANGE:
		return "range";
	case JT_NS:
		return "Namespace";
	case JT_LOOP:
		return "LoopContext";
	case JT_MACRO:
		return "Macro";
	case JT_METHOD:
		return "builtin_function_or_method";
	case JT_GLOBAL:
		return "function";
	case JT_CYCLER:
		return "Cycler";
	case JT_JOINER:
		return "Joiner";
	default:
		return "Undefined";
	}
}

/* ---- strings ---- */
struct jv ji_str(struct ji *in, const char *p, size_t n, uint32_t org)
{
	struct jstr *s = ji_alloc(in, sizeof(*s));

	if (!s) {
		return jv_undef(NULL);
	}
	*s = (struct jstr){ .p = p, .n = (uint32_t)n };
	return (struct jv){ .t = JT_STR, .org = org, .u.s = s };
}

/* First segment that reaches beyond byte at. */
static uint32_t seg_at(const struct jstr *s, uint32_t at)
{
	uint32_t lo = 0, hi = s->n_seg;

	while (lo < hi) {
		uint32_t mid = (lo + hi) / 2;

		if (s->seg[mid].end > at) {
			hi = mid;
		} else {
			lo = mid + 1;
		}
	}
	return lo;
}

uint32_t jstr_org(struct jv s, uint32_t at)
{
	uint32_t i;

	if (!s.u.s->seg) {
		return s.org;
	}
	i = seg_at(s.u.s, at);
	return s.u.s->seg[i < s.u.s->n_seg ? i : s.u.s->n_seg - 1].org;
}

struct jv ji_substr(struct ji *in, struct jv v, uint32_t from, uint32_t to)
{
	const struct jstr *s = v.u.s;
	struct jstr *r;
	struct jseg *seg;
	uint32_t a, b;

	if (from == 0 && to == s->n) {
		return v;
	}
	r = ji_alloc(in, sizeof(*r));
	if (!r) {
		return jv_undef(NULL);
	}
	*r = (struct jstr){ .p = s->p + from, .n = to - from };
	v.u.s = r;
	if (!s->seg) {
		return v;
	}
	a = seg_at(s, from);
	b = to > from ? seg_at(s, to - 1) : a;
	v.org = s->seg[a < s->n_seg ? a : s->n_seg - 1].org;
	if (a == b) {
		return v;
	}
	seg = ji_alloc(in, (b - a + 1) * sizeof(*seg));
	if (!seg) {
		return jv_undef(NULL);
	}
	for (uint32_t i = a; i <= b; i++) {
		seg[i - a] = (struct jseg){ (s->seg[i].end < to ? s->seg[i].end : to) - from, s->seg[i].org };
	}
	r->seg = seg;
	r->n_seg = b - a + 1;
	return v;
}

/* ---- building at the end of the output ---- */
struct jmark ji_begin(struct ji *in)
{
	in->capture++;
	return (struct jmark){ in->out.n, in->n_seg };
}

static bool grow_out(struct ji *in, size_t n)
{
	struct sky_err err;
	int rc;

	if (in->rc) {
		return false;
	}
	if (in->out.n + n > in->max_out) {
		ji_fail(in, SKY_E_LIMIT, "the render is longer than %zu MiB", in->max_out >> 20);
		return false;
	}
	rc = sky_buf_reserve(&in->out, n + in->out.n / 2 + 4096, &err);
	if (rc < 0) {
		rc = sky_buf_reserve(&in->out, n, &err);
	}
	if (rc < 0) {
		ji_fail(in, SKY_E_LIMIT, "out of memory for a render of %zu bytes", in->out.n + n);
		return false;
	}
	return true;
}

static bool grow_seg(struct ji *in)
{
	uint32_t cap = in->cap_seg ? in->cap_seg * 2 : 256;
	struct jseg *seg = in->rc ? NULL : sky_realloc_array(in->seg, cap, sizeof(*seg));

	if (!seg) {
		ji_fail(in, SKY_E_LIMIT, "out of memory for the spans of a render");
		return false;
	}
	in->seg = seg;
	in->cap_seg = cap;
	return true;
}

void ji_put(struct ji *in, const char *p, size_t n, uint32_t org)
{
	struct sky_buf *b = &in->out;

	if (n == 0 || (b->cap - b->n <= n && !grow_out(in, n + 1))) {
		return;
	}
	memcpy(b->ptr + b->n, p, n);
	b->n += n;
	in->steps += (int64_t)(n >> 5);
	if (org == 0) {
		org = in->lit_org;
	} else if (in->capture == 0 && in->lit_org && org > 15 && (org ^ in->lit_org) > 15) {
		/* a value of one message quoted in the turn of another belongs to that turn */
		org = (in->lit_org & ~15u) | SKY_PART_OTHER;
	}
	if (in->n_seg > 0 && in->seg[in->n_seg - 1].org == org) {
		in->seg[in->n_seg - 1].end = (uint32_t)b->n;
	} else if (in->n_seg < in->cap_seg || grow_seg(in)) {
		in->seg[in->n_seg++] = (struct jseg){ (uint32_t)b->n, org };
	}
}

void ji_puts(struct ji *in, const char *s, uint32_t org)
{
	ji_put(in, s, strlen(s), org);
}

void ji_put_sub(struct ji *in, struct jv v, uint32_t from, uint32_t to)
{
	const struct jstr *s = v.u.s;

	if (!s->seg) {
		ji_put(in, s->p + from, to - from, v.org);
		return;
	}
	for (uint32_t i = seg_at(s, from); from < to; i++) {
		uint32_t end = s->seg[i].end < to ? s->seg[i].end : to;

		ji_put(in, s->p + from, end - from, s->seg[i].org);
		from = end;
	}
}

void ji_put_str(struct ji *in, struct jv v)
{
	ji_put_sub(in, v, 0, v.u.s->n);
}

struct jv ji_end(struct ji *in, struct jmark m)
{
	uint32_t n = (uint32_t)(in->out.n - m.n), first = m.n_seg, n_seg;
	struct jstr *s;
	struct jseg *seg;
	char *p;

	in->capture--;
	if (in->rc) {
		return jv_undef(NULL);
	}
	/* the segment before the mark may have grown over it */
	if (first > 0 && in->seg[first - 1].end > m.n) {
		first--;
	}
	n_seg = in->n_seg - first;
	s = ji_alloc(in, sizeof(*s));
	p = ji_alloc(in, (size_t)n + 1);
	seg = n_seg > 1 ? ji_alloc(in, n_seg * sizeof(*seg)) : NULL;
	if (!s || !p || (n_seg > 1 && !seg)) {
		return jv_undef(NULL);
	}
	memcpy(p, in->out.ptr ? in->out.ptr + m.n : "", n);
	*s = (struct jstr){ .p = p, .n = n, .seg = seg, .n_seg = n_seg > 1 ? n_seg : 0 };
	for (uint32_t i = 0; seg && i < n_seg; i++) {
		seg[i] = (struct jseg){ (uint32_t)(in->seg[first + i].end - m.n), in->seg[first + i].org };
	}
	struct jv v = { .t = JT_STR, .org = n_seg > 0 ? in->seg[first].org : 0, .u.s = s };

	in->out.n = m.n;
	in->n_seg = m.n_seg;
	if (first < m.n_seg) {
		in->seg[first].end = (uint32_t)m.n;
	}
	return v;
}

/* ---- lists ---- */
struct jv ji_list(struct ji *in, enum jtype t, uint32_t cap)
{
	struct jlist *l = ji_alloc(in, sizeof(*l));

	if (l) {
		*l = (struct jlist){ .v = cap ? ji_alloc(in, cap * sizeof(struct jv)) : NULL, .cap = cap };
	}
	return in->rc ? jv_undef(NULL) : (struct jv){ .t = (uint8_t)t, .u.l = l };
}

bool ji_push(struct ji *in, struct jlist *l, struct jv v)
{
	if (in->rc) {
		return false;
	}
	if (l->n == l->cap) {
		uint32_t cap = l->cap ? l->cap * 2 : 8;
		struct jv *nv = ji_alloc(in, (size_t)cap * sizeof(*nv));

		if (!nv) {
			return false;
		}
		if (l->n) {
			memcpy(nv, l->v, l->n * sizeof(*nv));
		}
		l->v = nv;
		l->cap = cap;
	}
	l->v[l->n++] = v;
	return true;
}

struct jv ji_copy_list(struct ji *in, struct jv src, enum jtype t)
{
	struct jv r = ji_list(in, t, src.u.l->n);

	if (!in->rc && src.u.l->n) {
		memcpy(r.u.l->v, src.u.l->v, src.u.l->n * sizeof(struct jv));
		r.u.l->n = src.u.l->n;
		r.org = src.org;
	}
	return r;
}

/* ---- dicts ---- */
struct jv ji_dict(struct ji *in, enum jtype t, uint32_t cap)
{
	struct jdict *m = ji_alloc(in, sizeof(*m));

	if (m) {
		*m = (struct jdict){ .e = cap ? ji_alloc(in, cap * sizeof(struct jent)) : NULL, .cap = cap, .message = -1 };
	}
	return in->rc ? jv_undef(NULL) : (struct jv){ .t = (uint8_t)t, .u.m = m };
}

static uint32_t key_hash(struct jv k)
{
	switch (k.t) {
	case JT_STR:
		return jhash(k.u.s->p, k.u.s->n);
	case JT_BOOL:
	case JT_INT:
		return (uint32_t)((uint64_t)k.u.i * 0x9e3779b97f4a7c15ull >> 32);
	case JT_FLOAT:
		return k.u.d >= -9e15 && k.u.d <= 9e15 && k.u.d == (double)(int64_t)k.u.d ? key_hash(jv_int((int64_t)k.u.d)) : 7;
	default:
		return k.t;
	}
}

const struct jv *jdict_find(const struct jdict *m, const struct jstr *s, uint32_t hash)
{
	if (m->ix) {
		for (uint32_t i = hash & (m->n_ix - 1); m->ix[i]; i = (i + 1) & (m->n_ix - 1)) {
			const struct jent *e = &m->e[m->ix[i] - 1];

			if (e->hash == hash && e->k.t == JT_STR && e->k.u.s->n == s->n && !memcmp(e->k.u.s->p, s->p, s->n)) {
				return &e->v;
			}
		}
		return NULL;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		const struct jent *e = &m->e[i];

		if (e->hash == hash && e->k.t == JT_STR && e->k.u.s->n == s->n && !memcmp(e->k.u.s->p, s->p, s->n)) {
			return &e->v;
		}
	}
	return NULL;
}

static const struct jv *get_hashed(const struct jdict *m, struct jv key, uint32_t hash)
{
	if (key.t == JT_STR) {
		return jdict_find(m, key.u.s, hash);
	}
	for (uint32_t i = 0; i < m->n; i++) {
		/* jv_eq of scalars and tuples needs no render state unless something in them is undefined */
		if (m->e[i].hash == hash && m->e[i].k.t != JT_STR && jv_eq(NULL, m->e[i].k, key)) {
			return &m->e[i].v;
		}
	}
	return NULL;
}

const struct jv *jdict_get(const struct jdict *m, struct jv key)
{
	return get_hashed(m, key, key_hash(key));
}

static bool index_dict(struct ji *in, struct jdict *m)
{
	uint32_t n_ix = m->n_ix ? m->n_ix : 32;

	if (m->ix && m->n * 2 <= m->n_ix) {
		uint32_t i = m->e[m->n - 1].hash & (m->n_ix - 1);

		while (m->ix[i]) {
			i = (i + 1) & (m->n_ix - 1);
		}
		m->ix[i] = m->n;
		return true;
	}
	while (n_ix < m->n * 4) {
		n_ix *= 2;
	}
	m->ix = ji_alloc(in, n_ix * sizeof(*m->ix));
	if (!m->ix) {
		return false;
	}
	memset(m->ix, 0, n_ix * sizeof(*m->ix));
	m->n_ix = n_ix;
	for (uint32_t k = 0; k < m->n; k++) {
		uint32_t i = m->e[k].hash & (n_ix - 1);

		while (m->ix[i]) {
			i = (i + 1) & (n_ix - 1);
		}
		m->ix[i] = k + 1;
	}
	return true;
}

bool ji_hashable(struct ji *in, struct jv key)
{
	for (uint32_t i = 0; key.t == JT_TUPLE && i < key.u.l->n && !in->rc; i++) {
		if (key.u.l->v[i].t == JT_TUPLE && !ji_step(in, key.u.l->n)) {
			break;
		}
		ji_hashable(in, key.u.l->v[i]);
	}
	if (key.t == JT_LIST || key.t == JT_DICT || key.t == JT_VIEW) {
		ji_fail(in, SKY_E_DATA, "unhashable type: '%s'", ji_type_name(key));
	}
	return !in->rc;
}

bool ji_dict_set(struct ji *in, struct jdict *m, struct jv key, struct jv v)
{
	uint32_t hash = key_hash(key);
	struct jv *old = (struct jv *)get_hashed(m, key, hash);

	if (in->rc || (key.t != JT_STR && !ji_hashable(in, key))) {
		return false;
	}
	if (old) {
		*old = v;       /* the place of the first, the value of the last, as Python */
		return true;
	}
	if (m->n == m->cap) {
		uint32_t cap = m->cap ? m->cap * 2 : 4;
		struct jent *e = ji_alloc(in, (size_t)cap * sizeof(*e));

		if (!e) {
			return false;
		}
		if (m->n) {
			memcpy(e, m->e, m->n * sizeof(*e));
		}
		m->e = e;
		m->cap = cap;
	}
	m->e[m->n++] = (struct jent){ key, v, hash };
	return m->n < 16 ? true : index_dict(in, m);
}

/* ---- walking ---- */
static bool iter_dict(struct ji *in, struct jv d, char what, struct jiter *it)
{
	const struct jdict *m = d.u.m;
	struct jv *v = ji_alloc(in, (m->n + 1) * sizeof(*v));

	if (!v) {
		return false;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		if (what != 'i') {
			v[i] = what == 'k' ? m->e[i].k : m->e[i].v;
			continue;
		}
		v[i] = ji_list(in, JT_TUPLE, 2);
		if (in->rc) {
			return false;
		}
		v[i].org = d.org;
		v[i].u.l->v[0] = m->e[i].k;
		v[i].u.l->v[1] = m->e[i].v;
		v[i].u.l->n = 2;
	}
	it->v = v;
	it->n = m->n;
	return true;
}

bool ji_iter(struct ji *in, struct jv v, struct jiter *it)
{
	*it = (struct jiter){ .org = v.org };
	switch (v.t) {
	case JT_LIST:
	case JT_TUPLE:
		it->v = v.u.l->v;
		it->n = v.u.l->n;
		return true;
	case JT_GEN:
		it->v = v.u.l->v;
		it->n = v.u.l->n;
		v.u.l->n = 0;
		return true;
	case JT_VIEW:
		return iter_dict(in, v, (char)v.f, it);
	case JT_DICT:
		return iter_dict(in, v, 'k', it);
	case JT_RANGE:
		it->r = *v.u.r;
		it->n = v.u.r->n;
		return true;
	case JT_STR:
		/* one element a character */
		it->v = ji_alloc(in, ((size_t)v.u.s->n + 1) * sizeof(struct jv));
		for (uint32_t i = 0; it->v && !in->rc && i < v.u.s->n;) {
			uint32_t from = i;

			ju_next(v.u.s->p, v.u.s->n, &i);
			((struct jv *)it->v)[it->n++] = ji_substr(in, v, from, i);
		}
		return !in->rc;
	case JT_UNDEF:
		return v.f == JU_UNSAFE ? ji_check(in, v) : true;
	case JT_LOOP:
		*it = v.u.loop->it;
		return true;
	default:
		ji_fail(in, SKY_E_DATA, "'%s' object is not iterable", ji_type_name(v));
		return false;
	}
}

struct jv ji_iter_at(struct ji *in, const struct jiter *it, int64_t i)
{
	(void)in;
	return it->v ? it->v[i] : jv_int(it->r.start + i * it->r.step);
}

struct jv ji_to_list(struct ji *in, struct jv v)
{
	struct jiter it;
	struct jv r;

	if (!ji_iter(in, v, &it)) {
		return jv_undef(NULL);
	}
	r = ji_list(in, JT_LIST, (uint32_t)it.n);
	for (int64_t i = 0; !in->rc && i < it.n; i++) {
		r.u.l->v[i] = ji_iter_at(in, &it, i);
		r.u.l->n++;
	}
	r.org = v.org;
	return r;
}
