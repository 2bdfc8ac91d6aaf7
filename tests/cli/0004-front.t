#!/bin/sh
# front: every kind of option, subcommands, records, progress, stops, standard output kept apart (tests/tool/frontprog.c)
. "${srcdir:-.}/tests/testlib.sh"

t_ok 'defaults go through the parser of their kind' '
	t_run frontprog && grep -x "flag 0 on 1 integer -5 count 1000 size 67108864 time 90 real 1e-05 choice 1 list 0 called 0 threads 1" out
'
t_ok 'values of every kind' '
	t_run frontprog --flag --no-on --integer -7 -n 2.5M --size 64MB --time 250ms --real=0.5 --choice blue -l a --list b \
		--call x --call y -j3 op1 - -- --op2 &&
	grep -x "flag 1 on 0 integer -7 count 2500000 size 64000000 time 0.25 real 0.5 choice 2 list 2 called 2 threads 1" out &&
	grep -x "item b" out && grep -x "operand op1" out && grep -x "operand -" out && grep -x "operand --op2" out
'
t_ok 'ranges hold for options, environment and files' '
	t_expect_code 2 frontprog --integer 11 2>err && grep -e "--integer: 11 is above the largest allowed value 10" err &&
	t_expect_code 2 frontprog --count 0 2>err && grep "below the least allowed value 1" err &&
	SKYRL_REAL=2 t_expect_code 2 frontprog 2>err && grep "env SKYRL_REAL: real: 2 is above" err &&
	echo "count = -1" >conf && t_expect_code 2 frontprog --config conf 2>err && grep "conf:1: count: " err &&
	t_expect_code 2 frontprog --real nan 2>err && t_expect_code 2 frontprog --call bad 2>err && grep "a bad value" err
'
t_ok 'a list of a stronger origin replaces that of a weaker one' '
	printf "list = a\nlist = b\n" >conf && t_run frontprog --config conf && grep "list 2" out &&
	SKYRL_LIST=c t_run frontprog --config conf && grep "list 1" out && grep -x "item c" out &&
	SKYRL_LIST=c t_run frontprog --config conf -l d -l e && grep "list 2" out && grep -x "item e" out
'
t_ok 'dotted names of SkyRL set options, on the command line and in files' '
	t_run frontprog -c trainer.algorithm.eps=0.25 && grep "real 0.25" out &&
	echo "trainer.algorithm.eps = 0.75" >conf && t_run frontprog --config conf && grep "real 0.75" out &&
	t_expect_code 2 frontprog -c trainer.algoritm.eps=1 2>err && grep "unknown key.*did you mean trainer.algorithm.eps" err &&
	t_expect_code 2 frontprog -c novalue 2>err && grep "expected KEY=VALUE" err
'
t_ok 'secrets are not printed' '
	SKYRL_SECRET=hunter2 t_run frontprog --print-config && grep "^secret = \*\*\*" out && ! grep hunter2 out
'
t_ok 'what a library prints on stdout lands on stderr' '
	t_run frontprog && ! grep noise out && grep noise err
'
t_ok 'a subcommand has its own table, behind common options only' '
	t_run frontprog -q rec 1 && grep "\"i\":0" out &&
	t_expect_code 2 frontprog fail 2>err && grep -e "--need TEXT is required" err &&
	t_expect_code 2 frontprog fail --flag 2>err && grep "belongs to another subcommand" err &&
	t_run frontprog --flag rec && grep -x "operand rec" out && t_run frontprog ./rec && grep -x "operand ./rec" out &&
	t_run frontprog fail --help && grep -e "--need TEXT" out && ! grep -e "--integer" out
'
t_ok 'a failure is a line on stderr, and with --json a record as well' '
	for code in 1 3 4 5 7 8 9 10; do
		t_expect_code $code frontprog fail --need "$code.bin" $code >out 2>err && grep -x "frontprog: $code.bin: broken on purpose" err || return 1
	done &&
	t_expect_code 3 frontprog fail --json --need a.bin >out 2>err && t_json out .type error && t_json out .code 3 &&
	t_json out .op fail && t_json out .error "a.bin: broken on purpose" && test "$(wc -l <err)" -eq 1
'
t_ok 'records are one line of legal JSON each' '
	t_run frontprog rec 3 && test "$(wc -l <out)" -eq 3 && t_json out:3 .i 2 && t_json out:1 .v 1 &&
	t_json out:1 .text "a\"b
c"
'
t_ok 'a reader that goes away ends the run quietly' '
	{ frontprog rec 100000 2>err; echo $? >code; } | head -n 1 >out && test "$(cat code)" -eq 141 && ! test -s err &&
	{ frontprog --list x 2>err; echo $? >code; } | : && { test "$(cat code)" -eq 0 || test "$(cat code)" -eq 141; }
'
t_ok 'progress is for terminals, at most once a second, and gone before a message' '
	t_run frontprog loop 30 && grep -x "frontprog: started" err && test "$(wc -c <err)" -lt 30 &&
	SKYRL_TEST_TTY=stderr t_run frontprog loop 30 && tr "\r" "\n" <err >lines && grep "loop: .* of 30 ticks" lines && grep "extra text" lines &&
	test "$(grep -c "of 30 ticks" lines)" -le 2 &&
	SKYRL_TEST_TTY=stderr t_run frontprog -q loop 25 && ! test -s err &&
	t_run frontprog --progress always --stats 500ms loop 30 && grep "^frontprog: loop: " err
'
t_ok 'SIGUSR1 asks for a status line' '
	{ frontprog loop 40 >out 2>err & } && pid=$! && sleep 0.4 && kill -USR1 $pid && wait $pid && grep "loop: .* of 40 ticks" err && grep -x done out
'
t_ok 'a soft stop saves and dies by the signal; a second one does not wait' '
	{ frontprog loop 400 >out 2>err & } && pid=$! && sleep 0.4 && kill -TERM $pid && { wait $pid; test $? -eq 143; } &&
	grep "stopped by SIGTERM, state saved" err && ! test -s out
'
t_ok 'a signal that was ignored from the start stays ignored' '
	{ (trap "" HUP; exec frontprog loop 20) >out 2>err & } && pid=$! && sleep 0.3 && kill -HUP $pid && wait $pid && grep -x done out
'
t_done
