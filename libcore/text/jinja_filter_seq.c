/* jinja: filters of sequences and mappings (part of text). Lazy ones of Jinja2 give a JT_GEN here: computed at once, but
 * walked only once, without length and always true, as a generator. */
#include "text/jinja_int.h"

/* obj.a.b by the rules of Jinja2's attribute getters: dotted, digits are indices. */
static struct jv dotted(struct ji *in, struct jv v, struct jv path)
{
	uint32_t from = 0;

	if (path.t == JT_INT) {
		return ji_getitem(in, v, path);
	}
	if (path.t != JT_STR) {
		ji_fail(in, SKY_E_DATA, "an attribute must be a string or an integer, not %s", ji_type_name(path));
		return jv_undef(NULL);
	}
	for (uint32_t i = 0; i <= path.u.s->n && !in->rc; i++) {
		struct jv key;
		int64_t at = 0;
		bool digits = true;

		if (i < path.u.s->n && path.u.s->p[i] != '.') {
			continue;
		}
		for (uint32_t k = from; k < i; k++) {
			digits = digits && path.u.s->p[k] >= '0' && path.u.s->p[k] <= '9' && i - from < 10;
			at = digits ? at * 10 + (path.u.s->p[k] - '0') : 0;
		}
		key = digits && i > from ? jv_int(at) : ji_substr(in, path, from, i);
		v = in->rc ? v : ji_getitem(in, v, key);
		from = i + 1;
	}
	return v;
}

static struct jv fold(struct ji *in, struct jv v, bool cased)
{
	return v.t == JT_STR && !cased ? ji_case(in, v, 'l') : v;
}

static bool option(struct ji *in, const struct jcallargs *a, uint32_t i, const char *name)
{
	const struct jv *v = ja_get(a, i, name);

	return v && jv_true(in, *v);
}

static struct jv f_list(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	return ji_to_list(in, v);
}

static struct jv f_first(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jiter it;

	(void)a;
	if (v.t == JT_STR && v.u.s->n > 0) {
		return ji_getitem(in, v, jv_int(0));
	}
	return ji_iter(in, v, &it) && it.n > 0 ? ji_iter_at(in, &it, 0) : jv_undef(NULL);
}

static struct jv f_last(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jiter it;

	(void)a;
	if (v.t == JT_GEN) {
		ji_fail(in, SKY_E_DATA, "'generator' object is not reversible");
		return v;
	}
	return ji_iter(in, v, &it) && it.n > 0 ? ji_iter_at(in, &it, it.n - 1) : jv_undef(NULL);
}

static struct jv f_items(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv r;

	(void)a;
	if (v.t == JT_UNDEF && v.f != JU_UNSAFE) {
		return ji_list(in, JT_GEN, 0);
	}
	if (v.t != JT_DICT) {
		ji_fail(in, SKY_E_DATA, "Can only get item pairs from a mapping.");
		return v;
	}
	r = ji_to_list(in, (struct jv){ .t = JT_VIEW, .f = 'i', .org = v.org, .u.m = v.u.m });
	r.t = in->rc ? r.t : JT_GEN;
	return r;
}

static struct jv f_dictsort(struct ji *in, struct jv v, const struct jcallargs *a)
{
	bool cased = option(in, a, 0, "case_sensitive"), by_value = false;
	const struct jv *by = ja_get(a, 1, "by");
	struct jv r, *keys;

	if (v.t != JT_DICT) {
		if (ji_check(in, v)) {
			ji_fail(in, SKY_E_DATA, "'%s' object has no attribute 'items'", ji_type_name(v));
		}
		return v;
	}
	if (by && by->t == JT_STR) {
		by_value = by->u.s->n == 5 && !memcmp(by->u.s->p, "value", 5);
		if (!by_value && !(by->u.s->n == 3 && !memcmp(by->u.s->p, "key", 3))) {
			ji_fail(in, SKY_E_DATA, "You can only sort by either \"key\" or \"value\"");
		}
	}
	r = ji_to_list(in, (struct jv){ .t = JT_VIEW, .f = 'i', .org = v.org, .u.m = v.u.m });
	keys = ji_alloc(in, (v.u.m->n + 1) * sizeof(*keys));
	for (uint32_t i = 0; !in->rc && i < v.u.m->n; i++) {
		keys[i] = fold(in, by_value ? v.u.m->e[i].v : v.u.m->e[i].k, cased);
	}
	if (!in->rc) {
		ji_sort(in, r.u.l->v, keys, r.u.l->n, option(in, a, 2, "reverse"));
	}
	return r;
}

static struct jv f_join(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *sep = ja_get(a, 0, "d"), *attr = ja_get(a, 1, "attribute");
	struct jiter it;
	struct jmark m;

	if (!ji_iter(in, v, &it)) {
		return jv_undef(NULL);
	}
	m = ji_begin(in);
	for (int64_t i = 0; i < it.n && ji_step(in, 1) && !in->rc; i++) {
		struct jv x = ji_iter_at(in, &it, i);

		if (i && sep) {
			ji_put_value(in, *sep);
		}
		x = attr ? dotted(in, x, *attr) : x;
		if (!in->rc) {
			ji_put_value(in, x);
		}
	}
	return ji_end(in, m);
}

