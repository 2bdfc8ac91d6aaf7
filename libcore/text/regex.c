/* Patterns of tokenizer files on PCRE2. The dialects of Oniguruma (tokenizer.json) and of Rust's fancy-regex (tiktoken)
 * are translated: white space and categories become explicit where the engines' Unicode versions differ. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tok_int.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

struct tok_regex {
	pcre2_code *code; /* NULL: a literal */
	char *literal;
	size_t n_literal;
};

struct tok_match {
	pcre2_match_data *data;
	pcre2_match_context *context;
	pcre2_jit_stack *stack;
};

#define JIT_STACK_MAX (64u << 20)

/* White_Space and its complement, to be put inside brackets. */
#define SPACE \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACE \
	"\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{" \
	"2027}" \
	"\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"

struct translation {
	const char *p; /* what is left of the pattern */
	enum tok_dialect dialect;
	struct sky_buf out;
	bool in_class;
};

/* ---- categories: \p{X} plus the characters that PCRE2's tables lack ---- */

static const char *const category_name[] = {
	"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
	"Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co",
}; /* in the order of utf8proc_category_t */

/* For a bracket. */
static int put_category(struct sky_buf *out, const char *name, struct sky_err *err)
{
	const size_t n = strlen(name);
	const bool han = strcmp(name, "Han") == 0; /* the script itself, not its extensions */
	int rc = sky_buf_addf(out, err, han ? "\\p{sc:%s}" : "\\p{%s}", name);

	for (size_t i = 0; i < uc_n_young && rc == 0 && (n <= 2 || han); i++) {
		if (han ? (uc_class(uc_young[i].lo) & UC_HAN) != 0
			: strncmp(category_name[uc_young[i].category], name, n) == 0) {
			rc = sky_buf_addf(out, err, "\\x{%x}-\\x{%x}", uc_young[i].lo, uc_young[i].hi);
		}
	}
	return rc;
}

/* \p{X}, \P{X}, \pX; t->p is behind the p. */
static int property(struct translation *t, bool negative, struct sky_err *err)
{
	char name[32];
	size_t n = 0;
	int rc;

	if (*t->p == '{') {
		t->p++;
		if (*t->p == '^') {
			negative = !negative;
			t->p++;
		}
		while (t->p[n] && t->p[n] != '}' && n < sizeof(name) - 1) {
			name[n] = t->p[n];
			n++;
		}
		t->p += n + (t->p[n] == '}');
	} else if (*t->p) {
		name[n++] = *t->p++;
	}
	name[n] = 0;
	if (negative && t->in_class) {
		return sky_buf_addf(&t->out, err, "\\P{%s}", name);
	}
	if (t->in_class) {
		return put_category(&t->out, name, err);
	}
	rc = sky_buf_adds(&t->out, negative ? "[^" : "[", err);
	if (rc == 0) {
		rc = put_category(&t->out, name, err);
	}
	return rc < 0 ? rc : sky_buf_addc(&t->out, ']', err);
}

/* t->p is behind a backslash. */
static int translate_escape(struct translation *t, struct sky_err *err)
{
	char c = *t->p;
	const bool in = t->in_class;

	if (!c) {
		return sky_fail(err, SKY_E_DATA, "the pattern ends with a backslash");
	}
	t->p++;
	switch (c) {
	case 's':
		return sky_buf_adds(&t->out, in ? SPACE : "[" SPACE "]", err);
	case 'S':
		return sky_buf_adds(&t->out, in ? NOT_SPACE : "[^" SPACE "]", err);
	case 'p':
	case 'P':
		return property(t, c == 'P', err);
	case 'h':
		if (t->dialect == TOK_ONIG) { /* a hexadecimal digit there, a blank in PCRE2 */
			return sky_buf_adds(&t->out, in ? "0-9a-fA-F" : "[0-9a-fA-F]", err);
		}
		break;
	case 'u':
		if (strlen(t->p) >= 4 && strspn(t->p, "0123456789abcdefABCDEF") >= 4) {
			t->p += 4;
			return sky_buf_addf(&t->out, err, "\\x{%.4s}", t->p - 4);
		}
		break;
	default:
		break;
	}
	return sky_buf_addf(&t->out, err, "\\%c", c);
}

