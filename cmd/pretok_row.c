/* skyrl-pretok: one row to token ids and a loss mask. */
#include <stdlib.h>
#include <string.h>

#include "cmd/pretok_int.h"

#define MAX_TEXT (4ull << 30)

struct sky_rows_opt pretok_rows_opt(enum sky_schema schema)
{
	static const char *map[129], *role[129];
	struct sky_rows_opt o = {
		.schema = schema, .utf8 = (enum sky_utf8_policy)pt.invalid_utf8, .text_key = pt.text_key,
		.messages_key = pt.messages_key, .tools_key = pt.tools_key, .system_key = pt.system_key,
		.map = map, .role = role, .keep_nulls = pt.keep_nulls, .arguments_as_text = pt.arguments_as_text,
	};
	const struct opt_list *list[2] = { &pt.map, &pt.role };

	for (int k = 0; k < 2; k++) {
		const char **to = k ? role : map;

		for (int64_t i = 0; !to[0] && i < list[k]->n && i < 64; i++) {
			char *from = strdup(list[k]->v[i]), *eq = from ? strchr(from, '=') : NULL;

			if (!eq) {
				free(from);
				break;
			}
			*eq = '\0';
			to[2 * i] = from;
			to[2 * i + 1] = eq + 1;
		}
	}
	return o;
}

int pretok_worker_open(struct pretok_worker *w, const struct pretok_text *t, enum sky_schema schema, struct sky_err *err)
{
	struct sky_rows_opt o = pretok_rows_opt(schema);
	int rc;

	memset(w, 0, sizeof *w);
	w->text = t;
	sky_buf_init(&w->join, MAX_TEXT);
	sky_buf_init(&w->args, MAX_TEXT);
	sky_buf_init(&w->masker_args, MAX_TEXT);
	rc = sky_rows_new(&o, &w->rows, err);
	if (!rc && t->tok) {
		rc = sky_encoder_new(t->tok, &w->enc, err);
	}
	if (rc < 0) {
		pretok_worker_close(w);
	}
	return rc;
}

void pretok_worker_close(struct pretok_worker *w)
{
	sky_rows_free(w->rows);
	sky_encoder_free(w->enc);
	sky_renderer_free(w->renderer);
	sky_masker_free(w->masker);
	sky_buf_release(&w->args);
	sky_buf_release(&w->masker_args);
	free(w->span);
	free(w->off);
	free(w->seen);
	sky_ids_release(&w->ids);
	sky_buf_release(&w->join);
	free(w->mask);
	memset(w, 0, sizeof *w);
}

static int room_mask(struct pretok_worker *w, int64_t n, struct sky_err *err)
{
	if (n > w->cap_mask) {
		int64_t cap = n > 2 * w->cap_mask ? n : 2 * w->cap_mask;
		uint8_t *m = sky_realloc_array(w->mask, (size_t)cap, 1);

		if (!m) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)n);
		}
		w->mask = m;
		w->cap_mask = cap;
	}
	return 0;
}

static int push(struct pretok_worker *w, int32_t id, int train, struct sky_err *err)
{
	struct sky_ids *v = &w->ids;
	int rc = room_mask(w, v->n + 1, err);

	if (!rc && v->n == v->cap) {
		int64_t cap = v->cap ? 2 * v->cap : 256;
		int32_t *p = sky_realloc_array(v->id, (size_t)cap, sizeof *p);

		if (!p) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)v->n);
		}
		v->id = p;
		if (v->off) {
			uint32_t *off = sky_realloc_array(v->off, (size_t)cap, sizeof *off);

			if (!off) {
				return sky_fail_mem(err, "a row of %lld tokens", (long long)v->n);
			}
			v->off = off;
		}
		v->cap = cap;
	}
	if (!rc) {
		w->mask[v->n] = (uint8_t)train;
		v->id[v->n++] = id;
	}
	return rc;
}

static unsigned encode_flags(void)
{
	return pt.no_special ? SKY_ENC_NO_ADDED : 0;
}

static int encode_piece(struct pretok_worker *w, const char *p, size_t n, int train, struct sky_err *err)
{
	int64_t before = w->ids.n;
	int rc = sky_encode(w->enc, p, n, encode_flags(), &w->ids, err);

	rc = rc ? rc : room_mask(w, w->ids.n, err);
	if (!rc) {
		memset(w->mask + before, train, (size_t)(w->ids.n - before));
	}
	return rc;
}

/* Ids with the byte where each token starts. Tokens that tile the text byte for byte give that by their lengths, on the fast
 * path of the encoder; whatever else (a normalizer changed the text, a byte has no token) asks the encoder for positions. */
