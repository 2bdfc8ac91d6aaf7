/* jinja: string methods (part of text), as Python's str has them, with provenance: what is cut out keeps its origin. */
#include <utf8proc.h>
#include "text/jinja_int.h"

enum sm {
	SM_CAPITALIZE, SM_CASEFOLD, SM_CENTER, SM_COUNT, SM_ENDSWITH, SM_FIND, SM_FORMAT, SM_INDEX, SM_ISALNUM, SM_ISALPHA,
	SM_ISASCII, SM_ISDECIMAL, SM_ISDIGIT, SM_ISLOWER, SM_ISNUMERIC, SM_ISSPACE, SM_ISUPPER, SM_JOIN, SM_LJUST, SM_LOWER,
	SM_LSTRIP, SM_PARTITION, SM_REMOVEPREFIX, SM_REMOVESUFFIX, SM_REPLACE, SM_RFIND, SM_RINDEX, SM_RJUST, SM_RPARTITION,
	SM_RSPLIT, SM_RSTRIP, SM_SPLIT, SM_SPLITLINES, SM_STARTSWITH, SM_STRIP, SM_SWAPCASE, SM_TITLE, SM_UPPER, SM_ZFILL,
};
static const char *const names[] = {
	"capitalize", "casefold", "center", "count", "endswith", "find", "format", "index", "isalnum", "isalpha",
	"isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper", "join", "ljust", "lower",
	"lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex", "rjust", "rpartition",
	"rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill",
};

int16_t jinja_str_method(const char *p, size_t n)
{
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strlen(names[i]) == n && !memcmp(names[i], p, n)) {
			return (int16_t)i;
		}
	}
	return -1;
}

/* ---- arguments ---- */
const struct jv *ja_get(const struct jcallargs *a, uint32_t i, const char *name)
{
	if (i < a->n) {
		return &a->pos[i];
	}
	for (uint32_t k = 0; name && k < a->n_kw; k++) {
		if (!strcmp(a->kw_name[k]->s.p, name)) {
			return &a->kw[k];
		}
	}
	return NULL;
}

bool ja_check(struct ji *in, const struct jcallargs *a, const char *what, uint32_t min, uint32_t max)
{
	if (a->n + a->n_kw < min || a->n > max) {
		ji_fail(in, SKY_E_DATA, "%s() takes %u to %u arguments, %u were given", what, min, max, a->n + a->n_kw);
		return false;
	}
	return !in->rc;
}

static const struct jstr *str_arg(struct ji *in, const struct jcallargs *a, uint32_t i, const char *name, const char *what)
{
	const struct jv *v = ja_get(a, i, name);

	if (!v || v->t != JT_STR) {
		if (!v || ji_check(in, *v)) {
			ji_fail(in, SKY_E_DATA, "%s() needs a string, not %s", what, v ? ji_type_name(*v) : "nothing");
		}
		return NULL;
	}
	return v->u.s;
}

static int64_t int_arg(struct ji *in, const struct jcallargs *a, uint32_t i, const char *name, int64_t def)
{
	const struct jv *v = ja_get(a, i, name);
	int64_t n = def;

	if (v && v->t != JT_NONE && !ji_index(*v, &n)) {
		ji_fail(in, SKY_E_DATA, "'%s' object cannot be interpreted as an integer", ji_type_name(*v));
	}
	return n;
}

/* ---- search ---- */
int64_t jstr_find(const struct jstr *s, const struct jstr *what, uint32_t from)
{
	const char *p;

	if (from > s->n) {
		return -1;
	}
	if (what->n == 0) {
		return from;
	}
	if (what->n == 1) {
		p = memchr(s->p + from, what->p[0], s->n - from);
	} else {
		p = memmem(s->p + from, s->n - from, what->p, what->n);
	}
	return p ? p - s->p : -1;
}

static int64_t rfind(const struct jstr *s, const struct jstr *what, uint32_t end)
{
	for (int64_t i = (int64_t)end - what->n; i >= 0; i--) {
		if (!memcmp(s->p + i, what->p, what->n)) {
			return i;
		}
	}
	return -1;
}

/* ---- strip ---- */
static bool in_set(const struct jstr *set, uint32_t cp)
{
	for (uint32_t i = 0; i < set->n;) {
		if (ju_next(set->p, set->n, &i) == cp) {
			return true;
		}
	}
	return false;
}

struct jv ji_strip(struct ji *in, struct jv v, const struct jv *chars, int sides)
{
	const struct jstr *s = v.u.s, *set = NULL;
	uint32_t from = 0, to = s->n;

