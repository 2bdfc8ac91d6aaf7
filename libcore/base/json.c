/* JSON text to a document.
 *
 * Own parser: the libraries of the field are lax about syntax, clip integers or allocate per node (a manifest has
 * 70,000 elements, a tokenizer 300,000). The text is copied once; strings are decoded in place, which never makes them
 * longer, and keys, strings and numbers are NUL-terminated where a delimiter stood. RFC 8259, no extensions but the
 * flags. */
#include "base/json.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/json_int.h"
#include "base/limits.h"

struct parser {
	struct sky_json *doc;
	char *p, *end;                  /* *end is NUL */
	const char *orig;               /* the caller's text, for line and column */
	const char *name;
	unsigned flags;
	int depth;
	struct sky_jnode *stack;        /* children of the containers that are open */
	size_t n_stack, cap_stack;
	struct sky_err *err;
};

static int parse_value(struct parser *s, struct sky_jnode *v);

uint32_t sky_j_hash(const char *key, size_t n)
{
	return (uint32_t)sky_xxh64(key, n, 0);
}

static int fail_at(struct parser *s, const char *at, const char *what)
{
	const char *p, *line_start = s->orig, *stop = s->orig + (at - s->doc->text);
	int64_t line = 1, column = 1;

	for (p = s->orig; p < stop; p++) {
		if (*p == '\n') {
			line++;
			line_start = p + 1;
		}
	}
	for (p = line_start; p < stop; p++) {
		column += ((unsigned char)*p & 0xc0) != 0x80;
	}
	return sky_fail(s->err, SKY_E_DATA, "%s:%lld:%lld: %s", s->name, (long long)line, (long long)column, what);
}

static void skip_space(struct parser *s)
{
	while (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r') {
		s->p++;
	}
}

static int hex4(const char *p)
{
	int i, v = 0;

	for (i = 0; i < 4; i++) {
		int c = (unsigned char)p[i], d;

		d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
		if (d < 0) {
			return -1;
		}
		v = v << 4 | d;
	}
	return v;
}

static char *put_utf8(char *w, uint32_t c)
{
	if (c < 0x80) {
		*w++ = (char)c;
	} else if (c < 0x800) {
		*w++ = (char)(0xc0 | c >> 6);
		*w++ = (char)(0x80 | (c & 0x3f));
	} else if (c < 0x10000) {
		*w++ = (char)(0xe0 | c >> 12);
		*w++ = (char)(0x80 | (c >> 6 & 0x3f));
		*w++ = (char)(0x80 | (c & 0x3f));
	} else {
		*w++ = (char)(0xf0 | c >> 18);
		*w++ = (char)(0x80 | (c >> 12 & 0x3f));
		*w++ = (char)(0x80 | (c >> 6 & 0x3f));
		*w++ = (char)(0x80 | (c & 0x3f));
	}
	return w;
}

/* The escape at s->p (behind the backslash) to *w_p. A surrogate without its partner becomes U+FFFD: such text occurs
 * in fields that nobody reads and must not make a document unusable. */
static int parse_escape(struct parser *s, char **w_p)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at = s->p, *f;
	int c, low;

	if (*s->p != 'u') {
		f = *s->p ? strchr(from, *s->p) : NULL;
		if (!f) {
			return fail_at(s, at - 1, "unknown escape in a string");
		}
		*(*w_p)++ = to[f - from];
		s->p++;
		return 0;
	}
	c = hex4(s->p + 1);
	if (c < 0) {
		return fail_at(s, at - 1, "\\u needs four hexadecimal digits");
	}
	s->p += 5;
	if (c == 0 && !(s->flags & SKY_JSON_NUL)) {
		return fail_at(s, at - 1, "\\u0000 in a string is not supported");
	}
	if (c >= 0xd800 && c < 0xdc00 && s->p[0] == '\\' && s->p[1] == 'u') {
		low = hex4(s->p + 2);
		if (low >= 0xdc00 && low < 0xe000) {
			*w_p = put_utf8(*w_p, 0x10000u + ((uint32_t)(c - 0xd800) << 10) + (uint32_t)(low - 0xdc00));
			s->p += 6;
			return 0;
		}
	}
	*w_p = put_utf8(*w_p, c >= 0xd800 && c < 0xe000 ? 0xfffdu : (uint32_t)c);
	return 0;
}