static struct jv f_reverse(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv r;

	(void)a;
	if (v.t == JT_STR) {
		return ji_slice(in, v, jv_none(), jv_none(), jv_int(-1));
	}
	if (v.t == JT_GEN) {
		ji_fail(in, SKY_E_DATA, "argument must be iterable");
		return v;
	}
	r = ji_to_list(in, v);
	if (in->rc) {
		return r;
	}
	for (uint32_t i = 0, k = r.u.l->n; i + 1 < k; i++) {
		struct jv t = r.u.l->v[i];

		r.u.l->v[i] = r.u.l->v[--k];
		r.u.l->v[k] = t;
	}
	r.t = JT_GEN;
	return r;
}

/* ---- map, select ---- */
static struct jv f_map(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *attr = a->n == 0 ? ja_get(a, 0, "attribute") : NULL, *def = ja_get(a, UINT32_MAX, "default");
	struct jcallargs rest = *a;
	struct jiter it;
	struct jv r;
	int32_t id = -1;

	if (!attr) {
		if (a->n == 0 || a->pos[0].t != JT_STR) {
			ji_fail(in, SKY_E_DATA, "map requires a filter argument");
			return v;
		}
		id = jinja_filter_id(a->pos[0].u.s->p, a->pos[0].u.s->n);
		if (id < 0) {
			ji_fail(in, SKY_E_DATA, "No filter named '%.*s'.", (int)a->pos[0].u.s->n, a->pos[0].u.s->p);
			return v;
		}
		rest.pos++;
		rest.n--;
	}
	if (!jv_true(in, v)) {
		return ji_list(in, JT_GEN, 0);  /* none and 0 count as empty here, as in Jinja2 */
	}
	if (!ji_iter(in, v, &it)) {
		return jv_undef(NULL);
	}
	r = ji_list(in, JT_GEN, (uint32_t)it.n);
	for (int64_t i = 0; i < it.n && ji_step(in, 2) && !in->rc; i++) {
		struct jv x = ji_iter_at(in, &it, i);

		x = attr ? dotted(in, x, *attr) : ji_filter(in, id, x, &rest);
		ji_push(in, r.u.l, attr && def && x.t == JT_UNDEF ? *def : x);
	}
	return r;
}

/* select, reject, selectattr, rejectattr: keep elements whose test is want. */
static struct jv choose(struct ji *in, struct jv v, const struct jcallargs *a, bool attr, bool want)
{
	struct jcallargs rest = *a;
	const struct jv *path = attr && a->n ? a->pos : NULL;
	struct jiter it;
	struct jv r;
	int32_t id = -1;

	if (attr && !path) {
		ji_fail(in, SKY_E_DATA, "Missing parameter for attribute name");
		return v;
	}
	rest.pos += attr;
	rest.n -= attr;
	if (rest.n > 0) {
		id = rest.pos[0].t == JT_STR ? jinja_test_id(rest.pos[0].u.s->p, rest.pos[0].u.s->n) : -1;
		if (id < 0) {
			ji_fail(in, SKY_E_DATA, "No test named '%.*s'.", rest.pos[0].t == JT_STR ? (int)rest.pos[0].u.s->n : 1,
			        rest.pos[0].t == JT_STR ? rest.pos[0].u.s->p : "?");
			return v;
		}
		rest.pos++;
		rest.n--;
	}
	if (!jv_true(in, v)) {
		return ji_list(in, JT_GEN, 0);
	}
	if (!ji_iter(in, v, &it)) {
		return jv_undef(NULL);
	}
	r = ji_list(in, JT_GEN, 0);
	for (int64_t i = 0; i < it.n && ji_step(in, 2) && !in->rc; i++) {
		struct jv x = ji_iter_at(in, &it, i), y = path ? dotted(in, x, *path) : x;

		if (!in->rc && (id < 0 ? jv_true(in, y) : ji_test(in, id, y, &rest)) == want) {
			ji_push(in, r.u.l, x);
		}
	}
	return r;
}

static struct jv f_select(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return choose(in, v, a, false, true);
}

static struct jv f_reject(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return choose(in, v, a, false, false);
}

static struct jv f_selectattr(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return choose(in, v, a, true, true);
}

static struct jv f_rejectattr(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return choose(in, v, a, true, false);
}

/* ---- order ---- */
/* Keys to compare elements by: case folded, by attribute. list: each is a list, of several attributes with commas, as
 * Jinja2's sort has it (equal elements need no order then). */
static struct jv *sort_keys(struct ji *in, const struct jlist *l, bool cased, const struct jv *attr, bool list)
{
	struct jv *keys = ji_alloc(in, (l->n + 1) * sizeof(*keys));

