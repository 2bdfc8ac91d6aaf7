/* store: the reader of XML answers. Not a general parser: what S3, its imitations, STS and GCS send is elements with
 * text, and everything else is either skipped or refused. */
#include "store/xml_int.h"

#define MAX_PATH_TEXT 512

struct xml {
	const char *p, *end;
	char path[MAX_PATH_TEXT];
	size_t n_path;
	size_t at[SKY_MAX_XML_DEPTH];   /* length of path before each open element */
	int depth;
	struct sky_buf text;
};

static int bad(struct sky_err *err, const char *what)
{
	return sky_fail(err, SKY_E_DATA, "XML answer: %s", what);
}

static int is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* UTF-8 of a code point; 0 when it is none that XML may name. */
static size_t utf8(uint32_t c, char out[4])
{
	if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
		return 0;
	}
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

static int char_reference(const char *s, size_t n, uint32_t *c_p)
{
	uint32_t c = 0;
	int hex = n > 0 && s[0] == 'x';

	if (n - (size_t)hex == 0 || n > 9) {
		return -1;
	}
	for (size_t i = (size_t)hex; i < n; i++) {
		int d = s[i] >= '0' && s[i] <= '9' ? s[i] - '0' : hex && s[i] >= 'a' && s[i] <= 'f' ? s[i] - 'a' + 10 :
		        hex && s[i] >= 'A' && s[i] <= 'F' ? s[i] - 'A' + 10 : -1;

		if (d < 0 || c > 0x10ffff) {
			return -1;
		}
		c = c * (hex ? 16 : 10) + (uint32_t)d;
	}
	*c_p = c;
	return 0;
}

/* At '&': resolves one entity into the text. */
static int entity(struct xml *x, struct sky_err *err)
{
	static const struct { const char *name; char c; } known[] = {
		{ "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' }, { "apos", '\'' },
	};
	const char *s = x->p + 1;
	const char *semi = memchr(s, ';', (size_t)(x->end - s) < 12 ? (size_t)(x->end - s) : 12);
	size_t n = semi ? (size_t)(semi - s) : 0;
	uint32_t c = 0;
	char u[4];

	if (!semi || n == 0) {
		return bad(err, "bad entity");
	}
	x->p = semi + 1;
	if (s[0] == '#') {
		size_t n_u = char_reference(s + 1, n - 1, &c) == 0 ? utf8(c, u) : 0;

		return n_u == 0 ? bad(err, "bad character reference") : sky_buf_add(&x->text, u, n_u, err);
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strlen(known[i].name) == n && strncmp(known[i].name, s, n) == 0) {
			return sky_buf_addc(&x->text, known[i].c, err);
		}
	}
	return bad(err, "unknown entity");
}

static int skip_past(struct xml *x, const char *mark, struct sky_err *err)
{
	const char *hit = memmem(x->p, (size_t)(x->end - x->p), mark, strlen(mark));

	if (!hit) {
		return bad(err, "unfinished markup");
	}
	x->p = hit + strlen(mark);
	return 0;
}

/* At "<!" or "<?". */
static int special(struct xml *x, struct sky_err *err)
{
	size_t left = (size_t)(x->end - x->p);
	const char *from;

	if (x->p[1] == '?') {
		return skip_past(x, "?>", err);
	}
	if (left >= 4 && memcmp(x->p, "<!--", 4) == 0) {
		x->p += 4;
		return skip_past(x, "-->", err);
	}
	if (left >= 9 && memcmp(x->p, "<![CDATA[", 9) == 0 && x->depth > 0) {
		from = x->p + 9;
		x->p = from;
		if (skip_past(x, "]]>", err) < 0) {
			return SKY_E_DATA;
		}
		return sky_buf_add(&x->text, from, (size_t)(x->p - 3 - from), err);
	}
	return bad(err, "declarations are not accepted");
}

/* Reads a name and drops its namespace prefix. */
static int name(struct xml *x, const char **s_p, size_t *n_p, struct sky_err *err)
{
	const char *s = x->p;

	while (x->p < x->end && !is_space(*x->p) && *x->p != '>' && *x->p != '/' && *x->p != '<' && *x->p != '=') {
		if (*x->p == ':') {
			s = x->p + 1;
		}
		x->p++;
	}
	if (x->p == s || x->p == x->end) {
		return bad(err, "bad element name");
	}
	*s_p = s;
	*n_p = (size_t)(x->p - s);
	return 0;
}