static int encode_placed(struct pretok_worker *w, const char *p, size_t n, unsigned flags, struct sky_err *err)
{
	struct sky_ids *v = &w->ids;
	size_t at = 0, len;
	uint32_t *off;
	int rc = sky_encode(w->enc, p, n, flags, v, err);

	if (!rc && v->n > w->cap_off) {
		off = sky_realloc_array(w->off, (size_t)v->n * 2, sizeof *off);
		if (!off) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)v->n);
		}
		w->off = off;
		w->cap_off = 2 * v->n;
	}
	for (int64_t i = 0; !rc && i < v->n; i++) {
		const char *t = sky_tokenizer_token(w->text->tok, v->id[i], &len, NULL);

		if (!t || len > n - at || memcmp(t, p + at, len)) {
			at = SIZE_MAX;
			break;
		}
		w->off[i] = (uint32_t)at;
		at += len;
	}
	if (rc || at == n) {
		return rc;
	}
	v->n = 0;
	rc = sky_encode_offsets(w->enc, p, n, flags, v, err);
	if (!rc && v->n > w->cap_off) {
		off = sky_realloc_array(w->off, (size_t)v->n, sizeof *off);
		if (!off) {
			return sky_fail_mem(err, "a row of %lld tokens", (long long)v->n);
		}
		w->off = off;
		w->cap_off = v->n;
	}
	if (!rc && v->n) {
		memcpy(w->off, v->off, (size_t)v->n * sizeof *v->off);
	}
	return rc;
}

/* Prompt and completion are one text: a token belongs where its first byte lies. */
static int encode_joined(struct pretok_worker *w, const struct sky_sample *s, struct sky_err *err)
{
	uint32_t span[1][2];
	size_t from = 0;
	int rc = 0;

	sky_buf_clear(&w->join);
	for (int64_t i = 0; !rc && i < s->n_piece; i++) {
		if (!s->piece[i].trained) {
			from = w->join.n + s->piece[i].n;
		}
		rc = sky_buf_add(&w->join, s->piece[i].p, s->piece[i].n, err);
	}
	if (!rc && w->text->rule.on == SKY_TRAIN_ALL) {
		from = 0;
	}
	span[0][0] = (uint32_t)from;
	span[0][1] = (uint32_t)w->join.n;
	rc = rc ? rc : encode_placed(w, w->join.ptr ? w->join.ptr : "", w->join.n, encode_flags(), err);
	rc = rc ? rc : room_mask(w, w->ids.n, err);
	if (!rc) {
		sky_mask_tokens(span, 1, w->off, w->ids.n, w->mask);
	}
	return rc;
}

/* Template arguments as JSON text: those of the row over those of the command. n = 0: none. */
static int merge_args(struct pretok_worker *w, const struct sky_buf *row, struct sky_err *err)
{
	const struct pretok_text *t = w->text;
	struct sky_buf *to = &w->args;
	int rc = 0;

	sky_buf_clear(to);
	if (t->args) {
		rc = sky_j_print(sky_json_root(t->args), to, err);
	}
	if (!rc && t->args && row->n > 2) {
		to->n--;
		rc = sky_buf_addc(to, ',', err);
		rc = rc ? rc : sky_buf_add(to, row->ptr + 1, row->n - 1, err);
	} else if (!rc && !t->args) {
		rc = sky_buf_add(to, row->ptr ? row->ptr : "", row->n, err);
	}
	return rc;
}

/* The masker knows one set of arguments; rows that bring their own get one made for them, kept while they repeat. */
static int choose_masker(struct pretok_worker *w, const struct sky_render_opt *o, struct sky_err *err)
{
	struct sky_buf *known = &w->masker_args;
	int rc;

	if (w->masker && known->n == w->args.n && (!known->n || !memcmp(known->ptr, w->args.ptr, known->n))) {
		return 0;
	}
	sky_masker_free(w->masker);
	w->masker = NULL;
	sky_buf_clear(known);
	rc = sky_buf_add(known, w->args.ptr ? w->args.ptr : "", w->args.n, err);
	return rc ? rc : sky_masker_new(w->text->tmpl, w->text->tok, &w->text->rule, o, &w->masker, err);
}

/* Cuts everything below byte `to` out of the spans. */
static int64_t cut_below(uint32_t (*v)[2], int64_t n, uint32_t to)
{
	int64_t kept = 0;

	for (int64_t i = 0; i < n; i++) {
		if (v[i][1] > to) {
			v[kept][0] = v[i][0] > to ? v[i][0] : to;
			v[kept++][1] = v[i][1];
		}
	}
	return kept;
}

