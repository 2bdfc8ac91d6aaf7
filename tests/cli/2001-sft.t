#!/bin/sh
# sft: loss falls, micro-batches and threads do not matter, resume is exact, bad input has its status
. "${srcdir:-.}/tests/testlib.sh"
. "$T_SRC/tests/tiny.sh"

losses() { sed -n 's/.*"train\/loss":\([0-9.e-]*\),.*/\1/p' "$1/metrics.ndjson"; }
weights() { cat "$1"/model/model.safetensors | cksum; }
train() { skyrl-sft --quiet --model sft/model --data data --batch-size 8 --max-length 64 --lr 1e-3 "$@"; }

t_ok 'the loss falls and the run directory is complete' '
	losses sft >l && test "$(wc -l <l)" -eq 12 &&
	awk "NR == 1 { a = \$1 } { b = \$1 } END { exit !(b < a * 0.7) }" l &&
	test -f sft/config.json && test "$(cat sft/latest_ckpt_global_step.txt)" = 12 && test -d sft/global_step_12/policy &&
	skyrl-inspect --check sft/model >/dev/null
'
t_ok 'the same run again gives the same bytes' '
	train -o a --steps 4 --micro-batch-size 8 && train -o b --steps 4 --micro-batch-size 8 &&
	test "$(weights a)" = "$(weights b)" && losses a >la && losses b >lb && cmp la lb
'
t_ok 'a run that is cut and resumed gives the losses and weights of one that was not' '
	train -o cut --steps 2 --micro-batch-size 8 && skyrl-sft --quiet --resume cut --steps 4 &&
	test "$(weights a)" = "$(weights cut)" && losses cut >lc && cmp la lc
'
t_ok 'smaller micro-batches give the same loss to rounding' '
	train -o m --steps 2 --micro-batch-size 2 && losses m >lm &&
	paste la lm | head -n 2 | awk "{ d = \$1 - \$2; if (d < 0) d = -d; if (d > 2e-3 * \$1) exit 1 }"
'
t_ok 'packing trains on every document of the batch' '
	train -o p --steps 2 --micro-batch-size 2 --pack --dtype f32 &&
	sed -n 1p p/metrics.ndjson >one && t_json one train/actual_num_tokens >n && test "$(cat n)" -gt 300
'
t_ok 'evaluation data give eval/loss' '
	train -o e --steps 1 --eval-data data && grep "eval/loss" e/metrics.ndjson
'
t_ok 'a second writer on a run directory is refused with status 5' '
	exec 9>lock.lock && mkdir lock && flock 9 && t_expect_code 5 train -o lock --steps 1 2>err && exec 9>&- && grep "lock" err
'
t_ok 'an existing run is not overwritten, status 2' '
	t_expect_code 2 train -o a --steps 1 2>err && grep -e "--resume a" err && test "$(weights a)" = "$(weights b)"
'
t_ok 'missing things have status 4' '
	t_expect_code 4 skyrl-sft --model nowhere --data data -o x1 2>err && grep nowhere err &&
	t_expect_code 4 skyrl-sft --model sft/model --data nodata -o x2 2>err && grep nodata err &&
	t_expect_code 4 skyrl-sft --resume norun 2>err
'
t_ok 'ids of another tokenizer are bad data' '
	cp -r base wide && chmod -R u+w wide && sed -i "s/\"vocab_size\": 288/\"vocab_size\": 64/" wide/config.json &&
	t_expect_code 3 skyrl-sft --model wide --init-random --data data -o x3 2>err && grep "another tokenizer" err
'
t_ok 'a damaged checkpoint is refused, status 3' '
	cp -r sft/model bad && chmod -R u+w bad && head -c 5000 sft/model/model.safetensors >bad/model.safetensors &&
	t_expect_code 3 skyrl-sft --model bad --data data -o x4 2>err && grep "model.safetensors" err
'
t_ok 'an unknown architecture is named' '
	cp -r sft/model odd && chmod -R u+w odd && sed -i "s/Qwen3ForCausalLM/WaveNetForCausalLM/;s/\"qwen3\"/\"wavenet\"/" odd/config.json &&
	t_expect_code 3 skyrl-sft --model odd --data data -o x5 2>err && grep -i wavenet err
'
t_done
