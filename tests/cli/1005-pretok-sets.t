#!/bin/sh
# pretok: token datasets from token datasets, other formats, damage
. "${srcdir:-.}/tests/testlib.sh"
tok=$T_SRC/tests/data/chatml
awk 'BEGIN { for (i = 0; i < 50; i++) printf "{\"messages\":[{\"role\":\"user\",\"content\":\"q%d\"},{\"role\":\"assistant\",\"content\":\"answer %d hello\"}]}\n", i % 40, i % 40 }' >in.jsonl
same_set() {
	for t_suffix in bin idx mask.bin mask.idx; do cmp "$1.$t_suffix" "$2.$t_suffix" || return 1; done
}

t_ok 'parts of a split merge to the whole' '
	t_run skyrl-pretok -t "$tok" -o a in.jsonl && t_run skyrl-pretok split --parts 3 -o p a &&
	t_run skyrl-pretok merge -o m p-0 p-1 p-2 && same_set a m && t_json m.json .tokenizer.sha256 >h1 &&
	t_json a.json .tokenizer.sha256 >h2 && t_same h1 h2
'
t_ok 'a split by lot puts every row in one part' '
	t_run skyrl-pretok split --fraction 0.8 --seed 3 -o q a && t_json q-0.json .rows 40 && t_json q-1.json .rows 10 &&
	t_run skyrl-pretok cat --decode -t "$tok" q-0 && cp out l0 && t_run skyrl-pretok cat --decode -t "$tok" q-1 && cat out >>l0 &&
	t_run skyrl-pretok cat --decode -t "$tok" a && sed "s/^{\"row\":[0-9]*//" out | sort >l1 && sed "s/^{\"row\":[0-9]*//" l0 | sort >l2 && t_same l1 l2
'
t_ok 'a sample has the number asked for, and is the same for the same seed' '
	t_run skyrl-pretok sample --count 7 --seed 5 -o s a && t_json s.json .rows 7 && t_run skyrl-pretok sample --count 7 --seed 5 -o s2 a && same_set s s2 &&
	t_expect_code 2 skyrl-pretok sample --count 51 -o s3 a && t_expect_code 2 skyrl-pretok sample -o s3 a
'
t_ok 'a shuffle keeps the rows' '
	t_run skyrl-pretok shuffle --seed 1 -o sh a && ! cmp -s a.bin sh.bin && t_run skyrl-pretok cat sh && sed "s/^{\"row\":[0-9]*//" out | sort >r1 &&
	t_run skyrl-pretok cat a && sed "s/^{\"row\":[0-9]*//" out | sort >r2 && t_same r1 r2
'
t_ok 'dedup keeps the first of equal rows' '
	t_run skyrl-pretok dedup -o d a && grep "10 rows were equal" err && t_json d.json .rows 40 && t_run skyrl-pretok dedup -o d2 d d && same_set d d2
'
t_ok 'sets of different tokenizers do not merge' '
	sed "s/<|im_end|>/<|im_END|>/" "$tok/tokenizer.json" >other.json && printf "%s\n" "{\"text\":\"x\"}" >x.jsonl &&
	t_run skyrl-pretok -t other.json -o x x.jsonl && t_expect_code 3 skyrl-pretok merge -o no a x 2>err && grep "different tokenizers" err
'
back() { # FORMAT ARGS…: to FORMAT and back
	f=$1
	shift
	skyrl-pretok convert --to "$f" -o "c-$f" a && skyrl-pretok convert -f --to megatron -o back "$@"
}
t_ok 'formats of others and back: datatrove, MDS, dolma, Arrow, JSON lines' '
	back ds --from ds c-ds && same_set a back && back mds c-mds && same_set a back && back dolma c-dolma.npy && same_set a back &&
	back arrow --dtype u16 c-arrow && same_set a back &&
	back jsonl --dtype u16 --from jsonl c-jsonl && same_set a back
'
t_ok 'the tokenizer stays known from set to set' '
	t_run skyrl-pretok convert --to megatron --dtype u32 -o wide a && t_json wide.json .tokenizer.vocab 268 && t_json wide.json .dtype int32 &&
	t_run skyrl-pretok verify -t "$tok" wide
'
t_ok 'an Arrow folder has the names and the state that datasets expects' '
	test -e c-arrow/data-00000-of-00001.arrow && t_json c-arrow/state.json "._data_files[0].filename" data-00000-of-00001.arrow &&
	test -e c-arrow/dataset_info.json && t_expect_code 2 skyrl-pretok convert --to arrow -o c-arrow a 2>err && grep "not replaced" err
'
t_ok 'llm.c loses the bounds but not a token, and counts in its header' '
	t_run skyrl-pretok convert --to llmc --eod-id 265 -o gpt.bin a && t_run skyrl-pretok convert --from llmc --eod-id 265 --to megatron -o l gpt.bin &&
	t_json l.json .rows 50 && od -An -tu4 -N12 gpt.bin | tr -s " " >head && grep " 20240520 1 " head
'
t_ok 'verify finds damage in every file, stats and cat refuse a cut index' '
	for f in bin idx mask.bin mask.idx json; do
		cp a.$f keep && t_flip a.$f 20 && t_expect_code 3 skyrl-pretok verify a 2>err && test -s err && cp keep a.$f || exit 1
	done && t_run skyrl-pretok verify a && head -c 100 a.idx >b.idx && cp a.bin b.bin && t_expect_code 3 skyrl-pretok stats b && t_expect_code 3 skyrl-pretok cat b
'
t_ok 'a bare Megatron pair is a set: everything trained, nothing sealed' '
	cp a.bin bare.bin && cp a.idx bare.idx && t_run skyrl-pretok verify bare && grep "no manifest" out &&
	t_run skyrl-pretok stats --json bare && t_json out .manifest false && t_json out .mask false
'
t_ok 'cat takes ranges, and brackets show what is trained' '
	t_run skyrl-pretok cat --rows=-2: a && test $(wc -l <out) -eq 2 && t_run skyrl-pretok cat --rows 3 a && t_json out .row 3 &&
	t_run skyrl-pretok cat --show -t "$tok" --rows 0:1 a && grep -F "[answer 0 hello<|im_end|>]" out &&
	t_expect_code 2 skyrl-pretok cat --rows 3:99 a
'
t_done
