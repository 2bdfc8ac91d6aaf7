/* jinja: statements, names and scopes (part of text). Names are resolved while parsing: a name that some enclosing scope
 * stores is a list of (scope, slot) candidates, inner first; what none of them holds comes from the context. */
#include "text/jinja_int.h"

static struct jbody body(struct jparse *p, const char *const *ends);

/* ---- tokens ---- */
int jp_fail(struct jparse *p, uint32_t line, const char *fmt, ...)
{
	char msg[400];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	if (!p->rc) {
		p->rc = sky_fail(p->err, SKY_E_DATA, "%s: line %u: %s", p->name, (unsigned)line, msg);
	}
	return p->rc;
}

static int out_of_memory(struct jparse *p)
{
	if (!p->rc) {
		p->rc = sky_fail(p->err, SKY_E_LIMIT, "%s: out of memory for the template", p->name);
	}
	return p->rc;
}

int jp_peek(struct jparse *p)
{
	if (!p->has_ahead) {
		p->rc = p->rc ? p->rc : jlex_next(&p->lex, &p->ahead);
		p->has_ahead = true;
	}
	return p->rc;
}

int jp_next(struct jparse *p)
{
	if (p->rc) {
		return p->rc;
	}
	if (p->has_ahead) {
		p->tok = p->ahead;
		p->has_ahead = false;
		return 0;
	}
	return p->rc = jlex_next(&p->lex, &p->tok);
}

int jp_is_op(const struct jparse *p, const char *op)
{
	return p->tok.t == JK_OP && !strcmp(p->tok.op, op);
}

int jp_is_name(const struct jparse *p, const char *name)
{
	return p->tok.t == JK_NAME && p->tok.n == strlen(name) && !memcmp(p->tok.p, name, p->tok.n);
}

int jp_expect_op(struct jparse *p, const char *op)
{
	if (p->rc) {
		return p->rc;
	}
	if (jp_is_op(p, op)) {
		return jp_next(p);
	}
	if (p->tok.t == JK_NAME || p->tok.t == JK_STR) {
		return jp_fail(p, p->tok.line, "expected '%s', got '%.*s'", op, (int)p->tok.n, p->tok.p);
	}
	return jp_fail(p, p->tok.line, "expected '%s', got '%s'", op, p->tok.t == JK_OP ? p->tok.op : "the end of the tag");
}

struct jn *jp_node(struct jparse *p, enum jnt t)
{
	struct jn *n = p->rc ? NULL : jtree_alloc(p->tree, sizeof(*n));

	if (!n) {
		out_of_memory(p);
		return NULL;
	}
	n->t = (uint8_t)t;
	n->line = p->tok.line;
	return n;
}

int jp_push(struct jparse *p, struct jbody *b, uint32_t *cap_p, struct jn *n)
{
	if (!n) {
		return p->rc ? p->rc : out_of_memory(p);
	}
	if (b->n == *cap_p) {
		uint32_t cap = *cap_p ? *cap_p * 2 : 4;
		struct jn **v = jtree_alloc(p->tree, cap * sizeof(struct jn *));

		if (!v) {
			return out_of_memory(p);
		}
		if (b->n) {
			memcpy(v, b->v, b->n * sizeof(struct jn *));
		}
		b->v = v;
		*cap_p = cap;
	}
	b->v[b->n++] = n;
	return 0;
}

/* ---- scopes ---- */
uint32_t jp_declare(struct jparse *p, struct jscope_def *s, const struct jname *name)
{
	for (uint32_t i = 0; i < s->n; i++) {
		if (s->name[i] == name) {
			return i;
		}
	}
	if (s->n == s->cap) {
		uint32_t cap = s->cap ? s->cap * 2 : 4;
		const struct jname **v = jtree_alloc(p->tree, cap * sizeof(*v));

		if (!v || s->n > 60000) {
			out_of_memory(p);
			return 0;
		}
		if (s->n) {
			memcpy(v, s->name, s->n * sizeof(*v));
		}
		s->name = v;
		s->cap = cap;
	}
	s->name[s->n] = name;
	return s->n++;
}

