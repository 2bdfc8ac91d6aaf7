#!/bin/sh
# The tutorial: a tiny model learns to add from a careless teacher, then improves by reinforcement; its versions travel as
# deltas to a second directory. Run by `./bootstrap demo`; every command is printed before it runs.
#
#	DEMO_OUT=DIR sh cmd/examples/demo.sh            everything it makes lies in DIR (default ./demo.out, removed first)
#
# The same commands work on a real model: `skyrl-train run --model DIR` with any Llama, Qwen2 or Qwen3 directory.
set -eu
top=$(cd "$(dirname "$0")/../.." && pwd)
bin=${DEMO_BIN:-$top}
out=${DEMO_OUT:-$top/demo.out}
steps=${DEMO_STEPS:-150}
PATH=$bin:$PATH
export PATH

say() { printf '\n\033[1m# %s\033[0m\n' "$*"; }
run() {
	printf '$ %s\n' "$*"
	"$@"
}

rm -rf "$out"
mkdir -p "$out/base"
cd "$out"

say 'A model directory: configuration and tokenizer of 275 tokens, no weights yet'
LC_ALL=C awk -f "$top/cmd/examples/demo/tokenizer.awk" </dev/null >base/tokenizer.json
cp "$top/cmd/examples/demo/config.json" "$top/cmd/examples/demo/tokenizer_config.json" base/
ls base

say 'Data: sums from a teacher who is one too high half of the time, and prompts with the right answers'
LC_ALL=C awk -f "$top/cmd/examples/demo/data.awk" -v what=chats </dev/null >chats.jsonl
LC_ALL=C awk -f "$top/cmd/examples/demo/data.awk" -v what=prompts </dev/null >prompts.jsonl
head -n 2 chats.jsonl
head -n 1 prompts.jsonl

say 'Tokens and loss masks: only the answers are trained'
run skyrl-pretok --tokenizer base --train-on all-assistant -o data chats.jsonl
run skyrl-pretok verify data

say 'Supervised fine-tuning from random weights'
run skyrl-sft --model base --init-random --data data -o sft --steps 400 --batch-size 64 --micro-batch-size 64 \
	--max-length 64 --lr 2e-3 --schedule cosine --warmup-steps 20 --adam-beta2 0.98

say 'What it learned: the teacher'"'"'s mistakes as well'
run skyrl-rollout complete --model sft/model --chat --prompt '3+4=?' --seed 1
run skyrl-rollout complete --model sft/model --chat --prompt '3+4=?' --seed 4

say 'Reinforcement: 8 answers a prompt, reward 1 for a right one; every version is published as a delta'
run skyrl-train run --model sft/model --prompts prompts.jsonl --env gsm8k -o rl --steps "$steps" \
	--prompts-per-step 64 --mini-batch-prompts 16 -n 8 --lr 3e-4 --schedule linear --adam-beta2 0.95 \
	--max-new-tokens 12 --publish store

say 'The chain of versions'
skyrl-delta list --store store >list.txt
printf '$ skyrl-delta list --store store | tail -n 3\n'
tail -n 3 list.txt

say 'A second directory fetches and applies them; both sides are the same model'
run skyrl-delta pull --store store --state replica --base sft/model
run skyrl-delta verify --store store --weights replica/weights
run skyrl-delta verify --store store --weights rl/model

say 'The reward curve'
run skyrl-plot rl/metrics.ndjson --key reward/avg_raw_reward -o reward.png
run skyrl-plot rl/metrics.ndjson --key reward/avg_raw_reward --terminal

say 'Before and after, on prompts with one answer each'
run skyrl-rollout --model sft/model --prompts prompts.jsonl --env gsm8k -n 1 --max-new-tokens 12 -o before >before.ndjson
run skyrl-rollout --model replica/weights --prompts prompts.jsonl --env gsm8k -n 1 --max-new-tokens 12 -o after >after.ndjson
mean() { sed -n 's/.*"reward_mean":\([0-9.]*\).*/\1/p' "$1" | awk '{ s += $1 } END { printf "%.3f", s / NR }'; }
printf '\nright answers: %s before, %s after (picture: %s/reward.png)\n' "$(mean before.ndjson)" "$(mean after.ndjson)" "$out"
