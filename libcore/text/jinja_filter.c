/* jinja: filters of one value (part of text). Those of sequences are in jinja_filter_seq.c. */
#include <math.h>
#include <utf8proc.h>
#include "text/jinja_int.h"

static const struct jv *arg(const struct jcallargs *a, uint32_t i, const char *name)
{
	return ja_get(a, i, name);
}

static bool flag(struct ji *in, const struct jcallargs *a, uint32_t i, const char *name)
{
	const struct jv *v = ja_get(a, i, name);

	return v && jv_true(in, *v);
}

static int64_t number(struct ji *in, const struct jcallargs *a, uint32_t i, const char *name, int64_t def)
{
	const struct jv *v = ja_get(a, i, name);
	int64_t n = def;

	if (v && v->t != JT_NONE && !ji_index(*v, &n) && ji_check(in, *v)) {
		ji_fail(in, SKY_E_DATA, "'%s' must be an integer, not %s", name, ji_type_name(*v));
	}
	return n;
}

/* ---- text ---- */
static struct jv f_string(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	return ji_to_str(in, v);
}

static struct jv f_safe(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	v = ji_to_str(in, v);
	v.f = v.t == JT_STR;    /* Markup */
	return v;
}

static struct jv f_escape(struct ji *in, struct jv v, const struct jcallargs *a)
{
	static const char *const repl[] = { ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&#34;", ['\''] = "&#39;" };
	const bool force = a == NULL;
	struct jmark m;
	uint32_t run = 0;

	if (v.t == JT_STR && v.f && !force) {
		return v;
	}
	v = ji_to_str(in, v);
	if (in->rc) {
		return v;
	}
	m = ji_begin(in);
	for (uint32_t i = 0; i < v.u.s->n; i++) {
		uint8_t c = (uint8_t)v.u.s->p[i];

		if (c < sizeof(repl) / sizeof(repl[0]) && repl[c]) {
			ji_put_sub(in, v, run, i);
			ji_puts(in, repl[c], jstr_org(v, i));
			run = i + 1;
		}
	}
	ji_put_sub(in, v, run, v.u.s->n);
	v = ji_end(in, m);
	v.f = v.t == JT_STR;
	return v;
}

static struct jv f_forceescape(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	return f_escape(in, v, NULL);
}

struct jv ji_escape(struct ji *in, struct jv v)
{
	struct jcallargs none = { 0 };

	return f_escape(in, v, &none);
}

static struct jv f_lower(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	v = ji_to_str(in, v);
	return in->rc ? v : ji_case(in, v, 'l');
}

static struct jv f_upper(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	v = ji_to_str(in, v);
	return in->rc ? v : ji_case(in, v, 'u');
}

static struct jv f_capitalize(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	v = ji_to_str(in, v);
	return in->rc ? v : ji_case(in, v, 'c');
}

/* Jinja2's own rule: words begin behind white space and any of - ( { [ <. */
static struct jv f_title(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jmark m;
	uint32_t from = 0, i = 0;

	(void)a;
	v = ji_to_str(in, v);
	if (in->rc) {
		return v;
	}
	m = ji_begin(in);
	while (i < v.u.s->n && !in->rc) {
		uint32_t at = i, cp = ju_next(v.u.s->p, v.u.s->n, &i);

		if (!ju_space(cp) && !(cp < 0x80 && strchr("-({[<", (int)cp) && cp)) {
			continue;
		}
		if (at > from) {
			ji_put_str(in, ji_case(in, ji_substr(in, v, from, at), 'c'));
		}
		ji_put_sub(in, v, at, i);
		from = i;
	}
	if (from < v.u.s->n && !in->rc) {
		struct jv last = ji_case(in, ji_substr(in, v, from, v.u.s->n), 'c');

		if (!in->rc) {
			ji_put_str(in, last);
		}
	}
	return ji_end(in, m);
}

static struct jv f_trim(struct ji *in, struct jv v, const struct jcallargs *a)
{
	v = ji_to_str(in, v);
	return in->rc ? v : ji_strip(in, v, arg(a, 0, "chars"), 3);
}

static struct jv f_replace(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *old = arg(a, 0, "old"), *new = arg(a, 1, "new");

	if (!old || !new) {
		ji_fail(in, SKY_E_DATA, "replace needs the arguments old and new");
		return jv_undef(NULL);
	}
	v = ji_to_str(in, v);
	return in->rc ? v : ji_replace(in, v, ji_to_str(in, *old), ji_to_str(in, *new), number(in, a, 2, "count", -1));
}

static struct jv f_indent(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *width = arg(a, 0, "width");
	bool first = flag(in, a, 1, "first"), blank = flag(in, a, 2, "blank");
	struct jv pad;
	struct jmark m;
	uint32_t from = 0, n;
	const char *p;
	int64_t w = 4;

	if (v.t != JT_STR) {
		if (ji_check(in, v)) {
			ji_fail(in, SKY_E_DATA, "'%s' object has no attribute 'splitlines'", ji_type_name(v));
		}
		return v;
	}
	if (width && width->t == JT_STR) {
		pad = *width;
	} else {
		if (width) {
			w = number(in, a, 0, "width", 4);
		}
		pad = ji_binary(in, JO_MUL, ji_str(in, " ", 1, 0), jv_int(w));
	}
	if (in->rc) {
		return v;
	}
	p = v.u.s->p;
	n = v.u.s->n;
	m = ji_begin(in);
	if (first) {
		ji_put_str(in, pad);
	}
	for (uint32_t line = 0; from <= n && !in->rc; line++) {
		const char *e = memchr(p + from, '\n', n - from);
		uint32_t to = e ? (uint32_t)(e - p) : n;

		if (line > 0 && (to > from || blank)) {
			ji_put_str(in, pad);
		}
		ji_put_sub(in, v, from, to);
		if (!e) {
			break;
		}
		ji_put_sub(in, v, to, to + 1);
		from = to + 1;
	}
	return ji_end(in, m);
}

static struct jv f_truncate(struct ji *in, struct jv v, const struct jcallargs *a)
{
	int64_t length = number(in, a, 0, "length", 255), leeway = number(in, a, 3, "leeway", 5), n;
	const struct jv *end = arg(a, 2, "end");
	struct jv tail = end ? *end : ji_str(in, "...", 3, 0), head;
	struct jmark m;

