/* text: loss masks: which bytes of a render the policy would have sampled.
 *
 * A turn of the assistant is a run of bytes that belong to one message. From its front goes the header: what the
 * generation prompt of the template starts with there, and an empty think block that the template itself wrote. Its end
 * is its stop token, which the policy sampled; what follows that (the newline of ChatML) it did not. A turn without a
 * stop token of its own was ended by the special token that opens the next turn (GLM's <|user|>, <|observation|>). */
#include "text/jinja_int.h"

struct special { uint32_t hash, n; char *p; };
struct prompt { char *p; uint32_t n; };         /* generation prompt as learnt */

struct sky_masker {
	struct sky_mask_rule rule;
	struct special *table;          /* open addressing; p NULL: free */
	uint32_t n_table, n_special;
	uint8_t len_used[65];           /* lengths that occur, up to 64 */
	uint8_t first_used[256];
	bool by_look;                   /* no tokenizer: special is what looks so */
	char *bos;
	struct prompt stop[16];         /* texts of the tokens that stop generation, where the model's directory names them */
	int n_stop;
	struct prompt prompt[2];        /* behind a user, behind a tool result */
	uint32_t (*span)[2];
	int64_t n_span, cap_span;
	int64_t *last;                  /* of each message its last span + 1, in the render at hand */
	int64_t cap_last, last_user, last_assistant;
};

/* A run of spans of one message. */
struct run { uint32_t from, to; int32_t message; int64_t first, end; };

/* ---- rules ---- */
int sky_mask_rule_parse(const char *s, struct sky_mask_rule *r, struct sky_err *err)
{
	static const struct { const char *name; enum sky_train_on on; } rows[] = {
		{ "last-assistant", SKY_TRAIN_LAST_ASSISTANT }, { "all-assistant", SKY_TRAIN_ALL_ASSISTANT },
		{ "last-run", SKY_TRAIN_LAST_RUN }, { "all", SKY_TRAIN_ALL }, { "completion", SKY_TRAIN_COMPLETION },
	};
	static const char *const parts[] = { "content", "reasoning", "tool_call", NULL };
	const char *names = NULL, *p;

	*r = (struct sky_mask_rule){ 0 };
	for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		if (!strcmp(s, rows[i].name)) {
			r->on = rows[i].on;
			return 0;
		}
	}
	if (!strncmp(s, "roles:", 6) || !strncmp(s, "parts:", 6)) {
		names = s + 6;
		r->on = s[0] == 'r' ? SKY_TRAIN_ROLES : SKY_TRAIN_PARTS;
	}
	if (!names || !*names || strlen(names) >= sizeof(r->names)) {
		return sky_fail(err, SKY_E_USAGE, "'%s' is not a rule of what to train on: last-assistant, all-assistant, last-run, "
		                "completion, all, roles:NAME,… or parts:content,reasoning,tool_call", s);
	}
	snprintf(r->names, sizeof(r->names), "%s", names);
	for (p = names; *p; p += strcspn(p, ",") + (p[strcspn(p, ",")] == ',')) {
		size_t n = strcspn(p, ",");
		int known = n > 0 && r->on == SKY_TRAIN_ROLES;

		for (int i = 0; r->on == SKY_TRAIN_PARTS && parts[i]; i++) {
			known |= strlen(parts[i]) == n && !memcmp(parts[i], p, n);
		}
		if (!known) {
			return sky_fail(err, SKY_E_USAGE, "'%.*s' in '%s' is not %s", (int)n, p, s,
			                r->on == SKY_TRAIN_PARTS ? "a part: content, reasoning, tool_call" : "a role");
		}
	}
	return 0;
}

static bool named(const struct sky_mask_rule *r, const char *name)
{
	size_t n = strlen(name), k;

	for (const char *p = r->names; *p; p += k + (p[k] == ',')) {
		k = strcspn(p, ",");
		if (k == n && !memcmp(p, name, n)) {
			return true;
		}
	}
	return false;
}

