/* jinja: template source to tokens (part of text). Rules of Jinja2 3.1 with trim_blocks and lstrip_blocks on and
 * keep_trailing_newline off: a newline behind a block tag or a comment goes, blanks before one at the start of a line
 * go, "-" takes all white space on its side, "+" keeps it. */
#include "text/jinja_int.h"

void jlex_init(struct jlex *l, struct jtree *tree, const char *name, struct sky_err *err)
{
	*l = (struct jlex){ .tree = tree, .src = tree->src, .n = tree->n_src, .name = name, .line = 1, .line_start = true,
		.err = err };
}

static int lex_fail(struct jlex *l, uint32_t line, const char *what)
{
	return sky_fail(l->err, SKY_E_DATA, "%s: line %u: %s", l->name, (unsigned)line, what);
}

static bool at(const struct jlex *l, uint32_t pos, const char *s)
{
	size_t n = strlen(s);

	return l->n - pos >= n && memcmp(l->src + pos, s, n) == 0;
}

/* Moves to pos and counts lines. */
static void move(struct jlex *l, uint32_t pos)
{
	for (uint32_t i = l->pos; i < pos; i++) {
		l->line += l->src[i] == '\n';
	}
	l->pos = pos;
}

static uint32_t skip_space(const struct jlex *l, uint32_t pos)
{
	while (pos < l->n) {
		uint32_t next = pos;

		if (!ju_space(ju_next(l->src, l->n, &next))) {
			break;
		}
		pos = next;
	}
	return pos;
}

/* End of [from, to) without trailing white space. */
static uint32_t rstrip(const struct jlex *l, uint32_t from, uint32_t to)
{
	while (to > from) {
		uint32_t i = to - 1, next;

		while (i > from && ((uint8_t)l->src[i] & 0xc0) == 0x80) {
			i--;
		}
		next = i;
		if (!ju_space(ju_next(l->src, l->n, &next))) {
			break;
		}
		to = i;
	}
	return to;
}

/* End of the text [from, to) in front of a tag whose sign is sign; variable tags never lose blanks. */
static uint32_t text_end(const struct jlex *l, uint32_t from, uint32_t to, char sign, bool variable)
{
	uint32_t line = to;

	if (sign == '-') {
		return rstrip(l, from, to);
	}
	if (sign == '+' || variable) {
		return to;
	}
	while (line > from && l->src[line - 1] != '\n') {
		line--;
	}
	if ((line > from || l->line_start) && rstrip(l, line, to) == line) {
		return line;
	}
	return to;
}

/* Length of the end of a tag at pos ("%}", "-%}", "+%}" …) with the white space that it takes; 0 when there is none.
 * trim: a plain end takes one newline. */
static uint32_t tag_end(const struct jlex *l, uint32_t pos, const char *end, bool trim)
{
	if (l->src[pos] == '-' && at(l, pos + 1, end)) {
		return skip_space(l, pos + 3) - pos;
	}
	if (trim && l->src[pos] == '+' && at(l, pos + 1, end)) {
		return 3;
	}
	if (at(l, pos, end)) {
		return 2 + (trim && pos + 2 < l->n && l->src[pos + 2] == '\n');
	}
	return 0;
}

static char sign_at(const struct jlex *l, uint32_t pos)
{
	return pos < l->n && (l->src[pos] == '-' || l->src[pos] == '+') ? l->src[pos] : 0;
}

/* {% raw %} at pos? Returns the position behind its end, 0 when it is another tag. */
static uint32_t raw_tag(const struct jlex *l, uint32_t pos, const char *word, bool trim)
{
	uint32_t p = pos + 2, e;

	p += sign_at(l, p) != 0;
	p = skip_space(l, p);
	if (!at(l, p, word)) {
		return 0;
	}
	p = skip_space(l, p + (uint32_t)strlen(word));
	if (p >= l->n) {
		return 0;
	}
	e = tag_end(l, p, "%}", trim);
	if (!trim && l->src[p] == '+') {
		return 0;
	}
	return e ? p + e : 0;
}

static int lex_raw(struct jlex *l, uint32_t body, struct jtoken *tok)
{
	for (uint32_t p = body; p + 1 < l->n; p++) {
		uint32_t after;

		if (l->src[p] != '{' || l->src[p + 1] != '%' || (after = raw_tag(l, p, "endraw", true)) == 0) {
			continue;
		}
		l->line_start = body > 0 && l->src[body - 1] == '\n';
		tok->t = JK_TEXT;
		tok->p = l->src + body;
		tok->n = text_end(l, body, p, sign_at(l, p + 2), false) - body;
		move(l, after);
		l->line_start = l->src[after - 1] == '\n';
		return 0;
	}
	return lex_fail(l, l->line, "missing end of raw block: {% endraw %}");
}

static int lex_comment(struct jlex *l, uint32_t pos)
{
	for (uint32_t p = pos + 2 + (sign_at(l, pos + 2) != 0); p < l->n; p++) {
		uint32_t e = tag_end(l, p, "#}", true);

		if (e > 0) {
			move(l, p + e);
			l->line_start = l->src[l->pos - 1] == '\n';
			return 0;
		}
	}
	return lex_fail(l, l->line, "missing end of comment: #}");
}

