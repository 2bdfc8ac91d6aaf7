#!/bin/sh
# harness: what testlib.sh promises to every other script
. "${srcdir:-.}/tests/testlib.sh"

# A script of its own in a subordinate harness; its TAP goes to the file tap.
sub() {
	{ printf '. "%s/tests/testlib.sh"\n' "$T_SRC" && cat; } >sub.t &&
	sub=$PWD/sub.t
	(cd "$T_BUILD" && unset T_UNDER_MAKE && srcdir=$T_SRC sh "$sub" "$@") >tap 2>&1
}

t_ok 'a passing and a failing test are told apart' '
	sub <<-\EOF &&
		t_ok "good" "true"
		t_done
	EOF
	grep -x "ok 1 - good" tap &&
	! sub <<-\EOF &&
		t_ok "bad" "echo seen && false"
		t_done
	EOF
	grep -x "not ok 1 - bad" tap && grep "seen" tap
'
t_ok 'a broken chain fails even when its last command passes' '
	! sub <<-\EOF &&
		t_ok "broken" "false
		true"
		t_done
	EOF
	grep "broken && chain" tap
'
t_ok 't_expect_code accepts one code and never a signal' '
	t_expect_code 3 sh -c "exit 3" &&
	! t_expect_code 3 sh -c "exit 2" &&
	! t_expect_code 1 sh -c "kill -KILL \$\$"
'
t_ok 't_run keeps both outputs' '
	t_run sh -c "echo product; echo note >&2" &&
	echo product >want && t_same out want &&
	echo note >want && t_same err want
'
t_ok 'settings of the user are gone, scratch folders are ours' '
	AWS_PROFILE=x SKYRL_SEED=1 http_proxy=y sub <<-\EOF &&
		t_ok "clean" "test -z \"\${AWS_PROFILE-}\${SKYRL_SEED-}\${http_proxy-}\""
		t_ok "home" "test \"\$HOME\" = \"\$T_DIR/home\" && test -d \"\$HOME\""
		t_done
	EOF
	grep -c "^ok" tap
'
t_ok 'a skipped script has a plan of none and a reason' '
	sub <<-\EOF &&
		t_need cmd no-such-command-anywhere
		t_ok "never" "false"
	EOF
	grep "^1..0 # SKIP no-such-command-anywhere" tap
'
t_ok '--run selects' '
	sub --run=2 <<-\EOF &&
		t_ok "first" "false"
		t_ok "second" "true"
		t_done
	EOF
	grep "ok 1 - first # SKIP" tap && grep -x "ok 2 - second" tap
'
t_ok 'the scratch folder is removed' '
	WHERE=$PWD/where sub <<-\EOF &&
		t_ok "say" "echo \$T_DIR >\$WHERE"
		t_done
	EOF
	test -s where && ! test -e "$(cat where)"
'
t_ok 't_flip inverts one byte' '
	printf abc >f && t_flip f 1 && printf "a\\235c" >want && t_same f want
'
t_done
