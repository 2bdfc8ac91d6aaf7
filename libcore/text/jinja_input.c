/* jinja: messages, tools and arguments from JSON to values (part of text). Origins are given here: everything inside
 * message i comes from it, its part follows from the key of the message that leads to it. */
#include "text/jinja_int.h"

void ji_keys(struct ji *in)
{
	static const char *const names[JK_COUNT] = { "role", "content", "reasoning_content", "thinking", "reasoning", "weight",
		"train", "trainable", "training", "loss_mask", "text" };

	for (int i = 0; i < JK_COUNT; i++) {
		size_t n = strlen(names[i]);

		in->key[i] = (struct jkey){ { .p = names[i], .n = (uint32_t)n }, jhash(names[i], n) };
	}
}

/* Where in the input a value stands. */
enum place {
	IN_PLAIN,       /* anywhere: origin is inherited */
	IN_MESSAGES,    /* the array of messages */
	IN_MESSAGE,     /* a message: its keys name the parts */
	IN_CONTENT,     /* content of a message: an array of parts whose "thinking" is reasoning */
};

static bool is_key(const struct jstr *k, const char *s)
{
	return k->n == strlen(s) && !memcmp(k->p, s, k->n);
}

static enum sky_part part_of(const struct jstr *k)
{
	if (is_key(k, "role")) {
		return SKY_PART_ROLE;
	}
	if (is_key(k, "content")) {
		return SKY_PART_CONTENT;
	}
	if (is_key(k, "reasoning_content") || is_key(k, "thinking") || is_key(k, "reasoning")) {
		return SKY_PART_REASONING;
	}
	if (is_key(k, "tool_calls") || is_key(k, "function_call")) {
		return SKY_PART_TOOL_CALL;
	}
	return SKY_PART_OTHER;
}

/* Place and origin of the member k of an object at place. */
static enum place member(enum place at, const struct jstr *k, uint32_t *org_p)
{
	if (at == IN_MESSAGE) {
		enum sky_part part = part_of(k);

		*org_p = JORG(JORG_MESSAGE(*org_p), part);
		return part == SKY_PART_CONTENT ? IN_CONTENT : IN_PLAIN;
	}
	if (at == IN_CONTENT && part_of(k) == SKY_PART_REASONING) {
		*org_p = JORG(JORG_MESSAGE(*org_p), SKY_PART_REASONING);
		return IN_PLAIN;
	}
	return at;
}

/* Place and origin of element i of an array at place. */
static enum place element(enum place at, uint32_t i, uint32_t *org_p)
{
	if (at == IN_MESSAGES) {
		*org_p = JORG((int32_t)i, SKY_PART_OTHER);
		return IN_MESSAGE;
	}
	return at;
}

/* transformers 5: a message with one of reasoning_content, thinking, reasoning gets reasoning_content, and in front
 * thinking unless it has one. */
static void alias_reasoning(struct ji *in, struct jv msg)
{
	struct jdict *m = msg.u.m;
	const struct jv *v = NULL;
	struct jv key;

	for (int k = JK_REASONING_CONTENT; k <= JK_REASONING && (!v || v->t == JT_NONE); k++) {
		v = ji_member(in, m, (enum jknown)k);
	}
	if (!v || v->t == JT_NONE) {
		return;
	}
	struct jv value = *v;
	struct jv all = ji_dict(in, JT_DICT, m->n + 2);

	key = ji_str(in, "thinking", 8, msg.org);
	if (in->rc || !ji_dict_set(in, all.u.m, key, value)) {
		return;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		ji_dict_set(in, all.u.m, m->e[i].k, m->e[i].v);
	}
	key = ji_str(in, "reasoning_content", 17, msg.org);
	if (!in->rc && ji_dict_set(in, all.u.m, key, value)) {
		all.u.m->message = m->message;
		*m = *all.u.m;
	}
}

static void finish_message(struct ji *in, enum place at, struct jv v, uint32_t org)
{
	if (at == IN_MESSAGE && !in->rc) {
		v.u.m->message = JORG_MESSAGE(org);
		alias_reasoning(in, v);
	}
}

/* ---- JSON text ---- */
struct reader {
	struct ji *in;
	const char *p;
	size_t n, i;
	const char *what;
	int depth;
};

static struct jv bad(struct reader *r, const char *why)
{
	ji_fail(r->in, SKY_E_DATA, "%s: byte %zu: %s", r->what, r->i, why);
	return jv_undef(NULL);
}