	for (uint32_t i = 0; !in->rc && i < l->n; i++) {
		uint32_t from = 0;

		if (!attr || attr->t != JT_STR || !list) {
			keys[i] = attr && attr->t != JT_NONE ? dotted(in, l->v[i], *attr) : l->v[i];
			keys[i] = in->rc ? keys[i] : fold(in, keys[i], cased);
			if (list && !in->rc) {
				struct jv one = ji_list(in, JT_LIST, 1);

				ji_push(in, in->rc ? NULL : one.u.l, keys[i]);
				keys[i] = one;
			}
			continue;
		}
		keys[i] = ji_list(in, JT_LIST, 2);
		for (uint32_t k = 0; !in->rc && k <= attr->u.s->n; k++) {
			if (k == attr->u.s->n || attr->u.s->p[k] == ',') {
				struct jv one = dotted(in, l->v[i], ji_substr(in, *attr, from, k));

				ji_push(in, keys[i].u.l, in->rc ? one : fold(in, one, cased));
				from = k + 1;
			}
		}
	}
	return in->rc ? NULL : keys;
}

static struct jv f_sort(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv r = ji_to_list(in, v), *keys;

	if (in->rc) {
		return r;
	}
	keys = sort_keys(in, r.u.l, option(in, a, 1, "case_sensitive"), ja_get(a, 2, "attribute"), true);
	if (keys) {
		ji_sort(in, r.u.l->v, keys, r.u.l->n, option(in, a, 0, "reverse"));
	}
	return r;
}

static struct jv f_unique(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv all = ji_to_list(in, v), r = ji_list(in, JT_GEN, 0), seen = ji_dict(in, JT_DICT, 8), *keys;

	if (in->rc) {
		return r;
	}
	keys = sort_keys(in, all.u.l, option(in, a, 0, "case_sensitive"), ja_get(a, 1, "attribute"), false);
	for (uint32_t i = 0; keys && !in->rc && i < all.u.l->n; i++) {
		if (ji_hashable(in, keys[i]) && !jdict_get(seen.u.m, keys[i])) {
			ji_dict_set(in, seen.u.m, keys[i], jv_none());
			ji_push(in, r.u.l, all.u.l->v[i]);
		}
	}
	return r;
}

static struct jv extreme(struct ji *in, struct jv v, const struct jcallargs *a, int want)
{
	struct jv all = ji_to_list(in, v), *keys;
	uint32_t best = 0;

	if (in->rc) {
		return all;
	}
	keys = sort_keys(in, all.u.l, option(in, a, 0, "case_sensitive"), ja_get(a, 1, "attribute"), false);
	if (!keys || all.u.l->n == 0) {
		return jv_undef(NULL);
	}
	for (uint32_t i = 1; i < all.u.l->n && !in->rc; i++) {
		if (ji_compare(in, keys[i], keys[best]) == want) {
			best = i;
		}
	}
	return all.u.l->v[best];
}

static struct jv f_min(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return extreme(in, v, a, -1);
}

static struct jv f_max(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return extreme(in, v, a, 1);
}

static struct jv f_sum(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *attr = ja_get(a, 0, "attribute"), *start = ja_get(a, 1, "start");
	struct jv r = start ? *start : jv_int(0);
	struct jiter it;

	if (!ji_iter(in, v, &it)) {
		return jv_undef(NULL);
	}
	for (int64_t i = 0; i < it.n && ji_step(in, 1) && !in->rc; i++) {
		struct jv x = ji_iter_at(in, &it, i);

		r = ji_binary(in, JO_ADD, r, attr && attr->t != JT_NONE ? dotted(in, x, *attr) : x);
	}
	return r;
}

static struct jv f_batch(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *count = ja_get(a, 0, "linecount"), *fill = ja_get(a, 1, "fill_with");
	struct jv r = ji_list(in, JT_GEN, 0), row = jv_none();
	struct jiter it;
	int64_t n;

	if (!count || !ji_index(*count, &n) || n < 1) {
		ji_fail(in, SKY_E_DATA, "batch needs a positive line count");
		return r;
	}
	if (!ji_iter(in, v, &it)) {
		return r;
	}
	for (int64_t i = 0; i < it.n && ji_step(in, 1) && !in->rc; i++) {
		if (i % n == 0) {
			row = ji_list(in, JT_LIST, 4);
			ji_push(in, r.u.l, row);
		}
		if (!in->rc) {
			ji_push(in, row.u.l, ji_iter_at(in, &it, i));
		}
	}
	while (!in->rc && fill && fill->t != JT_NONE && row.t == JT_LIST && row.u.l->n < n && ji_step(in, 1)) {
		ji_push(in, row.u.l, *fill);
	}
	return r;
}

const struct jfilter jinja_filters_seq[] = {
	{ "batch", f_batch }, { "dictsort", f_dictsort }, { "first", f_first }, { "items", f_items }, { "join", f_join },
	{ "last", f_last }, { "list", f_list }, { "map", f_map }, { "max", f_max }, { "min", f_min }, { "reject", f_reject },
	{ "rejectattr", f_rejectattr }, { "reverse", f_reverse }, { "select", f_select }, { "selectattr", f_selectattr },
	{ "sort", f_sort }, { "sum", f_sum }, { "unique", f_unique }, { NULL, NULL },
};