/* Bytes of the UTF-8 character at p, 0 when it is none. The NUL behind the text ends every sequence. */
static int utf8_len(const unsigned char *p)
{
	int n, i;

	if (p[0] < 0xc2 || p[0] > 0xf4) {
		return 0;
	}
	n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	for (i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80) {
			return 0;
		}
	}
	if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) || (p[0] == 0xf0 && p[1] < 0x90) ||
	    (p[0] == 0xf4 && p[1] > 0x8f)) {
		return 0;
	}
	return n;
}

/* True where one of the eight bytes is a quote, a backslash, a control character or not ASCII. */
static bool special8(const char *p)
{
	const uint64_t ones = 0x0101010101010101ull, high = 0x8080808080808080ull;
	uint64_t v, q, b;

	memcpy(&v, p, 8);
	q = v ^ ones * '"';
	b = v ^ ones * '\\';
	return ((v | (v - ones * 0x20) | ((q - ones) & ~q) | ((b - ones) & ~b)) & high) != 0;
}

/* s->p stands behind the opening quote. */
static int parse_string(struct parser *s, const char **text_p, uint32_t *n_p)
{
	char *start = s->p, *w;
	int n, rc;

	for (w = start;;) {
		if (w == s->p) {
			/* Nothing was decoded so far: source and target are the same. */
			while (s->end - s->p >= 8 && !special8(s->p)) {
				s->p += 8;
			}
			w = s->p;
		}
		unsigned char c = (unsigned char)*s->p;

		if (c == '"') {
			break;
		}
		if (c == '\\') {
			s->p++;
			rc = parse_escape(s, &w);
			if (rc < 0) {
				return rc;
			}
		} else if (c < 0x20) {
			return fail_at(s, s->p, s->p >= s->end ? "the text ends inside a string" :
			               "control character in a string (it must be escaped)");
		} else if (c < 0x80) {
			*w++ = *s->p++;
		} else {
			n = utf8_len((const unsigned char *)s->p);
			if (n == 0) {
				return fail_at(s, s->p, "invalid UTF-8");
			}
			memmove(w, s->p, (size_t)n);
			w += n;
			s->p += n;
		}
	}
	s->p++;
	*w = '\0';
	*text_p = start;
	*n_p = (uint32_t)(w - start);
	return 0;
}

static bool digits(char **p)
{
	char *start = *p;

	while (**p >= '0' && **p <= '9') {
		(*p)++;
	}
	return *p > start;
}

static int parse_number(struct parser *s, struct sky_jnode *v)
{
	char *p = s->p;

	p += *p == '-';
	if (s->flags & SKY_JSON_PYTHON && (strncmp(p, "Infinity", 8) == 0 ||
	                                   (p == s->p && strncmp(p, "NaN", 3) == 0))) {
		p += *p == 'I' ? 8 : 3;
	} else {
		if (*p == '0') {
			p++;
		} else if (!digits(&p)) {
			return fail_at(s, s->p, "a value is expected");
		}
		if (*p == '.') {
			p++;
			if (!digits(&p)) {
				return fail_at(s, p, "digits are expected behind the decimal point");
			}
		}
		if (*p == 'e' || *p == 'E') {
			p++;
			p += *p == '+' || *p == '-';
			if (!digits(&p)) {
				return fail_at(s, p, "digits are expected in the exponent");
			}
		}
	}
	v->type = SKY_J_NUMBER;
	v->u.text = s->p;
	v->n = (uint32_t)(p - s->p);
	s->p = p;
	return 0;
}

static int push(struct parser *s, const struct sky_jnode *v)
{
	struct sky_jnode *more;
	size_t cap;

	if (s->n_stack == s->cap_stack) {
		cap = s->cap_stack ? 2 * s->cap_stack : 256;
		more = sky_realloc_array(s->stack, cap, sizeof(*more));
		if (!more) {
			return sky_fail_mem(s->err, "parsing %s", s->name);
		}
		s->stack = more;
		s->cap_stack = cap;
	}
	s->stack[s->n_stack++] = *v;
	return 0;
}

