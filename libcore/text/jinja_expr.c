/* jinja: expressions (part of text). Grammar and precedence of Jinja2 3.1, from weak to strong: if-else, or, and, not,
 * comparisons, + -, ~, * / // %, **, unary sign, then postfix: attribute, subscript, call, filter, test. */
#include "text/jinja_int.h"

static struct jn *unary(struct jparse *p, int with_filter);

static int enter(struct jparse *p)
{
	if (++p->depth > JINJA_MAX_NEST) {
		jp_fail(p, p->tok.line, "expressions or blocks are nested deeper than %d", JINJA_MAX_NEST);
		return 0;
	}
	return 1;
}

static struct jn *binary(struct jparse *p, enum jnt t, enum jop op, struct jn *a, struct jn *b)
{
	struct jn *n = a && b ? jp_node(p, t) : NULL;

	if (n) {
		n->op = (uint8_t)op;
		n->a = a;
		n->b = b;
		n->line = a->line;
	}
	return n;
}

static struct jn *constant(struct jparse *p, struct jv v)
{
	struct jn *n = jp_node(p, JN_CONST);

	if (n) {
		n->v = v;
	}
	return n;
}

/* Adjacent literals are one string. */
static struct jn *string_literal(struct jparse *p)
{
	struct jstr *s = jtree_alloc(p->tree, sizeof(*s));
	struct jn *n = jp_node(p, JN_CONST);

	if (!s || !n) {
		p->rc = p->rc ? p->rc : sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
		return NULL;
	}
	s->p = "";
	while (p->tok.t == JK_STR) {
		char *both;

		if (s->n == 0) {
			s->p = p->tok.p;
			s->n = p->tok.n;
		} else {
			both = jtree_alloc(p->tree, (size_t)s->n + p->tok.n + 1);
			if (!both) {
				p->rc = sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
				return NULL;
			}
			memcpy(both, s->p, s->n);
			memcpy(both + s->n, p->tok.p, p->tok.n);
			s->p = both;
			s->n += p->tok.n;
		}
		if (jp_next(p) < 0) {
			return NULL;
		}
	}
	n->v = (struct jv){ .t = JT_STR, .u.s = s };
	return n;
}

static struct jn *list_literal(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_LIST);
	uint32_t cap = 0;

	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	while (!jp_is_op(p, "]")) {
		if (jp_push(p, &n->u.kids, &cap, jp_expr(p)) < 0) {
			return NULL;
		}
		if (jp_is_op(p, "]")) {
			break;
		}
		if (jp_expect_op(p, ",") < 0) {
			return NULL;
		}
	}
	return jp_next(p) < 0 ? NULL : n;
}

static struct jn *dict_literal(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_DICT);
	uint32_t cap = 0;

	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	while (!jp_is_op(p, "}")) {
		if (jp_push(p, &n->u.kids, &cap, jp_expr(p)) < 0 || jp_expect_op(p, ":") < 0 ||
		    jp_push(p, &n->u.kids, &cap, jp_expr(p)) < 0) {
			return NULL;
		}
		if (jp_is_op(p, "}")) {
			break;
		}
		if (jp_expect_op(p, ",") < 0) {
			return NULL;
		}
	}
	return jp_next(p) < 0 ? NULL : n;
}

static struct jn *name_node(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_NAME);

	if (!n) {
		return NULL;
	}
	n->name = jtree_name(p->tree, p->tok.p, p->tok.n);
	n->scope = p->scope;
	n->chain = p->names;
	p->names = n;
	return !n->name || jp_next(p) < 0 ? NULL : n;
}

static struct jn *primary(struct jparse *p)
{
	static const char *const words[] = { "true", "True", "false", "False", "none", "None" };
	struct jn *n = NULL;