/* [A&&[^B]]: PCRE2 10.42 has no intersections, so it becomes (?![B])[A] in a group. t->p is at '['. */
static int translate_class(struct translation *t, struct sky_err *err)
{
	size_t start = t->out.n;
	int rc = sky_buf_addc(&t->out, *t->p++, err);

	t->in_class = true;
	for (bool first = true; rc == 0; first = false) {
		char c = *t->p;

		if (!c) {
			return sky_fail(err, SKY_E_DATA, "the pattern ends inside brackets");
		}
		if (strncmp(t->p, "&&[^", 4) == 0) {
			char *left = strndup(t->out.ptr + start, t->out.n - start);

			if (!left) {
				return sky_fail_mem(err, "regular expression");
			}
			t->out.n = start;
			rc = sky_buf_adds(&t->out, "(?:(?![", err);
			t->p += 4;
			while (rc == 0 && *t->p && *t->p != ']') {
				c = *t->p++;
				rc = c == '\\' ? translate_escape(t, err) : sky_buf_addc(&t->out, c, err);
			}
			if (rc == 0) {
				rc = sky_buf_addf(&t->out, err, "])%s])", left);
			}
			free(left);
			t->p += strncmp(t->p, "]]", 2) == 0 ? 2 : 0;
			break;
		}
		t->p++;
		if (c == '\\') {
			rc = translate_escape(t, err);
		} else if (c == '[' && *t->p != ':') {
			rc = sky_buf_adds(&t->out, "\\[", err); /* nested sets are not in use */
		} else {
			rc = sky_buf_addc(&t->out, c, err);
		}
		if (c == ']' && !first) {
			break;
		}
	}
	t->in_class = false;
	return rc;
}

/* X{n,m}+ is possessive in Rust, but (X{n,m})+ in Oniguruma: with n ≤ 1 that is X{n,}. t->p is at '{'. */
static int translate_braces(struct translation *t, struct sky_err *err)
{
	const char *close = strchr(t->p, '}');
	int rc;

	if (!close || strspn(t->p + 1, "0123456789,") != (size_t)(close - t->p - 1)) {
		return sky_buf_addc(&t->out, *t->p++, err);
	}
	if (close[1] == '+' && t->dialect == TOK_ONIG) {
		if (t->p[1] > '1' || (t->p[2] != ',' && t->p[2] != '}')) {
			return sky_fail(err, SKY_E_DATA, "a repeated {n,m}+ is not supported");
		}
		rc = sky_buf_addf(&t->out, err, "{%c,}", t->p[1]);
		t->p = close + 2;
		return rc;
	}
	rc = sky_buf_add(&t->out, t->p, (size_t)(close + 1 - t->p), err);
	t->p = close + 1;
	return rc;
}

static int translate(struct translation *t, struct sky_err *err)
{
	int rc = 0;

	while (*t->p && rc == 0) {
		switch (*t->p) {
		case '\\':
			t->p++;
			rc = translate_escape(t, err);
			break;
		case '[':
			rc = translate_class(t, err);
			break;
		case '{':
			rc = translate_braces(t, err);
			break;
		default:
			rc = sky_buf_addc(&t->out, *t->p++, err);
		}
	}
	return rc;
}