	length = length > INT32_MAX ? INT32_MAX : length < -INT32_MAX ? -INT32_MAX : length;
	leeway = leeway > INT32_MAX ? INT32_MAX : leeway < -INT32_MAX ? -INT32_MAX : leeway;
	if (v.t != JT_STR && ji_len(in, v) <= length + leeway) {
		return v;
	}
	v = ji_to_str(in, v);
	if (in->rc || tail.t != JT_STR) {
		return v;
	}
	n = ju_len(v.u.s->p, v.u.s->n);
	if (n <= length + leeway) {
		return v;
	}
	n = length - ju_len(tail.u.s->p, tail.u.s->n);
	head = ji_substr(in, v, 0, ju_off(v.u.s->p, v.u.s->n, n < 0 ? 0 : n));
	if (!in->rc && !flag(in, a, 1, "killwords")) {
		uint32_t cut = head.u.s->n;

		while (cut > 0 && head.u.s->p[cut - 1] != ' ') {
			cut--;
		}
		head = cut > 0 ? ji_substr(in, head, 0, cut - 1) : head;
	}
	m = ji_begin(in);
	if (!in->rc) {
		ji_put_str(in, head);
		ji_put_str(in, tail);
	}
	return ji_end(in, m);
}

static struct jv f_center(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv width = jv_int(number(in, a, 0, "width", 80));
	struct jcallargs one = { .pos = &width, .n = 1 };

	v = ji_to_str(in, v);
	return in->rc ? v : ji_str_method(in, v, jinja_str_method("center", 6), &one);
}

static struct jv f_wordcount(struct ji *in, struct jv v, const struct jcallargs *a)
{
	int64_t n = 0;
	bool word = false;

	(void)a;
	v = ji_to_str(in, v);
	for (uint32_t i = 0; !in->rc && i < v.u.s->n;) {
		uint32_t cp = ju_next(v.u.s->p, v.u.s->n, &i);
		utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
		bool w = cp == '_' || (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO) || c == UTF8PROC_CATEGORY_ND ||
		         c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;

		n += w && !word;
		word = w;
	}
	return jv_int(n);
}

static struct jv f_format(struct ji *in, struct jv v, const struct jcallargs *a)
{
	struct jv args = a->n_kw ? ji_dict(in, JT_DICT, a->n_kw) : ji_list(in, JT_TUPLE, a->n);