static struct jscope_def *push_scope(struct jparse *p)
{
	struct jscope_def *s = jtree_alloc(p->tree, sizeof(*s));

	if (!s) {
		out_of_memory(p);
		return NULL;
	}
	s->up = p->scope;
	p->scope = s;
	return s;
}

static void pop_scope(struct jparse *p)
{
	p->scope = p->scope->up;
}

/* Fills the candidate slots of every name node. */
static int resolve(struct jparse *p)
{
	for (struct jn *n = p->names; n; n = n->chain) {
		struct jref found[JINJA_MAX_NEST + 2], *keep;
		uint32_t n_found = 0, depth = 0;

		for (struct jscope_def *s = n->scope; s; s = s->up, depth++) {
			for (uint32_t i = 0; i < s->n; i++) {
				if (s->name[i] == n->name && n_found < JINJA_MAX_NEST + 2) {
					found[n_found++] = (struct jref){ (uint16_t)depth, (uint16_t)i };
				}
			}
		}
		keep = jtree_alloc(p->tree, (n_found + 1) * sizeof(*keep));
		if (!keep) {
			return out_of_memory(p);
		}
		memcpy(keep, found, n_found * sizeof(*keep));
		n->u.ref = keep;
		n->n_ref = (uint16_t)n_found;
	}
	return 0;
}

/* ---- statements ---- */
/* A store target: name, ns.attr, or a tuple of names; names are declared in scope. */
static struct jn *target_one(struct jparse *p, struct jscope_def *s, int with_ns)
{
	struct jn *n;

	if (jp_is_op(p, "(")) {
		if (jp_next(p) < 0) {
			return NULL;
		}
		n = target_one(p, s, 0);
		if (n && jp_is_op(p, ",")) {
			struct jn *tuple = jp_node(p, JN_TUPLE);
			uint32_t cap = 0;

			if (!tuple || jp_push(p, &tuple->u.kids, &cap, n) < 0) {
				return NULL;
			}
			while (jp_is_op(p, ",")) {
				if (jp_next(p) < 0 || (!jp_is_op(p, ")") &&
				                       jp_push(p, &tuple->u.kids, &cap, target_one(p, s, 0)) < 0)) {
					return NULL;
				}
			}
			n = tuple;
		}
		return !n || jp_expect_op(p, ")") < 0 ? NULL : n;
	}
	if (p->tok.t != JK_NAME) {
		jp_fail(p, p->tok.line, "a name was expected as the target of an assignment");
		return NULL;
	}
	n = jp_node(p, JN_NAME);
	if (!n || !(n->name = jtree_name(p->tree, p->tok.p, p->tok.n)) || jp_next(p) < 0) {
		return NULL;
	}
	if (with_ns && jp_is_op(p, ".")) {
		n->t = JN_NAME;
		n->scope = p->scope;
		n->chain = p->names;
		p->names = n;
		struct jn *ns = jp_node(p, JN_NSREF);

		if (!ns || jp_next(p) < 0) {
			return NULL;
		}
		if (p->tok.t != JK_NAME) {
			jp_fail(p, p->tok.line, "a name was expected behind '.'");
			return NULL;
		}
		ns->a = n;
		ns->name = jtree_name(p->tree, p->tok.p, p->tok.n);
		return !ns->name || jp_next(p) < 0 ? NULL : ns;
	}
	n->id = (int32_t)jp_declare(p, s, n->name);
	return p->rc ? NULL : n;
}

static struct jn *target(struct jparse *p, struct jscope_def *s, int with_ns)
{
	struct jn *first = target_one(p, s, with_ns), *tuple = NULL;
	uint32_t cap = 0;

	while (first && jp_is_op(p, ",")) {
		if (!tuple && (!(tuple = jp_node(p, JN_TUPLE)) || jp_push(p, &tuple->u.kids, &cap, first) < 0)) {
			return NULL;
		}
		if (jp_next(p) < 0) {
			return NULL;
		}
		if (p->tok.t != JK_NAME || jp_is_name(p, "in")) {
			break;
		}
		if (jp_push(p, &tuple->u.kids, &cap, target_one(p, s, with_ns)) < 0) {
			return NULL;
		}
	}
	return first ? (tuple ? tuple : first) : NULL;
}

