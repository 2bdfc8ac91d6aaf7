/* jinja: private declarations of the chat template engine (part of text, layer 2).
 *
 * Source text → tree (jinja_lex.c, jinja_parse.c, jinja_expr.c), compiled once, immutable, shared by threads.
 * Tree + messages → text (jinja_eval.c and the rest), one struct ji per thread, reused from render to render: its memory
 * comes from an arena that is reset, so a warm renderer allocates nothing.
 *
 * Provenance: every value carries an origin (message index and enum sky_part); a string that was glued from several
 * origins carries a list of segments. Origins survive concatenation, slices, strip, split, replace, case changes,
 * join and tojson; what the template itself writes has origin 0 until it is printed, then that of the message whose
 * loop iteration prints it, part SKY_PART_TEMPLATE.
 *
 * Errors: the evaluator sets ji.rc once and returns undefined values from there on; loops test it. */
#ifndef SKY_TEXT_JINJA_INT_H
#define SKY_TEXT_JINJA_INT_H

#include <stdbool.h>
#include "text/text.h"

/* ---- limits (hostile templates) ---- */
#define JINJA_MAX_SOURCE        (8u << 20)      /* bytes of a template */
#define JINJA_MAX_NEST          200             /* nesting of the source */
#define JINJA_MAX_DEPTH         3000            /* nested evaluation: recursion of macros times expression depth */
#define JINJA_MAX_CALLS         180             /* macros inside macros */
/* Budgets of one render, each a constant and so much a byte of input: */
#define JINJA_MAX_STEPS(n)      (50000000ll + 100ll * (int64_t)(n))     /* evaluation steps, 32-byte units of copied text */
#define JINJA_MAX_MEMORY(n)     (((size_t)64 << 20) + 32 * (size_t)(n)) /* values */
#define JINJA_MAX_OUTPUT(n)     (((size_t)32 << 20) + 16 * (size_t)(n)) /* text */
#define JINJA_MAX_INPUT         (160u << 20)    /* messages, tools and arguments: spans are 32 bits wide */
#define JINJA_MAX_RANGE         100000          /* as Jinja2's sandbox */

/* ---- values ---- */
enum jtype {
	JT_MISSING,     /* a variable slot that nothing was stored in */
	JT_UNDEF,
	JT_NONE,
	JT_BOOL,
	JT_INT,
	JT_BIG,         /* an integer outside int64: its text */
	JT_FLOAT,
	JT_STR,
	JT_LIST,
	JT_TUPLE,
	JT_GEN,         /* result of map, select, items …: a list that can be walked once */
	JT_VIEW,        /* dict.keys(), .values(), .items() */
	JT_DICT,
	JT_RANGE,
	JT_NS,          /* namespace: a dict that may be changed */
	JT_LOOP,
	JT_MACRO,
	JT_METHOD,      /* a method bound to a value */
	JT_GLOBAL,      /* a function of the environment */
	JT_CYCLER,
	JT_JOINER,
};

/* Origin: (message + 1) << 4 | part. 0 is the template itself. */
#define JORG(message, part)     (((uint32_t)((message) + 1) << 4) | (uint32_t)(part))
#define JORG_PART(o)            ((o) & 15u)
#define JORG_MESSAGE(o)         ((int32_t)((o) >> 4) - 1)

struct jseg { uint32_t end, org; };     /* bytes up to end have this origin */

struct jstr {
	const char *p;          /* not NUL-terminated; view into input, tree or arena */
	const struct jseg *seg; /* NULL: one origin, that of the value */
	uint32_t n, n_seg;
};

struct jlist;
struct jdict;
struct jmeth;

struct jv {
	uint8_t t;              /* enum jtype */
	uint8_t f;              /* JT_UNDEF: enum jundef; JT_VIEW: 'k', 'v', 'i' */
	uint16_t x;             /* JT_UNDEF of an attribute: type of the object; JT_GLOBAL: enum jglobal */
	uint32_t org;
	union {
		int64_t i;      /* JT_BOOL, JT_INT */
		double d;
		const struct jstr *s;           /* JT_STR, JT_BIG */
		struct jlist *l;
		struct jdict *m;
		const struct jrange *r;
		struct jloop *loop;
		const struct jmacro *macro;
		const struct jmeth *meth;
		const struct jname *name;       /* JT_UNDEF: what is undefined, may be NULL */
	} u;
};

