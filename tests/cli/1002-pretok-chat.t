#!/bin/sh
# pretok: conversations, masks, and the complaints of the field that they answer
. "${srcdir:-.}/tests/testlib.sh"
tok=$T_SRC/tests/data/chatml

cat >chat.jsonl <<'X'
{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"one"},{"role":"user","content":"more"},{"role":"assistant","content":"two"}]}
X
# Trained text of row 1, as one string.
trained() {
	skyrl-pretok cat --show -t "$tok" "$@" >shown && sed 1d shown | tr -d '\n' | sed 's/\\n//g' | grep -o '\[[^]]*\]' | tr -d '\n'
}

t_ok 'the last answer is trained with its stop token, nothing behind it (TRL 1623: a model that does not stop)' '
	t_run skyrl-pretok -t "$tok" -o c chat.jsonl && test "$(trained c)" = "[two<|im_end|>]"
'
t_ok 'every answer' '
	t_run skyrl-pretok -f --train-on all-assistant -t "$tok" -o c chat.jsonl &&
	test "$(trained c)" = "[one<|im_end|>][two<|im_end|>]"
'
t_ok 'masks need no generation tags (Megatron-Bridge 3359: all ones; TRL 3927: all zero)' '
	! grep generation "$tok/tokenizer_config.json" | grep endgeneration &&
	t_run skyrl-pretok stats --json c && t_json out .rows_with_trained_stop 1 && t_json out .first_token_trained 0
'
t_ok 'weight 0 leaves a message untrained, stop token and all (prime-rl PR 978)' '
	sed "s/\"content\":\"two\"/\"content\":\"two\",\"weight\":0/" chat.jsonl >w.jsonl &&
	t_run skyrl-pretok --train-on all-assistant -t "$tok" -o w w.jsonl && test "$(trained w)" = "[one<|im_end|>]"
'
t_ok 'a row without a trained token is left out and counted, never trained whole' '
	printf "%s\n" "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}" >n.jsonl &&
	t_run skyrl-pretok --json -t "$tok" -o n n.jsonl && t_json out .rows 0 && t_json out .left_out.no_trained_tokens 1 &&
	grep "Megatron cannot map" err
'
t_ok 'an answer that truncation cut away does not stay as an untrained row' '
	t_run skyrl-pretok --json --max-length 20 -t "$tok" -o tr chat.jsonl && t_json out .left_out.no_trained_tokens 1
'
t_ok 'ShareGPT, Alpaca and plain prompt and completion give the same conversation' '
	printf "%s\n" "{\"conversations\":[{\"from\":\"human\",\"value\":\"hi\"},{\"from\":\"gpt\",\"value\":\"one\"}]}" >s.jsonl &&
	printf "%s\n" "{\"instruction\":\"hi\",\"input\":\"\",\"output\":\"one\"}" >al.jsonl &&
	printf "%s\n" "{\"prompt\":[{\"role\":\"user\",\"content\":\"hi\"}],\"completion\":[{\"role\":\"assistant\",\"content\":\"one\"}]}" >p.jsonl &&
	for f in s al p; do t_run skyrl-pretok -t "$tok" -o $f $f.jsonl || exit 1; done &&
	t_same s.bin al.bin && t_same s.mask.bin al.mask.bin && t_same s.bin p.bin && t_same s.mask.bin p.mask.bin
'
t_ok 'an unknown role is a bad row, or mapped' '
	sed "s/\"assistant\",\"content\":\"one\"/\"robot\",\"content\":\"one\"/" chat.jsonl >r.jsonl &&
	t_expect_code 3 skyrl-pretok -t "$tok" -o r r.jsonl 2>err && grep "robot" err &&
	t_run skyrl-pretok --role robot=assistant -t "$tok" -o r r.jsonl && t_run skyrl-pretok -f -t "$tok" -o c chat.jsonl &&
	t_same r.bin c.bin
'
t_ok 'prompt and completion texts are one text; the completion is trained (a merge across the border belongs to the prompt)' '
	printf "%s\n" "{\"prompt\":\"he\",\"completion\":\"llo world\"}" >pc.jsonl &&
	t_run skyrl-pretok -t "$tok" -o pc pc.jsonl && t_run skyrl-pretok cat pc && t_json out .ids "[259,264]" && t_json out .mask "[0,1]"
'
t_ok 'segments control every byte' '
	printf "%s\n" "{\"segments\":[{\"text\":\"Q\",\"label\":false},{\"text\":\"A\",\"label\":true}]}" >sg.jsonl &&
	t_run skyrl-pretok -t "$tok" -o sg sg.jsonl && t_run skyrl-pretok cat sg && t_json out .mask "[0,1]"
'
t_ok 'ready ids pass through; a trained first token is refused (SkyRL 2171)' '
	printf "%s\n" "{\"input_ids\":[1,2,3],\"loss_mask\":[0,1,1]}" >i.jsonl && t_run skyrl-pretok --vocab-size 100 -o i i.jsonl &&
	t_run skyrl-pretok cat i && t_json out .ids "[1,2,3]" && t_json out .mask "[0,1,1]" && t_json i.json .dtype uint16 &&
	printf "%s\n" "{\"input_ids\":[1,2,3],\"loss_mask\":[1,1,1]}" >i1.jsonl &&
	t_expect_code 3 skyrl-pretok -o i1 i1.jsonl 2>err && grep "first token" err &&
	printf "%s\n" "{\"input_ids\":[1,100],\"loss_mask\":[0,1]}" >i2.jsonl &&
	t_expect_code 3 skyrl-pretok --vocab-size 100 -o i2 i2.jsonl 2>err && grep id_range err
'
t_ok 'tool calls that the template does not print are told, or make a bad row (an empty answer is not trained in silence)' '
	printf "%s\n" "{\"messages\":[{\"role\":\"user\",\"content\":\"w\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}" >tc.jsonl &&
	t_run skyrl-pretok --json -t "$tok" -o tc tc.jsonl && grep "did not print the tool calls" err && t_json out .lost.tool_calls 1 &&
	t_expect_code 3 skyrl-pretok -f --lost reject -t "$tok" -o tc tc.jsonl 2>err && grep "lost_content" err &&
	t_run skyrl-pretok -f --json --lost allow -t "$tok" -o tc tc.jsonl && t_json out .lost.tool_calls 0 &&
	t_run skyrl-pretok -f --json -t "$tok" -o c chat.jsonl && t_json out .lost.content 0
'
t_ok 'render shows text and trained bytes' '
	t_run skyrl-pretok render -t "$tok" chat.jsonl && t_json out .spans.length 1 &&
	t_run skyrl-pretok render --add-generation-prompt -t "$tok" n.jsonl &&
	grep -F "hi<|im_end|>\\n<|im_start|>assistant\\n" out
'
t_ok 'conversations without a template say how to give one' '
	t_expect_code 2 skyrl-pretok -t "$tok/tokenizer.json" -o x chat.jsonl 2>err && grep -e --chat-template err
'
t_ok 'what the template raises is the row'"'"'s error with its text' '
	printf "%s" "{{ raise_exception(\"no such thing\") }}" >raise.jinja &&
	t_expect_code 3 skyrl-pretok --chat-template raise.jinja -t "$tok" -o x chat.jsonl 2>err && grep "no such thing" err &&
	grep "chat.jsonl:1" err
'
t_done
