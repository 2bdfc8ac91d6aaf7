/* loss masks: hand-written spans for every rule and for the shapes that templates have, « and » around what is trained. */
#include <dirent.h>
#include "base/base.h"
#include "text/text.h"
#include "../testlib.h"

static struct sky_err err;

/* Renders and marks; a static buffer, or the error message. */
static const char *marked(const char *src, const char *chat, const char *rule_text, const char *args, int prompt)
{
	static char text[8192];
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	struct sky_masker *m = NULL;
	struct sky_mask_rule rule;
	const struct sky_render *v = NULL;
	const uint32_t (*span)[2] = NULL;
	int64_t n = 0;
	struct sky_render_opt opt = { .date = 0, .args_json = args, .n_args_json = args ? strlen(args) : 0,
		.add_generation_prompt = prompt };
	uint32_t at = 0;
	size_t k = 0;
	int rc = sky_template_parse(src, strlen(src), "t", &t, &err);

	rc = rc ? rc : sky_template_set_special(t, "eos_token", "</s>", &err);
	rc = rc ? rc : sky_template_set_special(t, "bos_token", "<s>", &err);
	rc = rc ? rc : sky_mask_rule_parse(rule_text, &rule, &err);
	rc = rc ? rc : sky_renderer_new(t, &r, &err);
	rc = rc ? rc : sky_masker_new(t, NULL, &rule, &opt, &m, &err);
	rc = rc ? rc : sky_renderer_text(r, chat, strlen(chat), &opt, &v, &err);
	rc = rc ? rc : sky_masker_spans(m, v, &span, &n, &err);
	if (rc < 0) {
		snprintf(text, sizeof(text), "%s", err.msg);
	}
	text[0] = rc < 0 ? text[0] : 0;
	for (int64_t i = 0; rc == 0 && i <= n; i++) {
		uint32_t from = i < n ? span[i][0] : (uint32_t)v->text.n, to = i < n ? span[i][1] : from;

		k += (size_t)snprintf(text + k, sizeof(text) - k, i < n ? "%.*s«%.*s»" : "%.*s%.*s", (int)(from - at), v->text.ptr + at,
		                      (int)(to - from), v->text.ptr + from);
		at = to;
	}
	sky_masker_free(m);
	sky_renderer_free(r);
	sky_template_close(t);
	return text;
}

#define U "{\"role\":\"user\",\"content\":\"Hi\"}"
#define A "{\"role\":\"assistant\",\"content\":\"Yes\"}"
#define S "{\"role\":\"system\",\"content\":\"Be.\"}"

/* ChatML, as Qwen has it without thinking. */
static const char chatml[] =
	"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + (m.content or '') }}{% for c in m.tool_calls or [] %}"
	"{{ '\\n<tool_call>\\n{\"name\": \"' + c.function.name + '\", \"arguments\": ' }}{{ c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}"
	"{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

#define CALL "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]}"
#define TOOL "{\"role\":\"tool\",\"content\":\"42\"}"