enum jundef { JU_VAR, JU_ATTR, JU_ITEM, JU_UNSAFE, JU_HINT };

struct jlist { struct jv *v; uint32_t n, cap; };
struct jent { struct jv k, v; uint32_t hash; };
struct jdict {
	struct jent *e;         /* in order of insertion */
	uint32_t *ix;           /* open addressing, entry + 1; NULL below 16 entries */
	uint32_t n, cap, n_ix;
	int32_t message;        /* index of the message that this is, or −1 */
};
struct jrange { int64_t start, step, n, stop; };
struct jmeth { struct jv self; const struct jname *name; };

/* An interned name of a template. */
struct jname {
	struct jstr s;
	uint32_t hash;
	int32_t sym;            /* index of the context slot */
	int16_t meth_str;       /* enum of a string method with this name, or −1 */
	int16_t meth_list, meth_dict;
	struct jname *next;
};

/* ---- tree ---- */
enum jnt {
	/* expressions */
	JN_CONST, JN_NAME, JN_ATTR, JN_ITEM, JN_SLICE, JN_CALL, JN_FILTER, JN_TEST, JN_NOT, JN_NEG, JN_POS, JN_BIN,
	JN_CONCAT, JN_AND, JN_OR, JN_CMP, JN_COND, JN_LIST, JN_TUPLE, JN_DICT, JN_NSREF,
	/* statements */
	JN_TEXT, JN_PRINT, JN_FOR, JN_IF, JN_SET, JN_SETBLOCK, JN_MACRO, JN_CALLBLOCK, JN_FILTERBLOCK, JN_WITH, JN_GEN,
	JN_BREAK, JN_CONTINUE,
};

enum jop { JO_ADD, JO_SUB, JO_MUL, JO_DIV, JO_FLOORDIV, JO_MOD, JO_POW,
	JO_EQ, JO_NE, JO_LT, JO_LE, JO_GT, JO_GE, JO_IN, JO_NOTIN };

struct jbody { struct jn **v; uint32_t n; };
struct jarg { const struct jname *name; struct jn *e; uint8_t star; };  /* star: 1 *args, 2 **kwargs */
struct jargs { struct jarg *v; uint32_t n, n_pos; };
struct jref { uint16_t depth, slot; };

/* Names stored in one lexical scope while parsing; afterwards only n matters. */
struct jscope_def {
	struct jscope_def *up;
	const struct jname **name;
	uint32_t n, cap;
	bool captured;          /* a macro is defined inside: activations must not be reused */
};

struct jn {
	uint8_t t, op;
	uint16_t n_ref;         /* JN_NAME: candidate slots, inner first */
	uint32_t line;
	struct jn *a, *b, *c;
	struct jv v;            /* JN_CONST, JN_TEXT */
	const struct jname *name;       /* JN_NAME, JN_ATTR, JN_FILTER, JN_TEST, JN_MACRO, JN_NSREF */
	struct jscope_def *scope;       /* of the body; of the place for JN_NAME while parsing */
	union {
		const struct jref *ref;         /* JN_NAME */
		struct jbody kids;              /* JN_LIST, JN_TUPLE, JN_CONCAT, JN_CMP, JN_PRINT, JN_DICT (k, v, k, v) */
		struct jargs args;              /* JN_CALL, JN_FILTER, JN_TEST, JN_MACRO parameters */
	} u;
	struct jbody body, orelse;
	int32_t id;             /* JN_FILTER, JN_TEST: row of the table; JN_FOR: slot of "loop"; JN_CMP: none */
	uint8_t *ops;           /* JN_CMP */
	struct jn *chain;       /* JN_NAME: list of all, while parsing */
};

struct jtree {
	struct sky_arena mem;
	char *free_p, *free_end;        /* small allocations inside blocks of mem */
	struct jname **names;   /* hash table */
	uint32_t n_names, cap_names;
	struct jname **by_sym;
	struct jbody body;
	struct jscope_def *root;
	int32_t given[24];      /* symbols of what every render gives, by enum jgiven; −1: the template does not name it */
	const char *src;        /* normalised newlines, owned by mem */
	uint32_t n_src;
	int has_generation;
};

