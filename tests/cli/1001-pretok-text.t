#!/bin/sh
# pretok: texts to ids and back, what is left out, what is refused
. "${srcdir:-.}/tests/testlib.sh"
tok=$T_SRC/tests/data/chatml

t_ok 'two texts become two rows' '
	printf "%s\n" "{\"text\":\"hello world\"}" "{\"text\":\"a\"}" >in.jsonl &&
	t_run skyrl-pretok -t "$tok" -o out in.jsonl &&
	grep "schema text" err && grep "2 rows, 3 tokens" err &&
	t_run skyrl-pretok cat out &&
	t_json out:1 .ids "[259,264]" && t_json out:2 .ids.length 1 &&
	test ! -e out.mask.idx && t_no_temps && test ! -e out.work
'
t_ok 'ids decode to the text' '
	t_run skyrl-pretok cat --decode -t "$tok" out && t_json out:1 .text "hello world" &&
	printf "%s\n" "\"hello world <|im_end|>\"" >s && t_run skyrl-pretok encode -t "$tok" s && cp out ids &&
	t_run skyrl-pretok decode -t "$tok" ids && t_same out s &&
	t_run skyrl-pretok decode --skip-special -t "$tok" ids && printf "%s\n" "\"hello world \"" >want && t_same out want
'
t_ok 'verify says ok, and finds another tokenizer' '
	t_run skyrl-pretok verify -t "$tok" out && grep "checksums hold" out &&
	sed "s/\"<|im_end|>\"/\"<|im_END|>\"/" "$tok/tokenizer.json" >other.json &&
	t_expect_code 3 skyrl-pretok verify -t other.json out 2>err && grep "another tokenizer" err
'
t_ok 'an existing set is replaced only with --force' '
	t_expect_code 2 skyrl-pretok -t "$tok" -o out in.jsonl 2>err && grep -e --force err &&
	t_run skyrl-pretok -f -t "$tok" -o out in.jsonl
'
t_ok 'a bad line ends the run with its file, line and byte (Megatron: bad JSON kills the run without a place)' '
	printf "%s\n" "{\"text\":\"a\"}" "{\"text\":\"b\"" "{\"text\":\"c\"}" >bad.jsonl &&
	t_expect_code 3 skyrl-pretok -t "$tok" -o bad bad.jsonl 2>err &&
	grep "bad.jsonl:2: byte 13: bad_json" err && test ! -e bad.idx && test ! -e bad.work
'
t_ok 'or is skipped and counted (dolma swallows it)' '
	t_run skyrl-pretok --json --on-error skip -t "$tok" -o bad bad.jsonl &&
	t_json out .rows 2 && t_json out .left_out.bad_json 1 && grep "left out: 1 bad_json" err &&
	t_json bad.json .left_out.bad_json 1
'
t_ok 'or goes to a quarantine file' '
	t_run skyrl-pretok -f --on-error quarantine=q.ndjson -t "$tok" -o bad bad.jsonl &&
	t_json q.ndjson .line 2 && t_json q.ndjson .byte 13 && t_json q.ndjson .reason bad_json &&
	t_json q.ndjson .raw "{\"text\":\"b\"" && test ! -e q.ndjson.part
'
t_ok '--max-errors turns too many of them into an error' '
	t_expect_code 3 skyrl-pretok -f --on-error skip --max-errors 0 -t "$tok" -o bad2 bad.jsonl 2>err && grep -e --max-errors err &&
	t_run skyrl-pretok -f --on-error skip --max-errors 1 -t "$tok" -o bad2 bad.jsonl &&
	t_expect_code 3 skyrl-pretok -f --on-error skip --max-errors 20% -t "$tok" -o bad3 bad.jsonl 2>err && grep "1 of 3 rows" err &&
	t_run skyrl-pretok -f --on-error skip --max-errors 50% -t "$tok" -o bad3 bad.jsonl
'
t_ok 'empty texts are left out, kept or refused' '
	printf "%s\n" "{\"text\":\"\"}" "" "{\"text\":\"x\"}" >e.jsonl &&
	t_run skyrl-pretok --json -t "$tok" -o e e.jsonl && t_json out .rows 1 && t_json out .left_out.empty 1 &&
	t_json out .left_out.blank 1 &&
	t_run skyrl-pretok --json -f --empty keep -t "$tok" -o e e.jsonl && t_json out .rows 2 &&
	t_expect_code 3 skyrl-pretok -f --empty error -t "$tok" -o e e.jsonl 2>err && grep "e.jsonl:1" err