	switch (p->tok.t) {
	case JK_NAME:
		for (int i = 0; i < 6; i++) {
			if (jp_is_name(p, words[i])) {
				n = constant(p, i < 4 ? jv_bool(i < 2) : jv_none());
				return !n || jp_next(p) < 0 ? NULL : n;
			}
		}
		return name_node(p);
	case JK_STR:
		return string_literal(p);
	case JK_INT:
	case JK_FLOAT:
		n = constant(p, p->tok.t == JK_INT ? jv_int(p->tok.i) : jv_float(p->tok.d));
		return !n || jp_next(p) < 0 ? NULL : n;
	case JK_OP:
		if (p->tok.op[0] == '[') {
			return list_literal(p);
		}
		if (p->tok.op[0] == '{') {
			return dict_literal(p);
		}
		if (p->tok.op[0] == '(') {
			if (jp_next(p) < 0) {
				return NULL;
			}
			if (jp_is_op(p, ")")) {
				n = jp_node(p, JN_TUPLE);
			} else {
				n = jp_tuple(p, 1);
			}
			return !n || jp_expect_op(p, ")") < 0 ? NULL : n;
		}
		jp_fail(p, p->tok.line, "unexpected '%s'", p->tok.op);
		return NULL;
	default:
		jp_fail(p, p->tok.line, "an expression was expected here");
		return NULL;
	}
}

static struct jn *subscript_part(struct jparse *p, struct jn *o)
{
	struct jn *n, *start = NULL;

	if (!jp_is_op(p, ":")) {
		start = jp_expr(p);
		if (!start) {
			return NULL;
		}
		if (!jp_is_op(p, ":")) {
			return binary(p, JN_ITEM, 0, o, start);
		}
	}
	n = jp_node(p, JN_SLICE);
	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	n->a = o;
	n->u.kids.v = jtree_alloc(p->tree, 3 * sizeof(struct jn *));
	if (!n->u.kids.v) {
		p->rc = sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
		return NULL;
	}
	n->u.kids.n = 3;
	n->u.kids.v[0] = start;
	if (!jp_is_op(p, ":") && !jp_is_op(p, "]") && !(n->u.kids.v[1] = jp_expr(p))) {
		return NULL;
	}
	if (jp_is_op(p, ":")) {
		if (jp_next(p) < 0 || (!jp_is_op(p, "]") && !(n->u.kids.v[2] = jp_expr(p)))) {
			return NULL;
		}
	}
	return n;
}

static struct jn *attribute(struct jparse *p, struct jn *o)
{
	struct jn *n, *key;

	if (jp_next(p) < 0) {
		return NULL;
	}
	if (p->tok.t == JK_INT) {
		key = constant(p, jv_int(p->tok.i));
		return !key || jp_next(p) < 0 ? NULL : binary(p, JN_ITEM, 0, o, key);
	}
	if (p->tok.t != JK_NAME) {
		jp_fail(p, p->tok.line, "a name or number was expected behind '.'");
		return NULL;
	}
	n = jp_node(p, JN_ATTR);
	if (!n) {
		return NULL;
	}
	n->a = o;
	n->name = jtree_name(p->tree, p->tok.p, p->tok.n);
	return !n->name || jp_next(p) < 0 ? NULL : n;
}

int jp_call_args(struct jparse *p, struct jargs *args)
{
	uint32_t cap = 0;

	if (jp_expect_op(p, "(") < 0) {
		return p->rc;
	}
	while (!jp_is_op(p, ")")) {
		struct jarg a = { 0 };

		if (jp_is_op(p, "*") || jp_is_op(p, "**")) {
			a.star = jp_is_op(p, "*") ? 1 : 2;
			if (jp_next(p) < 0) {
				return p->rc;
			}
		} else if (p->tok.t == JK_NAME) {
			if (jp_peek(p) < 0) {
				return p->rc;
			}
			if (p->ahead.t == JK_OP && !strcmp(p->ahead.op, "=")) {
				a.name = jtree_name(p->tree, p->tok.p, p->tok.n);
				if (!a.name || jp_next(p) < 0 || jp_next(p) < 0) {
					return p->rc;
				}
			}
		}
		a.e = jp_expr(p);
		if (!a.e) {
			return p->rc;
		}
		if (!a.name && !a.star) {
			if (args->n > args->n_pos) {
				return jp_fail(p, p->tok.line, "a positional argument follows a keyword argument");
			}
			args->n_pos++;
		}
		if (args->n == cap) {
			struct jarg *v = jtree_alloc(p->tree, (cap * 2 + 4) * sizeof(*v));

			if (!v) {
				return p->rc = sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
			}
			if (cap) {
				memcpy(v, args->v, cap * sizeof(*v));
			}
			args->v = v;
			cap = cap * 2 + 4;
		}
		args->v[args->n++] = a;
		if (!jp_is_op(p, ")") && jp_expect_op(p, ",") < 0) {
			return p->rc;
		}
	}
	return jp_next(p);
}