	if (chars && chars->t != JT_NONE) {
		if (chars->t != JT_STR) {
			ji_fail(in, SKY_E_DATA, "strip arg must be None or str");
			return jv_undef(NULL);
		}
		set = chars->u.s;
	}
	while ((sides & 1) && from < to) {
		uint32_t next = from, cp = ju_next(s->p, s->n, &next);

		if (set ? !in_set(set, cp) : !ju_space(cp)) {
			break;
		}
		from = next;
	}
	while ((sides & 2) && to > from) {
		uint32_t i = to - 1, next, cp;

		while (i > from && ((uint8_t)s->p[i] & 0xc0) == 0x80) {
			i--;
		}
		next = i;
		cp = ju_next(s->p, s->n, &next);
		if (set ? !in_set(set, cp) : !ju_space(cp)) {
			break;
		}
		to = i;
	}
	return ji_substr(in, v, from, to);
}

/* ---- split ---- */
static struct jv split_space(struct ji *in, struct jv v, int64_t max)
{
	const struct jstr *s = v.u.s;
	struct jv r = ji_list(in, JT_LIST, 4);
	uint32_t i = 0, from, next;

	while (!in->rc) {
		while (i < s->n && (next = i, ju_space(ju_next(s->p, s->n, &next)))) {
			i = next;
		}
		if (i >= s->n) {
			break;
		}
		from = i;
		if (max-- == 0) {
			struct jv rest = ji_substr(in, v, from, s->n);

			ji_push(in, r.u.l, in->rc ? rest : ji_strip(in, rest, NULL, 2));
			break;
		}
		while (i < s->n && (next = i, !ju_space(ju_next(s->p, s->n, &next)))) {
			i = next;
		}
		ji_push(in, r.u.l, ji_substr(in, v, from, i));
	}
	return r;
}

static void reverse(struct jlist *l)
{
	for (uint32_t i = 0, k = l->n; i + 1 < k; i++) {
		struct jv t = l->v[i];

		l->v[i] = l->v[--k];
		l->v[k] = t;
	}
}

static struct jv rsplit_space(struct ji *in, struct jv v, int64_t max)
{
	struct jv all, r = ji_list(in, JT_LIST, 4);
	uint32_t to;

	while (!in->rc && (v = ji_strip(in, v, NULL, 2), v.t == JT_STR) && v.u.s->n > 0) {
		if (max-- == 0) {
			ji_push(in, r.u.l, v);
			break;
		}
		all = split_space(in, v, -1);
		if (in->rc) {
			break;
		}
		to = v.u.s->n - all.u.l->v[all.u.l->n - 1].u.s->n;
		ji_push(in, r.u.l, ji_substr(in, v, to, v.u.s->n));
		v = ji_substr(in, v, 0, to);
	}
	if (!in->rc) {
		reverse(r.u.l);
	}
	return r;
}

static struct jv split(struct ji *in, struct jv v, const struct jcallargs *a, bool right)
{
	const struct jv *sep = ja_get(a, 0, "sep");
	int64_t max = int_arg(in, a, 1, "maxsplit", -1), at;
	const struct jstr *s = v.u.s, *w;
	uint32_t from = 0, to = s->n;
	struct jv r;

	in->steps += s->n >> 5;
	if (!sep || sep->t == JT_NONE) {
		return right && max >= 0 ? rsplit_space(in, v, max) : split_space(in, v, max);
	}
	w = str_arg(in, a, 0, "sep", "split");
	if (w && w->n == 0) {
		ji_fail(in, SKY_E_DATA, "empty separator");
	}
	r = ji_list(in, JT_LIST, 2);
	if (in->rc) {
		return r;
	}
	while (max-- != 0 && (at = right ? rfind(s, w, to) : jstr_find(s, w, from)) >= 0 && !in->rc) {
		ji_push(in, r.u.l, right ? ji_substr(in, v, (uint32_t)at + w->n, to) : ji_substr(in, v, from, (uint32_t)at));
		if (right) {
			to = (uint32_t)at;
		} else {
			from = (uint32_t)at + w->n;
		}
	}
	ji_push(in, r.u.l, ji_substr(in, v, from, to));
	if (right && !in->rc) {
		reverse(r.u.l);
	}
	return r;
}

