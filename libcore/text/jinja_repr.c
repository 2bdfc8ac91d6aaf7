/* jinja: values as text (part of text): Python's str, repr and json.dumps. */
#include <math.h>
#include <utf8proc.h>
#include "text/jinja_int.h"

/* ---- floats ---- */
/* Digits of d with prec significant ones, one unit in the last place added when up is set; true when they read back. */
static bool digits_read_back(double d, int prec, bool up, char digits[24], int *exp10_p)
{
	char text[48], *e;
	int n = 0;

	snprintf(text, sizeof(text), "%.*e", prec - 1, d);
	for (const char *p = text; *p && *p != 'e'; p++) {
		if (*p != '.') {
			digits[n++] = *p;
		}
	}
	digits[n] = 0;
	e = strchr(text, 'e');
	*exp10_p = (int)strtol(e + 1, NULL, 10);
	if (up) {
		int i = n - 1;

		while (i >= 0 && digits[i] == '9') {
			digits[i--] = '0';
		}
		if (i < 0) {
			return false;
		}
		digits[i]++;
		snprintf(text, sizeof(text), "%c.%se%d", digits[0], digits + 1, *exp10_p);
	}
	return strtod(text, NULL) == d;
}

/* The shortest digits that read back as d, the nearest to d among those; repr's layout: a point always, an exponent
 * below 1e-4 and from 1e16 on. */