/* A prompt given as messages: everything up to the first message of the completion is not trained. */
static int64_t drop_prompt(const struct sky_render *r, const struct sky_sample *s, uint32_t (*v)[2], int64_t n)
{
	int64_t first = s->n_message - s->n_completion;

	if (!s->n_completion || !first) {
		return n;
	}
	for (int64_t i = 0; i < r->n_span; i++) {
		if (r->span[i].message >= first) {
			return cut_below(v, n, r->span[i].from);
		}
	}
	return cut_below(v, n, (uint32_t)r->text.n);
}

int pretok_chat_spans(struct pretok_worker *w, const struct sky_sample *s, int generation_prompt,
		const struct sky_render **r_p,
                      struct sky_err *err)
{
	const struct pretok_text *t = w->text;
	struct sky_render_opt o = { .add_generation_prompt = generation_prompt, .bos_token = t->bos_token,
				    .eos_token = t->eos_token, .date = t->date };
	const uint32_t (*spans)[2];
	int rc = pretok_need_template(t, err);

	if (!rc && !w->renderer) {
		rc = sky_renderer_new(t->tmpl, &w->renderer, err);
	}
	rc = rc ? rc : merge_args(w, &s->args, err);
	if (rc < 0) {
		return rc;
	}
	o.tools_json = s->tools.n ? s->tools.ptr : NULL;
	o.n_tools_json = s->tools.n;
	o.args_json = w->args.n ? w->args.ptr : NULL;
	o.n_args_json = w->args.n;
	rc = sky_renderer_text(w->renderer, s->messages.ptr, s->messages.n, &o, r_p, err);
	o.add_generation_prompt = 0;
	o.tools_json = NULL;
	o.n_tools_json = 0;
	rc = rc ? rc : choose_masker(w, &o, err);
	rc = rc ? rc : sky_masker_spans(w->masker, *r_p, &spans, &w->n_span, err);
	if (!rc && w->n_span > w->cap_span) {
		uint32_t (*v)[2] = sky_realloc_array(w->span, (size_t)w->n_span * 2, sizeof *v);

		if (!v) {
			return sky_fail_mem(err, "the spans of a row");
		}
		w->span = v;
		w->cap_span = w->n_span * 2;
	}
	if (!rc && w->n_span) {
		memcpy(w->span, spans, (size_t)w->n_span * sizeof *spans);
		w->n_span = drop_prompt(*r_p, s, w->span, w->n_span);
	}
	return rc;
}

/* Content, reasoning and tool calls of trained messages that the template left out (Llama 3, SmolLM2 and others print no tool
 * calls: an empty answer would be trained without a word). History that a template shortens on purpose is not trained. */
static int find_lost(struct pretok_worker *w, const struct sky_render *r, const struct sky_sample *s, struct sky_err *err)
{
	static const uint8_t part[] = { [SKY_PART_CONTENT] = SKY_HOLDS_CONTENT, [SKY_PART_REASONING] = SKY_HOLDS_REASONING,
					[SKY_PART_TOOL_CALL] = SKY_HOLDS_CALLS };
	const uint8_t trained = 0x80;
	int64_t k = 0;

	w->lost = 0;
	if (s->n_message > w->cap_seen) {
		uint8_t *p = sky_realloc_array(w->seen, (size_t)s->n_message * 2, 1);

		if (!p) {
			return sky_fail_mem(err, "a row of %lld messages", (long long)s->n_message);
		}
		w->seen = p;
		w->cap_seen = 2 * s->n_message;
	}
	memset(w->seen, 0, (size_t)s->n_message);
	for (int64_t i = 0; i < r->n_span; i++) {
		const struct sky_span *sp = &r->span[i];

		while (k < w->n_span && w->span[k][1] <= sp->from) {
			k++;
		}
		if (sp->message >= 0 && sp->message < s->n_message) {
			w->seen[sp->message] |= (sp->part < sizeof part ? part[sp->part] : 0) |
						(k < w->n_span && w->span[k][0] < sp->to ? trained : 0);
		}
	}
	for (int64_t i = 0; i < s->n_message && i < r->n_message; i++) {
		if (w->seen[i] & trained && !strcmp(r->message[i].role, "assistant")) {
			w->lost |= s->holds[i] & ~(unsigned)w->seen[i];
		}
	}
	return 0;
}