enum jspecial { JS_BOS, JS_EOS, JS_UNK, JS_SEP, JS_PAD, JS_CLS, JS_MASK, JS_COUNT };

/* What every render gives a template: special tokens by enum jspecial, then these, then the functions. */
enum jgiven { JV_MESSAGES = JS_COUNT, JV_TOOLS, JV_DOCUMENTS, JV_PROMPT, JV_FUNCTIONS, JV_COUNT = JV_FUNCTIONS + 7 };

struct sky_template {
	struct jtree tree;
	struct jtree *tool_use; /* the template for conversations with tools, where the directory has one of its own */
	char *name;
	char fingerprint[65];
	int32_t stop[16];       /* eos_token_id of generation_config.json: what ends a turn when the model is run */
	int n_stop;
	char *special[JS_COUNT];        /* bos_token, eos_token, … of the directory; NULL when it names none */
};
extern const char *const jinja_special_names[JS_COUNT];         /* "bos_token", … */

/* Parses t->tree from src. */
int jinja_parse(struct jtree *t, const char *src, size_t n, const char *name, struct sky_err *err) SKY_MUST_CHECK;
void *jtree_alloc(struct jtree *t, size_t n);   /* zeroed, 8-byte aligned; NULL when out of memory */
const struct jname *jtree_name(struct jtree *t, const char *p, size_t n);       /* interns */
const struct jname *jtree_find(const struct jtree *t, const char *p, size_t n); /* or NULL */

/* ---- lexer ---- */
enum jtok {
	JK_EOF, JK_TEXT, JK_BLOCK_BEGIN, JK_BLOCK_END, JK_VAR_BEGIN, JK_VAR_END,
	JK_NAME, JK_STR, JK_INT, JK_FLOAT, JK_OP,
};
struct jtoken {
	uint8_t t;
	char op[3];             /* JK_OP */
	uint32_t line;
	const char *p;          /* text of JK_TEXT, JK_NAME, JK_STR (unescaped), JK_BIG digits */
	uint32_t n;
	int64_t i;
	double d;
	int big;
};
struct jlex {
	struct jtree *tree;
	const char *src, *name;
	uint32_t n, pos, line;
	uint8_t in_block;       /* 0 text, else the JK_*_BEGIN that opened */
	uint8_t pending;        /* opener found behind a text token, with strip sign */
	uint32_t pending_len, pending_line;
	bool line_start;
	char stack[JINJA_MAX_NEST];     /* open brackets inside a block */
	int n_stack;
	struct sky_err *err;
};
void jlex_init(struct jlex *l, struct jtree *tree, const char *name, struct sky_err *err);
int jlex_next(struct jlex *l, struct jtoken *tok) SKY_MUST_CHECK;

/* ---- parser, shared by its two files ---- */
struct jparse {
	struct jtree *tree;
	struct jlex lex;
	struct jtoken tok, ahead;
	bool has_ahead;
	const char *name;
	struct sky_err *err;
	struct jscope_def *scope;
	struct jn *names;       /* chain of JN_NAME */
	int depth, n_loop, soft;
	int rc;
};
int jp_next(struct jparse *p) SKY_MUST_CHECK;
int jp_peek(struct jparse *p) SKY_MUST_CHECK;   /* fills p->ahead */
int jp_fail(struct jparse *p, uint32_t line, const char *fmt, ...) SKY_PRINTF(3, 4);
int jp_is_op(const struct jparse *p, const char *op);
int jp_is_name(const struct jparse *p, const char *name);
int jp_expect_op(struct jparse *p, const char *op) SKY_MUST_CHECK;
struct jn *jp_node(struct jparse *p, enum jnt t);
int jp_push(struct jparse *p, struct jbody *b, uint32_t *cap_p, struct jn *n) SKY_MUST_CHECK;
uint32_t jp_declare(struct jparse *p, struct jscope_def *s, const struct jname *name);
/* NULL on failure (p->rc set) */
struct jn *jp_expr(struct jparse *p);
struct jn *jp_expr_nocond(struct jparse *p);
/* a, b, c without parentheses; with_cond 0 leaves "if" to the caller */
struct jn *jp_tuple(struct jparse *p, int with_cond);
struct jn *jp_filter_chain(struct jparse *p, struct jn *node);  /* | f | g: for set and filter blocks; node NULL inside */
int jp_call_args(struct jparse *p, struct jargs *args) SKY_MUST_CHECK;

