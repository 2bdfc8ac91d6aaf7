/* A scanner over the text of a tokenizer.json: vocabulary and merges are hundreds of thousands of short strings, too
 * many for a tree of nodes. Everything else of the file goes through base/json.h. */
#include "text/tok_int.h"

#include <string.h>

void tj_init(struct tj *j, const char *s, size_t n, const char *name)
{
	j->p = j->start = s;
	j->end = s + n;
	j->name = name;
	sky_buf_init(&j->text, SKY_MAX_JSON_BYTES);
}

void tj_release(struct tj *j)
{
	sky_buf_release(&j->text);
}

int tj_fail(const struct tj *j, const char *what, struct sky_err *err)
{
	return sky_fail(err, SKY_E_DATA, "%s: byte %zu: %s", j->name, (size_t)(j->p - j->start), what);
}

char tj_peek(struct tj *j)
{
	if (j->p < j->end && (unsigned char)*j->p > ' ') {
		return *j->p;
	}
	while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t')) {
		j->p++;
	}
	return j->p < j->end ? *j->p : 0;
}

int tj_expect(struct tj *j, char c, struct sky_err *err)
{
	char what[32];

	if (tj_peek(j) != c || j->p == j->end) {
		snprintf(what, sizeof(what), "expected '%c'", c);
		return tj_fail(j, what, err);
	}
	j->p++;
	return 0;
}

static int hex4(struct tj *j, uint32_t *v_p, struct sky_err *err)
{
	uint32_t v = 0;

	if (j->end - j->p < 4) {
		return tj_fail(j, "the file ends inside an escape", err);
	}
	for (int i = 0; i < 4; i++) {
		int c = (unsigned char)j->p[i];
		int d = c >= '0' && c <= '9'   ? c - '0'
			: c >= 'a' && c <= 'f' ? c - 'a' + 10
			: c >= 'A' && c <= 'F' ? c - 'A' + 10
					       : -1;

		if (d < 0) {
			return tj_fail(j, "bad \\u escape", err);
		}
		v = v << 4 | (uint32_t)d;
	}
	j->p += 4;
	*v_p = v;
	return 0;
}

/* j->p is behind the backslash. */
static int escape(struct tj *j, struct sky_err *err)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *at;
	uint32_t v, low;
	uint8_t b[4];
	int rc;

	if (j->p == j->end) {
		return tj_fail(j, "the file ends inside an escape", err);
	}
	if (*j->p != 'u') {
		at = *j->p ? strchr(from, *j->p) : NULL;
		if (!at) {
			return tj_fail(j, "unknown escape", err);
		}
		j->p++;
		return sky_buf_addc(&j->text, to[at - from], err);
	}
	j->p++;
	rc = hex4(j, &v, err);
	if (rc == 0 && v >= 0xd800 && v < 0xe000) {
		if (v >= 0xdc00 || j->end - j->p < 6 || j->p[0] != '\\' || j->p[1] != 'u') {
			return tj_fail(j, "lone surrogate escape", err);
		}
		j->p += 2;
		rc = hex4(j, &low, err);
		if (rc == 0 && (low < 0xdc00 || low > 0xdfff)) {
			return tj_fail(j, "lone surrogate escape", err);
		}
		v = rc == 0 ? 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00) : 0;
	}
	return rc < 0 ? rc : sky_buf_add(&j->text, b, uc_encode(v, b), err);
}

/* Up to a quote, a backslash or a control character. */
static inline void plain_run(struct tj *j)
{
	const char *p = j->p, *end = j->end;

	while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20) {
		p++;
	}
	j->p = p;
}

/* The text is known to be valid UTF-8 (checked once for the whole file). */
int tj_string(struct tj *j, const char **s_p, size_t *n_p, struct sky_err *err)
{
	const char *from;
	int rc = tj_expect(j, '"', err);

	if (rc < 0) {
		return rc;
	}
	from = j->p;
	plain_run(j);
	if (j->p < j->end && *j->p == '"') {
		*s_p = from;
		*n_p = (size_t)(j->p++ - from);
		return 0;
	}
	sky_buf_clear(&j->text);
	for (;;) {
		rc = sky_buf_add(&j->text, from, (size_t)(j->p - from), err);
		if (rc < 0) {
			return rc;
		}
		if (j->p == j->end) {
			return tj_fail(j, "the file ends inside a string", err);
		}
		if (*j->p == '"') {
			break;
		}
		if (*j->p != '\\') {
			return tj_fail(j, "control character in a string", err);
		}
		j->p++;
		rc = escape(j, err);
		if (rc < 0) {
			return rc;
		}
		from = j->p;
		plain_run(j);
	}
	j->p++;
	*s_p = j->text.ptr ? j->text.ptr : "";
	*n_p = j->text.n;
	return 0;
}

int tj_u32(struct tj *j, uint32_t *v_p, struct sky_err *err)
{
	uint64_t v = 0;
	const char *from;

	tj_peek(j);
	from = j->p;
	while (j->p < j->end && *j->p >= '0' && *j->p <= '9' && v <= UINT32_MAX) {
		v = v * 10 + (uint64_t)(*j->p++ - '0');
	}
	if (j->p == from || v > UINT32_MAX || (j->p < j->end && (*j->p == '.' || *j->p == 'e' || *j->p == 'E'))) {
		return tj_fail(j, "expected a token id", err);
	}
	*v_p = (uint32_t)v;
	return 0;
}

int tj_more(struct tj *j, char close, bool *first, struct sky_err *err)
{
	char c = tj_peek(j);

	if (c == close && j->p < j->end) {
		j->p++;
		return 0;
	}
	if (*first) {
		*first = false;
		return j->p < j->end ? 1 : tj_fail(j, "the file ends too early", err);
	}
	if (c != ',') {
		return tj_fail(j, "expected ',' or a closing bracket", err);
	}
	j->p++;
	return 1;
}

static int skip_scalar(struct tj *j, struct sky_err *err)
{
	const char *from = j->p;

	while (j->p < j->end && *j->p && strchr("+-.0123456789abcdefghijklmnopqrstuvwxyzE", *j->p)) {
		j->p++;
	}
	return j->p > from ? 0 : tj_fail(j, "expected a value", err);
}

/* Steps over one value. Scalars are only delimited here; what is used is parsed strictly later. */
int tj_skip(struct tj *j, int depth, struct sky_err *err)
{
	const char *s;
	size_t n;
	bool first = true;
	char open = tj_peek(j);
	int rc;

	if (depth > SKY_MAX_JSON_DEPTH) {
		return tj_fail(j, "nested too deeply", err);
	}
	if (open == '"') {
		return tj_string(j, &s, &n, err);
	}
	if (open != '{' && open != '[') {
		return skip_scalar(j, err);
	}
	j->p++;
	while ((rc = tj_more(j, open == '{' ? '}' : ']', &first, err)) == 1) {
		if (open == '{') {
			rc = tj_string(j, &s, &n, err);
			if (rc == 0) {
				rc = tj_expect(j, ':', err);
			}
			if (rc < 0) {
				return rc;
			}
		}
		rc = tj_skip(j, depth + 1, err);
		if (rc < 0) {
			return rc;
		}
	}
	return rc;
}