/* ---- special tokens ---- */
static int add_special(struct sky_masker *m, const char *p, uint32_t n, struct sky_err *err)
{
	uint32_t h = jhash(p, n), i;

	if (n == 0 || n > 64) {
		return 0;
	}
	if (m->n_special * 2 >= m->n_table) {
		uint32_t cap = m->n_table ? m->n_table * 4 : 1024;
		struct special *t = sky_calloc_array(cap, sizeof(*t));

		if (!t) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for special tokens");
		}
		for (uint32_t k = 0; k < m->n_table; k++) {
			for (i = m->table[k].hash & (cap - 1); m->table[k].p && t[i].p; i = (i + 1) & (cap - 1)) {
			}
			if (m->table[k].p) {
				t[i] = m->table[k];
			}
		}
		free(m->table);
		m->table = t;
		m->n_table = cap;
	}
	for (i = h & (m->n_table - 1); m->table[i].p; i = (i + 1) & (m->n_table - 1)) {
		if (m->table[i].hash == h && m->table[i].n == n && !memcmp(m->table[i].p, p, n)) {
			return 0;
		}
	}
	m->table[i] = (struct special){ h, n, malloc(n) };
	if (!m->table[i].p) {
		return sky_fail(err, SKY_E_LIMIT, "out of memory for special tokens");
	}
	memcpy(m->table[i].p, p, n);
	m->n_special++;
	m->len_used[n] = 1;
	m->first_used[(uint8_t)p[0]] = 1;
	return 0;
}

/* Without a tokenizer: <|…|>, <｜…｜>, <…|>, <|…> and a few known ones. */
static uint32_t looks_special(const char *p, uint32_t n)
{
	static const char *const known[] = { "</s>", "<s>", "<eos>", "<bos>", "<end_of_turn>", "<start_of_turn>", "[e~[", "]~b]",
		"]~!b[", "[INST]", "[/INST]", "[gMASK]", "<sop>" };
	uint32_t i;

	for (unsigned k = 0; k < sizeof(known) / sizeof(known[0]); k++) {
		if (strlen(known[k]) <= n && !memcmp(p, known[k], strlen(known[k]))) {
			return (uint32_t)strlen(known[k]);
		}
	}
	if (p[0] != '<') {
		return 0;
	}
	for (i = 1; i < n && i < 64 && p[i] != '>' && p[i] != '<' && p[i] != ' ' && p[i] != '\n'; i++) {
	}
	if (i >= n || i < 3 || p[i] != '>') {
		return 0;
	}
	return p[1] == '|' || p[i - 1] == '|' || !memcmp(p + 1, "\xef\xbd\x9c", 3) || !memcmp(p + 1, "SPECIAL_", 8) ? i + 1 : 0;
}

/* Length of the special token at p, the longest; 0 when there is none. */
static uint32_t special_at(const struct sky_masker *m, const char *p, uint32_t n)
{
	uint32_t best = 0;

	for (uint32_t len = n < 64 ? n : 64; len > 0 && m->first_used[(uint8_t)p[0]]; len--) {
		uint32_t h, i;

		if (!m->len_used[len]) {
			continue;
		}
		h = jhash(p, len);
		for (i = h & (m->n_table - 1); m->table[i].p; i = (i + 1) & (m->n_table - 1)) {
			if (m->table[i].hash == h && m->table[i].n == len && !memcmp(m->table[i].p, p, len)) {
				best = len;
				break;
			}
		}
		if (best) {
			break;
		}
	}
	return best || !m->by_look ? best : looks_special(p, n);
}

/* ---- text ---- */
static uint32_t skip_blanks(const char *p, uint32_t i, uint32_t end)
{
	while (i < end && (p[i] == ' ' || p[i] == '\n' || p[i] == '\t' || p[i] == '\r')) {
		i++;
	}
	return i;
}

static uint32_t skip_word(const char *p, uint32_t i, uint32_t end, const char *w)
{
	size_t n = strlen(w);

	return end - i >= n && !memcmp(p + i, w, n) ? i + (uint32_t)n : i;
}

/* Behind an empty think block of template text at from, with the blanks around it; from when there is none. */
static uint32_t skip_empty_think(const char *p, uint32_t from, uint32_t end)
{
	static const struct { const char *open, *close; } tags[] = {
		{ "<think>", "</think>" }, { "[THINK]", "[/THINK]" }, { "<|channel>thought", "<channel|>" },
	};

	for (unsigned k = 0; k < sizeof(tags) / sizeof(tags[0]); k++) {
		uint32_t i = skip_blanks(p, from, end), close;

		i = skip_blanks(p, skip_word(p, i, end, tags[k].open), end);
		close = skip_word(p, i, end, tags[k].close);
		if (close > i) {
			return skip_blanks(p, close, end);
		}
	}
	return from;
}