static struct jn *call(struct jparse *p, struct jn *o)
{
	struct jn *n = jp_node(p, JN_CALL);

	if (!n) {
		return NULL;
	}
	n->a = o;
	return jp_call_args(p, &n->u.args) < 0 ? NULL : n;
}

static struct jn *postfix(struct jparse *p, struct jn *n)
{
	while (n) {
		if (jp_is_op(p, ".")) {
			n = attribute(p, n);
		} else if (jp_is_op(p, "[")) {
			if (jp_next(p) < 0) {
				return NULL;
			}
			n = subscript_part(p, n);
			if (!n || jp_expect_op(p, "]") < 0) {
				return NULL;
			}
		} else if (jp_is_op(p, "(")) {
			n = call(p, n);
		} else {
			break;
		}
	}
	return n;
}

/* A dotted name at the token, interned. */
static const struct jname *dotted(struct jparse *p)
{
	char text[128];
	uint32_t n = 0;

	for (;;) {
		if (p->tok.t != JK_NAME || n + p->tok.n + 1 > sizeof(text)) {
			jp_fail(p, p->tok.line, "the name of a filter or test was expected");
			return NULL;
		}
		memcpy(text + n, p->tok.p, p->tok.n);
		n += p->tok.n;
		if (jp_next(p) < 0) {
			return NULL;
		}
		if (!jp_is_op(p, ".")) {
			return jtree_name(p->tree, text, n);
		}
		text[n++] = '.';
		if (jp_next(p) < 0) {
			return NULL;
		}
	}
}

static struct jn *filter(struct jparse *p, struct jn *o)
{
	struct jn *n = jp_node(p, JN_FILTER);

	if (!n || !(n->name = dotted(p))) {
		return NULL;
	}
	n->a = o;
	n->id = jinja_filter_id(n->name->s.p, n->name->s.n);
	if (n->id < 0 && !p->soft) {
		jp_fail(p, n->line, "No filter named '%.*s'.", (int)n->name->s.n, n->name->s.p);
		return NULL;
	}
	if (jp_is_op(p, "(") && jp_call_args(p, &n->u.args) < 0) {
		return NULL;
	}
	return n;
}

struct jn *jp_filter_chain(struct jparse *p, struct jn *n)
{
	while (jp_is_op(p, "|")) {
		if (jp_next(p) < 0 || !(n = filter(p, n))) {
			return NULL;
		}
	}
	return n;
}

/* Behind "is": [not] name [argument]. */
static struct jn *test(struct jparse *p, struct jn *o)
{
	struct jn *n, *arg;
	bool negated = jp_is_name(p, "not");

	if (negated && jp_next(p) < 0) {
		return NULL;
	}
	n = jp_node(p, JN_TEST);
	if (!n || !(n->name = dotted(p))) {
		return NULL;
	}
	n->a = o;
	n->op = negated;
	n->id = jinja_test_id(n->name->s.p, n->name->s.n);
	if (n->id < 0 && !p->soft) {
		jp_fail(p, n->line, "No test named '%.*s'.", (int)n->name->s.n, n->name->s.p);
		return NULL;
	}
	if (jp_is_op(p, "(")) {
		return jp_call_args(p, &n->u.args) < 0 ? NULL : n;
	}
	if ((p->tok.t == JK_NAME && !jp_is_name(p, "else") && !jp_is_name(p, "or") && !jp_is_name(p, "and")) ||
	    p->tok.t == JK_STR || p->tok.t == JK_INT || p->tok.t == JK_FLOAT || jp_is_op(p, "[") || jp_is_op(p, "{")) {
		if (jp_is_name(p, "is")) {
			jp_fail(p, p->tok.line, "You cannot chain multiple tests with is");
			return NULL;
		}
		if (jp_is_name(p, "if") || jp_is_name(p, "not") || jp_is_name(p, "in")) {
			return n;
		}
		arg = primary(p);
		arg = arg ? postfix(p, arg) : NULL;
		n->u.args.v = arg ? jtree_alloc(p->tree, sizeof(struct jarg)) : NULL;
		if (!n->u.args.v) {
			p->rc = p->rc ? p->rc : sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
			return NULL;
		}
		n->u.args.v[0].e = arg;
		n->u.args.n = n->u.args.n_pos = 1;
	}
	return n;
}