char *jinja_float(char out[40], double d)
{
	char digits[24];
	int exp10 = 0, n, k = 0;

	if (!isfinite(d)) {
		snprintf(out, 40, "%s", isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
		return out;
	}
	if (d == 0) {
		snprintf(out, 40, "%s", signbit(d) ? "-0.0" : "0.0");
		return out;
	}
	for (int prec = 1; prec <= 17; prec++) {
		if (digits_read_back(fabs(d), prec, false, digits, &exp10) ||
		    digits_read_back(fabs(d), prec, true, digits, &exp10)) {
			break;
		}
		digits_read_back(fabs(d), 17, false, digits, &exp10);
	}
	n = (int)strlen(digits);
	while (n > 1 && digits[n - 1] == '0') {
		n--;
	}
	if (d < 0) {
		out[k++] = '-';
	}
	if (exp10 < -4 || exp10 >= 16) {
		out[k++] = digits[0];
		if (n > 1) {
			out[k++] = '.';
			memcpy(out + k, digits + 1, (size_t)n - 1);
			k += n - 1;
		}
		snprintf(out + k, (size_t)(40 - k), "e%c%02d", exp10 < 0 ? '-' : '+', abs(exp10));
		return out;
	}
	if (exp10 < 0) {
		out[k++] = '0';
		out[k++] = '.';
		for (int i = -1; i > exp10; i--) {
			out[k++] = '0';
		}
		memcpy(out + k, digits, (size_t)n);
		k += n;
	} else {
		for (int i = 0; i <= exp10 || i < n; i++) {
			if (i == exp10 + 1) {
				out[k++] = '.';
			}
			out[k++] = i < n ? digits[i] : '0';
		}
		if (n <= exp10 + 1) {
			out[k++] = '.';
			out[k++] = '0';
		}
	}
	out[k] = 0;
	return out;
}

/* ---- str and repr ---- */
static bool printable(uint32_t cp)
{
	utf8proc_category_t c;

	if (cp < 0x80) {
		return cp >= 32 && cp < 127;
	}
	c = utf8proc_category((utf8proc_int32_t)cp);
	return c != UTF8PROC_CATEGORY_CN && c != UTF8PROC_CATEGORY_ZS && c != UTF8PROC_CATEGORY_ZL &&
	       c != UTF8PROC_CATEGORY_ZP && c != UTF8PROC_CATEGORY_CC && c != UTF8PROC_CATEGORY_CF &&
	       c != UTF8PROC_CATEGORY_CS && c != UTF8PROC_CATEGORY_CO;
}

static void repr_str(struct ji *in, struct jv v)
{
	const struct jstr *s = v.u.s;
	bool single = memchr(s->p, '\'', s->n) != NULL, both = single && memchr(s->p, '"', s->n) != NULL;
	char quote = single && !both ? '"' : '\'', esc[16];
	uint32_t i = 0, run = 0;

	ji_put(in, &quote, 1, jstr_org(v, 0));
	while (i < s->n) {
		uint32_t from = i, cp = ju_next(s->p, s->n, &i);

		if (cp != (uint8_t)quote && cp != '\\' && printable(cp)) {
			continue;
		}
		ji_put_sub(in, v, run, from);
		run = i;
		if (cp == (uint8_t)quote || cp == '\\') {
			snprintf(esc, sizeof(esc), "\\%c", (char)cp);
		} else if (cp == '\n' || cp == '\r' || cp == '\t') {
			snprintf(esc, sizeof(esc), "\\%c", cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
		} else {
			snprintf(esc, sizeof(esc), cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
		}
		ji_puts(in, esc, jstr_org(v, from));
	}
	ji_put_sub(in, v, run, s->n);
	ji_put(in, &quote, 1, jstr_org(v, s->n ? s->n - 1 : 0));
}

static void put_number(struct ji *in, struct jv v, uint32_t org)
{
	char text[40];

	if (v.t == JT_INT) {
		snprintf(text, sizeof(text), "%lld", (long long)v.u.i);
	} else {
		jinja_float(text, v.u.d);
	}
	ji_puts(in, text, v.org ? v.org : org);
}

static void repr_items(struct ji *in, struct jv v, const char *open, const char *close, uint32_t org)
{
	ji_puts(in, open, org);
	for (uint32_t i = 0; !in->rc && i < v.u.l->n; i++) {
		if (i) {
			ji_put(in, ", ", 2, org);
		}
		ji_put_repr(in, v.u.l->v[i], org);
	}
	if (v.t == JT_TUPLE && v.u.l->n == 1) {
		ji_put(in, ",", 1, org);
	}
	ji_puts(in, close, org);
}

static void repr_dict(struct ji *in, struct jv v, uint32_t org)
{
	ji_put(in, "{", 1, org);
	for (uint32_t i = 0; !in->rc && i < v.u.m->n; i++) {
		if (i) {
			ji_put(in, ", ", 2, org);
		}
		ji_put_repr(in, v.u.m->e[i].k, org);
		ji_put(in, ": ", 2, org);
		ji_put_repr(in, v.u.m->e[i].v, org);
	}
	ji_put(in, "}", 1, org);
}

void ji_put_repr(struct ji *in, struct jv v, uint32_t org)
{
	char text[96];
	struct jv list;

	if (in->depth > JINJA_MAX_DEPTH) {
		ji_fail(in, SKY_E_LIMIT, "a value is nested too deeply to be printed");
		return;
	}
	in->depth++;
	org = v.org ? v.org : org;
	switch (v.t) {
	case JT_UNDEF:
	case JT_MISSING:
		ji_puts(in, "Undefined", org);
		break;
	case JT_NONE:
		ji_puts(in, "None", org);
		break;
	case JT_BOOL:
		ji_puts(in, v.u.i ? "True" : "False", org);
		break;
	case JT_INT:
	case JT_FLOAT:
		put_number(in, v, org);
		break;
	case JT_BIG:
		ji_put(in, v.u.s->p, v.u.s->n, org);
		break;
	case JT_STR:
		if (v.f) {
			ji_puts(in, "Markup(", org);
		}
		repr_str(in, v);
		if (v.f) {
			ji_put(in, ")", 1, org);
		}
		break;
	case JT_LIST:
	case JT_TUPLE:
		repr_items(in, v, v.t == JT_LIST ? "[" : "(", v.t == JT_LIST ? "]" : ")", org);
		break;
	case JT_DICT:
		repr_dict(in, v, org);
		break;
	case JT_NS:
		ji_puts(in, "<Namespace ", org);
		repr_dict(in, v, org);
		ji_put(in, ">", 1, org);
		break;
	case JT_VIEW:
		list = ji_to_list(in, v);
		ji_puts(in, ji_type_name(v), org);
		if (!in->rc) {
			repr_items(in, list, "([", "])", org);
		}
		break;
	case JT_RANGE:
		snprintf(text, sizeof(text), v.u.r->step == 1 ? "range(%lld, %lld)" : "range(%lld, %lld, %lld)",
		         (long long)v.u.r->start, (long long)v.u.r->stop, (long long)v.u.r->step);
		ji_puts(in, text, org);
		break;
	case JT_MACRO:
		snprintf(text, sizeof(text), "<Macro '%.60s'>", v.u.macro->name ? v.u.macro->name->s.p : "anonymous");
		ji_puts(in, text, org);
		break;
	default:
		/* Python prints an address here, which no template can mean */
		ji_fail(in, SKY_E_DATA, "a value of type '%s' is printed", ji_type_name(v));
	}
	in->depth--;
}

void ji_put_value(struct ji *in, struct jv v)
{
	if (v.t == JT_STR) {
		ji_put_str(in, v);
	} else if (v.t == JT_UNDEF) {
		if (v.f == JU_UNSAFE) {
			ji_check(in, v);
		}
	} else {
		ji_put_repr(in, v, v.org);
	}
}

struct jv ji_to_str(struct ji *in, struct jv v)
{
	struct jmark m;

	if (v.t == JT_STR) {
		return v;
	}
	m = ji_begin(in);
	ji_put_value(in, v);
	return ji_end(in, m);
}

/* ---- json.dumps ---- */
struct dump {
	const char *item_sep, *key_sep;
	uint32_t n_item_sep, n_key_sep;
	const char *indent;     /* one level; NULL without indentation */
	uint32_t n_indent;
	bool sort_keys, ascii;
};

static void dump_str(struct ji *in, struct jv v, bool ascii)
{
	const struct jstr *s = v.u.s;
	uint32_t i = 0, run = 0;
	char esc[16];

	ji_put(in, "\"", 1, jstr_org(v, 0));
	while (i < s->n) {
		uint8_t c = (uint8_t)s->p[i];
		uint32_t from = i, cp = c;

		if (c >= 32 && c != '"' && c != '\\' && (!ascii || c < 0x7f)) {
			i++;
			continue;
		}
		ji_put_sub(in, v, run, from);
		if (c >= 0x80) {
			cp = ju_next(s->p, s->n, &i);
		} else {
			i++;
		}
		run = i;
		if (c == '"' || c == '\\') {
			snprintf(esc, sizeof(esc), "\\%c", (char)c);
		} else if (c < 0x20 && strchr("\b\f\n\r\t", c) && c) {
			snprintf(esc, sizeof(esc), "\\%c", c == '\b' ? 'b' : c == '\f' ? 'f' : c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
		} else if (cp < 0x10000) {
			snprintf(esc, sizeof(esc), "\\u%04x", cp);
		} else {
			snprintf(esc, sizeof(esc), "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10), 0xdc00 + (cp & 0x3ff));
		}
		ji_puts(in, esc, jstr_org(v, from));
	}
	ji_put_sub(in, v, run, s->n);
	ji_put(in, "\"", 1, jstr_org(v, s->n ? s->n - 1 : 0));
}

static void dump_value(struct ji *in, struct jv v, const struct dump *d, int level, uint32_t org);

static void dump_line(struct ji *in, const struct dump *d, int level, uint32_t org)
{
	if (d->indent) {
		ji_put(in, "\n", 1, org);
		for (int i = 0; i < level && !in->rc; i++) {
			ji_put(in, d->indent, d->n_indent, org);
		}
	}
}

static void dump_key(struct ji *in, struct jv k, const struct dump *d, uint32_t org)
{
	struct jmark m;

	switch (k.t) {
	case JT_STR:
		if (!k.org && !k.u.s->seg) {
			k.org = org;
		}
		dump_str(in, k, d->ascii);
		return;
	case JT_INT:
	case JT_FLOAT:
	case JT_BIG:
	case JT_BOOL:
	case JT_NONE:
		m = ji_begin(in);
		dump_value(in, k, d, 0, org);
		dump_str(in, ji_end(in, m), d->ascii);
		return;
	default:
		ji_fail(in, SKY_E_DATA, "keys must be str, int, float, bool or None, not %s", ji_type_name(k));
	}
}

static void dump_dict(struct ji *in, struct jv v, const struct dump *d, int level, uint32_t org)
{
	const struct jdict *m = v.u.m;
	struct jv *order = NULL, *keys = NULL;

	if (m->n == 0) {
		ji_put(in, "{}", 2, org);
		return;
	}
	if (d->sort_keys) {
		order = ji_alloc(in, m->n * sizeof(*order));
		keys = ji_alloc(in, m->n * sizeof(*keys));
		for (uint32_t i = 0; !in->rc && i < m->n; i++) {
			order[i] = jv_int(i);
			keys[i] = m->e[i].k;
		}
		if (in->rc || !ji_sort(in, order, keys, m->n, false)) {
			return;
		}
	}
	ji_put(in, "{", 1, org);
	for (uint32_t i = 0; !in->rc && i < m->n; i++) {
		const struct jent *e = &m->e[order ? order[i].u.i : i];

		if (i) {
			ji_put(in, d->item_sep, d->n_item_sep, org);
		}
		dump_line(in, d, level + 1, org);
		dump_key(in, e->k, d, org);
		ji_put(in, d->key_sep, d->n_key_sep, org);
		dump_value(in, e->v, d, level + 1, org);
	}
	dump_line(in, d, level, org);
	ji_put(in, "}", 1, org);
}

static void dump_list(struct ji *in, struct jv v, const struct dump *d, int level, uint32_t org)
{
	if (v.u.l->n == 0) {
		ji_put(in, "[]", 2, org);
		return;
	}
	ji_put(in, "[", 1, org);
	for (uint32_t i = 0; !in->rc && i < v.u.l->n; i++) {
		if (i) {
			ji_put(in, d->item_sep, d->n_item_sep, org);
		}
		dump_line(in, d, level + 1, org);
		dump_value(in, v.u.l->v[i], d, level + 1, org);
	}
	dump_line(in, d, level, org);
	ji_put(in, "]", 1, org);
}

static void dump_value(struct ji *in, struct jv v, const struct dump *d, int level, uint32_t org)
{
	if (in->depth > JINJA_MAX_DEPTH) {
		ji_fail(in, SKY_E_LIMIT, "a value is nested too deeply for tojson");
		return;
	}
	in->depth++;
	org = v.org ? v.org : org;
	switch (v.t) {
	case JT_NONE:
		ji_put(in, "null", 4, org);
		break;
	case JT_BOOL:
		ji_puts(in, v.u.i ? "true" : "false", org);
		break;
	case JT_FLOAT:
		if (!isfinite(v.u.d)) {
			ji_puts(in, isnan(v.u.d) ? "NaN" : v.u.d < 0 ? "-Infinity" : "Infinity", org);
			break;
		}
		put_number(in, v, org);
		break;
	case JT_INT:
		put_number(in, v, org);
		break;
	case JT_BIG:
		ji_put(in, v.u.s->p, v.u.s->n, org);
		break;
	case JT_STR:
		if (!v.org && !v.u.s->seg) {
			v.org = org;
		}
		dump_str(in, v, d->ascii);
		break;
	case JT_LIST:
	case JT_TUPLE:
		dump_list(in, v, d, level, org);
		break;
	case JT_DICT:
		dump_dict(in, v, d, level, org);
		break;
	default:
		ji_fail(in, SKY_E_DATA, "Object of type %s is not JSON serializable", ji_type_name(v));
	}
	in->depth--;
}

struct jv ji_tojson(struct ji *in, struct jv v, const struct jv *indent, const struct jv *separators, bool sort_keys,
                    bool ascii)
{
	struct dump d = { .item_sep = ", ", .key_sep = ": ", .n_item_sep = 2, .n_key_sep = 2, .sort_keys = sort_keys,
		.ascii = ascii };
	static const char blanks[] = "                                                                ";
	int64_t n;
	struct jmark m;

	if (indent && indent->t == JT_STR) {
		d.indent = indent->u.s->p;
		d.n_indent = indent->u.s->n;
	} else if (indent && ji_index(*indent, &n)) {
		d.indent = blanks;
		d.n_indent = n < 0 ? 0 : n > 64 ? 64 : (uint32_t)n;
	}
	if (d.indent) {
		d.n_item_sep = 1;
	}
	if (separators && separators->t != JT_NONE) {
		const struct jlist *l = separators->t == JT_TUPLE || separators->t == JT_LIST ? separators->u.l : NULL;

		if (!l || l->n != 2 || l->v[0].t != JT_STR || l->v[1].t != JT_STR) {
			ji_fail(in, SKY_E_DATA, "tojson: separators must be a pair of strings");
			return jv_undef(NULL);
		}
		d.item_sep = l->v[0].u.s->p;
		d.n_item_sep = l->v[0].u.s->n;
		d.key_sep = l->v[1].u.s->p;
		d.n_key_sep = l->v[1].u.s->n;
	}
	m = ji_begin(in);
	dump_value(in, v, &d, 0, v.org);
	return ji_end(in, m);
}