static int encode_chat(struct pretok_worker *w, const struct sky_sample *s, struct sky_err *err)
{
	const struct sky_render *r = NULL;
	int rc = pretok_chat_spans(w, s, 0, &r, err);

	rc = rc || pt.lost == LOST_ALLOW ? rc : find_lost(w, r, s, err);
	/* What a template rendered is encoded without the post-processor, so a beginning token is never doubled. */
	rc = rc ? rc : encode_placed(w, r->text.ptr ? r->text.ptr : "", r->text.n, 0, err);
	rc = rc ? rc : room_mask(w, w->ids.n, err);
	if (!rc) {
		sky_mask_tokens((const uint32_t (*)[2])w->span, w->n_span, w->off, w->ids.n, w->mask);
	}
	return rc;
}

static int copy_tokens(struct pretok_worker *w, const struct sky_sample *s, enum sky_reason *reason_p, struct sky_err *err)
{
	int rc = 0;

	for (int64_t i = 0; !rc && i < s->n_ids; i++) {
		if (w->text->vocab >= 0 && s->ids[i] >= w->text->vocab) {
			*reason_p = SKY_ROW_ID_RANGE;
			sky_fail(err, SKY_E_DATA, "id %d at position %lld is outside the vocabulary of %lld",
					s->ids[i], (long long)i,
				 (long long)w->text->vocab);
			return 0;
		}
		rc = push(w, s->ids[i], s->mask[i], err);
	}
	return rc;
}

/* BOS before plain text, EOD behind any row: never a second one. */
static int add_ends(struct pretok_worker *w, const struct sky_sample *s, struct sky_err *err)
{
	const struct pretok_text *t = w->text;
	int rc;

	if (pt.append_eod && t->eod >= 0 && (!w->ids.n || w->ids.id[w->ids.n - 1] != t->eod)) {
		int train = !w->ids.n || w->mask[w->ids.n - 1] || s->kind == SKY_SAMPLE_PIECES;

		rc = push(w, t->eod, train, err);
		if (rc < 0) {
			return rc;
		}
	}
	if (pt.bos != BOS_NONE && t->bos >= 0 && s->kind == SKY_SAMPLE_PIECES && (!w->ids.n || w->ids.id[0] != t->bos)) {
		rc = push(w, t->bos, 0, err);
		if (rc < 0) {
			return rc;
		}
		memmove(w->ids.id + 1, w->ids.id, (size_t)(w->ids.n - 1) * sizeof *w->ids.id);
		memmove(w->mask + 1, w->mask, (size_t)(w->ids.n - 1));
		w->ids.id[0] = t->bos;
		w->mask[0] = 0;
	}
	return 0;
}

/* Failures that are the row's, not the program's. */
static int judge(int rc, const struct sky_sample *s, enum sky_reason *reason_p)
{
	if (rc == SKY_E_DATA) {
		*reason_p = s->kind == SKY_SAMPLE_CHAT ? SKY_ROW_TEMPLATE : SKY_ROW_BAD_SCHEMA;
		return 0;
	}
	return rc;
}

int pretok_row(struct pretok_worker *w, enum sky_block_kind kind, const char *p, size_t n, enum sky_reason *reason_p,
               struct sky_err *err)
{
	const struct sky_sample *s = NULL;
	int rc = sky_rows_sample(w->rows, kind, p, n, &s, reason_p, err);

	w->ids.n = 0;
	w->lost = 0;
	if (rc || *reason_p != SKY_ROW_OK) {
		return rc;
	}
	if (s->kind == SKY_SAMPLE_CHAT) {
		rc = encode_chat(w, s, err);
	} else if (s->kind == SKY_SAMPLE_TOKENS) {
		rc = copy_tokens(w, s, reason_p, err);
	} else if (s->schema == SKY_SCHEMA_PROMPT_COMPLETION) {
		rc = encode_joined(w, s, err);
	} else {
		for (int64_t i = 0; !rc && i < s->n_piece; i++) {
			rc = encode_piece(w, s->piece[i].p, s->piece[i].n, s->piece[i].trained, err);
		}
	}
	if (rc < 0) {
		return judge(rc, s, reason_p);
	}
	if (*reason_p != SKY_ROW_OK) {
		return 0;
	}
	if (w->lost && pt.lost == LOST_REJECT) {
		*reason_p = SKY_ROW_LOST_CONTENT;
		sky_fail(err, SKY_E_DATA, "the template does not print the %s of a trained message (--lost)",
			 w->lost & SKY_HOLDS_CALLS ? "tool calls" : w->lost & SKY_HOLDS_REASONING ? "reasoning" : "content");
		return 0;
	}
	if (!w->ids.n) {
		*reason_p = SKY_ROW_EMPTY;
		return 0;
	}
	rc = add_ends(w, s, err);
	if (!rc) {
		w->mask[0] = 0;         /* no log-prob exists for a first token */
	}
	return rc;
}