/* ---- run time ---- */
struct jscope { struct jscope *up; struct jv *slot; };

struct jiter {                  /* a walk over a value */
	const struct jv *v;     /* elements, or NULL for a range or a string */
	struct jrange r;
	int64_t n;
	const struct jstr *chars;
	uint32_t org;
};
struct jloop {
	struct jiter it;
	int64_t i;
	int depth0;
	struct jv changed;      /* last value of loop.changed() */
	const struct jn *node;  /* recursive loops */
	struct jscope *scope;
};
/* What the innermost loop walks over: decides which message printed template text belongs to. */
enum jloop_kind { JL_NONE, JL_MESSAGES, JL_NUMBERS, JL_OTHER };
struct jmacro { const struct jn *n; struct jscope *scope; const struct jname *name; };

/* Keys that are looked up in every message, with their hashes. */
enum jknown { JK_ROLE, JK_CONTENT, JK_REASONING_CONTENT, JK_THINKING, JK_REASONING, JK_WEIGHT, JK_TRAIN, JK_TRAINABLE,
	JK_TRAINING, JK_LOSS_MASK, JK_TEXT_KEY, JK_COUNT };
struct jkey { struct jstr s; uint32_t hash; };

struct ji {
	struct jkey key[JK_COUNT];
	const struct sky_template *t;
	const struct jtree *tree;       /* the one of t that runs */
	struct sky_arena mem;
	char *free_p, *free_end;
	struct sky_buf out;     /* text; captures live at its end until they are cut off */
	struct jseg *seg;
	uint32_t n_seg, cap_seg;
	uint32_t (*gen)[2];
	int64_t n_gen, cap_gen;
	uint32_t lit_org;       /* origin that printed template text gets now */
	int capture;            /* > 0 inside macros, set blocks … */
	int depth, calls;
	int flow;               /* 0, 1 break, 2 continue */
	int loop_kind;          /* enum jloop_kind of the innermost loop */
	int64_t steps, max_steps;
	size_t max_out, n_input;
	int64_t date;
	struct jv messages;     /* as the template sees them; kept for masks until the next render */
	int64_t cap_span;
	struct jscope *scope;
	struct jv *ctx;         /* by symbol */
	uint32_t cap_ctx;
	const struct jn *at;    /* statement or expression that runs, for messages */
	int rc;
	struct sky_err *err;
};

/* jinja_value.c: memory and values */
void *ji_alloc(struct ji *in, size_t n);        /* 8-byte aligned, not cleared; NULL with rc set */
bool ji_step(struct ji *in, int64_t n);         /* false when the budget is used up */
void ji_fail(struct ji *in, int code, const char *fmt, ...) SKY_PRINTF(3, 4);
const char *ji_type_name(struct jv v);          /* Python's: "str", "NoneType", … */
uint32_t jhash(const char *p, size_t n);
static inline struct jv jv_undef(const struct jname *name) { return (struct jv){ .t = JT_UNDEF, .u.name = name }; }
static inline struct jv jv_none(void) { return (struct jv){ .t = JT_NONE }; }
static inline struct jv jv_bool(bool b) { return (struct jv){ .t = JT_BOOL, .u.i = b }; }
static inline struct jv jv_int(int64_t i) { return (struct jv){ .t = JT_INT, .u.i = i }; }
static inline struct jv jv_float(double d) { return (struct jv){ .t = JT_FLOAT, .u.d = d }; }
struct jv ji_str(struct ji *in, const char *p, size_t n, uint32_t org);         /* view: p must outlive the render */
struct jv ji_substr(struct ji *in, struct jv s, uint32_t from, uint32_t to);    /* bytes */
struct jv ji_list(struct ji *in, enum jtype t, uint32_t cap);
bool ji_push(struct ji *in, struct jlist *l, struct jv v);
struct jv ji_dict(struct ji *in, enum jtype t, uint32_t cap);
const struct jv *jdict_get(const struct jdict *m, struct jv key);
const struct jv *jdict_find(const struct jdict *m, const struct jstr *s, uint32_t hash);
bool ji_hashable(struct ji *in, struct jv key);   /* false, rc set, for lists, dicts and tuples with such */
bool ji_dict_set(struct ji *in, struct jdict *m, struct jv key, struct jv v);
struct jv ji_copy_list(struct ji *in, struct jv src, enum jtype t);
/* Anything that can be walked; sets rc with Python's words otherwise. Walks a generator empty. */
bool ji_iter(struct ji *in, struct jv v, struct jiter *it);
struct jv ji_iter_at(struct ji *in, const struct jiter *it, int64_t i);
/* Elements of v as a list. */
struct jv ji_to_list(struct ji *in, struct jv v);

