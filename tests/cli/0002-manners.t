#!/bin/sh
# every program: help, version, unknown options, closed and full standard output, configuration; no model needed
. "${srcdir:-.}/tests/testlib.sh"

for prog in ${T_PROGRAMS:-$(cd "$T_BUILD" && set +f && ls skyrl skyrl-* | grep -v '\.')}; do
	t_ok "$prog --help is for stdout, --version names the package" '
		t_run $prog --help && grep -q "^usage: $prog" out && ! test -s err &&
		t_run $prog --version && head -n 1 out | grep -qx "$prog (skyrl-tools) [0-9].*" && ! test -s err
	'
	t_ok "$prog says what an unknown option may have meant, and touches nothing" '
		t_expect_code 2 $prog --versoin >out 2>err && grep -q "did you mean --version" err && ! test -s out &&
		test "$(wc -l <err)" -eq 1
	'
	t_ok "$prog never abbreviates an option" '
		t_expect_code 2 $prog --versio >out 2>err && grep -q "unknown option --versio" err
	'
	t_ok "$prog reports a full standard output with status 1" '
		t_expect_code 1 $prog --help >/dev/full 2>err && grep -q "$prog: standard output: No space left" err
	'
	t_ok "$prog runs with closed descriptors" '
		$prog --version >&- 2>&- <&-
	'
	t_ok "$prog refuses a bad configuration with file and line, but helps all the same" '
		printf "# x\n[%s]\ncolour = never\n" $prog >conf &&
		t_expect_code 2 $prog --config conf --print-config 2>err >out && grep -q "conf:3: unknown key colour" err &&
		t_run $prog --config conf --help
	'
	t_ok "$prog prints its settings with their origin as a legal configuration" '
		SKYRL_COLOR=never t_run $prog --print-config --stats 2m &&
		grep -A1 "^# env SKYRL_COLOR" out | grep -q "^color = never" && grep -A1 "^# option" out | grep -q "^stats = 2m" &&
		cp out conf && t_run $prog --config conf --print-config && grep -q "^# file conf:" out
	'
done
t_done