/* A key that occurs again replaces the value at its first place, as in Python. Returns the place, or n when new. */
static uint32_t find_same(const struct sky_jnode *kids, uint32_t n, const struct sky_jnode *v, uint32_t *table,
                          uint32_t cap)
{
	uint32_t i, at;

	if (!table) {
		for (i = 0; i < n; i++) {
			if (kids[i].hash == v->hash && strcmp(kids[i].key, v->key) == 0) {
				return i;
			}
		}
		return n;
	}
	for (at = v->hash & (cap - 1); table[at] != 0; at = (at + 1) & (cap - 1)) {
		i = table[at] - 1;
		if (kids[i].hash == v->hash && strcmp(kids[i].key, v->key) == 0) {
			return i;
		}
	}
	table[at] = n + 1;
	return n;
}

/* Moves the children from the stack to their final place and builds the table of a large object. */
static int close_container(struct parser *s, struct sky_jnode *v, size_t from)
{
	size_t count = s->n_stack - from, bytes = count * sizeof(*v), table_bytes = 0, i;
	uint32_t cap = 0, n = 0, at, *table = NULL;
	struct sky_jnode *kids;
	char *mem;

	s->n_stack = from;
	v->u.child = NULL;
	v->n = 0;
	if (count == 0) {
		return 0;
	}
	if (v->type == SKY_J_OBJECT && count >= SKY_J_TABLE_FROM) {
		cap = sky_j_table_cap((uint32_t)count);
		table_bytes = (size_t)cap * sizeof(*table);
	}
	mem = sky_arena_alloc(&s->doc->arena, table_bytes + bytes);
	if (!mem) {
		return sky_fail_mem(s->err, "parsing %s", s->name);
	}
	kids = (struct sky_jnode *)(void *)(mem + table_bytes);
	if (v->type == SKY_J_ARRAY) {
		memcpy(kids, s->stack + from, bytes);
		n = (uint32_t)count;
	} else {
		if (cap > 0) {
			table = memset(mem, 0, table_bytes);
		}
		for (i = 0; i < count; i++) {
			at = find_same(kids, n, &s->stack[from + i], table, cap);
			if (at < n && s->flags & SKY_JSON_NO_DUP) {
				return fail_at(s, s->stack[from + i].key - 1, "this key occurs twice in its object");
			}
			kids[at] = s->stack[from + i];
			n += at == n;
		}
		if (n < count && cap > 0 && (n < SKY_J_TABLE_FROM || sky_j_table_cap(n) != cap)) {
			/* Duplicates changed the size class: the reader derives the table from n. */
			v->n = n;
			for (i = 0; i < n; i++) {
				s->stack[from + i] = kids[i];
			}
			s->n_stack = from + n;
			return close_container(s, v, from);
		}
	}
	kids[n - 1].last = 1;
	v->u.child = kids;
	v->n = n;
	return 0;
}

static int parse_member_key(struct parser *s, struct sky_jnode *kid)
{
	uint32_t n;
	int rc;

	if (*s->p != '"') {
		return fail_at(s, s->p, "a key in double quotes is expected");
	}
	s->p++;
	rc = parse_string(s, &kid->key, &n);
	if (rc < 0) {
		return rc;
	}
	if (memchr(kid->key, '\0', n)) {
		return fail_at(s, s->p - 1, "\\u0000 in a key is not supported");
	}
	kid->hash = sky_j_hash(kid->key, n);
	skip_space(s);
	if (*s->p != ':') {
		return fail_at(s, s->p, "':' is expected behind a key");
	}
	s->p++;
	skip_space(s);
	return 0;
}

static int parse_container(struct parser *s, struct sky_jnode *v, char close)
{
	size_t from = s->n_stack;
	struct sky_jnode kid;
	char c, *end;
	int rc;

	if (++s->depth > SKY_MAX_JSON_DEPTH) {
		return fail_at(s, s->p, "nested deeper than 64");
	}
	s->p++;
	skip_space(s);
	if (*s->p == close) {
		s->p++;
		s->depth--;
		return close_container(s, v, from);
	}
	do {
		memset(&kid, 0, sizeof(kid));
		skip_space(s);
		rc = v->type == SKY_J_OBJECT ? parse_member_key(s, &kid) : 0;
		if (rc == 0) {
			rc = parse_value(s, &kid);
		}
		if (rc == 0) {
			rc = push(s, &kid);
		}
		if (rc < 0) {
			return rc;
		}
		end = s->p;
		skip_space(s);
		c = *s->p;
		if (kid.type == SKY_J_NUMBER && c != '\0') {
			*end = '\0';
		}
		if (c != ',' && c != close) {
			return fail_at(s, s->p, s->p >= s->end ? "the text ends inside an object or array" :
			               close == '}' ? "',' or '}' is expected" : "',' or ']' is expected");
		}
		s->p++;
	} while (c == ',');
	s->depth--;
	return close_container(s, v, from);
}