'
t_ok 'invalid UTF-8 and lone surrogates: refused, repaired or left out (datatrove loses the rest of the file)' '
	printf "{\"text\":\"a\\377b\"}\n{\"text\":\"\\\\ud83d\"}\n{\"text\":\"ok\"}\n" >u.jsonl &&
	t_expect_code 3 skyrl-pretok -t "$tok" -o u u.jsonl 2>err && grep "u.jsonl:1: byte 0: bad_utf8" err &&
	t_run skyrl-pretok -t "$tok" --invalid-utf8 replace -o u u.jsonl && t_run skyrl-pretok cat --decode -t "$tok" u &&
	t_json out:1 .text "a$(printf "\357\277\275")b" &&
	t_run skyrl-pretok -f --json -t "$tok" --invalid-utf8 skip -o u u.jsonl && t_json out .rows 1 && t_json out .left_out.bad_utf8 2
'
t_ok '--append-eod ends every row once' '
	printf "%s\n" "{\"text\":\"a\"}" "{\"text\":\"b<|endoftext|>\"}" >a.jsonl &&
	t_run skyrl-pretok -t "$tok" --append-eod --eod-token "<|endoftext|>" -o a a.jsonl && t_run skyrl-pretok cat a &&
	t_json out:1 .ids "[64,265]" && t_json out:2 .ids "[65,265]" &&
	t_expect_code 2 skyrl-pretok -t "$tok" --append-eod --eod-token nothere -o a2 a.jsonl 2>err && grep -e --eod-token err
'
t_ok 'long rows are cut, split, dropped or refused (dolma 272: no endless loop)' '
	printf "%s\n" "{\"text\":\"abcdefg\"}" "{\"text\":\"xy\"}" >l.jsonl &&
	t_run skyrl-pretok -t "$tok" --max-length 3 -o l l.jsonl && t_run skyrl-pretok cat l && t_json out:1 .ids "[64,65,66]" &&
	t_run skyrl-pretok -f -t "$tok" --max-length 3 --overlong left -o l l.jsonl && t_run skyrl-pretok cat l &&
	t_json out:1 .ids "[68,69,70]" &&
	t_run skyrl-pretok -f --json -t "$tok" --max-length 3 --overlong split -o l l.jsonl && t_json out .rows 4 &&
	t_run skyrl-pretok -f --json -t "$tok" --max-length 3 --overlong drop -o l l.jsonl && t_json out .left_out.too_long 1 &&
	t_expect_code 3 skyrl-pretok -f -t "$tok" --max-length 3 --overlong error -o l l.jsonl 2>err && grep "l.jsonl:1" err
'
t_ok 'compression does not matter, nor stdin, nor line ends' '
	t_run skyrl-pretok -f -t "$tok" -o ref in.jsonl && gzip -k in.jsonl &&
	t_run skyrl-pretok -f -t "$tok" -o gz in.jsonl.gz && t_same ref.bin gz.bin && t_same ref.idx gz.idx &&
	skyrl-pretok -f -t "$tok" -o std - <in.jsonl && t_same ref.bin std.bin &&
	sed "s/\$/$(printf "\r")/" in.jsonl >crlf.jsonl && t_run skyrl-pretok -t "$tok" -o crlf crlf.jsonl && t_same ref.bin crlf.bin
'
t_ok 'a cut gzip is damage whatever --on-error says' '
	head -c 30 in.jsonl.gz >cut.jsonl.gz &&
	t_expect_code 3 skyrl-pretok --on-error skip -t "$tok" -o cut cut.jsonl.gz 2>err && test ! -e cut.idx
'
t_ok 'text files are one document each, or one a line' '
	printf "one\ntwo\n" >t.txt && t_run skyrl-pretok --json -t "$tok" -o t t.txt && t_json out .rows 1 &&
	t_run skyrl-pretok --json -f --input-format lines -t "$tok" -o t t.txt && t_json out .rows 2
'
t_ok 'an unknown schema, a missing file and a missing tokenizer are named' '
	printf "%s\n" "{\"foo\":1}" >f.jsonl && t_expect_code 3 skyrl-pretok -t "$tok" -o f f.jsonl 2>err && grep -e --text-key err &&
	t_expect_code 4 skyrl-pretok -t "$tok" -o f nothere.jsonl 2>err && grep nothere.jsonl err &&
	t_expect_code 2 skyrl-pretok -o f in.jsonl 2>err && grep -e --tokenizer err &&
	t_run skyrl-pretok --json -t "$tok" -o f --schema text --text-key doc --map text=doc --on-error skip f.jsonl in.jsonl &&
	t_json out .rows 2 && t_json out .left_out.bad_schema 1
'
t_done
