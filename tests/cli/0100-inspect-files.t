#!/bin/sh
# inspect: kinds by content, every damage with its status, records
. "${srcdir:-.}/tests/testlib.sh"

seeds=$T_SRC/tests/fuzz/seeds

# st FILE HEADER [DATA]: a safetensors file; the header is below 256 bytes.
st() {
	{ printf "\\$(printf %03o ${#2})\\0\\0\\0\\0\\0\\0\\0%s" "$2"; printf "${3-}"; } >"$1"
}
# model DIR: two shards with an index.
model() {
	mkdir -p "$1" &&
	st "$1/m-1.safetensors" '{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}' '\200\077\000\100' &&
	st "$1/m-2.safetensors" '{"b":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}' '\000\000\200\077' &&
	echo '{"metadata":{"total_size":8},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}}' >"$1/model.safetensors.index.json" &&
	echo '{"architectures":["LlamaForCausalLM"],"model_type":"llama"}' >"$1/config.json"
}

t_ok 'a safetensors file: tensors, types, metadata' '
	cp "$seeds/safetensors/two" two && t_run skyrl-inspect -l two && grep -q "^two: safetensors file" out &&
	grep -q "F32 *\[2,3\] a" out && grep -q "metadata *format = pt" out &&
	t_run skyrl-inspect --json two && t_json out .kind "safetensors file" && t_json out .n_tensors 3 && t_json out .n_elements 12 &&
	t_json out .bytes 37 && t_json out .dtypes.F32 1 && t_json out .metadata.format pt
'
t_ok 'a trajectory file is known by its metadata and printed by sample' '
	cp "$seeds/traj/full" x && t_run skyrl-inspect --json -l x && t_json out:1 .kind "trajectory file" && t_json out:1 .n_samples 2 &&
	t_json out:1 .n_generated 3 && t_json out:1 .version_max 2 && t_json out:2 .type sample && t_json out:3 .stop length &&
	t_json out:3 .reward 0.5
'
t_ok 'a model directory: the index decides, --check is one line or none' '
	model model && : >model/stale.safetensors && t_run skyrl-inspect model && grep -q "architecture *LlamaForCausalLM" out &&
	t_run skyrl-inspect --json model && t_json out .n_files 2 && t_json out .n_elements 3 &&
	t_run skyrl-inspect --check model two && printf "model: Hugging Face directory, ok\ntwo: safetensors file, ok\n" >want && t_same out want &&
	t_run skyrl-inspect --check -q model two && ! test -s out && ! test -s err
'
t_ok 'damage is status 3 with file and cause, absence 4, damage goes first' '
	t_cut two 200 cut.safetensors && t_expect_code 3 skyrl-inspect --check cut.safetensors 2>err && grep -q "cut.safetensors is cut off" err &&
	t_expect_code 4 skyrl-inspect nowhere 2>err && grep -q "nowhere: no such file" err &&
	t_expect_code 3 skyrl-inspect nowhere cut.safetensors two 2>err >out && grep -q "^two: " out && grep -q "2 of 3 are not in order" err
'
t_ok 'a shard that the index promises is damage' '
	model lost && rm lost/m-2.safetensors && t_expect_code 3 skyrl-inspect lost 2>err && grep -q "m-2.safetensors, which is missing" err
'
t_ok 'an org/name that the cache lacks is status 4 and says what fetches it' '
	HF_HOME=$PWD/hf t_expect_code 4 skyrl-inspect org/name 2>err && grep -q "hf download org/name" err
'
t_ok 'org/name in the cache is found' '
	mkdir -p hf/hub/models--org--name/refs && model hf/hub/models--org--name/snapshots/0123abc &&
	printf 0123abc >hf/hub/models--org--name/refs/main && HF_HOME=$PWD/hf t_run skyrl-inspect org/name && grep -q "snapshots/0123abc" out
'
t_ok 'failures are records too' '
	t_expect_code 3 skyrl-inspect --json --check cut.safetensors two >out 2>err && t_json out:1 .type error && t_json out:1 .code 3 &&
	t_json out:1 .item cut.safetensors && t_json out:2 .checked true && grep -qE "xxh3_128\":\"[0-9a-f]{32}\"" out
'
t_ok 'every byte of a trajectory header counts: a flip is refused or harmless, never a crash' '
	n=$(wc -c <"$seeds/traj/bare") && i=0 && while test $i -lt $n; do
		cp "$seeds/traj/bare" f && t_flip f $i && skyrl-inspect --check f >/dev/null 2>err; c=$?
		case $c in 0|3) ;; *) echo "byte $i: status $c"; break ;; esac
		i=$((i + 7))
	done && test $i -ge $n
'
t_ok 'NaN in weights is a warning, not damage' '
	st nan.safetensors "{\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}" "\300\177\200\177" &&
	t_run skyrl-inspect --check nan.safetensors && grep -q "2 values are NaN or infinite" err
'
t_ok 'a run directory whose pointer names a missing step is damaged' '
	mkdir -p run/global_step_3 && echo 3 >run/latest_ckpt_global_step.txt && t_run skyrl-inspect run && grep -q "latest step *3" out &&
	echo 4 >run/latest_ckpt_global_step.txt && t_expect_code 3 skyrl-inspect run 2>err && grep -q "global_step_4 is missing" err
'
t_ok 'other files are named; what nobody knows is status 3' '
	printf "PAR1xxxx" >p && t_run skyrl-inspect p && grep -q "^p: Parquet file" out && echo "{\"a\":1}" >a.json && t_run skyrl-inspect a.json &&
	grep -q "JSON document" out && printf "{}\n{\n" >l.jsonl && t_expect_code 3 skyrl-inspect --check l.jsonl 2>err && grep -q "l.jsonl, line 2" err &&
	echo hello >h && t_expect_code 3 skyrl-inspect h 2>err && grep -q "no kind" err
'
if t_has shared data/formats/megatron; then
	t_ok 'token datasets by prefix or file, good and bad ones' '
		d=$T_SHARED/data/formats/megatron && good=$(ls $d/*.idx | grep -v -e /bad- -e float | head -n 5) && bad=$(ls $d/bad-*.idx) &&
		for f in $good; do t_run skyrl-inspect --json "${f%.idx}" && t_json out .kind "token dataset" || return 1; done &&
		for f in $bad; do t_expect_code 3 skyrl-inspect --check -q "$f" 2>/dev/null || { echo "$f"; return 1; }; done
	'
else
	t_skip 'no golden data' 'token datasets'
fi
if t_has shared data/models; then
	t_ok 'golden models are in order' '
		for d in $T_SHARED/data/models/*/; do
			ls $d*.safetensors >x 2>/dev/null || continue
			t_run skyrl-inspect --check $d || return 1
		done && test -s x
	'
else
	t_skip 'no golden data' 'models'
fi
t_done