static int element_ends(struct xml *x, sky_xml_end on_end, void *ctx, struct sky_err *err)
{
	int rc = on_end(ctx, x->path, x->text.ptr ? x->text.ptr : "", err);

	x->n_path = x->at[--x->depth];
	x->path[x->n_path] = '\0';
	sky_buf_clear(&x->text);
	return rc;
}

static int start_tag(struct xml *x, sky_xml_end on_end, void *ctx, struct sky_err *err)
{
	const char *s;
	size_t n;
	char quote = 0;
	int closed;

	x->p++;
	if (name(x, &s, &n, err) < 0) {
		return SKY_E_DATA;
	}
	if (x->depth == SKY_MAX_XML_DEPTH || x->n_path + n + 2 > sizeof(x->path)) {
		return bad(err, "elements nest too deep");
	}
	x->at[x->depth++] = x->n_path;
	if (x->n_path > 0) {
		x->path[x->n_path++] = '/';
	}
	memcpy(x->path + x->n_path, s, n);
	x->n_path += n;
	x->path[x->n_path] = '\0';
	sky_buf_clear(&x->text);
	for (; x->p < x->end && (quote || *x->p != '>'); x->p++) {      /* attributes */
		if (quote ? *x->p == quote : *x->p == '"' || *x->p == '\'') {
			quote = quote ? 0 : *x->p;
		}
	}
	if (x->p == x->end) {
		return bad(err, "unfinished tag");
	}
	closed = x->p[-1] == '/';
	x->p++;
	return closed ? element_ends(x, on_end, ctx, err) : 0;
}

static int end_tag(struct xml *x, sky_xml_end on_end, void *ctx, struct sky_err *err)
{
	const char *s, *last;
	size_t n;

	x->p += 2;
	if (name(x, &s, &n, err) < 0) {
		return SKY_E_DATA;
	}
	while (x->p < x->end && is_space(*x->p)) {
		x->p++;
	}
	if (x->p == x->end || *x->p != '>' || x->depth == 0) {
		return bad(err, "bad end tag");
	}
	x->p++;
	last = x->path + x->at[x->depth - 1] + (x->at[x->depth - 1] > 0);
	if (strlen(last) != n || memcmp(last, s, n) != 0) {
		return bad(err, "tags do not match");
	}
	return element_ends(x, on_end, ctx, err);
}

static int one_item(struct xml *x, sky_xml_end on_end, void *ctx, struct sky_err *err)
{
	const char *from = x->p;

	if (*x->p == '<') {
		if (x->end - x->p < 2) {
			return bad(err, "unfinished tag");
		}
		return x->p[1] == '/'                   ? end_tag(x, on_end, ctx, err) :
		       x->p[1] == '!' || x->p[1] == '?' ? special(x, err) :
		                                          start_tag(x, on_end, ctx, err);
	}
	if (x->depth == 0) {
		if (!is_space(*x->p)) {
			return bad(err, "text outside of the document");
		}
		x->p++;
		return 0;
	}
	if (*x->p == '&') {
		return entity(x, err);
	}
	while (x->p < x->end && *x->p != '<' && *x->p != '&') {
		if (*x->p++ == '\0') {
			return bad(err, "a NUL byte");
		}
	}
	return sky_buf_add(&x->text, from, (size_t)(x->p - from), err);
}

int sky_xml_walk(const char *p, size_t n, sky_xml_end on_end, void *ctx, struct sky_err *err)
{
	struct xml x = { .p = p, .end = p + n, .text = SKY_BUF_INIT(SKY_MAX_XML_TEXT) };
	int rc = 0, any = 0;

	if (n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0) {
		x.p += 3;
	}
	while (rc == 0 && x.p < x.end) {
		any |= x.depth > 0;
		rc = one_item(&x, on_end, ctx, err);
	}
	if (rc == 0 && (x.depth > 0 || !any)) {
		rc = bad(err, any ? "it ends early" : "it is empty");
	}
	sky_buf_release(&x.text);
	return rc == SKY_E_LIMIT ? bad(err, "a text is too long") : rc;
}

int sky_xml_escape(struct sky_buf *out, const char *s, struct sky_err *err)
{
	int rc = 0;

	for (; *s && rc == 0; s++) {
		rc = *s == '&' ? sky_buf_adds(out, "&amp;", err) : *s == '<' ? sky_buf_adds(out, "&lt;", err) :
		     *s == '>' ? sky_buf_adds(out, "&gt;", err) : *s == '"' ? sky_buf_adds(out, "&quot;", err) :
		     sky_buf_addc(out, *s, err);
	}
	return rc;
}
