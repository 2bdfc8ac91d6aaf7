#!/bin/sh
# rollout: trajectories, references, the same tokens whatever the batch; environments that misbehave cost episodes, not runs
. "${srcdir:-.}/tests/testlib.sh"
. "$T_SRC/tests/tiny.sh"

roll() { skyrl-rollout --quiet --model sft/model --prompts prompts.jsonl -n 4 --max-new-tokens 8 "$@"; }
same_tokens() { cmp "$1/rollout-000000.traj" "$2/rollout-000000.traj"; }

t_ok 'one reference a group, and a file that passes its check' '
	roll --env gsm8k --seed 7 -o a >refs && test "$(wc -l <refs)" -eq 20 && skyrl-inspect --check a/rollout-000000.traj >/dev/null &&
	sed -n 3p refs >one && t_json one .first 8 && t_json one .count 4 && t_json one .group 2
'
t_ok 'tokens, log-probs and rewards do not depend on batch, active episodes or threads' '
	roll --env gsm8k --seed 7 -o b --batch 3 --active 8 -j 1 >/dev/null && same_tokens a b &&
	roll --env gsm8k --seed 7 -o c --batch 64 -j 2 --env-workers 3 >/dev/null && same_tokens a c
'
t_ok 'a small key/value cache sets sequences back and changes nothing' '
	roll --env gsm8k --seed 7 -o k --kv-cache 300K --batch 8 >/dev/null && same_tokens a k
'
t_ok 'another seed draws other tokens' '
	roll --env gsm8k --seed 8 -o s >/dev/null && ! cmp -s a/rollout-000000.traj s/rollout-000000.traj
'
t_ok 'the environment is taken from env_class when it is not named' '
	roll --seed 7 -o d >/dev/null && same_tokens a d
'
t_ok 'a row that is no JSON object is named with file and line, status 3' '
	{ head -n 2 prompts.jsonl && echo "{oops" ; } >bad.jsonl &&
	t_expect_code 3 skyrl-rollout --quiet --model sft/model --prompts bad.jsonl --env gsm8k -n 1 -o x 2>err && grep "bad.jsonl" err && grep "line 3" err
'
cat >crash.sh <<'EOF'
# answers two episodes, then dies
n=0
while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
	case $line in
	*'"op":"init"'*) echo "{\"id\":$id,\"prompt\":[{\"role\":\"user\",\"content\":\"1+1=?\"}]}" ;;
	*'"op":"step"'*) n=$((n + 1)); test $n -le 2 || exit 3
		echo "{\"id\":$id,\"obs\":[],\"reward\":1,\"done\":true,\"info\":{}}" ;;
	esac
done
EOF
sed 's/test $n -le 2 || exit 3/test $n -le 2 || sleep 60/' crash.sh >hang.sh
sed 's/test $n -le 2 || exit 3/test $n -le 2 || { echo garbage; continue; }/' crash.sh >garbage.sh
for how in crash garbage; do
	t_ok "an environment that answers with $how costs its episodes, not the run" '
		skyrl-rollout --model sft/model --prompts prompts.jsonl -n 2 --max-new-tokens 4 --env-cmd "sh '$how'.sh" --json -o '$how' >out 2>err &&
		grep "lost to their environment" err && tail -n 1 out >res && t_json res .trajectories 40 && t_json res .lost >lost && test "$(cat lost)" -gt 0 &&
		skyrl-inspect --check '$how'/rollout-000000.traj >/dev/null
	'
done
t_ok 'an environment that hangs is given up behind --env-timeout' '
	skyrl-rollout --model sft/model --prompts prompts.jsonl --rows 3 -n 1 --max-new-tokens 4 --env-cmd "sh hang.sh" --env-timeout 300ms --json -o hang >out 2>err &&
	tail -n 1 out >res && t_json res .lost >lost && test "$(cat lost)" -gt 0
'
t_ok 'a command that cannot run ends the run with its status' '
	t_expect_code 1 skyrl-rollout --quiet --model sft/model --prompts prompts.jsonl -n 1 --env-cmd "exec /nonexistent/env" -o x2 2>err && grep "before it answered" err
'
t_ok 'several turns: the observation follows the answer, its tokens are not trained' '
	printf "%s\n" "{\"prompt\":\"2*3?\",\"reward_spec\":{\"ground_truth\":\"6\"}}" >mul.jsonl &&
	roll --prompts mul.jsonl --env multiply --max-turns 3 --json -o mt >out && tail -n 1 out >res && t_json res .trajectories 4 &&
	skyrl-inspect --check mt/rollout-000000.traj >/dev/null
'
if t_has cmd python3; then
	t_ok 'the example environment in Python plays its episodes' '
		printf "%s\n" "{\"reward_spec\":{\"ground_truth\":\"5\"}}" >guess.jsonl &&
		skyrl-rollout --quiet --model sft/model --prompts guess.jsonl -n 3 --max-turns 3 --max-new-tokens 6 \
			--env-cmd "python3 $T_SRC/cmd/examples/env_guess.py" --json -o py >out && tail -n 1 out >res && t_json res .lost 0
	'
fi
t_ok 'complete: greedy text is repeatable, --json has ids, log-probs and the stop reason' '
	skyrl-rollout complete --quiet --model sft/model --chat --prompt "1+2=?" --temperature 0 --max-new-tokens 6 >t1 &&
	printf "1+2=?" | skyrl-rollout complete --quiet --model sft/model --chat --temperature 0 --max-new-tokens 6 >t2 && cmp t1 t2 &&
	skyrl-rollout complete --quiet --json --model sft/model --chat --prompt "1+2=?" --temperature 0 --max-new-tokens 6 >j &&
	grep "\"stop\":" j && grep "\"ids\":\[" j
'
t_ok 'complete: a stop string ends the text in front of it' '
	skyrl-rollout complete --quiet --model sft/model --prompt "aaaa" --temperature 1 --seed 3 --max-new-tokens 40 >full &&
	c=$(tail -c 12 full | head -c 1) && t_run skyrl-rollout complete --quiet --model sft/model --prompt "aaaa" --temperature 1 --seed 3 --max-new-tokens 40 --stop "$c" &&
	test "$(wc -c <out)" -le "$(wc -c <full)" && ! grep -F -e "$c" out
'
t_ok 'score: datasets and lines of ids; the first token has no log-prob' '
	skyrl-rollout score --quiet --model sft/model --json data >sc && test "$(wc -l <sc)" -eq 200 && sed -n 1p sc | grep "\"logprob\":\[null,-" &&
	echo "[1,2,3]" >ids.ndjson && skyrl-rollout score --quiet --model sft/model --json ids.ndjson >sc && grep "\"logprob\":\[null,-[0-9.]*,-[0-9.]*\]" sc &&
	echo "[1,9999]" >ids.ndjson && t_expect_code 3 skyrl-rollout score --model sft/model ids.ndjson 2>err && grep "9999" err
'
t_done