static int parse_word(struct parser *s, struct sky_jnode *v, const char *word, enum sky_jtype type, bool truth)
{
	size_t n = strlen(word);

	if (strncmp(s->p, word, n) != 0) {
		return fail_at(s, s->p, "a value is expected");
	}
	s->p += n;
	v->type = (uint8_t)type;
	v->u.truth = truth;
	return 0;
}

static int parse_value(struct parser *s, struct sky_jnode *v)
{
	switch (*s->p) {
	case '{':
		v->type = SKY_J_OBJECT;
		return parse_container(s, v, '}');
	case '[':
		v->type = SKY_J_ARRAY;
		return parse_container(s, v, ']');
	case '"':
		v->type = SKY_J_STRING;
		s->p++;
		return parse_string(s, &v->u.text, &v->n);
	case 't':
		return parse_word(s, v, "true", SKY_J_BOOL, true);
	case 'f':
		return parse_word(s, v, "false", SKY_J_BOOL, false);
	case 'n':
		return parse_word(s, v, "null", SKY_J_NULL, false);
	case '\0':
		return fail_at(s, s->p, s->p >= s->end ?
		               "the text ends where a value is expected" : "a value is expected");
	default:
		return parse_number(s, v);
	}
}

int sky_json_parse(const char *text, size_t n, const char *name, unsigned flags, struct sky_json **doc_p,
                   struct sky_err *err)
{
	struct parser s = { .orig = text, .name = name, .flags = flags, .err = err };
	struct sky_json *doc;
	int rc;

	if (n > SKY_MAX_JSON_BYTES) {
		return sky_fail(err, SKY_E_LIMIT, "%s: %zu bytes of JSON, the limit is %llu", name, n,
		                SKY_MAX_JSON_BYTES);
	}
	doc = calloc(1, sizeof(*doc));
	if (!doc || !(doc->text = malloc(n + 1))) {
		free(doc);
		return sky_fail_mem(err, "parsing %s", name);
	}
	if (n > 0) {
		memcpy(doc->text, text, n);
	}
	doc->text[n] = '\0';
	sky_arena_init(&doc->arena, n < (16 << 10) ? 4 << 10 : 256 << 10, 0);
	s.doc = doc;
	s.p = doc->text;
	s.end = doc->text + n;
	if (n >= 3 && memcmp(s.p, "\xef\xbb\xbf", 3) == 0) {
		s.p += 3;
	}
	skip_space(&s);
	rc = parse_value(&s, &doc->root);
	if (rc == 0) {
		char *end = s.p;

		skip_space(&s);
		if (s.p != s.end) {
			rc = fail_at(&s, s.p, "text follows the end of the JSON value");
		}
		if (doc->root.type == SKY_J_NUMBER) {
			*end = '\0';
		}
	}
	free(s.stack);
	if (rc < 0) {
		sky_json_free(doc);
		return rc;
	}
	doc->root.last = 1;
	*doc_p = doc;
	return 0;
}

int sky_json_load(const char *path, unsigned flags, struct sky_json **doc_p, struct sky_err *err)
{
	struct sky_buf b = SKY_BUF_INIT(SKY_MAX_JSON_BYTES);
	int rc;

	rc = sky_file_read(path, &b, err);
	if (rc == 0) {
		rc = sky_json_parse(b.ptr ? b.ptr : "", b.n, path, flags, doc_p, err);
	}
	sky_buf_release(&b);
	return rc;
}

void sky_json_free(struct sky_json *doc)
{
	if (!doc) {
		return;
	}
	sky_arena_release(&doc->arena);
	free(doc->text);
	free(doc);
}

const struct sky_jnode *sky_json_root(const struct sky_json *doc)
{
	return &doc->root;
}