static int end_of_tag(struct jparse *p)
{
	if (p->rc) {
		return p->rc;
	}
	if (p->tok.t != JK_BLOCK_END) {
		return jp_fail(p, p->tok.line, "expected the end of the statement, got '%.*s'",
		               p->tok.t == JK_OP ? (int)strlen(p->tok.op) : (int)p->tok.n,
		               p->tok.t == JK_OP ? p->tok.op : p->tok.p ? p->tok.p : "");
	}
	return jp_next(p);
}

static struct jn *for_loop(struct jparse *p)
{
	static const char *const ends[] = { "endfor", "else", NULL }, *const last[] = { "endfor", NULL };
	struct jn *n = jp_node(p, JN_FOR);
	struct jscope_def *outer = p->scope, *s;
	int soft = p->soft;

	if (!n || jp_next(p) < 0 || !(s = push_scope(p))) {
		return NULL;
	}
	n->scope = s;
	n->id = (int32_t)jp_declare(p, s, jtree_name(p->tree, "loop", 4));
	n->a = target(p, s, 0);
	if (!n->a) {
		return NULL;
	}
	if (!jp_is_name(p, "in")) {
		jp_fail(p, p->tok.line, "'in' was expected in a for loop");
		return NULL;
	}
	p->scope = outer;
	if (jp_next(p) < 0 || !(n->b = jp_tuple(p, 0))) {
		return NULL;
	}
	p->scope = s;
	p->soft = 0;
	if (jp_is_name(p, "if") && (jp_next(p) < 0 || !(n->c = jp_expr(p)))) {
		return NULL;
	}
	if (jp_is_name(p, "recursive")) {
		n->op = 1;
		if (jp_next(p) < 0) {
			return NULL;
		}
	}
	if (end_of_tag(p) < 0) {
		return NULL;
	}
	p->n_loop++;
	n->body = body(p, ends);
	p->n_loop--;
	pop_scope(p);
	if (!p->rc && jp_is_name(p, "else")) {
		struct jn *scope_of_else;

		/* a scope of its own: what is set there does not leave it */
		if (jp_next(p) < 0 || end_of_tag(p) < 0 || !(scope_of_else = jp_node(p, JN_WITH)) ||
		    !(scope_of_else->scope = push_scope(p))) {
			return NULL;
		}
		scope_of_else->body = body(p, last);
		pop_scope(p);
		uint32_t cap = 0;

		if (jp_push(p, &n->orelse, &cap, scope_of_else) < 0) {
			return NULL;
		}
	}
	p->soft = soft;
	return p->rc || jp_next(p) < 0 ? NULL : n;
}

static struct jn *if_block(struct jparse *p)
{
	static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
	struct jn *n = jp_node(p, JN_IF), *more;
	uint32_t cap = 0;

	p->soft++;
	if (!n || jp_next(p) < 0 || !(n->a = jp_expr(p)) || end_of_tag(p) < 0) {
		return NULL;
	}
	n->body = body(p, ends);
	if (p->rc) {
		return NULL;
	}
	if (jp_is_name(p, "elif")) {
		p->soft--;
		more = if_block(p);
		return !more || jp_push(p, &n->orelse, &cap, more) < 0 ? NULL : n;
	}
	if (jp_is_name(p, "else")) {
		if (jp_next(p) < 0 || end_of_tag(p) < 0) {
			return NULL;
		}
		n->orelse = body(p, last);
	}
	p->soft--;
	return p->rc || jp_next(p) < 0 ? NULL : n;
}

/* A body in a scope of its own up to the end word; the token behind is the end of its tag. */
static int scoped_body(struct jparse *p, struct jn *n, const char *end)
{
	const char *ends[] = { end, NULL };
	int soft = p->soft;

	if (!(n->scope = push_scope(p))) {
		return p->rc;
	}
	p->soft = 0;
	n->body = body(p, ends);
	p->soft = soft;
	pop_scope(p);
	return p->rc ? p->rc : jp_next(p);
}

