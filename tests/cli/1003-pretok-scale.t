#!/bin/sh
# pretok: the same bytes for any -j, any split into workers, and after any kill
. "${srcdir:-.}/tests/testlib.sh"
tok=$T_SRC/tests/data/chatml
awk 'BEGIN { for (i = 0; i < 4000; i++) { s = ""; for (k = 0; k < (i * 7) % 90; k++) s = s " word" (i * k) % 1000;
	printf "{\"messages\":[{\"role\":\"user\",\"content\":\"q%d%s\"},{\"role\":\"assistant\",\"content\":\"hello world%s\"}]}\n", i, s, s } }' >in.jsonl

same_set() {
	for t_suffix in bin idx mask.bin mask.idx; do cmp "$1.$t_suffix" "$2.$t_suffix" || return 1; done
}

t_ok 'one thread and three write the same bytes, manifest included' '
	t_run skyrl-pretok -j 1 -t "$tok" -o one in.jsonl && t_run skyrl-pretok -j 3 -t "$tok" -o three in.jsonl &&
	same_set one three && t_same one.json three.json
'
t_ok 'a merge of any number of workers is the single run (Megatron 492)' '
	head -n 1500 in.jsonl >a.jsonl && sed -n "1501,4000p" in.jsonl >b.jsonl &&
	for n in 1 2 7; do
		i=0 && while test $i -lt $n; do
			t_run skyrl-pretok -t "$tok" --worker $i/$n -o w$n a.jsonl b.jsonl || exit 1
			i=$((i + 1))
		done
		set -- w$n*.json && if test $n -eq 1; then set -- w1.json; else set -- $(ls w$n-*-of-*.json); fi
		t_run skyrl-pretok merge -f -o m "$@" && same_set one m || exit 1
	done
'
t_ok 'a Slurm array task takes its share by itself' '
	SLURM_ARRAY_TASK_ID=3 SLURM_ARRAY_TASK_COUNT=2 SLURM_ARRAY_TASK_MIN=2 skyrl-pretok -t "$tok" -o s in.jsonl 2>err &&
	grep "worker 1/2 (Slurm array)" err && test -e s-00001-of-00002.idx &&
	OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 skyrl-pretok -t "$tok" -o s in.jsonl 2>err &&
	t_run skyrl-pretok merge -o sm s-00000-of-00002 s-00001-of-00002.json && same_set one sm &&
	t_expect_code 2 skyrl-pretok --worker 2/2 -t "$tok" -o s in.jsonl
'
# Holds the lock of PREFIX lock while its input, a pipe, stays open.
mkfifo slow
skyrl-pretok -t "$tok" -o lock slow >/dev/null 2>&1 &
{ cat in.jsonl; while test ! -e released; do sleep 0.1; done; } >slow &
while test ! -e lock.work; do sleep 0.1; done
t_ok 'a second writer of one set is told to come back' '
	t_expect_code 5 skyrl-pretok -t "$tok" -o lock in.jsonl 2>err && touch released && wait && same_set one lock
'
touch released
head -n 40 in.jsonl >small.jsonl
t_ok 'killed at any system call, a rerun with --resume writes the bytes of an undisturbed run' '
	t_has inject && t_run skyrl-pretok -t "$tok" -o ref small.jsonl &&
	head -n 20 small.jsonl >in2.jsonl && t_run skyrl-pretok -t "$tok" -o kref in2.jsonl small.jsonl &&
	t_kill_everywhere "skyrl-pretok --resume --checkpoint-every 1 -j 1 -t $tok -o k in2.jsonl small.jsonl" "
		{ skyrl-pretok verify k >/dev/null 2>&1 || test \$? -ne 0; } &&
		skyrl-pretok --resume --checkpoint-every 1 -j 1 -t $tok -o k in2.jsonl small.jsonl 2>>err && same_set kref k && test ! -e k.work &&
		skyrl-pretok verify k >/dev/null
	" "rm -rf k.* .k*"
'
# A run that waits in the middle of its input, stopped by TERM; then the same command with the whole input.
mkfifo pipe
stopped() {
	skyrl-pretok --resume --checkpoint-every 1 -j 2 -t "$tok" -o term in.jsonl pipe >/dev/null 2>err2 &
	pid=$!
	exec 7>pipe
	while ! test -s term.work/journal || test "$(wc -l <term.work/journal)" -lt 2; do sleep 0.05; done
	kill -TERM $pid
	sleep 0.2
	exec 7>&-
	wait $pid
	test $? -eq 143 && test -d term.work && test ! -e term.idx
}
t_ok 'TERM saves the work, --resume ends it' '
	t_run skyrl-pretok -t "$tok" -o tref in.jsonl small.jsonl && stopped && rm pipe && cp small.jsonl pipe &&
	t_expect_code 2 skyrl-pretok --resume -j 2 -t "$tok" -o term in.jsonl pipe 2>err && grep "other options or inputs" err &&
	t_run skyrl-pretok -j 2 -t "$tok" -o term in.jsonl pipe && same_set tref term
'
t_ok 'a set is whole or refused at any moment of a kill' '
	t_has inject && t_kill_everywhere "skyrl-pretok -j 1 -t $tok -o v small.jsonl" "
		if test -e v.idx && skyrl-pretok cat v >rows 2>/dev/null; then
			same_set ref v
		else
			true
		fi
	" "rm -rf v.* .v*"
'
t_ok 'a full disk is an error that leaves nothing behind' '
	t_has inject && t_fail_everywhere ENOSPC write,pwrite,fsync "skyrl-pretok -j 1 -t $tok -o d small.jsonl" "
		test \$t_cut_code -eq 0 || ! skyrl-pretok cat d >rows 2>/dev/null || same_set ref d
	" "rm -rf d.* .d*"
'
t_done
