/* jinja: methods of lists, dicts, loops and helpers; str.format and the % operator (part of text). */
#include <math.h>
#include "text/jinja_int.h"

enum lm { LM_COUNT, LM_INDEX, LM_COPY, LM_MUTATES };
static const char *const list_names[] = { "count", "index", "copy",
	"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort" };
enum dm { DM_GET, DM_ITEMS, DM_KEYS, DM_VALUES, DM_COPY, DM_FROMKEYS, DM_MUTATES };
static const char *const dict_names[] = { "get", "items", "keys", "values", "copy", "fromkeys",
	"clear", "pop", "popitem", "setdefault", "update" };

static int16_t find_name(const char *const *names, unsigned n_names, const char *p, size_t n)
{
	for (unsigned i = 0; i < n_names; i++) {
		if (strlen(names[i]) == n && !memcmp(names[i], p, n)) {
			return (int16_t)i;
		}
	}
	return -1;
}

int16_t jinja_list_method(const char *p, size_t n)
{
	return find_name(list_names, sizeof(list_names) / sizeof(list_names[0]), p, n);
}

int16_t jinja_dict_method(const char *p, size_t n)
{
	return find_name(dict_names, sizeof(dict_names) / sizeof(dict_names[0]), p, n);
}

bool jinja_list_mutates(int16_t m)
{
	return m >= LM_MUTATES;
}

bool jinja_tuple_has(int16_t m)
{
	return m == LM_COUNT || m == LM_INDEX;
}

bool jinja_dict_mutates(int16_t m)
{
	return m >= DM_MUTATES;
}

static struct jv list_method(struct ji *in, struct jv v, int16_t m, const struct jcallargs *a)
{
	int64_t n = 0;

	if (m == LM_COPY) {
		return ji_copy_list(in, v, (enum jtype)v.t);
	}
	if (!ja_check(in, a, list_names[m], 1, 3)) {
		return jv_undef(NULL);
	}
	for (uint32_t i = 0; i < v.u.l->n; i++) {
		if (jv_eq(in, v.u.l->v[i], a->pos[0])) {
			if (m == LM_INDEX) {
				return jv_int(i);
			}
			n++;
		}
	}
	if (m == LM_INDEX) {
		ji_fail(in, SKY_E_DATA, "the value is not in list");
	}
	return jv_int(n);
}

static struct jv dict_method(struct ji *in, struct jv v, int16_t m, const struct jcallargs *a)
{
	const struct jv *found;
	struct jv r;

	switch (m) {
	case DM_GET:
		if (!ja_check(in, a, "get", 1, 2)) {
			return jv_undef(NULL);
		}
		if (!ji_hashable(in, a->pos[0])) {
			return jv_undef(NULL);
		}
		found = jdict_get(v.u.m, a->pos[0]);
		return found ? *found : a->n > 1 ? a->pos[1] : jv_none();
	case DM_ITEMS:
	case DM_KEYS:
	case DM_VALUES:
		if (!ja_check(in, a, dict_names[m], 0, 0)) {
			return jv_undef(NULL);
		}
		return (struct jv){ .t = JT_VIEW, .f = m == DM_ITEMS ? 'i' : m == DM_KEYS ? 'k' : 'v', .org = v.org,
			.u.m = v.u.m };
	case DM_COPY:
		r = ji_dict(in, JT_DICT, v.u.m->n);
		r.org = v.org;
		for (uint32_t i = 0; !in->rc && i < v.u.m->n; i++) {
			ji_dict_set(in, r.u.m, v.u.m->e[i].k, v.u.m->e[i].v);
		}
		return r;
	default:
		ji_fail(in, SKY_E_DATA, "the dict method '%s' is not supported", dict_names[m]);
		return jv_undef(NULL);
	}
}

static struct jv loop_method(struct ji *in, struct jv v, const struct jname *name, const struct jcallargs *a)
{
	struct jloop *l = v.u.loop;
	struct jv args;
	bool same;