static void blanks(struct reader *r)
{
	while (r->i < r->n && (r->p[r->i] == ' ' || r->p[r->i] == '\n' || r->p[r->i] == '\t' || r->p[r->i] == '\r')) {
		r->i++;
	}
}

static int hex4(const struct reader *r, size_t at)
{
	int v = 0;

	if (r->n - at < 4) {
		return -1;
	}
	for (int k = 0; k < 4; k++) {
		char c = r->p[at + (size_t)k];
		int d = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;

		if (d < 0) {
			return -1;
		}
		v = v * 16 + d;
	}
	return v;
}

/* The escape at r->i (behind the backslash) to out; returns bytes written, 0 for a bad one. */
static uint32_t escape(struct reader *r, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *q = r->i < r->n ? memchr(from, r->p[r->i], sizeof(from) - 1) : NULL;
	int hi, lo;

	if (q) {
		r->i++;
		out[0] = to[q - from];
		return 1;
	}
	if (r->i >= r->n || r->p[r->i] != 'u' || (hi = hex4(r, r->i + 1)) < 0) {
		return 0;
	}
	if (hi < 0xd800 || hi >= 0xe000) {
		r->i += 5;
		return ju_put(out, (uint32_t)hi);
	}
	if (hi >= 0xdc00 || r->n - r->i < 11 || r->p[r->i + 5] != '\\' || r->p[r->i + 6] != 'u' ||
	    (lo = hex4(r, r->i + 7)) < 0xdc00 || lo >= 0xe000) {
		return 0;
	}
	r->i += 11;
	return ju_put(out, 0x10000 + (((uint32_t)hi - 0xd800) << 10) + ((uint32_t)lo - 0xdc00));
}

/* First byte from i on that ends a run of plain text in a string: quote, backslash, control character; n when there is
 * none. Eight bytes a step: the usual tests for a zero byte, a byte below 32, on a 64-bit word. */
static size_t plain_run(const char *p, size_t i, size_t n)
{
	const uint64_t ones = 0x0101010101010101ull, tops = 0x8080808080808080ull;

	for (; i + 8 <= n; i += 8) {
		uint64_t w, q, b;

		memcpy(&w, p + i, 8);
		q = w ^ ones * '"';
		b = w ^ ones * '\\';
		w = (((q - ones) & ~q) | ((b - ones) & ~b) | ((w - ones * 0x20) & ~w)) & tops;
		if (w) {
			/* the lowest mark is exact, higher ones may come from a borrow */
			if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) {
				return i + ((size_t)__builtin_ctzll(w) >> 3);
			}
			break;
		}
	}
	while (i < n && p[i] != '"' && p[i] != '\\' && (uint8_t)p[i] >= 0x20) {
		i++;
	}
	return i;
}

static struct jv read_string(struct reader *r, uint32_t org)
{
	size_t from = ++r->i, n = 0, end;
	char *out;

	r->i = plain_run(r->p, r->i, r->n);
	if (r->i >= r->n || (uint8_t)r->p[r->i] < 0x20) {
		return bad(r, r->i >= r->n ? "the string is not closed" : "a control character in a string");
	}
	if (r->p[r->i] == '"') {
		return ji_str(r->in, r->p + from, r->i++ - from, org);          /* a view: most strings have no escapes */
	}
	/* no longer than the rest up to the closing quote, the first with an even number of backslashes before it */
	for (end = r->i;; end++) {
		const char *q = end < r->n ? memchr(r->p + end, '"', r->n - end) : NULL;
		size_t slashes = 0;

		if (!q) {
			return bad(r, "the string is not closed");
		}
		end = (size_t)(q - r->p);
		while (r->p[end - 1 - slashes] == '\\') {
			slashes++;
		}
		if (slashes % 2 == 0) {
			break;
		}
	}
	out = ji_alloc(r->in, end - from + 4);
	if (!out) {
		return jv_undef(NULL);
	}
	n = r->i - from;
	memcpy(out, r->p + from, n);
	while (r->p[r->i] == '\\') {
		size_t run;
		uint32_t k;

		r->i++;
		k = escape(r, out + n);
		if (k == 0) {
			return bad(r, "a bad escape or a lone surrogate in a string");
		}
		n += k;
		run = plain_run(r->p, r->i, r->n);
		memcpy(out + n, r->p + r->i, run - r->i);
		n += run - r->i;
		r->i = run;
	}
	if (r->p[r->i] != '"') {
		return bad(r, "a control character in a string");
	}
	r->i++;
	return ji_str(r->in, out, n, org);
}