static struct jn *set(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_SET);

	if (!n || jp_next(p) < 0 || !(n->a = target(p, p->scope, 1))) {
		return NULL;
	}
	if (jp_is_op(p, "=")) {
		return jp_next(p) < 0 || !(n->b = jp_tuple(p, 1)) ? NULL : n;
	}
	n->t = JN_SETBLOCK;
	if (jp_is_op(p, "|") && !(n->b = jp_filter_chain(p, NULL))) {
		return NULL;
	}
	return end_of_tag(p) < 0 || scoped_body(p, n, "endset") < 0 ? NULL : n;
}

/* Parameters of a macro or call block, declared in its scope s in order. */
static int parameters(struct jparse *p, struct jn *n, struct jscope_def *s)
{
	uint32_t cap = 0;
	int seen_default = 0;

	if (jp_expect_op(p, "(") < 0) {
		return p->rc;
	}
	while (!jp_is_op(p, ")")) {
		struct jarg a = { 0 };

		if (p->tok.t != JK_NAME) {
			return jp_fail(p, p->tok.line, "a parameter name was expected");
		}
		a.name = jtree_name(p->tree, p->tok.p, p->tok.n);
		if (!a.name || jp_next(p) < 0) {
			return p->rc;
		}
		jp_declare(p, s, a.name);
		if (jp_is_op(p, "=")) {
			struct jscope_def *keep = p->scope;

			if (jp_next(p) < 0) {
				return p->rc;
			}
			p->scope = s;
			a.e = jp_expr(p);
			p->scope = keep;
			seen_default = 1;
		} else if (seen_default) {
			return jp_fail(p, p->tok.line, "non-default argument follows default argument");
		}
		if (n->u.args.n == cap) {
			struct jarg *v = jtree_alloc(p->tree, (cap * 2 + 4) * sizeof(*v));

			if (!v) {
				return out_of_memory(p);
			}
			if (cap) {
				memcpy(v, n->u.args.v, cap * sizeof(*v));
			}
			n->u.args.v = v;
			cap = cap * 2 + 4;
		}
		n->u.args.v[n->u.args.n++] = a;
		if (!jp_is_op(p, ")") && jp_expect_op(p, ",") < 0) {
			return p->rc;
		}
	}
	return jp_next(p);
}

/* Scope of a macro body: parameters first, then varargs, kwargs, caller (slots n, n + 1, n + 2). */
static int macro_body(struct jparse *p, struct jn *n, int has_parameters, const char *end)
{
	const char *ends[] = { end, NULL };
	struct jscope_def *s = push_scope(p);
	int soft = p->soft, n_loop = p->n_loop;
	struct jn *before = p->names;

	if (!s) {
		return p->rc;
	}
	n->scope = s;
	pop_scope(p);
	for (struct jscope_def *up = p->scope; up; up = up->up) {
		up->captured = true;
	}
	if (has_parameters && parameters(p, n, s) < 0) {
		return p->rc;
	}
	n->id = (int32_t)s->n;
	if (n->t == JN_CALLBLOCK) {
		n->b = jp_expr(p);
		if (n->b && n->b->t != JN_CALL) {
			return jp_fail(p, n->line, "expected call");
		}
	}
	if (p->rc || end_of_tag(p) < 0) {
		return p->rc;
	}
	p->scope = s;
	jp_declare(p, s, jtree_name(p->tree, "varargs", 7));
	jp_declare(p, s, jtree_name(p->tree, "kwargs", 6));
	if (n->t == JN_MACRO) {
		jp_declare(p, s, jtree_name(p->tree, "caller", 6));
	}
	p->soft = p->n_loop = 0;
	n->body = body(p, ends);
	p->soft = soft;
	p->n_loop = n_loop;
	pop_scope(p);
	/* which of the implicit parameters does the body read? */
	for (struct jn *m = p->names; m && m != before; m = m->chain) {
		n->op |= !strcmp(m->name->s.p, "varargs") ? 1 : !strcmp(m->name->s.p, "kwargs") ? 2 :
		         !strcmp(m->name->s.p, "caller") ? 4 : 0;
	}
	return p->rc ? p->rc : jp_next(p);
}