/* Building a string at the end of the output buffer. */
struct jmark { size_t n; uint32_t n_seg; };
struct jmark ji_begin(struct ji *in);
void ji_put(struct ji *in, const char *p, size_t n, uint32_t org);
void ji_puts(struct ji *in, const char *s, uint32_t org);
void ji_put_str(struct ji *in, struct jv s);                    /* a JT_STR with its segments */
void ji_put_sub(struct ji *in, struct jv s, uint32_t from, uint32_t to);
uint32_t jstr_org(struct jv s, uint32_t at);                    /* origin of one byte */
struct jv ji_end(struct ji *in, struct jmark m);                /* cuts it off as a value */

/* jinja_utf8.c */
uint32_t ju_next(const char *p, uint32_t n, uint32_t *i_p);     /* code point at *i_p, which moves on */
uint32_t ju_put(char out[4], uint32_t cp);                      /* bytes written */
int64_t ju_len(const char *p, uint32_t n);                      /* code points */
uint32_t ju_off(const char *p, uint32_t n, int64_t i);          /* byte offset of code point i */
bool ju_space(uint32_t cp);                                     /* str.isspace */

/* jinja_ops.c: operators */
bool jv_true(struct ji *in, struct jv v);
bool jv_eq(struct ji *in, struct jv a, struct jv b);
int ji_compare(struct ji *in, struct jv a, struct jv b);        /* −1, 0, 1; rc set when not comparable */
bool ji_contains(struct ji *in, struct jv item, struct jv box);
struct jv ji_binary(struct ji *in, enum jop op, struct jv a, struct jv b);
struct jv ji_getattr(struct ji *in, struct jv o, const struct jname *name);
struct jv ji_getitem(struct ji *in, struct jv o, struct jv key);
const struct jname *ji_name(struct ji *in, const struct jstr *s);        /* of the tree, else made for this render */
struct jv ji_slice(struct ji *in, struct jv o, struct jv a, struct jv b, struct jv c);
bool ji_index(struct jv v, int64_t *out);       /* integers and booleans */
bool ji_check(struct ji *in, struct jv v);      /* false, rc set, when v is undefined */
int64_t ji_len(struct ji *in, struct jv v);     /* −1 with rc set when it has none */
/* Stable sort by Python's order; cased 0 folds strings to lower case. keys: one value an element. */
bool ji_sort(struct ji *in, struct jv *v, const struct jv *keys, int64_t n, bool reverse);

/* jinja_repr.c: text of values */
void ji_put_value(struct ji *in, struct jv v);                  /* str() */
void ji_put_repr(struct ji *in, struct jv v, uint32_t org);     /* repr(); org for what is not a string */
struct jv ji_to_str(struct ji *in, struct jv v);
char *jinja_float(char out[40], double d);                      /* Python's repr of a float */
struct jv ji_tojson(struct ji *in, struct jv v, const struct jv *indent, const struct jv *separators, bool sort_keys,
                    bool ascii);