/* An integer or, outside int64, its text; a float when there is a point or an exponent. */
static struct jv number(struct ji *in, const char *p, size_t n, uint32_t org)
{
	struct jv v = { .t = JT_INT, .org = org };
	bool neg = n > 0 && p[0] == '-', over = false;
	char text[400];

	for (size_t i = neg; i < n; i++) {
		if (p[i] < '0' || p[i] > '9') {
			memcpy(text, p, n < sizeof(text) - 1 ? n : sizeof(text) - 1);
			text[n < sizeof(text) - 1 ? n : sizeof(text) - 1] = 0;
			v.t = JT_FLOAT;
			v.u.d = strtod(text, NULL);
			return v;
		}
		over = over || __builtin_mul_overflow(v.u.i, 10, &v.u.i) ||
		       __builtin_add_overflow(v.u.i, neg ? '0' - p[i] : p[i] - '0', &v.u.i);
	}
	if (over) {
		v = ji_str(in, p, n, org);
		v.t = in->rc ? v.t : JT_BIG;
	}
	return v;
}

static struct jv read_number(struct reader *r, uint32_t org)
{
	size_t from = r->i, k;

	r->i += r->p[r->i] == '-';
	k = r->i;
	while (r->i < r->n && r->p[r->i] >= '0' && r->p[r->i] <= '9') {
		r->i++;
	}
	if (r->i == k || (r->p[k] == '0' && r->i > k + 1)) {
		return bad(r, "a malformed number");
	}
	if (r->i < r->n && r->p[r->i] == '.') {
		k = ++r->i;
		while (r->i < r->n && r->p[r->i] >= '0' && r->p[r->i] <= '9') {
			r->i++;
		}
		if (r->i == k) {
			return bad(r, "a malformed number");
		}
	}
	if (r->i < r->n && (r->p[r->i] | 32) == 'e') {
		r->i++;
		r->i += r->i < r->n && (r->p[r->i] == '+' || r->p[r->i] == '-');
		k = r->i;
		while (r->i < r->n && r->p[r->i] >= '0' && r->p[r->i] <= '9') {
			r->i++;
		}
		if (r->i == k) {
			return bad(r, "a malformed number");
		}
	}
	return number(r->in, r->p + from, r->i - from, org);
}

static struct jv read_value(struct reader *r, enum place at, uint32_t org);

static struct jv read_array(struct reader *r, enum place at, uint32_t org)
{
	struct jv v = ji_list(r->in, JT_LIST, 4);

	v.org = org;
	r->i++;
	blanks(r);
	if (r->i < r->n && r->p[r->i] == ']') {
		r->i++;
		return v;
	}
	while (!r->in->rc) {
		uint32_t o = org;
		enum place in = element(at, v.u.l->n, &o);

		ji_push(r->in, v.u.l, read_value(r, in, o));
		blanks(r);
		if (r->i < r->n && r->p[r->i] == ',') {
			r->i++;
		} else if (r->i < r->n && r->p[r->i] == ']') {
			r->i++;
			return v;
		} else {
			return bad(r, "',' or ']' was expected");
		}
	}
	return v;
}

static struct jv read_object(struct reader *r, enum place at, uint32_t org)
{
	struct jv v = ji_dict(r->in, JT_DICT, 4), key;

	v.org = org;
	r->i++;
	blanks(r);
	if (r->i < r->n && r->p[r->i] == '}') {
		r->i++;
		finish_message(r->in, at, v, org);
		return v;
	}
	while (!r->in->rc) {
		uint32_t o = org;
		enum place in;

		blanks(r);
		if (r->i >= r->n || r->p[r->i] != '"') {
			return bad(r, "a key in quotes was expected");
		}
		key = read_string(r, org);
		blanks(r);
		if (r->in->rc || r->i >= r->n || r->p[r->i++] != ':') {
			return bad(r, "':' was expected behind a key");
		}
		in = member(at, key.u.s, &o);
		ji_dict_set(r->in, v.u.m, key, read_value(r, in, o));
		blanks(r);
		if (r->i < r->n && r->p[r->i] == ',') {
			r->i++;
		} else if (r->i < r->n && r->p[r->i] == '}') {
			r->i++;
			finish_message(r->in, at, v, org);
			return v;
		} else {
			return bad(r, "',' or '}' was expected");
		}
	}
	return v;
}

static struct jv read_value(struct reader *r, enum place at, uint32_t org)
{
	static const struct { const char *s; struct jv v; } words[] = {
		{ "null", { .t = JT_NONE } }, { "true", { .t = JT_BOOL, .u.i = 1 } }, { "false", { .t = JT_BOOL } },
		{ "NaN", { .t = JT_FLOAT, .u.d = __builtin_nan("") } }, { "Infinity", { .t = JT_FLOAT, .u.d = __builtin_inf() } },
		{ "-Infinity", { .t = JT_FLOAT, .u.d = -__builtin_inf() } },
	};
	struct jv v;