static struct jv splitlines(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *keep = ja_get(a, 0, "keepends");
	const struct jstr *s = v.u.s;
	struct jv r = ji_list(in, JT_LIST, 4);
	uint32_t from = 0, i = 0;

	while (!in->rc && i < s->n) {
		uint32_t end = i, cp = ju_next(s->p, s->n, &i);

		if (cp != '\n' && cp != '\r' && cp != 0x0b && cp != 0x0c && !(cp >= 0x1c && cp <= 0x1e) && cp != 0x85 &&
		    cp != 0x2028 && cp != 0x2029) {
			continue;
		}
		if (cp == '\r' && i < s->n && s->p[i] == '\n') {
			i++;
		}
		ji_push(in, r.u.l, ji_substr(in, v, from, keep && jv_true(in, *keep) ? i : end));
		from = i;
	}
	if (from < s->n) {
		ji_push(in, r.u.l, ji_substr(in, v, from, s->n));
	}
	return r;
}

static struct jv partition(struct ji *in, struct jv v, const struct jcallargs *a, bool right)
{
	const struct jstr *w = str_arg(in, a, 0, NULL, "partition"), *s = v.u.s;
	struct jv r = ji_list(in, JT_TUPLE, 3);
	int64_t at;

	if (w && w->n == 0) {
		ji_fail(in, SKY_E_DATA, "empty separator");
	}
	if (in->rc) {
		return r;
	}
	at = right ? rfind(s, w, s->n) : jstr_find(s, w, 0);
	if (at < 0) {
		ji_push(in, r.u.l, right ? ji_substr(in, v, 0, 0) : v);
		ji_push(in, r.u.l, ji_substr(in, v, 0, 0));
		ji_push(in, r.u.l, right ? v : ji_substr(in, v, 0, 0));
		return r;
	}
	ji_push(in, r.u.l, ji_substr(in, v, 0, (uint32_t)at));
	ji_push(in, r.u.l, ji_substr(in, v, (uint32_t)at, (uint32_t)at + w->n));
	ji_push(in, r.u.l, ji_substr(in, v, (uint32_t)at + w->n, s->n));
	return r;
}

/* ---- replace, join ---- */
struct jv ji_replace(struct ji *in, struct jv v, struct jv from, struct jv to, int64_t max)
{
	const struct jstr *s = v.u.s;
	struct jmark m;
	uint32_t done = 0;
	int64_t at;

	if (from.t != JT_STR || to.t != JT_STR) {
		if (ji_check(in, from) && ji_check(in, to)) {
			ji_fail(in, SKY_E_DATA, "replace() argument must be str, not %s",
			        ji_type_name(from.t != JT_STR ? from : to));
		}
		return jv_undef(NULL);
	}
	in->steps += s->n >> 5;
	at = jstr_find(s, from.u.s, 0);
	if (at < 0 || max == 0) {
		return v;
	}
	m = ji_begin(in);
	if (from.u.s->n == 0) {
		/* between all characters */
		for (uint32_t i = 0; i <= s->n && !in->rc && max-- != 0 && ji_step(in, 1);) {
			ji_put_str(in, to);
			done = i;
			if (i == s->n) {
				break;
			}
			ju_next(s->p, s->n, &i);
			ji_put_sub(in, v, done, i);
			done = i;
		}
		ji_put_sub(in, v, done, s->n);
		return ji_end(in, m);
	}
	while (at >= 0 && max-- != 0 && !in->rc) {
		ji_put_sub(in, v, done, (uint32_t)at);
		ji_put_str(in, to);
		done = (uint32_t)at + from.u.s->n;
		at = jstr_find(s, from.u.s, done);
	}
	ji_put_sub(in, v, done, s->n);
	return ji_end(in, m);
}

struct jv ji_join(struct ji *in, struct jv sep, struct jv items)
{
	struct jiter it;
	struct jmark m;

	if (!ji_iter(in, items, &it)) {
		return jv_undef(NULL);
	}
	m = ji_begin(in);
	for (int64_t i = 0; i < it.n && ji_step(in, 1); i++) {
		struct jv v = ji_iter_at(in, &it, i);

		if (v.t != JT_STR) {
			ji_fail(in, SKY_E_DATA, "sequence item %lld: expected str instance, %s found", (long long)i, ji_type_name(v));
			break;
		}
		if (i) {
			ji_put_str(in, sep);
		}
		ji_put_str(in, v);
	}
	return ji_end(in, m);
}

/* ---- predicates ---- */
static bool letter(uint32_t cp)
{
	utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);

	return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