	if (!strcmp(name->s.p, "cycle")) {
		if (a->n == 0) {
			ji_fail(in, SKY_E_DATA, "no items for cycling given");
			return jv_undef(NULL);
		}
		return a->pos[l->i % a->n];
	}
	args = ji_list(in, JT_TUPLE, a->n);
	for (uint32_t i = 0; !in->rc && i < a->n; i++) {
		ji_push(in, args.u.l, a->pos[i]);
	}
	same = !in->rc && l->changed.t == JT_TUPLE && jv_eq(in, l->changed, args);
	l->changed = args;
	return jv_bool(!same);
}

struct jv ji_call_method(struct ji *in, struct jv self, const struct jname *name, const struct jcallargs *a)
{
	switch (self.t) {
	case JT_STR:
		return ji_str_method(in, self, name->meth_str, a);
	case JT_RANGE:
		self = ji_to_list(in, self);
		return in->rc ? self : list_method(in, self, name->meth_list, a);
	case JT_LIST:
	case JT_TUPLE:
		return list_method(in, self, name->meth_list, a);
	case JT_DICT:
		return dict_method(in, self, name->meth_dict, a);
	case JT_LOOP:
		return loop_method(in, self, name, a);
	default:
		ji_fail(in, SKY_E_DATA, "'%s' object has no method '%s'", ji_type_name(self), name->s.p);
		return jv_undef(NULL);
	}
}

/* ---- formatting ---- */
/* [[fill]align][sign][0][width][.precision][type] of one value. */
struct spec { char fill[4]; uint32_t n_fill; char align, sign, type; bool zero, comma; int64_t width, precision; };

static bool parse_spec(struct ji *in, const char *p, uint32_t n, struct spec *s)
{
	uint32_t i = 0, next = 0;

	*s = (struct spec){ .fill = " ", .n_fill = 1, .precision = -1 };
	if (n > 1) {
		ju_next(p, n, &next);
		if (next < n && memchr("<>^=", p[next], 4)) {
			memcpy(s->fill, p, next);
			s->n_fill = next;
			s->align = p[next];
			i = next + 1;
		}
	}
	if (!s->align && i < n && memchr("<>^=", p[i], 4)) {
		s->align = p[i++];
	}
	if (i < n && (p[i] == '+' || p[i] == '-' || p[i] == ' ')) {
		s->sign = p[i++];
	}
	if (i < n && p[i] == '0') {
		s->zero = true;
		i++;
	}
	for (; i < n && p[i] >= '0' && p[i] <= '9' && s->width < 100000; i++) {
		s->width = s->width * 10 + (p[i] - '0');
	}
	if (i < n && p[i] == ',') {
		s->comma = true;
		i++;
	}
	if (i < n && p[i] == '.') {
		s->precision = 0;
		for (i++; i < n && p[i] >= '0' && p[i] <= '9' && s->precision < 100; i++) {
			s->precision = s->precision * 10 + (p[i] - '0');
		}
	}
	if (i < n) {
		s->type = p[i++];
	}
	if (i < n || s->comma || (s->type && !memchr("sdifFeEgGxXoc%", s->type, 14))) {
		ji_fail(in, SKY_E_DATA, "the format specifier '%.*s' is not supported", (int)n, p);
		return false;
	}
	return true;
}