	blanks(r);
	if (r->i >= r->n) {
		return bad(r, "the text ends where a value was expected");
	}
	if (r->p[r->i] == '"') {
		return read_string(r, org);
	}
	if (r->p[r->i] == '{' || r->p[r->i] == '[') {
		if (++r->depth > SKY_MAX_JSON_DEPTH) {
			return bad(r, "arrays and objects are nested too deeply");
		}
		v = r->p[r->i] == '{' ? read_object(r, at, org) : read_array(r, at, org);
		r->depth--;
		return v;
	}
	for (unsigned i = 0; r->p[r->i] > '9' || r->p[r->i] == '-'; i++) {
		size_t n;

		if (i == sizeof(words) / sizeof(words[0])) {
			break;
		}
		n = strlen(words[i].s);

		if (r->n - r->i >= n && !memcmp(r->p + r->i, words[i].s, n)) {
			r->i += n;
			v = words[i].v;
			v.org = org;
			return v;
		}
	}
	if (r->p[r->i] == '-' || (r->p[r->i] >= '0' && r->p[r->i] <= '9')) {
		return read_number(r, org);
	}
	return bad(r, "a value was expected");
}

struct jv ji_json(struct ji *in, const char *p, size_t n, const char *what, enum jinput how)
{
	struct reader r = { .in = in, .p = p, .n = n, .what = what };

	in->n_input += n;
	if (n > JINJA_MAX_INPUT) {
		return bad(&r, "the text is longer than a render takes");
	}
	in->mem.n_max = JINJA_MAX_MEMORY(in->n_input);
	struct jv v = read_value(&r, how == JIN_MESSAGES ? IN_MESSAGES : IN_PLAIN, JORG(-1, SKY_PART_OTHER));

	blanks(&r);
	return in->rc || r.i == n ? v : bad(&r, "text behind the value");
}

/* ---- nodes of base/json.h ---- */
static struct jv from_node(struct ji *in, const struct sky_jnode *n, enum place at, uint32_t org)
{
	struct jv v = jv_none(), key;
	const char *s;
	bool b = false;

	switch (sky_j_type(n)) {
	case SKY_J_NULL:
		break;
	case SKY_J_BOOL:
		sky_j_bool(n, &b);
		v = jv_bool(b);
		break;
	case SKY_J_NUMBER:
		s = sky_j_raw(n);
		if ((s[0] == '-' ? s[1] : s[0]) >= '0' && (s[0] == '-' ? s[1] : s[0]) <= '9') {
			return number(in, s, strlen(s), org);
		}
		v = jv_float(s[0] == 'N' ? __builtin_nan("") : s[0] == '-' ? -__builtin_inf() : __builtin_inf());
		break;
	case SKY_J_STRING:
		s = sky_j_str(n);
		in->n_input += strlen(s);
		return ji_str(in, s, strlen(s), org);
	case SKY_J_ARRAY:
		v = ji_list(in, JT_LIST, (uint32_t)sky_j_len(n));
		for (const struct sky_jnode *e = sky_j_first(n); e && !in->rc; e = sky_j_next(e)) {
			uint32_t o = org;
			enum place inner = element(at, v.u.l->n, &o);

			ji_push(in, v.u.l, from_node(in, e, inner, o));
		}
		break;
	case SKY_J_OBJECT:
		v = ji_dict(in, JT_DICT, (uint32_t)sky_j_len(n));
		for (const struct sky_jnode *e = sky_j_first(n); e && !in->rc; e = sky_j_next(e)) {
			uint32_t o = org;
			enum place inner;

			key = ji_str(in, sky_j_key(e), strlen(sky_j_key(e)), org);
			inner = in->rc ? at : member(at, key.u.s, &o);
			ji_dict_set(in, v.u.m, key, from_node(in, e, inner, o));
		}
		finish_message(in, at, v, org);
		break;
	}
	v.org = org;
	return v;
}

struct jv ji_jnode(struct ji *in, const struct sky_jnode *n, enum jinput how)
{
	in->mem.n_max = 0;      /* the nodes are there already; what they need is bounded by them */
	return from_node(in, n, how == JIN_MESSAGES ? IN_MESSAGES : IN_PLAIN, JORG(-1, SKY_PART_OTHER));
}