	v = ji_to_str(in, v);
	for (uint32_t i = 0; !in->rc && !a->n_kw && i < a->n; i++) {
		ji_push(in, args.u.l, a->pos[i]);
	}
	for (uint32_t i = 0; !in->rc && i < a->n_kw; i++) {
		ji_dict_set(in, args.u.m, ji_str(in, a->kw_name[i]->s.p, a->kw_name[i]->s.n, 0), a->kw[i]);
	}
	return in->rc ? v : ji_percent(in, v, args);
}

static struct jv f_tojson(struct ji *in, struct jv v, const struct jcallargs *a)
{
	return ji_tojson(in, v, arg(a, 1, "indent"), arg(a, 2, "separators"), flag(in, a, 3, "sort_keys"),
	                 flag(in, a, 0, "ensure_ascii"));
}

/* ---- numbers ---- */
/* Python's float(text): white space around, one underscore between digits, inf and nan. */
static bool text_to_double(const struct jstr *s, double *d_p)
{
	char text[128], *e;
	uint32_t n = 0, from = 0, to = s->n;

	while (from < to && ju_space((uint8_t)s->p[from])) {
		from++;
	}
	while (to > from && ju_space((uint8_t)s->p[to - 1])) {
		to--;
	}
	for (uint32_t i = from; i < to; i++) {
		if (s->p[i] == '_' && i > from && i + 1 < to) {
			continue;
		}
		if (n + 1 >= sizeof(text) || !strchr("0123456789+-.eEinfatyINFATY", s->p[i])) {
			return false;
		}
		text[n++] = s->p[i];
	}
	text[n] = 0;
	*d_p = strtod(text, &e);
	return n > 0 && *e == 0;
}

static bool text_to_int(const struct jstr *s, int64_t base, int64_t *i_p)
{
	char text[80], *e;
	uint32_t n = 0, from = 0, to = s->n;

	while (from < to && ju_space((uint8_t)s->p[from])) {
		from++;
	}
	while (to > from && ju_space((uint8_t)s->p[to - 1])) {
		to--;
	}
	for (uint32_t i = from; i < to && n + 1 < sizeof(text); i++) {
		if (s->p[i] != '_') {
			text[n++] = s->p[i];
		}
	}
	text[n] = 0;
	if (n == 0 || to - from > 70 || base < 0 || base == 1 || base > 36 || ju_space((uint8_t)text[0])) {
		return false;
	}
	if (base == 10 && n > 20) {
		return false;
	}
	*i_p = strtoll(text, &e, (int)base);
	return *e == 0;
}

static struct jv f_int(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *def = arg(a, 0, "default");
	char text[400], *big;
	int64_t i;
	double d;

	if (v.t == JT_INT || v.t == JT_BOOL) {
		return jv_int(v.u.i);
	}
	if (v.t == JT_BIG) {
		return v;
	}
	if (v.t == JT_STR && text_to_int(v.u.s, number(in, a, 1, "base", 10), &i)) {
		return (struct jv){ .t = JT_INT, .org = v.org, .u.i = i };
	}
	d = v.t == JT_FLOAT ? v.u.d : NAN;
	if ((v.t == JT_FLOAT || (v.t == JT_STR && text_to_double(v.u.s, &d))) && fabs(d) < 9.2e18) {
		return jv_int((int64_t)d);
	}
	if (v.t == JT_FLOAT && isfinite(d)) {
		snprintf(text, sizeof(text), "%.0f", d);
		big = ji_alloc(in, strlen(text) + 1);
		if (big) {
			memcpy(big, text, strlen(text) + 1);
			v = ji_str(in, big, strlen(text), v.org);
			v.t = in->rc ? v.t : JT_BIG;
		}
		return v;
	}
	if (v.t == JT_UNDEF) {
		ji_check(in, v);
	}
	return def ? *def : jv_int(0);
}

static struct jv f_float(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *def = arg(a, 0, "default");
	double d;

	if (v.t == JT_UNDEF) {
		ji_check(in, v);
	}
	if (v.t == JT_FLOAT) {
		return v;
	}
	if (v.t == JT_INT || v.t == JT_BOOL) {
		return jv_float((double)v.u.i);
	}
	if (v.t == JT_STR && text_to_double(v.u.s, &d)) {
		return (struct jv){ .t = JT_FLOAT, .org = v.org, .u.d = d };
	}
	return def ? *def : jv_float(0);
}

static struct jv f_abs(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	if (v.t == JT_FLOAT) {
		return jv_float(fabs(v.u.d));
	}
	if ((v.t == JT_INT || v.t == JT_BOOL) && v.u.i != INT64_MIN) {
		return jv_int(v.u.i < 0 ? -v.u.i : v.u.i);
	}
	if (ji_check(in, v)) {
		ji_fail(in, SKY_E_DATA, "bad operand type for abs(): '%s'", ji_type_name(v));
	}
	return jv_undef(NULL);
}

static struct jv f_round(struct ji *in, struct jv v, const struct jcallargs *a)
{
	int64_t prec = number(in, a, 0, "precision", 0);
	const struct jv *method = arg(a, 1, "method");
	char text[400], how = method && method->t == JT_STR && method->u.s->n ? method->u.s->p[1] : 'o';
	double d = v.t == JT_FLOAT ? v.u.d : (double)v.u.i, scale;