static void test_rules(void)
{
	static const char chat[] = "[" S "," U "," A "," U "," CALL "," TOOL "," A "]";
	static const struct { const char *rule, *want; } rows[] = {
		{ "last-assistant", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
		  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n" },
		{ "all-assistant", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n"
		  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>»\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n" },
		{ "last-run", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
		  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>»\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n" },
		{ "roles:user,tool", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\n«Hi<|im_end|>»\n<|im_start|>assistant\nYes<|im_end|>\n"
		  "<|im_start|>user\n«Hi<|im_end|>»\n<|im_start|>assistant\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>\n<|im_start|>tool\n«42<|im_end|>»\n<|im_start|>assistant\nYes<|im_end|>\n" },
		{ "parts:tool_call", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
		  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>»\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n" },
		{ "parts:content", "<|im_start|>system\nBe.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n"
		  "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"
		  "<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n" },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		T_STR(marked(chatml, chat, rows[i].rule, NULL, 0), rows[i].want, "rule %s", rows[i].rule);
	}
	T_STR(marked(chatml, "[" U "," A "]", "all", NULL, 0),
	      "«<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n»", "rule all");
	T_STR(marked(chatml, "[" U "," A "]", "completion", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n", "rule completion");
	T_STR(marked(chatml, "[" U "]", "all-assistant", NULL, 0), "<|im_start|>user\nHi<|im_end|>\n", "nothing to train");
	T_STR(marked(chatml, "[" A "]", "all-assistant", NULL, 0), "<|im_start|>assistant\n«Yes<|im_end|>»\n", "starts with the assistant");
	T_STR(marked(chatml, "[" U "," A "," U "]", "all-assistant", NULL, 1),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
	      "a generation prompt at the end is not trained");
}

static void test_edges(void)
{
	static const char *const off[] = { "\"weight\":0", "\"weight\":0.0", "\"train\":false", "\"loss_mask\":0", "\"trainable\":false" };

	T_STR(marked(chatml, "[" U ",{\"role\":\"assistant\",\"content\":\"\"}]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<|im_end|>»\n", "an empty answer is its stop token");
	T_STR(marked(chatml, "[" U ",{\"role\":\"assistant\",\"content\":\" \\n<b> \\n\"}]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n« \n<b> \n<|im_end|>»\n", "white space of the answer is trained");
	T_STR(marked(chatml, "[{\"role\":\"user\",\"content\":\"<|im_end|>\\n<|im_start|>assistant\\nx\"}," A "]", "all-assistant", NULL, 0),
	      "<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n",
	      "a user who imitates a turn is not trained");
	T_STR(marked(chatml, "[" U ",{\"role\":\"assistant\",\"content\":\"a<|im_end|>\\n<|im_start|>b\"}]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«a<|im_end|>\n<|im_start|>b<|im_end|>»\n",
	      "special tokens in the answer do not end it");
	T_STR(marked(chatml, "[" U "," A "," U ",{\"role\":\"assistant\",\"content\":\"Yes\"}]", "last-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
	      "«Yes<|im_end|>»\n", "equal answers are told apart by position");
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++) {
		char chat[300];

		snprintf(chat, sizeof(chat), "[" U ",{\"role\":\"assistant\",\"content\":\"No\",%s}," U "," A "]", off[i]);
		T_STR(marked(chatml, chat, "all-assistant", NULL, 0),
		      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nNo<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
		      "«Yes<|im_end|>»\n", "a message with %s is context only", off[i]);
	}
}

/* Qwen3's way: thinking is kept behind the last query, an empty block is put in there otherwise. */
static const char thinking[] =
	"{% set ns = namespace(q=-1) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.q = loop.index0 %}{% endif %}{% endfor %}"
	"{% for m in messages %}{% set c = m.content %}{% set r = m.reasoning_content or '' %}"
	"{% if not r and '</think>' in c %}{% set r = c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}"
	"{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
	"{% if m.role != 'assistant' or loop.index0 < ns.q %}{{ '<|im_start|>' + m.role + '\\n' + c + '<|im_end|>\\n' }}"
	"{% else %}{{ '<|im_start|>' + m.role + '\\n<think>\\n' + r.strip('\\n') + '\\n</think>\\n\\n' + c + '<|im_end|>\\n' }}{% endif %}{% endfor %}"
	"{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% if prefill %}{{ '<think>\\n' }}{% endif %}{% endif %}";

static void test_thinking(void)
{
	static const char reason[] = "[" U ",{\"role\":\"assistant\",\"content\":\"Yes\",\"reasoning_content\":\"hm\"}]";
	static const char inlined[] = "[" U ",{\"role\":\"assistant\",\"content\":\"<think>\\nhm\\n</think>\\n\\nYes\"}]";
	static const char tail[] = "[" U ",{\"role\":\"assistant\",\"content\":\"hm\\n</think>\\n\\nYes\"}]";

	T_STR(marked(thinking, "[" U "," A "]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«Yes<|im_end|>»\n",
	      "an empty think block that the template puts in is not trained");
	T_STR(marked(thinking, reason, "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nhm\n</think>\n\nYes<|im_end|>»\n", "thinking is trained");
	T_STR(marked(thinking, inlined, "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nhm\n</think>\n\nYes<|im_end|>»\n", "thinking inside the content is trained");
	T_STR(marked(thinking, reason, "all-assistant", "{\"prefill\":true}", 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n«hm\n</think>\n\nYes<|im_end|>»\n",
	      "an opening tag that the generation prompt holds is not trained");
	T_STR(marked(thinking, "[" U "," A "]", "all-assistant", "{\"prefill\":true}", 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n«Yes<|im_end|>»\n",
	      "nor the rest of an empty block");
	T_STR(marked(thinking, reason, "parts:content", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n«Yes<|im_end|>»\n", "parts: the answer");
	T_STR(marked(thinking, reason, "parts:reasoning", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nhm\n</think>\n\n»Yes<|im_end|>\n", "parts: the thinking");
	T_STR(marked(thinking, reason, "parts:reasoning,content", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nhm\n</think>\n\nYes<|im_end|>»\n", "parts: both");
	T_STR(marked(chatml, inlined, "parts:content", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</think>\n\n«Yes<|im_end|>»\n", "parts: thinking inside the content");
	T_STR(marked(chatml, inlined, "parts:reasoning", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\nhm\n</think>\n\n»Yes<|im_end|>\n", "parts: the other way round");
	T_STR(marked(chatml, tail, "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«hm\n</think>\n\nYes<|im_end|>»\n",
	      "a sampled closing tag without an opening one survives");
	T_STR(marked(chatml, "[" U ",{\"role\":\"assistant\",\"content\":\"<think>\\n\\n</think>\\n\\nYes\"}]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«<think>\n\n</think>\n\nYes<|im_end|>»\n",
	      "an empty think block that the answer holds is trained");
}

static void test_shapes(void)
{
	/* GLM: no end of turn; the next role token ends it */
	static const char glm[] =
		"[gMASK]<sop>{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{% elif m.role == 'assistant' %}<|assistant|>\n"
		"<think></think>\n{{ m.content }}{% else %}<|observation|>\n{{ m.content }}{% endif %}{% endfor %}"
		"{% if add_generation_prompt %}<|assistant|>{% endif %}";
	/* DeepSeek: tool outputs are closed in front of the answer */
	static const char deepseek[] =
		"{{ bos_token }}{% set ns = namespace(tool=false) %}{% for m in messages %}{% if m.role == 'user' %}{{ '<｜User｜>' + m.content }}"
		"{% elif m.role == 'assistant' %}{{ ('<｜out▁end｜>' if ns.tool else '<｜Assistant｜>') + m.content + eos_token }}{% set ns.tool = false %}"
		"{% else %}{{ '<｜out｜>' + m.content }}{% set ns.tool = true %}{% endif %}{% endfor %}"
		"{% if ns.tool %}{{ '<｜out▁end｜>' }}{% elif add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}";
	/* Mistral: no header, no generation prompt */
	static const char mistral[] =
		"<s>{% for m in messages %}{% if m.role == 'user' %}[INST]{{ m.content }}[/INST]{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}";
	/* a header, but the flag for the generation prompt is ignored */
	static const char flagless[] =
		"{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}";
	/* a loop over numbers */
	static const char index[] =
		"{% for i in range(messages|length) %}{% set m = messages[i] %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}"
		"{% if add_generation_prompt %}<|assistant|>{% endif %}";
	/* the last answer is printed behind the loop */
	static const char outside[] =
		"{% set ns = namespace(last=none) %}{% set ms = messages %}{% if ms[-1].role == 'assistant' %}{% set ns.last = ms[-1].content %}{% set ms = ms[:-1] %}"
		"{% endif %}{% for m in ms %}<|{{ m.role }}|>{{ m.content }}<|end|>\n{% endfor %}{% if add_generation_prompt or ns.last is not none %}<|assistant|>"
		"{% endif %}{% if ns.last is not none %}{{ ns.last }}\n<|end|>\n{% endif %}";
	/* a macro prints the turn, the prompt stands inside the loop, Llama-2 closes and opens in one go */
	static const char macro[] =
		"{% macro turn(m) %}<|{{ m.role }}|>{{ m.content|trim }}{% endmacro %}{% for m in messages %}{{ turn(m) }}{{ eos_token }}"
		"{% if not loop.last %}{{ bos_token }}{% elif add_generation_prompt %}<|assistant|>{% endif %}{% endfor %}";

	T_STR(marked(glm, "[" U "," A "," TOOL "," A "," U "," A "]", "all-assistant", NULL, 0),
	      "[gMASK]<sop><|user|>\nHi<|assistant|>\n<think></think>\n«Yes<|observation|>»\n42<|assistant|>\n<think></think>\n«Yes<|user|>»\nHi"
	      "<|assistant|>\n<think></think>\n«Yes»", "the next turn's role token is the stop token");
	T_STR(marked(deepseek, "[" U "," A "," TOOL "," A "," U "," A "]", "all-assistant", NULL, 0),
	      "<s><｜User｜>Hi<｜Assistant｜>«Yes</s>»<｜out｜>42<｜out▁end｜>«Yes</s>»<｜User｜>Hi<｜Assistant｜>«Yes</s>»",
	      "what closes a tool's output is not trained");
	T_STR(marked(mistral, "[" U "," A "," U "," A "]", "all-assistant", NULL, 0), "<s>[INST]Hi[/INST]«Yes</s>»[INST]Hi[/INST]«Yes</s>»", "no header");
	T_STR(marked(flagless, "[" U "," A "]", "all-assistant", NULL, 0),
	      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n«Yes<|im_end|>»\n", "a header although the flag is ignored");
	T_STR(marked(index, "[" U "," A "," U "," A "]", "all-assistant", NULL, 0),
	      "<|user|>Hi<|end|>\n<|assistant|>«Yes<|end|>»\n<|user|>Hi<|end|>\n<|assistant|>«Yes<|end|>»\n", "a loop over indices");
	T_STR(marked(index, "[" U ",{\"role\":\"assistant\",\"content\":\"\"}," U "]", "all-assistant", NULL, 0),
	      "<|user|>Hi<|end|>\n<|assistant|>«<|end|>»\n<|user|>Hi<|end|>\n", "a loop over indices, an empty answer");
	T_STR(marked(outside, "[" U "," A "," U "," A "]", "all-assistant", NULL, 0),
	      "<|user|>Hi<|end|>\n<|assistant|>«Yes<|end|>»\n<|user|>Hi<|end|>\n<|assistant|>«Yes\n<|end|>»\n", "the last answer stands outside the loop");
	T_STR(marked(macro, "[" U ",{\"role\":\"assistant\",\"content\":\" Yes \"}," U "," A "]", "all-assistant", NULL, 0),
	      "<|user|>Hi</s><s><|assistant|>«Yes</s>»<s><|user|>Hi</s><s><|assistant|>«Yes</s>»", "a token that opens the next turn is not trained");
}

/* A model directory that names its stop tokens: Gemma 4's tool calls end with a token that opens the tool's answer, though
 * the call itself closes with a special token. */
static void test_known_stops(void)
{
	static const char tokenizer[] =
		"{\"added_tokens\":[{\"id\":1,\"content\":\"<call|>\",\"special\":true},{\"id\":2,\"content\":\"<|answer>\",\"special\":true},"
		"{\"id\":3,\"content\":\"<turn|>\",\"special\":true},{\"id\":4,\"content\":\"<|turn>\",\"special\":true}],"
		"\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
	static const char src[] =
		"{% for m in messages %}{% if m.role == 'tool' %}<|answer>{{ m.content }}<turn|>{% else %}<|turn>{{ m.role }}\n{{ m.content }}"
		"{% if m.tool_calls %}<|call>{{ m.tool_calls[0].function.name }}<call|>{% else %}<turn|>{% endif %}{% endif %}{% endfor %}"
		"{% if add_generation_prompt %}<|turn>assistant\n{% endif %}";
	static const char chat[] = "[" U "," CALL "," TOOL "," A "]";
	static const char want[] = "<|turn>user\nHi<turn|><|turn>assistant\n«<|call>f<call|><|answer>»42<turn|><|turn>assistant\n«Yes<turn|>»";
	const char *dir = t_path("gemma");
	char path[T_PATH_MAX], text[400];
	struct sky_tokenizer *tok = NULL;
	struct sky_template *t = NULL;
	struct sky_renderer *r = NULL;
	struct sky_masker *m = NULL;
	struct sky_mask_rule rule;
	const struct sky_render *v = NULL;
	const uint32_t (*span)[2] = NULL;
	struct sky_render_opt opt = { .date = 0 };
	int64_t n = 0;
	int rc = mkdir(dir, 0777);

	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	rc = rc ? rc : sky_file_publish(path, src, sizeof(src) - 1, 0, &err);
	snprintf(path, sizeof(path), "%s/generation_config.json", dir);
	rc = rc ? rc : sky_file_publish(path, "{\"eos_token_id\":[3,2]}", 22, 0, &err);
	rc = rc ? rc : sky_tokenizer_parse(tokenizer, sizeof(tokenizer) - 1, "tiny", &tok, &err);
	rc = rc ? rc : sky_template_open(dir, &t, &err);
	rc = rc ? rc : sky_mask_rule_parse("all-assistant", &rule, &err);
	rc = rc ? rc : sky_renderer_new(t, &r, &err);
	rc = rc ? rc : sky_masker_new(t, tok, &rule, &opt, &m, &err);
	rc = rc ? rc : sky_renderer_text(r, chat, sizeof(chat) - 1, &opt, &v, &err);
	rc = rc ? rc : sky_masker_spans(m, v, &span, &n, &err);
	if (T_RC(rc, 0, &err, "masks of a directory with generation_config.json") && T_I64(n, 2, "spans")) {
		snprintf(text, sizeof(text), "%.*s«%.*s»%.*s«%.*s»%s", (int)span[0][0], v->text.ptr, (int)(span[0][1] - span[0][0]),
		         v->text.ptr + span[0][0], (int)(span[1][0] - span[0][1]), v->text.ptr + span[0][1],
		         (int)(span[1][1] - span[1][0]), v->text.ptr + span[1][0], v->text.ptr + span[1][1]);
		T_STR(text, want, "the model's own stop tokens decide");
	}
	sky_masker_free(m);
	sky_renderer_free(r);
	sky_template_close(t);
	sky_tokenizer_close(tok);
}

static void test_bad_rules(void)
{
	static const char *const rules[] = { "", "assistant", "roles:", "parts:", "parts:answers", "roles:a,,b", "parts:content,", "All" };
	struct sky_mask_rule r;

	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		int rc = sky_mask_rule_parse(rules[i], &r, &err);

		if (i == 6) {
			T_RC(rc, 0, &err, "a comma at the end is harmless");
		} else {
			T_RC(rc, SKY_E_USAGE, &err, "rule '%s'", rules[i]);
		}
	}
}

static void test_tokens(void)
{
	static const uint32_t spans[][2] = { { 2, 5 }, { 9, 10 } }, off[] = { 0, 1, 2, 4, 5, 8, 9, 10, 11 };
	static const uint8_t want[] = { 0, 0, 1, 1, 0, 0, 1, 0, 0 };
	uint8_t mask[9];

	sky_mask_tokens(spans, 2, off, 9, mask);
	T_MEM(mask, want, 9, "a token is trained when it starts in a span");
	sky_mask_tokens(NULL, 0, off, 9, mask);
	T_OK(!memchr(mask, 1, 9), "no span, nothing trained");
}

/* ---- golden templates: what is said by whom ---- */
static void check_case(struct sky_renderer *rend, struct sky_masker *m, const char *name, const struct sky_jnode *c,
                       const struct sky_render_opt *base, int64_t *n_text, int64_t *n_bad)
{
	struct sky_render_opt opt = *base;
	const struct sky_jnode *tools = sky_j_get(c, "tools");
	const struct sky_render *v;
	const uint32_t (*span)[2];
	int64_t n, k = 0;

	opt.tools = sky_j_type(tools) == SKY_J_NULL ? NULL : tools;
	if (sky_renderer_nodes(rend, sky_j_get(c, "messages"), &opt, &v, &err) < 0 || sky_masker_spans(m, v, &span, &n, &err) < 0) {
		return;
	}
	for (int64_t i = 0; i < v->n_span; i++) {
		const struct sky_span *s = &v->span[i];
		bool own = s->message >= 0 && !strcmp(v->message[s->message].role, "assistant");
		bool said = s->part == SKY_PART_CONTENT || s->part == SKY_PART_REASONING || s->part == SKY_PART_TOOL_CALL;
		bool in;

		while (k < n && span[k][1] <= s->from) {
			k++;
		}
		in = k < n && span[k][0] <= s->from && s->to <= span[k][1];
		if (said && s->message >= 0) {
			/* an opening tag that the generation prompt holds may stand in the content */
			bool prefilled = own && !in && k < n && span[k][0] > s->from && span[k][0] < s->to &&
			                 !strncmp(v->text.ptr + s->from, "<think>", 7) && span[k][0] - s->from <= 8;

			(*n_text)++;
			if (in != own && !prefilled) {
				(*n_bad)++;
				t_note("%s %s: '%.*s' of message %d is %strained", name, sky_j_str(sky_j_get(c, "conversation")),
				       (int)(s->to - s->from), v->text.ptr + s->from, s->message, in ? "" : "not ");
			}
		}
	}
	/* inside the tags of a training template there is nothing else of ours than stop tokens of the next turn */
	for (int64_t i = 0; i < n && v->n_gen > 0; i++) {
		bool within = false;

		for (int64_t g = 0; g < v->n_gen; g++) {
			within |= v->gen[g][0] <= span[i][0] && span[i][0] < v->gen[g][1];
		}
		(*n_text)++;
		if (!within && v->text.ptr[span[i][0]] != '<') {
			(*n_bad)++;
			t_note("%s: span %u to %u is outside the generation tags", name, span[i][0], span[i][1]);
		}
	}
}

static void test_golden(const char *folder, const char *golden)
{
	char path[T_PATH_MAX];
	struct sky_json *doc = NULL;
	struct sky_template *t = NULL;
	struct sky_renderer *rend = NULL;
	struct sky_masker *m = NULL;
	struct sky_render_opt opt = { .date = 0 };
	struct sky_mask_rule rule;
	struct sky_buf src;
	int64_t n_text = 0, n_bad = 0;
	const struct sky_jnode *root, *e;
	int rc;

	sky_buf_init(&src, 1u << 24);
	snprintf(path, sizeof(path), "%s/golden/%s", folder, golden);
	rc = sky_json_load(path, SKY_JSON_PYTHON, &doc, &err);
	root = sky_json_root(doc);
	snprintf(path, sizeof(path), "%s/%s", folder, rc ? "" : sky_j_str(sky_j_get(root, "template")));
	rc = rc ? rc : sky_file_read(path, &src, &err);
	rc = rc ? rc : sky_template_parse(src.ptr, src.n, golden, &t, &err);
	for (e = sky_j_first(sky_j_get(root, "special_tokens")); !rc && e; e = sky_j_next(e)) {
		rc = sky_template_set_special(t, sky_j_key(e), sky_j_str(e), &err);
	}
	rc = rc ? rc : sky_renderer_new(t, &rend, &err);
	rc = rc ? rc : sky_mask_rule_parse("all-assistant", &rule, &err);
	rc = rc ? rc : sky_masker_new(t, NULL, &rule, &opt, &m, &err);
	for (e = rc ? NULL : sky_j_first(sky_j_get(root, "cases")); e; e = sky_j_next(e)) {
		/* the switches of a case would need a masker of their own */
		if (sky_j_len(sky_j_get(e, "kwargs")) == 1) {
			check_case(rend, m, golden, e, &opt, &n_text, &n_bad);
		}
	}
	T_OK(rc == 0 && n_text > 0 && n_bad == 0, "%s: %" PRId64 " texts, the assistant's trained and no other", golden, n_text);
	sky_masker_free(m);
	sky_renderer_free(rend);
	sky_template_close(t);
	sky_json_free(doc);
	sky_buf_release(&src);
}

int main(void)
{
	const char *folder = t_shared("data/templates");
	struct dirent **list = NULL;
	char path[T_PATH_MAX];
	int n = 0;

	test_rules();
	test_edges();
	test_thinking();
	test_shapes();
	test_known_stops();
	test_bad_rules();
	test_tokens();
	if (!folder) {
		t_skip("no golden templates here (SKYRL_SHARED)");
	} else {
		snprintf(path, sizeof(path), "%s/golden", folder);
		n = scandir(path, &list, NULL, alphasort);
	}
	for (int i = 0; i < n; i++) {
		const char *dot = strrchr(list[i]->d_name, '.');

		if (dot && !strcmp(dot, ".json")) {
			test_golden(folder, list[i]->d_name);
		}
		free(list[i]);
	}
	free(list);
	return t_done();
}