/* ---- generation prompt ---- */
/* What a render with generation prompt has behind the last message: by the owner of the bytes, or, where the template
 * prints the prompt inside its loop, by comparison with the render without. */
static int prompt_behind(struct sky_renderer *r, const char *chat, const struct sky_render_opt *opt,
                         struct prompt *out, struct sky_err *err)
{
	struct sky_render_opt o = *opt;
	const struct sky_render *v = NULL;
	uint32_t with, from = 0;
	struct sky_err e;
	char *text;

	o.continue_final_message = 0;
	o.add_generation_prompt = 1;
	if (sky_renderer_text(r, chat, strlen(chat), &o, &v, &e) < 0) {
		return e.code == SKY_E_LIMIT ? sky_fail(err, e.code, "%s", e.msg) : 0;  /* such a chat the template refuses */
	}
	for (int64_t i = 0; i < v->n_span; i++) {
		if (v->span[i].message == v->n_message - 1) {
			from = v->span[i].to;
		}
	}
	with = (uint32_t)v->text.n;
	text = malloc(with + 1u);
	if (!text) {
		return sky_fail(err, SKY_E_LIMIT, "out of memory for a generation prompt");
	}
	memcpy(text, v->text.ptr, with);
	o.add_generation_prompt = 0;
	if (sky_renderer_text(r, chat, strlen(chat), &o, &v, &e) == 0 && v->text.n < with && v->text.n < from &&
	    !memcmp(text, v->text.ptr, v->text.n)) {
		from = (uint32_t)v->text.n;
	}
	out->n = with - from;
	memmove(text, text + from, out->n);
	free(out->p);
	out->p = text;
	return 0;
}

/* For templates that ignore add_generation_prompt: the text that the template puts between a turn's start and its
 * content. White space alone is no header: it would have been sampled. */
static int learn_header(struct sky_masker *m, struct sky_renderer *r, const struct sky_render_opt *opt, struct sky_err *err)
{
	static const char chat[] = "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\"}]";
	struct sky_render_opt o = *opt;
	const struct sky_render *v = NULL;
	uint32_t from = 0, to = 0, think;
	struct sky_err e;
	bool seen = false;

	o.continue_final_message = o.add_generation_prompt = 0;
	if (sky_renderer_text(r, chat, strlen(chat), &o, &v, &e) < 0) {
		return 0;
	}
	for (int64_t i = 0; i < v->n_span; i++) {
		if (v->span[i].message != 1) {
			continue;
		}
		if (v->span[i].part == SKY_PART_CONTENT) {
			break;
		}
		from = seen ? from : v->span[i].from;
		to = v->span[i].to;
		seen = true;
	}
	for (think = from; think < to && skip_empty_think(v->text.ptr, think, to) != to; think++) {
	}
	if (skip_blanks(v->text.ptr, from, think) == think) {
		return 0;
	}
	for (int i = 0; i < 2; i++) {
		free(m->prompt[i].p);
		m->prompt[i].n = think - from;
		m->prompt[i].p = malloc(think - from);
		if (!m->prompt[i].p) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for a generation prompt");
		}
		memcpy(m->prompt[i].p, v->text.ptr + from, think - from);
	}
	return 0;
}