/* Text up to the next tag; then the tag itself. May yield an empty text token. */
static int lex_text(struct jlex *l, struct jtoken *tok)
{
	uint32_t from = l->pos, p = from, after;
	char kind = 0;

	while (p + 1 < l->n && !(l->src[p] == '{' && strchr("%{#", kind = l->src[p + 1]) && kind)) {
		const char *q = memchr(l->src + p + 1, '{', l->n - p - 1);

		p = q ? (uint32_t)(q - l->src) : l->n;
	}
	*tok = (struct jtoken){ .t = JK_TEXT, .line = l->line, .p = l->src + from };
	if (p + 1 >= l->n) {
		tok->n = l->n - from;
		move(l, l->n);
		if (tok->n == 0) {
			tok->t = JK_EOF;
		}
		return 0;
	}
	tok->n = text_end(l, from, p, sign_at(l, p + 2), kind == '{') - from;
	move(l, p);
	if (kind == '#') {
		l->pending = 0;
		return lex_comment(l, p);
	}
	if (kind == '%' && (after = raw_tag(l, p, "raw", false)) != 0) {
		l->pending = JK_TEXT;
		l->pending_len = after;
		return 0;
	}
	l->pending = kind == '%' ? JK_BLOCK_BEGIN : JK_VAR_BEGIN;
	l->pending_len = sign_at(l, p + 2) ? 3 : 2;
	return 0;
}

static int hex_digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* One escape of Python's unicode-escape codec at s[i] == '\\'; returns bytes consumed, or 0 for a bad one. */
static uint32_t unescape(const char *s, uint32_t n, uint32_t i, char *out, uint32_t *n_out)
{
	static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
	char c = s[i + 1];
	const char *q = memchr(from, c, sizeof(from) - 1);
	uint32_t width = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, cp = 0, k;

	*n_out = 0;
	if (q) {
		out[(*n_out)++] = to[q - from];
		return 2;
	}
	if (c == '\n') {
		return 2;
	}
	if (width) {
		for (k = 0; k < width; k++) {
			if (i + 2 + k >= n || hex_digit(s[i + 2 + k]) < 0) {
				return 0;
			}
			cp = cp << 4 | (uint32_t)hex_digit(s[i + 2 + k]);
		}
		if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) {
			return 0;
		}
		*n_out = ju_put(out, cp);
		return 2 + width;
	}
	if (c >= '0' && c <= '7') {
		for (k = 0; k < 3 && i + 1 + k < n && s[i + 1 + k] >= '0' && s[i + 1 + k] <= '7'; k++) {
			cp = cp * 8 + (uint32_t)(s[i + 1 + k] - '0');
		}
		*n_out = ju_put(out, cp);
		return 1 + k;
	}
	out[(*n_out)++] = '\\';
	out[(*n_out)++] = c;    /* an unknown escape stays as it is */
	return 2;
}

static int lex_string(struct jlex *l, struct jtoken *tok)
{
	char quote = l->src[l->pos];
	uint32_t end = l->pos + 1, n = 0;
	char *out;

	while (end < l->n && l->src[end] != quote) {
		end += l->src[end] == '\\' ? 2 : 1;
	}
	if (end >= l->n) {
		return lex_fail(l, l->line, "a string is not closed");
	}
	out = jtree_alloc(l->tree, (size_t)(end - l->pos) + 4);
	if (!out) {
		return sky_fail(l->err, SKY_E_LIMIT, "%s: out of memory", l->name);
	}
	for (uint32_t i = l->pos + 1; i < end;) {
		uint32_t used, k;

		if (l->src[i] != '\\') {
			out[n++] = l->src[i++];
			continue;
		}
		used = unescape(l->src, end, i, out + n, &k);
		if (used == 0) {
			return lex_fail(l, l->line, "a string holds a broken \\x, \\u or \\U escape");
		}
		n += k;
		i += used;
	}
	tok->t = JK_STR;
	tok->p = out;
	tok->n = n;
	move(l, end + 1);
	return 0;
}

static bool digit(char c)
{
	return c >= '0' && c <= '9';
}

static uint32_t digits(const struct jlex *l, uint32_t p, bool hex)
{
	while (p < l->n && (digit(l->src[p]) || (hex && hex_digit(l->src[p]) >= 0) ||
	                    (l->src[p] == '_' && p + 1 < l->n && hex_digit(l->src[p + 1]) >= 0))) {
		p++;
	}
	return p;
}