static void put_spec(struct ji *in, struct jv v, const struct spec *s)
{
	char text[512], fmt[48];
	struct jv body = v;
	bool number = v.t == JT_INT || v.t == JT_FLOAT || v.t == JT_BOOL;
	int64_t n, more, left, cut;
	char type = s->type == 'i' ? 'd' : s->type;
	double d = v.t == JT_FLOAT ? v.u.d : number ? (double)v.u.i : 0;

	if (type && type != 's' && !number) {
		ji_fail(in, SKY_E_DATA, "%%%c format: a real number is required, not %s", type, ji_type_name(v));
		return;
	}
	if (v.t == JT_FLOAT && type && memchr("dxXoc", type, 5) && !(fabs(d) < 9.2e18)) {
		ji_fail(in, SKY_E_DATA, "%%%c format: the number is beyond 64 bits", type);
		return;
	}
	if (number && type && memchr("feEgGF", type, 6)) {
		snprintf(fmt, sizeof(fmt), "%%%s.%lld%c", s->sign == '+' ? "+" : s->sign == ' ' ? " " : "",
		         (long long)(s->precision < 0 ? 6 : s->precision), type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		snprintf(text, sizeof(text), fmt, d);
#pragma GCC diagnostic pop
		body = ji_str(in, text, strlen(text), v.org);
	} else if (number && type && memchr("dxXo", type, 4)) {
		long long i = v.t != JT_FLOAT ? (long long)v.u.i : fabs(d) < 9.2e18 ? (long long)d : 0;
		unsigned long long u = i < 0 ? 0ull - (unsigned long long)i : (unsigned long long)i;

		fmt[0] = 0;
		snprintf(text, sizeof(text), type == 'd' ? "%s%llu" : type == 'x' ? "%s%llx" : type == 'X' ? "%s%llX" : "%s%llo",
		         i < 0 ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "", u);
		body = ji_str(in, text, strlen(text), v.org);
	} else {
		body = ji_to_str(in, v);
		if (!in->rc && s->precision >= 0) {
			cut = ju_off(body.u.s->p, body.u.s->n, s->precision);
			body = ji_substr(in, body, 0, (uint32_t)cut);
		}
	}
	if (in->rc) {
		return;
	}
	n = ju_len(body.u.s->p, body.u.s->n);
	more = s->width > n ? s->width - n : 0;
	left = s->align == '<' || (!s->align && !number) ? 0 : s->align == '^' ? more / 2 : more;
	if (s->zero && !s->align && number) {
		uint32_t sign = body.u.s->n && (body.u.s->p[0] == '-' || body.u.s->p[0] == '+');

		ji_put_sub(in, body, 0, sign);
		for (int64_t i = 0; i < more; i++) {
			ji_put(in, "0", 1, v.org);
		}
		ji_put_sub(in, body, sign, body.u.s->n);
		return;
	}
	for (int64_t i = 0; i < left; i++) {
		ji_put(in, s->fill, s->n_fill, 0);
	}
	ji_put_str(in, body);
	for (int64_t i = left; i < more; i++) {
		ji_put(in, s->fill, s->n_fill, 0);
	}
}

struct jv ji_percent(struct ji *in, struct jv fmt, struct jv args)
{
	const struct jstr *f = fmt.u.s;
	struct jmark m = ji_begin(in);
	uint32_t i = 0, run = 0, used = 0;
	bool tuple = args.t == JT_TUPLE;

	while (i < f->n && !in->rc) {
		struct spec s;
		struct jv v = jv_none();
		uint32_t from;

		if (f->p[i] != '%') {
			i++;
			continue;
		}
		ji_put_sub(in, fmt, run, i);
		if (++i < f->n && f->p[i] == '%') {
			run = i++;
			continue;
		}
		if (i < f->n && f->p[i] == '(') {
			const char *e = memchr(f->p + i, ')', f->n - i);
			const struct jv *found;
			struct jstr key = { .p = f->p + i + 1, .n = e ? (uint32_t)(e - f->p) - i - 1 : 0 };

			found = e && args.t == JT_DICT ? jdict_find(args.u.m, &key, jhash(key.p, key.n)) : NULL;
			if (!found) {
				ji_fail(in, SKY_E_DATA, "format requires a mapping with the key '%.*s'", (int)key.n, key.p);
				break;
			}
			v = *found;
			i += key.n + 2;
		} else if (tuple ? used < args.u.l->n : used == 0) {
			v = tuple ? args.u.l->v[used] : args;
			used++;
		} else {
			ji_fail(in, SKY_E_DATA, "not enough arguments for format string");
			break;
		}
		for (from = i; i < f->n && memchr("+- 0123456789.", f->p[i], 14); i++) {
		}
		if (i >= f->n) {
			ji_fail(in, SKY_E_DATA, "incomplete format");
			break;
		}
		i++;
		run = i;
		if (f->p[i - 1] == 'r') {
			ji_put_repr(in, v, v.org);
			continue;
		}
		if (f->p[from] == '-') {
			from++;
			if (parse_spec(in, f->p + from, i - from, &s)) {
				s.align = '<';
				put_spec(in, v, &s);
			}
		} else if (parse_spec(in, f->p + from, i - from, &s)) {
			s.align = s.zero ? 0 : '>';
			put_spec(in, v, &s);
		}
	}
	ji_put_sub(in, fmt, run, f->n);
	if ((tuple && used < args.u.l->n) || (!tuple && args.t != JT_DICT && args.t != JT_LIST && args.t != JT_RANGE &&
	                                        args.t != JT_UNDEF && used == 0)) {
		ji_fail(in, SKY_E_DATA, "not all arguments converted during string formatting");
	}
	return ji_end(in, m);
}

/* The field "0", "name", "" with .attr and [key] behind it. */
static struct jv field(struct ji *in, const char *p, uint32_t n, const struct jcallargs *a, uint32_t *next)
{
	uint32_t i = 0;
	const struct jv *v = NULL;
	struct jv r;

	while (i < n && p[i] != '.' && p[i] != '[') {
		i++;
	}
	if ((i == 0 && *next == UINT32_MAX) || (i > 0 && p[0] >= '0' && p[0] <= '9' && *next + 1 > 1)) {
		ji_fail(in, SKY_E_DATA, "cannot switch between automatic and manual field numbering");
		return jv_undef(NULL);
	}
	if (i == 0) {
		v = *next < a->n ? &a->pos[*next] : NULL;
		(*next)++;
	} else if (p[0] >= '0' && p[0] <= '9') {
		*next = UINT32_MAX;     /* from here on only numbers */
		uint32_t at = 0;

		for (uint32_t k = 0; k < i && p[k] >= '0' && p[k] <= '9' && at < 10000; k++) {
			at = at * 10 + (uint32_t)(p[k] - '0');
		}
		v = at < a->n ? &a->pos[at] : NULL;
	} else {
		for (uint32_t k = 0; k < a->n_kw; k++) {
			if (a->kw_name[k]->s.n == i && !memcmp(a->kw_name[k]->s.p, p, i)) {
				v = &a->kw[k];
			}
		}
	}
	if (!v) {
		ji_fail(in, SKY_E_DATA, "Replacement index or name '%.*s' out of range for the arguments", (int)i, p);
		return jv_undef(NULL);
	}
	r = *v;
	while (i < n && !in->rc) {
		uint32_t from = i + 1;
		bool attr = p[i] == '.';
		struct jv key;

		for (i = from; i < n && (attr ? p[i] != '.' && p[i] != '[' : p[i] != ']'); i++) {
		}
		key = ji_str(in, p + from, i - from, 0);
		r = in->rc ? r : ji_getitem(in, r, key);
		i += !attr && i < n;
	}
	return r;
}

struct jv ji_format(struct ji *in, struct jv fmt, const struct jcallargs *a)
{
	const struct jstr *f = fmt.u.s;
	struct jmark m = ji_begin(in);
	uint32_t i = 0, run = 0, next = 0;

	while (i < f->n && !in->rc) {
		uint32_t from, end, colon;
		struct spec s;
		struct jv v;
		char conv = 0;

		if (f->p[i] != '{' && f->p[i] != '}') {
			i++;
			continue;
		}
		ji_put_sub(in, fmt, run, i);
		if (i + 1 < f->n && f->p[i + 1] == f->p[i]) {
			run = i + 1;
			i += 2;
			continue;
		}
		from = i + 1;
		for (end = from; end < f->n && f->p[end] != '}'; end++) {
		}
		if (f->p[i] == '}' || end >= f->n) {
			ji_fail(in, SKY_E_DATA, "a single brace in a format string");
			break;
		}
		for (colon = from; colon < end && f->p[colon] != ':'; colon++) {
		}
		if (colon >= from + 2 && f->p[colon - 2] == '!') {
			conv = f->p[colon - 1];
		}
		v = field(in, f->p + from, colon - from - (conv ? 2 : 0), a, &next);
		if (!in->rc && conv == 'r') {
			struct jmark k = ji_begin(in);

			ji_put_repr(in, v, v.org);
			v = ji_end(in, k);
		}
		if (!in->rc && parse_spec(in, f->p + colon + (colon < end), colon < end ? end - colon - 1 : 0, &s)) {
			put_spec(in, v, &s);
		}
		i = run = end + 1;
	}
	ji_put_sub(in, fmt, run, f->n);
	return ji_end(in, m);
}