static struct jn *filters_and_tests(struct jparse *p, struct jn *n)
{
	while (n) {
		if (jp_is_op(p, "|")) {
			n = jp_filter_chain(p, n);
		} else if (jp_is_name(p, "is")) {
			n = jp_next(p) < 0 ? NULL : test(p, n);
		} else if (jp_is_op(p, "(")) {
			n = call(p, n);
		} else {
			break;
		}
	}
	return n;
}

static struct jn *unary(struct jparse *p, int with_filter)
{
	struct jn *n;

	if (!enter(p)) {
		return NULL;
	}
	if (jp_is_op(p, "-") || jp_is_op(p, "+")) {
		n = jp_node(p, jp_is_op(p, "-") ? JN_NEG : JN_POS);
		if (!n || jp_next(p) < 0 || !(n->a = unary(p, 0))) {
			return NULL;
		}
	} else {
		n = primary(p);
	}
	n = n ? postfix(p, n) : NULL;
	if (n && with_filter) {
		n = filters_and_tests(p, n);
	}
	p->depth--;
	return n;
}

static struct jn *power(struct jparse *p)
{
	struct jn *n = unary(p, 1);

	while (n && jp_is_op(p, "**")) {
		n = jp_next(p) < 0 ? NULL : binary(p, JN_BIN, JO_POW, n, unary(p, 1));
	}
	return n;
}

static struct jn *product(struct jparse *p)
{
	static const struct { const char *s; enum jop op; } ops[] = {
		{ "*", JO_MUL }, { "/", JO_DIV }, { "//", JO_FLOORDIV }, { "%", JO_MOD },
	};
	struct jn *n = power(p);
	unsigned i = 0;

	while (n) {
		for (i = 0; i < 4 && !jp_is_op(p, ops[i].s); i++) {
		}
		if (i == 4) {
			break;
		}
		n = jp_next(p) < 0 ? NULL : binary(p, JN_BIN, ops[i].op, n, power(p));
	}
	return n;
}

static struct jn *concat(struct jparse *p)
{
	struct jn *first = product(p), *n;
	uint32_t cap = 0;

	if (!first || !jp_is_op(p, "~")) {
		return first;
	}
	n = jp_node(p, JN_CONCAT);
	if (!n || jp_push(p, &n->u.kids, &cap, first) < 0) {
		return NULL;
	}
	while (jp_is_op(p, "~")) {
		if (jp_next(p) < 0 || jp_push(p, &n->u.kids, &cap, product(p)) < 0) {
			return NULL;
		}
	}
	return n;
}

static struct jn *sum(struct jparse *p)
{
	struct jn *n = concat(p);

	while (n && (jp_is_op(p, "+") || jp_is_op(p, "-"))) {
		enum jop op = jp_is_op(p, "+") ? JO_ADD : JO_SUB;

		n = jp_next(p) < 0 ? NULL : binary(p, JN_BIN, op, n, concat(p));
	}
	return n;
}

/* The comparison operator at the token, consumed; −1 when there is none, −2 on failure. */
static int comparison_op(struct jparse *p)
{
	static const struct { const char *s; enum jop op; } ops[] = {
		{ "==", JO_EQ }, { "!=", JO_NE }, { "<", JO_LT }, { "<=", JO_LE }, { ">", JO_GT }, { ">=", JO_GE },
	};

	for (unsigned i = 0; i < 6; i++) {
		if (jp_is_op(p, ops[i].s)) {
			return jp_next(p) < 0 ? -2 : (int)ops[i].op;
		}
	}
	if (jp_is_name(p, "in")) {
		return jp_next(p) < 0 ? -2 : JO_IN;
	}
	if (jp_is_name(p, "not")) {
		if (jp_peek(p) < 0) {
			return -2;
		}
		if (p->ahead.t == JK_NAME && p->ahead.n == 2 && !memcmp(p->ahead.p, "in", 2)) {
			return jp_next(p) < 0 || jp_next(p) < 0 ? -2 : JO_NOTIN;
		}
	}
	return -1;
}