static bool is_class(struct jv v, int16_t m)
{
	const struct jstr *s = v.u.s;
	bool some = false;

	for (uint32_t i = 0; i < s->n;) {
		uint32_t cp = ju_next(s->p, s->n, &i);
		utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
		bool low = c == UTF8PROC_CATEGORY_LL, up = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LT, ok = true;

		switch (m) {
		case SM_ISALNUM:
			ok = letter(cp) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
			break;
		case SM_ISALPHA:
			ok = letter(cp);
			break;
		case SM_ISDECIMAL:
			ok = c == UTF8PROC_CATEGORY_ND;
			break;
		case SM_ISDIGIT:
			ok = c == UTF8PROC_CATEGORY_ND || cp == 0xb2 || cp == 0xb3 || cp == 0xb9 || (cp >= 0x2070 && cp <= 0x2089);
			break;
		case SM_ISNUMERIC:
			ok = c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
			break;
		case SM_ISSPACE:
			ok = ju_space(cp);
			break;
		case SM_ISLOWER:
			if (up) {
				return false;
			}
			some |= low;
			continue;
		case SM_ISUPPER:
			if (low) {
				return false;
			}
			some |= up;
			continue;
		default:
			break;
		}
		if (!ok) {
			return false;
		}
		some = true;
	}
	return some;
}

/* ---- the rest ---- */
/* Bytes of the optional start and end arguments (code points) at i and i + 1. */
static void range_args(struct ji *in, const struct jstr *s, const struct jcallargs *a, uint32_t i, uint32_t *from, uint32_t *to)
{
	int64_t n = a->n > i ? ju_len(s->p, s->n) : 0, x = int_arg(in, a, i, NULL, 0), y = int_arg(in, a, i + 1, NULL, n);

	*from = 0;
	*to = s->n;
	if (a->n > i) {
		x = x < 0 ? (x + n < 0 ? 0 : x + n) : x;
		y = y < 0 ? (y + n < 0 ? 0 : y + n) : y;
		*from = x > n ? s->n + 1 : ju_off(s->p, s->n, x);
		*to = y > n ? s->n : ju_off(s->p, s->n, y);
	}
}

static struct jv affix(struct ji *in, struct jv v, const struct jcallargs *a, bool end)
{
	const struct jv *what = ja_get(a, 0, NULL);
	uint32_t from, to, n = 1;
	const struct jv *list = what;

	range_args(in, v.u.s, a, 1, &from, &to);
	if (what && what->t == JT_TUPLE) {
		list = what->u.l->v;
		n = what->u.l->n;
	}
	for (uint32_t i = 0; what && i < n && !in->rc; i++) {
		const struct jstr *s = list[i].u.s;

		if (list[i].t != JT_STR) {
			break;
		}
		if (from <= to && s->n <= to - from && !memcmp(end ? v.u.s->p + to - s->n : v.u.s->p + from, s->p, s->n)) {
			return jv_bool(true);
		}
		if (i + 1 == n) {
			return jv_bool(false);
		}
	}
	if (what && what->t == JT_TUPLE && n == 0) {
		return jv_bool(false);
	}
	if (!what || ji_check(in, *what)) {
		ji_fail(in, SKY_E_DATA, "%s first arg must be str or a tuple of str, not %s", end ? "endswith" : "startswith",
		        what ? ji_type_name(*what) : "nothing");
	}
	return jv_undef(NULL);
}

static struct jv find(struct ji *in, struct jv v, const struct jcallargs *a, bool right, bool must)
{
	const struct jstr *w = str_arg(in, a, 0, NULL, "find"), *s = v.u.s;
	uint32_t from, to;
	int64_t at = -1;

	range_args(in, s, a, 1, &from, &to);
	if (!in->rc && from <= to) {
		struct jstr part = { .p = s->p, .n = to };

		at = right ? rfind(&part, w, to) : jstr_find(&part, w, from);
		at = at < (int64_t)from ? -1 : at;
		in->steps += s->n >> 5;
	}
	if (at < 0 && must) {
		ji_fail(in, SKY_E_DATA, "substring not found");
	}
	return jv_int(at < 0 ? -1 : ju_len(s->p, (uint32_t)at));
}

static struct jv count(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jstr *w = str_arg(in, a, 0, NULL, "count"), *s = v.u.s;
	int64_t n = 0, at = 0;

	if (in->rc) {
		return jv_undef(NULL);
	}
	if (w->n == 0) {
		return jv_int(ju_len(s->p, s->n) + 1);
	}
	while ((at = jstr_find(s, w, (uint32_t)at)) >= 0) {
		n++;
		at += w->n;
	}
	return jv_int(n);
}

static struct jv pad(struct ji *in, struct jv v, const struct jcallargs *a, int16_t m)
{
	int64_t width = int_arg(in, a, 0, NULL, 0), n = ju_len(v.u.s->p, v.u.s->n), more = width - n, left;
	const struct jv *fill = ja_get(a, 1, NULL);
	struct jv blank = fill && fill->t == JT_STR ? *fill : ji_str(in, m == SM_ZFILL ? "0" : " ", 1, 0);
	bool sign = m == SM_ZFILL && v.u.s->n > 0 && (v.u.s->p[0] == '-' || v.u.s->p[0] == '+');
	struct jmark k;