/* Integers in decimal, 0x, 0o, 0b; floats need a digit on both sides of the point, or an exponent. */
static int lex_number(struct jlex *l, struct jtoken *tok)
{
	uint32_t p = digits(l, l->pos, false), n = 0, e;
	char text[400];
	int base = 10;
	bool is_float = false;

	if (l->src[l->pos] == '0' && l->pos + 2 < l->n && strchr("xXoObB", l->src[l->pos + 1])) {
		char c = (char)(l->src[l->pos + 1] | 32);

		base = c == 'x' ? 16 : c == 'o' ? 8 : 2;
		p = digits(l, l->pos + 2, true);
	} else {
		if (p + 1 < l->n && l->src[p] == '.' && digit(l->src[p + 1])) {
			p = digits(l, p + 1, false);
			is_float = true;
		}
		if (p < l->n && (l->src[p] | 32) == 'e') {
			e = p + 1 + (p + 1 < l->n && (l->src[p + 1] == '+' || l->src[p + 1] == '-'));
			if (e < l->n && digit(l->src[e])) {
				p = digits(l, e, false);
				is_float = true;
			}
		}
	}
	for (uint32_t i = l->pos + (base == 10 ? 0 : 2); i < p && n + 1 < sizeof(text); i++) {
		if (l->src[i] != '_') {
			text[n++] = l->src[i];
		}
	}
	text[n] = 0;
	tok->t = is_float ? JK_FLOAT : JK_INT;
	if (is_float) {
		tok->d = strtod(text, NULL);    /* digits and an exponent, checked above; the C locale rules numbers */
	}
	for (uint32_t i = 0; !is_float && i < n; i++) {
		int v = hex_digit(text[i]);

		if (v >= base || __builtin_mul_overflow(tok->i, (int64_t)base, &tok->i) ||
		    __builtin_add_overflow(tok->i, (int64_t)v, &tok->i)) {
			return lex_fail(l, l->line, "an integer literal is malformed or beyond 64 bits");
		}
	}
	move(l, p);
	return 0;
}

static bool name_byte(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || digit(c) || (uint8_t)c >= 0x80;
}

static int lex_op(struct jlex *l, struct jtoken *tok)
{
	static const char two[] = "//**==!=>=<=";
	char c = l->src[l->pos];

	tok->t = JK_OP;
	tok->op[0] = c;
	tok->op[1] = tok->op[2] = 0;
	for (int i = 0; two[i]; i += 2) {
		if (c == two[i] && l->pos + 1 < l->n && l->src[l->pos + 1] == two[i + 1]) {
			tok->op[1] = two[i + 1];
			move(l, l->pos + 2);
			return 0;
		}
	}
	if (!strchr("+-*/~%()[]{}<>=.,:|;", c)) {
		char msg[64];

		snprintf(msg, sizeof(msg), "unexpected char '%c' in a tag", (uint8_t)c < 0x20 || (uint8_t)c > 0x7e ? '?' : c);
		return lex_fail(l, l->line, msg);
	}
	if (strchr("([{", c)) {
		if (l->n_stack >= JINJA_MAX_NEST) {
			return lex_fail(l, l->line, "brackets are nested too deeply");
		}
		l->stack[l->n_stack++] = c == '(' ? ')' : c == '[' ? ']' : '}';
	} else if (strchr(")]}", c)) {
		if (l->n_stack == 0 || l->stack[l->n_stack - 1] != c) {
			return lex_fail(l, l->line, "a closing bracket has no partner");
		}
		l->n_stack--;
	}
	move(l, l->pos + 1);
	return 0;
}

static int lex_tag(struct jlex *l, struct jtoken *tok)
{
	const char *end = l->in_block == JK_BLOCK_BEGIN ? "%}" : "}}";
	uint32_t p, e;
	char c;

	move(l, skip_space(l, l->pos));
	*tok = (struct jtoken){ .line = l->line };
	if (l->pos >= l->n) {
		return lex_fail(l, l->line, l->in_block == JK_BLOCK_BEGIN ? "unexpected end of template, a {% tag is open" :
		                "unexpected end of template, a {{ tag is open");
	}
	e = l->n_stack ? 0 : tag_end(l, l->pos, end, l->in_block == JK_BLOCK_BEGIN);
	if (e > 0) {
		tok->t = l->in_block == JK_BLOCK_BEGIN ? JK_BLOCK_END : JK_VAR_END;
		l->in_block = 0;
		move(l, l->pos + e);
		l->line_start = l->src[l->pos - 1] == '\n';
		return 0;
	}
	c = l->src[l->pos];
	if (c == '\'' || c == '"') {
		return lex_string(l, tok);
	}
	if (digit(c)) {
		return lex_number(l, tok);
	}
	if (!name_byte(c)) {
		return lex_op(l, tok);
	}
	for (p = l->pos; p < l->n && name_byte(l->src[p]); p++) {
	}
	tok->t = JK_NAME;
	tok->p = l->src + l->pos;
	tok->n = p - l->pos;
	move(l, p);
	return 0;
}

int jlex_next(struct jlex *l, struct jtoken *tok)
{
	uint8_t pending = l->pending;

	if (l->in_block) {
		return lex_tag(l, tok);
	}
	if (pending == JK_TEXT) {
		uint32_t body = l->pending_len;

		l->pending = 0;
		*tok = (struct jtoken){ .line = l->line };
		move(l, body);
		return lex_raw(l, body, tok);
	}
	if (pending) {
		l->pending = 0;
		*tok = (struct jtoken){ .t = pending, .line = l->line };
		move(l, l->pos + l->pending_len);
		l->in_block = pending;
		return 0;
	}
	return lex_text(l, tok);
}