static struct jn *comparison(struct jparse *p)
{
	struct jn *first = sum(p), *n = NULL, *next;
	uint8_t ops[64];
	uint32_t cap = 0, n_ops = 0;
	int op;

	while (first && (op = comparison_op(p)) != -1) {
		if (op == -2 || n_ops == sizeof(ops)) {
			return p->rc ? NULL : (jp_fail(p, p->tok.line, "a comparison has too many parts"), NULL);
		}
		if (!n && (!(n = jp_node(p, JN_CMP)) || jp_push(p, &n->u.kids, &cap, first) < 0)) {
			return NULL;
		}
		next = sum(p);
		if (jp_push(p, &n->u.kids, &cap, next) < 0) {
			return NULL;
		}
		ops[n_ops++] = (uint8_t)op;
	}
	if (n) {
		n->ops = jtree_alloc(p->tree, n_ops);
		if (!n->ops) {
			p->rc = sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory", p->name);
			return NULL;
		}
		memcpy(n->ops, ops, n_ops);
	}
	return first ? (n ? n : first) : NULL;
}

static struct jn *negation(struct jparse *p)
{
	struct jn *n;

	if (!jp_is_name(p, "not")) {
		return comparison(p);
	}
	if (!enter(p)) {
		return NULL;
	}
	n = jp_node(p, JN_NOT);
	if (!n || jp_next(p) < 0 || !(n->a = negation(p))) {
		return NULL;
	}
	p->depth--;
	return n;
}

static struct jn *conjunction(struct jparse *p)
{
	struct jn *n = negation(p);

	while (n && jp_is_name(p, "and")) {
		n = jp_next(p) < 0 ? NULL : binary(p, JN_AND, 0, n, negation(p));
	}
	return n;
}

struct jn *jp_expr_nocond(struct jparse *p)
{
	struct jn *n = conjunction(p);

	while (n && jp_is_name(p, "or")) {
		n = jp_next(p) < 0 ? NULL : binary(p, JN_OR, 0, n, conjunction(p));
	}
	return n;
}

struct jn *jp_expr(struct jparse *p)
{
	struct jn *n, *c;

	if (!enter(p)) {
		return NULL;
	}
	n = jp_expr_nocond(p);
	while (n && jp_is_name(p, "if")) {
		c = jp_node(p, JN_COND);
		if (!c || jp_next(p) < 0) {
			return NULL;
		}
		p->soft++;
		c->b = n;
		c->a = jp_expr_nocond(p);
		if (!c->a) {
			return NULL;
		}
		if (jp_is_name(p, "else") && (jp_next(p) < 0 || !(c->c = jp_expr(p)))) {
			return NULL;
		}
		p->soft--;
		n = c;
	}
	p->depth--;
	return n;
}

/* Does the token end a tuple without parentheses? */
static int tuple_end(const struct jparse *p)
{
	return p->tok.t == JK_VAR_END || p->tok.t == JK_BLOCK_END || jp_is_op(p, ")") || jp_is_name(p, "recursive") ||
	       jp_is_name(p, "in");
}

struct jn *jp_tuple(struct jparse *p, int with_cond)
{
	struct jn *first, *n = NULL;
	uint32_t cap = 0;

	first = with_cond ? jp_expr(p) : jp_expr_nocond(p);
	while (first && jp_is_op(p, ",")) {
		if (!n && (!(n = jp_node(p, JN_TUPLE)) || jp_push(p, &n->u.kids, &cap, first) < 0)) {
			return NULL;
		}
		if (jp_next(p) < 0) {
			return NULL;
		}
		if (tuple_end(p)) {
			break;
		}
		if (jp_push(p, &n->u.kids, &cap, with_cond ? jp_expr(p) : jp_expr_nocond(p)) < 0) {
			return NULL;
		}
	}
	return first ? (n ? n : first) : NULL;
}
