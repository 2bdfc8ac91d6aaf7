#!/bin/sh
# pretok: what users of other tools complain about (the reference document, section 4), each a test of its own
. "${srcdir:-.}/tests/testlib.sh"
src=$T_SRC/tests/data/chatml
mkdir bos && sed 's/"post_processor": null/"post_processor": {"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<|endoftext|>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":1}}],"special_tokens":{"<|endoftext|>":{"id":"<|endoftext|>","ids":[265],"tokens":["<|endoftext|>"]}}}/' "$src/tokenizer.json" >bos/tokenizer.json
cat >bos/tokenizer_config.json <<'X'
{"bos_token":"<|endoftext|>","eos_token":"<|im_end|>","chat_template":"{{ bos_token }}{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}{% endfor %}"}
X
chat='{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}'

t_ok 'OpenRLHF 393, open-r1 462: a beginning token of the template is not doubled' '
	printf "%s\n" "\"x\"" | skyrl-pretok encode --special -t bos >ids && t_json ids "[0]" 265 &&
	printf "%s\n" "$chat" >c.jsonl && t_run skyrl-pretok -t bos -o c c.jsonl && t_run skyrl-pretok cat c &&
	t_json out ".ids[0]" 265 && t_json out ".ids[1]" 266
'
t_ok 'datatrove 345: a beginning token is not lost when an end token is asked for, nor added twice' '
	printf "%s\n" "{\"text\":\"x\"}" "{\"text\":\"<|endoftext|>x\"}" >t.jsonl &&
	t_run skyrl-pretok --bos always --append-eod -t bos -o t t.jsonl && t_run skyrl-pretok cat t &&
	t_json out:1 .ids "[265,87,267]" && t_json out:2 .ids "[265,87,267]"
'
t_ok 'Megatron 431: the end of document counts in the length of its row' '
	t_json t.json .tokens 6 && t_run skyrl-pretok stats --json t && t_json out .longest 3
'
t_ok 'TRL 3728: a mask travels with its tokens through merge, shuffle and split' '
	for i in 1 2 3 4 5; do printf "%s\n" "$chat" | sed "s/\"b\"/\"b$i\"/"; done >m.jsonl && t_run skyrl-pretok -t "$src" -o m m.jsonl &&
	t_run skyrl-pretok shuffle --seed 4 -o s m && t_run skyrl-pretok cat --show -t "$src" s &&
	for i in 1 2 3 4 5; do grep -F "[b$i<|im_end|>]" out || exit 1; done
'
t_ok 'LLaMA-Factory 3939: hours of work are not lost: the work of a failed run stays when it has a checkpoint' '
	{ cat m.jsonl; echo "{broken"; } >late.jsonl && t_expect_code 3 skyrl-pretok --checkpoint-every 1 -t "$src" -o late m.jsonl late.jsonl 2>err &&
	grep "late.jsonl:6" err && test -s late.work/journal && test ! -e late.idx
'
t_ok 'prime-rl 2492: the header of an answer is not trained; TRL 1623: its end of turn is' '
	t_run skyrl-pretok cat --show -t "$src" --rows 0:1 m && ! grep -F "[assistant" out && grep -F "<|im_end|>]" out
'
t_ok 'slime 2263: tool replies that follow one another are rendered once and whole, as the template has them' '
	printf "%s\n" "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"x\"},{\"role\":\"tool\",\"content\":\"t1\"},{\"role\":\"tool\",\"content\":\"t2\"},{\"role\":\"assistant\",\"content\":\"y\"}]}" >tt.jsonl &&
	printf "%s" "{% for m in messages %}{% if m.role == \"tool\" %}{% if loop.first or messages[loop.index0 - 1].role != \"tool\" %}<|im_start|>user{% endif %}({{ m.content }}){% if loop.last or messages[loop.index0 + 1].role != \"tool\" %}<|im_end|>{% endif %}{% else %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endif %}{% endfor %}" >tool.jinja &&
	t_run skyrl-pretok --chat-template tool.jinja -t "$src" -o tt tt.jsonl && t_run skyrl-pretok cat --show -t "$src" tt && grep -F "<|im_start|>user(t1)(t2)<|im_end|>" out &&
	grep -F "[y<|im_end|>]" out
'
t_ok 'transformers PR 30650: a template that needs a user turn does not break masks of others' '
	printf "%s" "{% if messages[0].role != \"user\" %}{{ raise_exception(\"No user query found in messages.\") }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}<|im_end|>{% endfor %}" >need.jinja &&
	t_run skyrl-pretok --chat-template need.jinja -t "$src" -o need c.jsonl && t_run skyrl-pretok cat --show -t "$src" need && grep -F "[b<|im_end|>]" out
'
if t_has shared data/formats; then
	t_ok 'ms-swift 6467: null members that Arrow and Parquet add to every struct are not printed' '
		printf "%s" "{% for m in messages %}{{ m | tojson }}{% endfor %}" >j.jinja && printf "%s\n" "$chat" >one.jsonl &&
		t_run skyrl-pretok render --chat-template j.jinja -t "$src" one.jsonl && ! grep null out &&
		t_run skyrl-pretok -q --train-on all --chat-template j.jinja --on-error skip -t "$src" -o nulls "$T_SHARED/data/formats/parquet/chat-plain-v1.parquet" &&
		t_run skyrl-pretok cat --decode -t "$src" nulls && grep Hello out && ! grep null out
	'
else
	t_skip 'golden data are not here'
fi
t_done