static int learn_prompts(struct sky_masker *m, const struct sky_template *t, const struct sky_render_opt *opt, struct sky_err *err)
{
	static const char *const after_user[] = {
		"[{\"role\":\"user\",\"content\":\"a\"}]",
		"[{\"role\":\"system\",\"content\":\"b\"},{\"role\":\"user\",\"content\":\"a\"}]",
	};
	static const char *const after_tool[] = {
		"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[{\"id\":\"abcdefgh1\","
		"\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":{}}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\","
		"\"name\":\"f\",\"content\":\"c\"}]",
		"[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"assistant\",\"content\":\"b\",\"tool_calls\":[{\"id\":\"abcdefgh1\","
		"\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"abcdefgh1\","
		"\"name\":\"f\",\"content\":\"c\"}]",
	};
	struct sky_renderer *r = NULL;
	int rc = sky_renderer_new(t, &r, err);

	for (int i = 0; i < 2 && rc == 0 && !m->prompt[0].p; i++) {
		rc = prompt_behind(r, after_user[i], opt, &m->prompt[0], err);
	}
	for (int i = 0; i < 2 && rc == 0 && !m->prompt[1].p; i++) {
		rc = prompt_behind(r, after_tool[i], opt, &m->prompt[1], err);
	}
	if (rc == 0 && m->prompt[0].n == 0 && m->prompt[1].n == 0) {
		rc = learn_header(m, r, opt, err);
	}
	sky_renderer_free(r);
	return rc;
}

int sky_masker_new(const struct sky_template *t, const struct sky_tokenizer *tok, const struct sky_mask_rule *rule,
                   const struct sky_render_opt *opt, struct sky_masker **m_p, struct sky_err *err)
{
	struct sky_masker *m = calloc(1, sizeof(*m));
	const char *bos = opt->bos_token ? opt->bos_token : sky_template_special(t, "bos_token");
	const char *eos = opt->eos_token ? opt->eos_token : sky_template_special(t, "eos_token");
	int rc = 0;

	bos = bos && eos && !strcmp(bos, eos) ? NULL : bos;      /* one token for both ends turns, it does not open them */
	if (!m || (bos && !(m->bos = strdup(bos)))) {
		free(m);
		return sky_fail(err, SKY_E_LIMIT, "out of memory for a masker");
	}
	m->rule = *rule;
	m->by_look = tok == NULL;
	if (bos) {
		rc = add_special(m, bos, (uint32_t)strlen(bos), err);
	}
	if (eos && rc == 0) {
		rc = add_special(m, eos, (uint32_t)strlen(eos), err);
	}
	for (int64_t id = 0; tok && rc == 0 && id < sky_tokenizer_vocab(tok); id++) {
		int special = 0;
		size_t n = 0;
		const char *p = sky_tokenizer_token(tok, (int32_t)id, &n, &special);

		if (p && special) {
			rc = add_special(m, p, n > 64 ? 0 : (uint32_t)n, err);
		}
	}
	for (int i = 0; tok && rc == 0 && i < t->n_stop; i++) {
		size_t n = 0;
		const char *p = sky_tokenizer_token(tok, t->stop[i], &n, NULL);

		if (p && n > 0 && n <= 64) {
			rc = add_special(m, p, (uint32_t)n, err);
			m->stop[m->n_stop] = (struct prompt){ malloc(n), (uint32_t)n };
			if (!m->stop[m->n_stop].p) {
				rc = sky_fail(err, SKY_E_LIMIT, "out of memory for stop tokens");
				break;
			}
			memcpy(m->stop[m->n_stop++].p, p, n);
		}
	}
	rc = rc || rule->on == SKY_TRAIN_ALL ? rc : learn_prompts(m, t, opt, err);
	if (rc < 0) {
		sky_masker_free(m);
		return rc;
	}
	*m_p = m;
	return 0;
}

void sky_masker_free(struct sky_masker *m)
{
	if (!m) {
		return;
	}
	for (uint32_t i = 0; i < m->n_table; i++) {
		free(m->table[i].p);
	}
	for (int i = 0; i < m->n_stop; i++) {
		free(m->stop[i].p);
	}
	free(m->table);
	free(m->bos);
	free(m->prompt[0].p);
	free(m->prompt[1].p);
	free(m->span);
	free(m->last);
	free(m);
}

/* ---- one turn ---- */
static bool is_text_of_message(const struct sky_span *s)
{
	return s->part != SKY_PART_TEMPLATE && s->part != SKY_PART_ROLE;
}

/* First byte of run r, from on, that comes from the message (not its role); r->to when there is none. */
static uint32_t first_text(const struct sky_render *v, const struct run *r, uint32_t from)
{
	for (int64_t i = r->first; i < r->end; i++) {
		if (v->span[i].to > from && is_text_of_message(&v->span[i])) {
			return v->span[i].from > from ? v->span[i].from : from;
		}
	}
	return r->to;
}

