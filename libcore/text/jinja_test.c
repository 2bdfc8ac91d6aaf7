/* jinja: tests, the words behind "is" (part of text). */
#include "text/jinja_int.h"

enum tid {
	TE_BOOLEAN, TE_CALLABLE, TE_DEFINED, TE_DIVISIBLEBY, TE_EQ, TE_ESCAPED, TE_EVEN, TE_FALSE, TE_FILTER, TE_FLOAT, TE_GE,
	TE_GT, TE_IN, TE_INTEGER, TE_ITERABLE, TE_LE, TE_LOWER, TE_LT, TE_MAPPING, TE_NE, TE_NONE, TE_NUMBER, TE_ODD,
	TE_SAMEAS, TE_SEQUENCE, TE_STRING, TE_TEST, TE_TRUE, TE_UNDEFINED, TE_UPPER,
};
static const struct { const char *name; enum tid id; } rows[] = {
	{ "boolean", TE_BOOLEAN }, { "callable", TE_CALLABLE }, { "defined", TE_DEFINED },
	{ "divisibleby", TE_DIVISIBLEBY }, { "eq", TE_EQ }, { "equalto", TE_EQ }, { "==", TE_EQ }, { "escaped", TE_ESCAPED },
	{ "even", TE_EVEN }, { "false", TE_FALSE }, { "filter", TE_FILTER }, { "float", TE_FLOAT }, { "ge", TE_GE },
	{ ">=", TE_GE }, { "greaterthan", TE_GT }, { "gt", TE_GT }, { ">", TE_GT }, { "in", TE_IN },
	{ "integer", TE_INTEGER }, { "iterable", TE_ITERABLE }, { "le", TE_LE }, { "<=", TE_LE }, { "lower", TE_LOWER },
	{ "lessthan", TE_LT }, { "lt", TE_LT }, { "<", TE_LT }, { "mapping", TE_MAPPING }, { "ne", TE_NE }, { "!=", TE_NE },
	{ "none", TE_NONE }, { "number", TE_NUMBER }, { "odd", TE_ODD }, { "sameas", TE_SAMEAS },
	{ "sequence", TE_SEQUENCE }, { "string", TE_STRING }, { "test", TE_TEST }, { "true", TE_TRUE },
	{ "undefined", TE_UNDEFINED }, { "upper", TE_UPPER },
};

int32_t jinja_test_id(const char *p, size_t n)
{
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (strlen(rows[i].name) == n && !memcmp(rows[i].name, p, n)) {
			return (int32_t)i;
		}
	}
	return -1;
}

static bool remainder_is(struct ji *in, struct jv v, struct jv by, int64_t want)
{
	struct jv r = ji_binary(in, JO_MOD, v, by);

	return !in->rc && jv_eq(in, r, jv_int(want));
}

static bool iterable(struct jv v)
{
	switch (v.t) {
	case JT_UNDEF:
		return v.f != JU_UNSAFE;
	case JT_STR:
	case JT_LIST:
	case JT_TUPLE:
	case JT_GEN:
	case JT_VIEW:
	case JT_DICT:
	case JT_RANGE:
	case JT_LOOP:
		return true;
	default:
		return false;
	}
}

static bool cased_as(struct ji *in, struct jv v, const char *method)
{
	struct jcallargs none = { 0 };

	v = ji_to_str(in, v);
	return !in->rc && ji_str_method(in, v, jinja_str_method(method, strlen(method)), &none).u.i;
}

static bool same(struct jv a, struct jv b)
{
	if (a.t != b.t) {
		return false;
	}
	switch (a.t) {
	case JT_NONE:
		return true;
	case JT_BOOL:
	case JT_INT:
		return a.u.i == b.u.i;
	case JT_FLOAT:
		return false;
	default:
		return a.u.m == b.u.m;
	}
}

/* Tests with one argument. */
static bool test_two(struct ji *in, enum tid id, struct jv v, struct jv x)
{
	switch (id) {
	case TE_DIVISIBLEBY:
		return remainder_is(in, v, x, 0);
	case TE_EQ:
		return jv_eq(in, v, x);
	case TE_NE:
		return !jv_eq(in, v, x);
	case TE_GE:
		return ji_compare(in, v, x) >= 0;
	case TE_GT:
		return ji_compare(in, v, x) > 0;
	case TE_LE:
		return ji_compare(in, v, x) <= 0;
	case TE_LT:
		return ji_compare(in, v, x) < 0;
	case TE_IN:
		return ji_contains(in, v, x);
	default:
		return same(v, x);
	}
}

bool ji_test(struct ji *in, int32_t row, struct jv v, const struct jcallargs *a)
{
	enum tid id = rows[row].id;

	switch (id) {
	case TE_BOOLEAN:
		return v.t == JT_BOOL;
	case TE_CALLABLE:
		return v.t == JT_MACRO || v.t == JT_METHOD || v.t == JT_GLOBAL || v.t == JT_UNDEF || v.t == JT_JOINER;
	case TE_DEFINED:
		return v.t != JT_UNDEF;
	case TE_UNDEFINED:
		return v.t == JT_UNDEF;
	case TE_ESCAPED:
		return v.t == JT_STR && v.f;
	case TE_EVEN:
		return remainder_is(in, v, jv_int(2), 0);
	case TE_ODD:
		return remainder_is(in, v, jv_int(2), 1);
	case TE_FALSE:
		return v.t == JT_BOOL && !v.u.i;
	case TE_TRUE:
		return v.t == JT_BOOL && v.u.i;
	case TE_FILTER:
	case TE_TEST:
		if (!ji_hashable(in, v)) {
			return false;
		}
		if (id == TE_TEST) {
			return v.t == JT_STR && jinja_test_id(v.u.s->p, v.u.s->n) >= 0;
		}
		return v.t == JT_STR && jinja_filter_id(v.u.s->p, v.u.s->n) >= 0;
	case TE_FLOAT:
		return v.t == JT_FLOAT;
	case TE_INTEGER:
		return v.t == JT_INT || v.t == JT_BIG;
	case TE_NUMBER:
		return v.t == JT_INT || v.t == JT_BIG || v.t == JT_FLOAT || v.t == JT_BOOL;
	case TE_ITERABLE:
		return iterable(v);
	case TE_LOWER:
		return cased_as(in, v, "islower");
	case TE_UPPER:
		return cased_as(in, v, "isupper");
	case TE_MAPPING:
		return v.t == JT_DICT;
	case TE_NONE:
		return v.t == JT_NONE;
	case TE_SEQUENCE:
		return v.t == JT_STR || v.t == JT_LIST || v.t == JT_TUPLE || v.t == JT_DICT || v.t == JT_RANGE ||
		       (v.t == JT_UNDEF && v.f != JU_UNSAFE);
	case TE_STRING:
		return v.t == JT_STR;
	default:
		break;
	}
	if (a->n + a->n_kw < 1) {
		ji_fail(in, SKY_E_DATA, "the test '%s' needs an argument", rows[row].name);
		return false;
	}
	return test_two(in, id, v, a->n ? a->pos[0] : a->kw[0]);
}