	if (more <= 0 || in->rc) {
		return v;
	}
	left = m == SM_RJUST || m == SM_ZFILL ? more : m == SM_CENTER ? more / 2 + (more & width & 1) : 0;
	k = ji_begin(in);
	if (sign) {
		ji_put_sub(in, v, 0, 1);
	}
	for (int64_t i = 0; i < left && ji_step(in, 1); i++) {
		ji_put_str(in, blank);
	}
	ji_put_sub(in, v, sign, v.u.s->n);
	for (int64_t i = left; i < more && ji_step(in, 1); i++) {
		ji_put_str(in, blank);
	}
	return ji_end(in, k);
}

static struct jv remove_affix(struct ji *in, struct jv v, const struct jcallargs *a, bool end)
{
	const struct jstr *w = str_arg(in, a, 0, NULL, end ? "removesuffix" : "removeprefix"), *s = v.u.s;

	if (in->rc || w->n > s->n || memcmp(end ? s->p + s->n - w->n : s->p, w->p, w->n) != 0) {
		return v;
	}
	return end ? ji_substr(in, v, 0, s->n - w->n) : ji_substr(in, v, w->n, s->n);
}

static struct jv replace_method(struct ji *in, struct jv v, const struct jcallargs *a)
{
	if (!ja_check(in, a, "replace", 2, 3)) {
		return jv_undef(NULL);
	}
	return ji_replace(in, v, *ja_get(a, 0, NULL), a->n > 1 ? a->pos[1] : jv_none(), int_arg(in, a, 2, "count", -1));
}

struct jv ji_str_method(struct ji *in, struct jv v, int16_t m, const struct jcallargs *a)
{
	switch ((enum sm)m) {
	case SM_CAPITALIZE:
		return ji_case(in, v, 'c');
	case SM_CASEFOLD:
		return ji_case(in, v, 'f');
	case SM_LOWER:
		return ji_case(in, v, 'l');
	case SM_UPPER:
		return ji_case(in, v, 'u');
	case SM_TITLE:
		return ji_case(in, v, 't');
	case SM_SWAPCASE:
		return ji_case(in, v, 's');
	case SM_CENTER:
	case SM_LJUST:
	case SM_RJUST:
	case SM_ZFILL:
		return ja_check(in, a, names[m], 1, 2) ? pad(in, v, a, m) : jv_undef(NULL);
	case SM_COUNT:
		return count(in, v, a);
	case SM_ENDSWITH:
	case SM_STARTSWITH:
		return affix(in, v, a, m == SM_ENDSWITH);
	case SM_FIND:
	case SM_RFIND:
		return find(in, v, a, m == SM_RFIND, false);
	case SM_INDEX:
	case SM_RINDEX:
		return find(in, v, a, m == SM_RINDEX, true);
	case SM_FORMAT:
		return ji_format(in, v, a);
	case SM_ISASCII:
		for (uint32_t i = 0; i < v.u.s->n; i++) {
			if ((uint8_t)v.u.s->p[i] >= 0x80) {
				return jv_bool(false);
			}
		}
		return jv_bool(true);
	case SM_ISALNUM:
	case SM_ISALPHA:
	case SM_ISDECIMAL:
	case SM_ISDIGIT:
	case SM_ISLOWER:
	case SM_ISNUMERIC:
	case SM_ISSPACE:
	case SM_ISUPPER:
		return jv_bool(is_class(v, m));
	case SM_JOIN:
		return ja_check(in, a, "join", 1, 1) ? ji_join(in, v, a->pos[0]) : jv_undef(NULL);
	case SM_STRIP:
		return ji_strip(in, v, ja_get(a, 0, NULL), 3);
	case SM_LSTRIP:
		return ji_strip(in, v, ja_get(a, 0, NULL), 1);
	case SM_RSTRIP:
		return ji_strip(in, v, ja_get(a, 0, NULL), 2);
	case SM_PARTITION:
	case SM_RPARTITION:
		return partition(in, v, a, m == SM_RPARTITION);
	case SM_REMOVEPREFIX:
	case SM_REMOVESUFFIX:
		return remove_affix(in, v, a, m == SM_REMOVESUFFIX);
	case SM_REPLACE:
		return replace_method(in, v, a);
	case SM_SPLIT:
	case SM_RSPLIT:
		return split(in, v, a, m == SM_RSPLIT);
	case SM_SPLITLINES:
		return splitlines(in, v, a);
	}
	return jv_undef(NULL);
}