static struct jn *macro(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_MACRO);

	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	if (p->tok.t != JK_NAME) {
		jp_fail(p, p->tok.line, "the name of a macro was expected");
		return NULL;
	}
	n->name = jtree_name(p->tree, p->tok.p, p->tok.n);
	if (!n->name || jp_next(p) < 0) {
		return NULL;
	}
	n->u.args.n_pos = jp_declare(p, p->scope, n->name);     /* the slot that holds the macro */
	return macro_body(p, n, 1, "endmacro") < 0 ? NULL : n;
}

static struct jn *call_block(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_CALLBLOCK);

	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	return macro_body(p, n, jp_is_op(p, "("), "endcall") < 0 ? NULL : n;
}

static struct jn *filter_block(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_FILTERBLOCK);

	/* the chain starts without a bar: pretend there was one */
	if (!n) {
		return NULL;
	}
	p->tok = (struct jtoken){ .t = JK_OP, .op = "|", .line = n->line };
	if (!(n->b = jp_filter_chain(p, NULL)) || end_of_tag(p) < 0) {
		return NULL;
	}
	return scoped_body(p, n, "endfilter") < 0 ? NULL : n;
}

static struct jn *with_block(struct jparse *p)
{
	static const char *const ends[] = { "endwith", NULL };
	struct jn *n = jp_node(p, JN_WITH), *assign;
	struct jscope_def *outer = p->scope, *s;
	uint32_t cap = 0;

	if (!n || jp_next(p) < 0 || !(s = push_scope(p))) {
		return NULL;
	}
	n->scope = s;
	p->scope = outer;
	while (p->tok.t != JK_BLOCK_END) {
		assign = jp_node(p, JN_SET);
		if (!assign || !(assign->a = target_one(p, s, 0)) || jp_expect_op(p, "=") < 0 || !(assign->b = jp_expr(p)) ||
		    jp_push(p, &n->orelse, &cap, assign) < 0) {
			return NULL;
		}
		if (p->tok.t != JK_BLOCK_END && jp_expect_op(p, ",") < 0) {
			return NULL;
		}
	}
	if (jp_next(p) < 0) {
		return NULL;
	}
	p->scope = s;
	n->body = body(p, ends);
	pop_scope(p);
	return p->rc || jp_next(p) < 0 ? NULL : n;
}

static struct jn *generation(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_GEN);

	p->tree->has_generation = 1;
	if (!n || jp_next(p) < 0 || end_of_tag(p) < 0) {
		return NULL;
	}
	return scoped_body(p, n, "endgeneration") < 0 ? NULL : n;
}

static struct jn *loop_control(struct jparse *p)
{
	struct jn *n = jp_node(p, jp_is_name(p, "break") ? JN_BREAK : JN_CONTINUE);

	if (n && p->n_loop == 0) {
		jp_fail(p, n->line, "'%s' outside of a loop", n->t == JN_BREAK ? "break" : "continue");
		return NULL;
	}
	return !n || jp_next(p) < 0 ? NULL : n;
}

/* Behind "{%"; ends with the token behind "%}". */
static struct jn *statement(struct jparse *p)
{
	static const struct { const char *word; struct jn *(*fn)(struct jparse *p); } rows[] = {
		{ "for", for_loop }, { "if", if_block }, { "set", set }, { "macro", macro }, { "call", call_block },
		{ "filter", filter_block }, { "with", with_block }, { "generation", generation },
		{ "break", loop_control }, { "continue", loop_control },
	};
	static const char *const foreign[] = { "include", "import", "from", "extends", "block", "autoescape" };
	struct jn *n;

	if (p->tok.t != JK_NAME) {
		jp_fail(p, p->tok.line, "tag name expected");
		return NULL;
	}
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (jp_is_name(p, rows[i].word)) {
			n = rows[i].fn(p);
			return !n || end_of_tag(p) < 0 ? NULL : n;
		}
	}
	for (unsigned i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
		if (jp_is_name(p, foreign[i])) {
			jp_fail(p, p->tok.line, "the tag '%s' is not supported in chat templates", foreign[i]);
			return NULL;
		}
	}
	jp_fail(p, p->tok.line, "Encountered unknown tag '%.*s'.", (int)p->tok.n, p->tok.p);
	return NULL;
}