static uint32_t last_text(const struct sky_render *v, const struct run *r, uint32_t from)
{
	for (int64_t i = r->end; i > r->first; i--) {
		if (is_text_of_message(&v->span[i - 1])) {
			return v->span[i - 1].to > from ? v->span[i - 1].to : from;
		}
	}
	return from;
}

/* Bytes of the prompt that the run starts with. A prompt that matches to its end may reach into the message (what was
 * prefilled was not sampled); a part of one stops before the message and before a tag that it cuts. */
static uint32_t match_prompt(const struct sky_render *v, const struct run *r, const struct prompt *p)
{
	uint32_t n = 0, max = r->to - r->from, text = first_text(v, r, r->from) - r->from;

	while (n < p->n && n < max && p->p[n] == v->text.ptr[r->from + n]) {
		n++;
	}
	if (n == p->n) {
		return n;
	}
	n = n < text ? n : text;
	for (uint32_t i = n; i > 0; i--) {
		char c = p->p[i - 1];

		if (c == '>' || c == ']') {
			break;
		}
		if (c == '<' || c == '[') {
			return i - 1;
		}
	}
	/* never inside a character */
	while (n > 0 && n < max && ((uint8_t)v->text.ptr[r->from + n] & 0xc0) == 0x80) {
		n--;
	}
	return n;
}

/* Where the sampled bytes of an assistant's run start. */
static uint32_t sampled_from(const struct sky_masker *m, const struct sky_render *v, const struct run *r, bool after_tool)
{
	const struct prompt *a = &m->prompt[after_tool], *b = &m->prompt[!after_tool];
	uint32_t n = a->p ? match_prompt(v, r, a) : 0, text, from;

	if (n == 0 && b->p && (!a->p || a->n > 0)) {
		n = match_prompt(v, r, b);
	}
	from = r->from + n;
	text = first_text(v, r, from);
	if (n == 0 && a->p && a->n > 0) {
		return text;    /* an unknown header: only what the message itself says is sure */
	}
	return skip_empty_think(v->text.ptr, from, text);
}

/* End of the last special token in [from, to) before one that opens a turn; 0 when there is none. */
static uint32_t stop_token(const struct sky_masker *m, const char *p, uint32_t from, uint32_t to)
{
	uint32_t end = 0, opener = m->prompt[0].p && m->prompt[0].n ? special_at(m, m->prompt[0].p, m->prompt[0].n) : 0;

	for (uint32_t i = from; i < to;) {
		uint32_t n = special_at(m, p + i, to - i);

		if (n == 0) {
			i++;
			continue;
		}
		if ((m->bos && strlen(m->bos) == n && !memcmp(p + i, m->bos, n)) ||
		    (opener == n && !memcmp(p + i, m->prompt[0].p, n))) {
			break;
		}
		i += n;
		end = i;
	}
	return end;
}

/* Length of the token at p that stops generation; 0 when there is none, or none is known. */
static uint32_t known_stop(const struct sky_masker *m, const char *p, uint32_t n)
{
	for (int i = 0; i < m->n_stop; i++) {
		if (m->stop[i].n <= n && !memcmp(m->stop[i].p, p, m->stop[i].n)) {
			return m->stop[i].n;
		}
	}
	return 0;
}

/* Where the sampled bytes of run r end; next may be NULL. own: only stop tokens of the run itself count. */
static uint32_t sampled_to(const struct sky_masker *m, const struct sky_render *v, const struct run *r, const struct run *next,
                           uint32_t from, bool last_run, bool own)
{
	const char *p = v->text.ptr;
	uint32_t text = last_text(v, r, from), end = stop_token(m, p, text, r->to), i, n;

	/* the model's own stop tokens decide where they are known: behind the text, or as the first of the next turn */
	for (i = text; m->n_stop > 0 && i < r->to; i++) {
		n = known_stop(m, p + i, r->to - i);
		if (n > 0) {
			return i + n;
		}
	}
	n = m->n_stop > 0 && !own && next && next->message >= 0 ? known_stop(m, p + next->from, next->to - next->from) : 0;
	if (n > 0) {
		return next->from + n;
	}

	/* a turn that the answer of a tool interrupts was stopped by the token that opens the answer */
	if (end && (last_run || own || !next || end != r->to)) {
		return end;
	}
	if (!own && next && next->message >= 0) {
		n = special_at(m, p + next->from, next->to - next->from);
		if (n > 0) {
			return next->from + n;
		}
	}
	if (!own && !end && next && next->message < 0) {
		i = skip_blanks(p, next->from, next->to);
		n = i < next->to ? special_at(m, p + i, next->to - i) : 0;
		if (n > 0) {
			return i + n;
		}
	}
	if (end) {
		return end;
	}
	for (end = r->to; end > text && (p[end - 1] == ' ' || p[end - 1] == '\n' || p[end - 1] == '\t' || p[end - 1] == '\r'); end--) {
	}
	return end;
}

