#!/bin/sh
# options: grammar, strength of origins, ranges, signals and messages of the front, on the example of skyrl-plot
. "${srcdir:-.}/tests/testlib.sh"

value() { # NAME: what --print-config in the file out says
	sed -n "s/^$1 = //p" out
}

t_ok 'an option beats the environment, that beats --config, that beats the file of the user' '
	mkdir -p "$XDG_CONFIG_HOME/skyrl" && echo "title = user" >"$XDG_CONFIG_HOME/skyrl/config" &&
	printf "[skyrl-plot]\ntitle = file\n" >conf &&
	t_run skyrl-plot --print-config && test "$(value title)" = user &&
	t_run skyrl-plot --config conf --print-config && test "$(value title)" = file &&
	SKYRL_CONFIG=conf t_run skyrl-plot --print-config && test "$(value title)" = file &&
	SKYRL_TITLE=env t_run skyrl-plot --config conf --print-config && test "$(value title)" = env &&
	SKYRL_TITLE=env t_run skyrl-plot --config conf --print-config --title option && test "$(value title)" = option &&
	rm -r "$XDG_CONFIG_HOME/skyrl"
'
t_ok 'a section of another program is skipped, a key that nobody knows is not' '
	printf "threads = 3\n[skyrl-other]\nanything = 1\n[skyrl-plot]\ntitle = \" two  words \"\n" >conf &&
	t_run skyrl-plot --config conf --print-config && test "$(value title)" = "\" two  words \"" &&
	printf "titel = x\n" >conf && t_expect_code 2 skyrl-plot --config conf --print-config 2>err &&
	grep "conf:1: unknown key titel; did you mean title?" err
'
t_ok 'forms of options: = or blank, letters together, --no-x, -- ends' '
	t_run skyrl-plot --title=a --print-config && test "$(value title)" = a &&
	t_run skyrl-plot --title -a --print-config && test "$(value title)" = -a &&
	t_run skyrl-plot -qvk a -kb --print-config && test "$(value verbose)" = 1 && test "$(value quiet)" = yes &&
	value key >keys && printf "a\nb\n" >want && t_same keys want &&
	t_run skyrl-plot -q --no-quiet --print-config && test "$(value quiet)" = no &&
	t_expect_code 4 skyrl-plot -- --title 2>err && grep "^skyrl-plot: --title: " err
'
t_ok 'values of the wrong kind are usage errors that name the option' '
	t_expect_code 2 skyrl-plot --stats soon 2>err && grep "^skyrl-plot: --stats: " err &&
	t_expect_code 2 skyrl-plot --progress maybe 2>err && grep "\"maybe\" is none of auto|always|never" err &&
	SKYRL_QUIET=perhaps t_expect_code 2 skyrl-plot x 2>err && grep "env SKYRL_QUIET: quiet: " err &&
	t_expect_code 2 skyrl-plot --title 2>err && grep "needs a value" err &&
	t_expect_code 2 skyrl-plot --help=yes 2>err && grep "takes no value" err
'
t_ok 'a missing configuration file is an error when it was named' '
	t_expect_code 4 skyrl-plot --config absent.conf --print-config 2>err && grep "absent.conf" err
'
t_ok 'without HOME nothing fails' '
	t_run env -u HOME -u XDG_CONFIG_HOME skyrl-plot --print-config
'
t_ok 'control bytes of a name never reach the terminal' '
	t_expect_code 4 skyrl-plot "$(printf "a\\033[31mb")" 2>err && grep -F "a?[31mb" err
'
t_ok '--json is not an option of a program that has no records' '
	t_expect_code 2 skyrl-plot --json 2>err
'
t_has native || t_skip 'valgrind starts programs from elsewhere' 'skyrl'
! t_has native || t_ok 'skyrl runs the program beside it and passes everything on' '
	t_run skyrl plot --version && grep "^skyrl-plot " out && t_run skyrl help plot && grep "^usage: skyrl-plot" out &&
	t_run skyrl && grep "  plot " out && t_run skyrl version &&
	t_expect_code 2 skyrl plto 2>err && grep "did you mean plot" err &&
	t_expect_code 4 skyrl plot absent.ndjson
'
t_ok 'a signal ends a program by that signal' '
	mkfifo pipe && { skyrl-plot pipe 2>err & } && pid=$! &&
	exec 8>pipe && kill -TERM $pid && { wait $pid; code=$?; exec 8>&-; test $code -eq 143; }
'
t_done
