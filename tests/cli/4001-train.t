#!/bin/sh
# train: the log-prob gap is exactly 0 in both precisions, updates are reproducible, resume is exact, bad input has its status
. "${srcdir:-.}/tests/testlib.sh"
. "$T_SRC/tests/tiny.sh"

weights() { cat "$1"/model.safetensors | cksum; }
step() { skyrl-train step --quiet --model sft/model --lr 1e-4 "$@"; }
go() { skyrl-train run --quiet --model sft/model --prompts prompts.jsonl --env gsm8k --prompts-per-step 4 -n 4 --max-new-tokens 8 --lr 1e-4 "$@"; }
stable() { sed 's/"timing\/[a-z_]*":[0-9.e-]*,\{0,1\}//g' "$1/metrics.ndjson"; }

for dtype in bf16 f32; do
	t_ok "the gap between rollout and training is exactly 0 in $dtype" '
		skyrl-rollout --quiet --model sft/model --prompts prompts.jsonl --env gsm8k -n 4 --max-new-tokens 8 --dtype '$dtype' -o ro-'$dtype' >refs-'$dtype' &&
		step --json --dtype '$dtype' -o next-'$dtype' refs-'$dtype' >r && t_json r policy/rollout_train_logprobs_abs_diff_max 0 &&
		skyrl-inspect --check next-'$dtype' >/dev/null
	'
done
t_ok 'references, the file itself and standard input are the same batch' '
	step -o n1 refs-bf16 && step -o n2 ro-bf16/rollout-000000.traj && step -o n3 - <refs-bf16 &&
	test "$(weights n1)" = "$(weights n2)" && test "$(weights n1)" = "$(weights n3)" && ! test "$(weights n1)" = "$(weights sft/model)"
'
t_ok 'the size of a pass changes no more than rounding' '
	step --json -o m1 refs-bf16 >r1 && step --json --micro-tokens 64 -o m2 refs-bf16 >r2 &&
	a=$(t_json r1 policy/grad_norm) && b=$(t_json r2 policy/grad_norm) &&
	awk -v a="$a" -v b="$b" "BEGIN { d = a - b; if (d < 0) d = -d; exit d > 0.02 * a }"
'
t_ok 'optimizer state goes on from step to step' '
	step --state opt -o o1 refs-bf16 && skyrl-inspect opt/optimizer.safetensors >/dev/null &&
	head -c 200 opt/optimizer.safetensors | grep -a "\"steps\":\"1\"" && step --state opt -o o2 refs-bf16 &&
	head -c 200 opt/optimizer.safetensors | grep -a "\"steps\":\"2\""
'
t_ok 'several epochs and mini-batches, and a KL term against a reference model' '
	step --json --epochs 2 --mini-batch-prompts 5 --ref-model sft/model -o kl refs-bf16 >r && t_json r policy/policy_kl >k && test -s k &&
	t_json r policy/rollout_train_logprobs_abs_diff_max 0
'
for loss in dual_clip gspo cispo sapo rollout_is dppo; do
	t_ok "policy_loss_type $loss by its SkyRL name" '
		step -c trainer.algorithm.policy_loss_type='$loss' -o l-'$loss' refs-bf16
	'
done
t_ok 'an unknown algorithm key names its neighbour, status 2' '
	t_expect_code 2 step -c trainer.algorithm.eps_clip_lo=0.1 -o x refs-bf16 2>err && grep eps_clip_low err
'
t_ok 'trajectories of mixed sampling are refused, status 3' '
	skyrl-rollout --quiet --model sft/model --prompts prompts.jsonl --env gsm8k -n 2 --max-new-tokens 4 --temperature 0.5 -o cool >refs-cool &&
	t_expect_code 3 step -o x refs-bf16 refs-cool 2>err && grep -i temperature err && ! test -e x
'
t_ok 'a damaged trajectory file is refused and nothing is written' '
	head -c 3000 ro-bf16/rollout-000000.traj >cut.traj && t_expect_code 3 step -o x cut.traj 2>err && grep cut.traj err && ! test -e x
'
t_ok 'the whole loop: every step has gap 0, the run directory is complete' '
	go -o run --steps 3 --checkpoint-every 1 && test "$(wc -l <run/metrics.ndjson)" -eq 3 &&
	test "$(grep -c "abs_diff_max\":0," run/metrics.ndjson)" -eq 3 && test "$(cat run/latest_ckpt_global_step.txt)" = 3 &&
	skyrl-inspect --check run/model >/dev/null
'
t_ok 'a resumed run goes on exactly where it stood' '
	go -o cut --steps 1 && skyrl-train --quiet --resume cut --steps 3 && test "$(weights run/model)" = "$(weights cut/model)" &&
	stable run >s1 && stable cut >s2 && cmp s1 s2
'
t_ok 'each step is published, and a second directory reaches the same weights' '
	go -o pub --steps 2 --publish store && skyrl-delta pull --quiet --store store --state rep --base sft/model &&
	skyrl-delta verify --quiet --store store --weights pub/model && skyrl-delta verify --quiet --store store --weights rep/weights
'
t_ok 'an environment that never answers ends the run, and names the child' '
	t_expect_code 1 skyrl-train run --quiet --model sft/model --prompts prompts.jsonl --env-cmd "exec /nonexistent/env" -o dead --steps 1 2>err && grep skyrl-rollout err
'
t_done