/* jinja_strmeth.c, jinja_method.c: methods */
struct jcallargs { const struct jv *pos; uint32_t n; const struct jname *const *kw_name; const struct jv *kw; uint32_t n_kw; };
int16_t jinja_str_method(const char *p, size_t n);
int16_t jinja_list_method(const char *p, size_t n);
int16_t jinja_dict_method(const char *p, size_t n);
bool jinja_list_mutates(int16_t m);
bool jinja_tuple_has(int16_t m);          /* the list method is one of tuples and ranges, too */
bool jinja_dict_mutates(int16_t m);
struct jv ji_call_method(struct ji *in, struct jv self, const struct jname *name, const struct jcallargs *a);
struct jv ji_str_method(struct ji *in, struct jv s, int16_t m, const struct jcallargs *a);
struct jv ji_strip(struct ji *in, struct jv s, const struct jv *chars, int sides);      /* sides: 1 left, 2 right */
struct jv ji_replace(struct ji *in, struct jv s, struct jv from, struct jv to, int64_t max);
struct jv ji_case(struct ji *in, struct jv s, int how);         /* 'l', 'u', 't' title, 'c' capitalize, 's' swap, 'f' fold */
struct jv ji_join(struct ji *in, struct jv sep, struct jv items);
int64_t jstr_find(const struct jstr *s, const struct jstr *what, uint32_t from);        /* byte offset or −1 */
struct jv ji_percent(struct ji *in, struct jv fmt, struct jv args);     /* fmt % args */
struct jv ji_format(struct ji *in, struct jv fmt, const struct jcallargs *a);   /* str.format */
/* Argument i or keyword name; NULL when absent. */
const struct jv *ja_get(const struct jcallargs *a, uint32_t i, const char *name);
bool ja_check(struct ji *in, const struct jcallargs *a, const char *what, uint32_t min, uint32_t max);

/* jinja_filter.c, jinja_filter_seq.c, jinja_test.c */
int32_t jinja_filter_id(const char *p, size_t n);       /* −1 when there is none */
int32_t jinja_test_id(const char *p, size_t n);
struct jv ji_filter(struct ji *in, int32_t id, struct jv v, const struct jcallargs *a);
struct jv ji_escape(struct ji *in, struct jv v);        /* HTML; marked safe. A JT_STR is marked by f = 1 */
bool ji_test(struct ji *in, int32_t id, struct jv v, const struct jcallargs *a);
typedef struct jv (*jfilter_fn)(struct ji *in, struct jv v, const struct jcallargs *a);
struct jfilter { const char *name; jfilter_fn fn; };
extern const struct jfilter jinja_filters_seq[];        /* of jinja_filter_seq.c; ends with NULL */

/* jinja_call.c */
struct jv ji_call(struct ji *in, struct jv fn, const struct jcallargs *a);
void ji_globals(struct ji *in);                         /* fills the context slots of the environment */
void jinja_given(struct jtree *t);                      /* fills t->given */
/* Runs a macro into the output; the caller captures it where a value is wanted. caller may be NULL. */
void ji_run_macro(struct ji *in, const struct jmacro *m, const struct jcallargs *a, const struct jv *caller);

/* jinja_eval.c: expressions; jinja_run.c: statements */
static inline bool jv_is_message(struct jv v) { return v.t == JT_DICT && v.u.m->message >= 0; }
struct jv ji_eval(struct ji *in, const struct jn *n);
void ji_emit(struct ji *in, const struct jn *n);        /* prints, without intermediate strings where it can */
void ji_run(struct ji *in, const struct jbody *b);
void ji_assign(struct ji *in, const struct jn *target, struct jv v);
void ji_for(struct ji *in, const struct jn *n, struct jv over, int depth0);
struct jscope *ji_scope(struct ji *in, const struct jscope_def *d, struct jscope *up);
/* Evaluated arguments; small ones live in *room, which must outlive out. */
struct jargroom { struct jv v[12]; const struct jname *name[12]; };
bool ji_args(struct ji *in, const struct jargs *args, struct jargroom *room, struct jcallargs *out);

/* jinja_input.c: JSON to values with origins */
enum jinput { JIN_PLAIN, JIN_MESSAGES };        /* JIN_MESSAGES: an array whose objects are messages 0, 1, … */
void ji_keys(struct ji *in);    /* fills in->key, once */
static inline struct jv *ji_member(const struct ji *in, const struct jdict *m, enum jknown k)
{
	return (struct jv *)jdict_find(m, &in->key[k].s, in->key[k].hash);
}
struct jv ji_json(struct ji *in, const char *p, size_t n, const char *what, enum jinput how);
struct jv ji_jnode(struct ji *in, const struct sky_jnode *v, enum jinput how);

#endif
