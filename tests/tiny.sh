# For tests of programs that run a model: sourced behind testlib.sh. Makes, in the scratch folder,
#	base/           configuration and tokenizer of the demo's tiny model, no weights
#	data.*          200 sums as a token dataset
#	prompts.jsonl   20 prompt rows for the gsm8k environment
#	sft/model       a few steps of training: text of digits, often wrong

mkdir base && LC_ALL=C awk -f "$T_SRC/cmd/examples/demo/tokenizer.awk" </dev/null >base/tokenizer.json &&
	cp "$T_SRC/cmd/examples/demo/config.json" "$T_SRC/cmd/examples/demo/tokenizer_config.json" base/ && chmod -R u+w base &&
	LC_ALL=C awk -f "$T_SRC/cmd/examples/demo/data.awk" -v what=chats </dev/null | head -n 200 >chats.jsonl &&
	LC_ALL=C awk -f "$T_SRC/cmd/examples/demo/data.awk" -v what=prompts </dev/null | head -n 20 >prompts.jsonl &&
	skyrl-pretok --quiet --tokenizer base --train-on all-assistant -o data chats.jsonl &&
	skyrl-sft --quiet --model base --init-random --data data -o sft --steps 12 --batch-size 32 --micro-batch-size 32 \
		--max-length 64 --lr 4e-3 --adam-beta2 0.98 -j 2 2>tiny.err ||
	{ cat tiny.err; echo 'Bail out! the tiny model could not be made'; exit 99; }