int tok_regex_new(const char *pattern, enum tok_dialect dialect, struct tok_regex **r_p, struct sky_err *err)
{
	struct translation t = { pattern, dialect, SKY_BUF_INIT(1 << 20), false };
	/* in Ruby's syntax ^ and $ are line ends, in Rust's the ends of the text */
	uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C |
			   (dialect == TOK_ONIG ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
	struct tok_regex *r = NULL;
	unsigned char text[128];
	PCRE2_SIZE off;
	int code, rc = strlen(pattern) > 65536 ? sky_fail(err, SKY_E_LIMIT, "a pattern of more than 65536 bytes")
					       : translate(&t, err);

	if (rc == 0 && !(r = calloc(1, sizeof(*r)))) {
		rc = sky_fail_mem(err, "regular expression");
	}
	if (rc == 0) {
		r->code = pcre2_compile((PCRE2_SPTR)(t.out.ptr ? t.out.ptr : ""), t.out.n, options, &code, &off, NULL);
		if (!r->code) {
			pcre2_get_error_message(code, text, sizeof(text));
			rc = sky_fail(err, SKY_E_DATA, "pattern \"%.200s\": %s", pattern, (char *)text);
		} else {
			pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter works as well */
		}
	}
	sky_buf_release(&t.out);
	if (rc < 0) {
		tok_regex_free(r);
		return rc;
	}
	*r_p = r;
	return 0;
}

int tok_literal_new(const char *s, size_t n, struct tok_regex **r_p, struct sky_err *err)
{
	struct tok_regex *r = calloc(1, sizeof(*r));

	if (r) {
		r->literal = malloc(n + 1);
	}
	if (!r || !r->literal) {
		free(r);
		return sky_fail_mem(err, "pattern");
	}
	memcpy(r->literal, s, n);
	r->literal[n] = 0;
	r->n_literal = n;
	*r_p = r;
	return 0;
}

void tok_regex_free(struct tok_regex *r)
{
	if (r) {
		pcre2_code_free(r->code);
		free(r->literal);
		free(r);
	}
}

int tok_match_new(struct tok_match **m_p, struct sky_err *err)
{
	struct tok_match *m = calloc(1, sizeof(*m));

	if (m) {
		m->data = pcre2_match_data_create(1, NULL);
		m->context = pcre2_match_context_create(NULL);
		m->stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL);
	}
	if (!m || !m->data || !m->context) {
		tok_match_free(m);
		return sky_fail_mem(err, "regular expression");
	}
	pcre2_set_match_limit(m->context, 200000000);
	if (m->stack) {
		pcre2_jit_stack_assign(m->context, NULL, m->stack);
	}
	*m_p = m;
	return 0;
}

void tok_match_free(struct tok_match *m)
{
	if (m) {
		pcre2_match_data_free(m->data);
		pcre2_match_context_free(m->context);
		pcre2_jit_stack_free(m->stack);
		free(m);
	}
}

int tok_regex_find(const struct tok_regex *r, struct tok_match *m, const uint8_t *p, size_t n, size_t from, size_t last,
		   size_t *at_p, size_t *end_p, struct sky_err *err)
{
	unsigned char text[128];
	PCRE2_SIZE *v;
	int rc;

	if (!r->code) {
		const uint8_t *q =
			r->n_literal && from < n ? memmem(p + from, n - from, r->literal, r->n_literal) : NULL;

		*at_p = q ? (size_t)(q - p) : n;
		*end_p = *at_p + r->n_literal;
		return q != NULL;
	}
	for (;;) {
		if (from > n) {
			return 0;
		}
		rc = pcre2_match(r->code, (PCRE2_SPTR)(p ? p : (const uint8_t *)""), n, from, PCRE2_NO_UTF_CHECK,
				 m->data, m->context);
		if (rc == PCRE2_ERROR_NOMATCH) {
			return 0;
		}
		if (rc < 0) {
			pcre2_get_error_message(rc, text, sizeof(text));
			return sky_fail(err, SKY_E_LIMIT, "a pattern of the tokenizer on a text of %zu bytes: %s", n,
					(char *)text);
		}
		v = pcre2_get_ovector_pointer(m->data);
		if (v[0] < v[1] || v[1] != last) {
			break;
		}
		from += from < n ? uc_length(p[from]) : 1; /* an empty match right behind the last one does not count */
	}
	*at_p = v[0];
	*end_p = v[1];
	return 1;
}