/* ---- spans ---- */
static int add_span(struct sky_masker *m, uint32_t from, uint32_t to, struct sky_err *err)
{
	if (from >= to) {
		return 0;
	}
	if (m->n_span > 0 && m->span[m->n_span - 1][1] >= from) {
		if (m->span[m->n_span - 1][1] < to) {
			m->span[m->n_span - 1][1] = to;
		}
		return 0;
	}
	if (m->n_span == m->cap_span) {
		int64_t cap = m->cap_span ? m->cap_span * 2 : 64;
		uint32_t (*span)[2] = sky_realloc_array(m->span, (size_t)cap, sizeof(*span));

		if (!span) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for a loss mask");
		}
		m->span = span;
		m->cap_span = cap;
	}
	m->span[m->n_span][0] = from;
	m->span[m->n_span++][1] = to;
	return 0;
}

static const char *part_name(uint8_t part)
{
	return part == SKY_PART_REASONING ? "reasoning" : part == SKY_PART_TOOL_CALL ? "tool_call" : "content";
}

static int64_t find_text(const char *p, uint32_t from, uint32_t to, const char *w)
{
	const char *q = memmem(p + from, to - from, w, strlen(w));

	return q ? q - p : -1;
}

/* Template text between two parts: closing tags and the blanks behind them belong to the part before, the rest to the
 * part after. */
static uint32_t border(const char *p, uint32_t from, uint32_t to, uint8_t before)
{
	uint32_t at = from;

	if (before == SKY_PART_REASONING || before == SKY_PART_CONTENT) {
		int64_t close = find_text(p, from, to, "</think>");

		at = close >= 0 ? (uint32_t)close + 8 : from;
	}
	return at > from ? skip_blanks(p, at, to) : from;
}

/* parts:…: the bytes of [from, to) whose part is named. The stop token goes with the last part. */
static int add_parts(struct sky_masker *m, const struct sky_render *v, const struct run *r, uint32_t from, uint32_t to,
                     struct sky_err *err)
{
	const char *p = v->text.ptr;
	uint32_t done = from, cut;
	uint8_t now = SKY_PART_TEMPLATE;
	int rc = 0;

	for (int64_t i = r->first; i < r->end && rc == 0; i++) {
		uint32_t a = v->span[i].from > from ? v->span[i].from : from, b = v->span[i].to < to ? v->span[i].to : to;
		int64_t close;

		if (a >= b || !is_text_of_message(&v->span[i])) {
			continue;
		}
		if (now != SKY_PART_TEMPLATE) {
			cut = v->span[i].part == now ? a : border(p, done, a, now);
			rc = named(&m->rule, part_name(now)) ? add_span(m, done, cut, err) : 0;
			done = cut;
		}
		now = v->span[i].part;
		close = now == SKY_PART_CONTENT ? find_text(p, a, b, "</think>") : -1;
		if (close >= 0 && rc == 0) {            /* thinking inside the content */
			cut = skip_blanks(p, (uint32_t)close + 8, b);
			rc = named(&m->rule, "reasoning") ? add_span(m, done, cut, err) : 0;
			done = cut;
		}
		if (rc == 0) {
			rc = named(&m->rule, part_name(now)) ? add_span(m, done, b, err) : 0;
			done = b;
		}
	}
	if (rc == 0 && named(&m->rule, part_name(now))) {
		rc = add_span(m, done, to, err);
	}
	return rc;
}