static struct jn *text(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_TEXT);
	struct jstr *s = n ? jtree_alloc(p->tree, sizeof(*s)) : NULL;

	if (!s) {
		out_of_memory(p);
		return NULL;
	}
	*s = (struct jstr){ .p = p->tok.p, .n = p->tok.n };
	n->v = (struct jv){ .t = JT_STR, .u.s = s };
	return jp_next(p) < 0 ? NULL : n;
}

static struct jn *print(struct jparse *p)
{
	struct jn *n = jp_node(p, JN_PRINT);

	if (!n || jp_next(p) < 0) {
		return NULL;
	}
	n->a = jp_tuple(p, 1);
	if (n->a && p->tok.t != JK_VAR_END) {
		jp_fail(p, p->tok.line, "expected token 'end of print statement', got '%.*s'",
		        p->tok.t == JK_OP ? (int)strlen(p->tok.op) : (int)p->tok.n, p->tok.t == JK_OP ? p->tok.op :
		        p->tok.p ? p->tok.p : "");
	}
	return !n->a || p->rc || jp_next(p) < 0 ? NULL : n;
}

/* Statements up to a tag that starts with one of ends (token left at that word), or to the end when ends is NULL. */
static struct jbody body(struct jparse *p, const char *const *ends)
{
	struct jbody b = { 0 };
	uint32_t cap = 0, line = p->tok.line;

	if (++p->depth > JINJA_MAX_NEST) {
		jp_fail(p, line, "blocks are nested deeper than %d", JINJA_MAX_NEST);
	}
	while (!p->rc) {
		struct jn *n = NULL;

		if (p->tok.t == JK_EOF) {
			if (ends) {
				int last = 0;

				while (ends[last + 1]) {
					last++;
				}
				jp_fail(p, line, "Unexpected end of template. The innermost block needs '%s'.", ends[last]);
			}
			break;
		}
		if (p->tok.t == JK_TEXT) {
			if (p->tok.n == 0) {
				p->rc = jp_next(p);
				continue;
			}
			n = text(p);
		} else if (p->tok.t == JK_VAR_BEGIN) {
			n = print(p);
		} else {
			if (jp_next(p) < 0) {
				break;
			}
			for (int i = 0; ends && ends[i]; i++) {
				if (jp_is_name(p, ends[i])) {
					p->depth--;
					return b;
				}
			}
			n = statement(p);
		}
		if (jp_push(p, &b, &cap, n) < 0) {
			break;
		}
	}
	p->depth--;
	return b;
}

/* Copies src with every line end as \n and without one at the very end. */
static int normalize(struct jtree *t, const char *src, size_t n, const char *name, struct sky_err *err)
{
	char *out = sky_arena_alloc(&t->mem, n + 1);
	uint32_t k = 0;

	if (!out) {
		return sky_fail(err, SKY_E_LIMIT, "%s: out of memory for the template", name);
	}
	for (size_t i = 0; i < n; i++) {
		if (src[i] == '\r') {
			out[k++] = '\n';
			i += i + 1 < n && src[i + 1] == '\n';
		} else {
			out[k++] = src[i];
		}
	}
	k -= k > 0 && out[k - 1] == '\n';
	out[k] = 0;
	t->src = out;
	t->n_src = k;
	return 0;
}

int jinja_parse(struct jtree *t, const char *src, size_t n, const char *name, struct sky_err *err)
{
	struct jparse p = { .tree = t, .name = name, .err = err };

	if (n > JINJA_MAX_SOURCE) {
		return sky_fail(err, SKY_E_LIMIT, "%s: the template has %zu bytes, the limit is %u", name, n, JINJA_MAX_SOURCE);
	}
	if (normalize(t, src, n, name, err) < 0) {
		return SKY_E_LIMIT;
	}
	jlex_init(&p.lex, t, name, err);
	t->root = push_scope(&p);
	if (!t->root || jp_next(&p) < 0) {
		return p.rc;
	}
	t->body = body(&p, NULL);
	if (!p.rc) {
		jinja_given(t);
	}
	return p.rc ? p.rc : resolve(&p);
}