	if (v.t != JT_FLOAT && v.t != JT_INT && v.t != JT_BOOL) {
		if (ji_check(in, v)) {
			ji_fail(in, SKY_E_DATA, "type %s doesn't define __round__ method", ji_type_name(v));
		}
		return jv_undef(NULL);
	}
	prec = prec < -300 ? -300 : prec > 300 ? 300 : prec;
	if (how == 'e' || how == 'l') {         /* ceil, floor */
		scale = pow(10, (double)prec);
		return jv_float((how == 'e' ? ceil(d * scale) : floor(d * scale)) / scale + 0.0);   /* never -0.0 */
	}
	if (v.t != JT_FLOAT && prec >= 0) {
		return jv_int(v.u.i);
	}
	if (prec < 0) {
		scale = pow(10, (double)-prec);
		d = nearbyint(d / scale) * scale;
		if (v.t != JT_FLOAT && fabs(d) < 9.2e18) {
			return jv_int((int64_t)d);
		}
		return jv_float(d);
	}
	snprintf(text, sizeof(text), "%.*f", prec > 60 ? 60 : (int)prec, d);
	return jv_float(isfinite(d) ? strtod(text, NULL) : d);
}

/* ---- others ---- */
static struct jv f_default(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *def = arg(a, 0, "default_value");

	if (v.t == JT_UNDEF || (flag(in, a, 1, "boolean") && !jv_true(in, v))) {
		return def ? *def : ji_str(in, "", 0, 0);
	}
	return v;
}

static struct jv f_length(struct ji *in, struct jv v, const struct jcallargs *a)
{
	(void)a;
	return jv_int(ji_len(in, v));
}

static struct jv f_attr(struct ji *in, struct jv v, const struct jcallargs *a)
{
	const struct jv *name = arg(a, 0, "name");
	const struct jname *n = name && name->t == JT_STR ? ji_name(in, name->u.s) : NULL;

	if (n && v.t != JT_DICT) {
		return ji_getattr(in, v, n);
	}
	return n && n->meth_dict >= 0 ? ji_getattr(in, v, n) : (struct jv){ .t = JT_UNDEF, .f = JU_ATTR, .x = v.t, .u.name = n };
}

static const struct jfilter filters_one[] = {
	{ "abs", f_abs }, { "attr", f_attr }, { "capitalize", f_capitalize }, { "center", f_center }, { "count", f_length },
	{ "d", f_default }, { "default", f_default }, { "e", f_escape }, { "escape", f_escape }, { "float", f_float },
	{ "forceescape", f_forceescape }, { "format", f_format }, { "indent", f_indent }, { "int", f_int },
	{ "length", f_length }, { "lower", f_lower }, { "replace", f_replace }, { "round", f_round }, { "safe", f_safe },
	{ "string", f_string }, { "title", f_title }, { "tojson", f_tojson }, { "trim", f_trim },
	{ "truncate", f_truncate }, { "upper", f_upper }, { "wordcount", f_wordcount },
};

#define N_ONE ((int32_t)(sizeof(filters_one) / sizeof(filters_one[0])))

int32_t jinja_filter_id(const char *p, size_t n)
{
	for (int32_t i = 0; i < N_ONE; i++) {
		if (strlen(filters_one[i].name) == n && !memcmp(filters_one[i].name, p, n)) {
			return i;
		}
	}
	for (int32_t i = 0; jinja_filters_seq[i].name; i++) {
		if (strlen(jinja_filters_seq[i].name) == n && !memcmp(jinja_filters_seq[i].name, p, n)) {
			return N_ONE + i;
		}
	}
	return -1;
}

struct jv ji_filter(struct ji *in, int32_t id, struct jv v, const struct jcallargs *a)
{
	return id < N_ONE ? filters_one[id].fn(in, v, a) : jinja_filters_seq[id - N_ONE].fn(in, v, a);
}