static bool is_assistant(const struct sky_render_message *msg)
{
	return !strcmp(msg->role, "assistant") || !strcmp(msg->role, "model");
}

/* Is message k trained under the rule? */
static bool chosen(const struct sky_masker *m, const struct sky_render *v, int32_t k)
{
	const struct sky_render_message *msg = &v->message[k];

	if (msg->untrained) {
		return false;
	}
	switch (m->rule.on) {
	case SKY_TRAIN_ALL:
		return true;
	case SKY_TRAIN_ROLES:
		return named(&m->rule, msg->role);
	case SKY_TRAIN_LAST_ASSISTANT:
		return k == m->last_assistant;
	case SKY_TRAIN_LAST_RUN:
	case SKY_TRAIN_COMPLETION:
		return k > m->last_user && is_assistant(msg);
	default:
		return is_assistant(msg);
	}
}

/* The run that starts with span i; false at the end. */
static bool run_at(const struct sky_render *v, int64_t i, struct run *r)
{
	if (i >= v->n_span) {
		return false;
	}
	*r = (struct run){ .from = v->span[i].from, .message = v->span[i].message, .first = i };
	while (i < v->n_span && v->span[i].message == r->message) {
		r->to = v->span[i++].to;
	}
	r->end = i;
	return true;
}

static int survey(struct sky_masker *m, const struct sky_render *v, struct sky_err *err)
{
	if (m->cap_last < v->n_message) {
		int64_t *last = sky_realloc_array(m->last, (size_t)v->n_message * 2, sizeof(*last));

		if (!last) {
			return sky_fail(err, SKY_E_LIMIT, "out of memory for a loss mask");
		}
		m->last = last;
		m->cap_last = v->n_message * 2;
	}
	m->last_user = m->last_assistant = -1;
	for (int64_t i = 0; i < v->n_message; i++) {
		m->last[i] = 0;
		m->last_user = strcmp(v->message[i].role, "user") ? m->last_user : i;
		m->last_assistant = is_assistant(&v->message[i]) ? i : m->last_assistant;
	}
	for (int64_t i = 0; i < v->n_span; i++) {
		if (v->span[i].message >= 0) {
			m->last[v->span[i].message] = i + 1;
		}
	}
	return 0;
}

static int mask_run(struct sky_masker *m, const struct sky_render *v, const struct run *r, const struct run *next, struct sky_err *err)
{
	bool assistant = is_assistant(&v->message[r->message]);
	bool after_tool = r->message > 0 && !strcmp(v->message[r->message - 1].role, "tool");
	uint32_t from, to;

	from = assistant ? sampled_from(m, v, r, after_tool) : first_text(v, r, r->from);
	if (!assistant && from == r->to) {
		return 0;
	}
	to = sampled_to(m, v, r, next, from, m->last[r->message] == r->end, !assistant);
	return m->rule.on == SKY_TRAIN_PARTS ? add_parts(m, v, r, from, to, err) : add_span(m, from, to, err);
}

int sky_masker_spans(struct sky_masker *m, const struct sky_render *v, const uint32_t (**spans_p)[2], int64_t *n_p,
                     struct sky_err *err)
{
	struct run r, next;
	bool more = run_at(v, 0, &r), follows;
	int rc = survey(m, v, err);

	m->n_span = 0;
	while (more && rc == 0) {
		follows = run_at(v, r.end, &next);
		if (m->rule.on == SKY_TRAIN_ALL) {
			rc = r.message < 0 || chosen(m, v, r.message) ? add_span(m, r.from, r.to, err) : 0;
		} else if (r.message >= 0 && chosen(m, v, r.message)) {
			rc = mask_run(m, v, &r, follows ? &next : NULL, err);
		}
		r = next;
		more = follows;
	}
	*spans_p = (const uint32_t (*)[2])m->span;
	*n_p = m->n_span;
	return rc;
}

void sky_mask_tokens(const uint32_t (*spans)[2], int64_t n_span, const uint32_t *off, int64_t n, uint8_t *mask)
{
	int64_t s = 0;

	for (int64_t i = 0; i < n; i++) {
		while (s < n_span && spans[s][1] <= off[i]) {
			s++;
		}
		mask[i] = s < n_span && off[i] >= spans[s][0];
	}
}
