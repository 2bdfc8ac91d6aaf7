# TAP for shell tests; sourced by every tests/cli/*.t and tests/lint/*.t as
#
#	. "${srcdir:-.}/tests/testlib.sh"
#
# It moves into a scratch folder of the script, with HOME and the XDG folders inside, an environment without settings of
# the user, and the built programs first on PATH. A test is a name and a script of commands chained by &&:
#
#	t_ok 'truncated input is bad data' '
#		t_expect_code 3 skyrl-inspect --check cut.bin 2>err &&
#		grep "cut.bin: " err
#	'
#	t_done
#
# Scripts run in this shell by eval, in the scratch folder; what they print is shown when they fail (and with -v). Never
# put the program under test on the left of a pipe: redirect to a file, then look.
# Options (make check T_OPTS='-v'): -v show scripts and output, -x trace, -i stop at the first failure, -d keep the
# scratch folder, --run=2,4-6 run only these, --valgrind run programs under memcheck, --root=DIR scratch below DIR.
# Variables for tests: T_SRC and T_BUILD (absolute), T_SHARED (golden data), T_DIR (scratch), T_TAB, T_LF.

set -f
T_SRC=$(cd "${srcdir:-.}" && pwd) || exit 99
T_BUILD=$(pwd)
T_BIN=${T_BIN:-$T_BUILD}        # an installed bin folder when set (make installcheck)
T_SHARED=${SKYRL_SHARED:-$T_SRC/../shared}
T_TAB=$(printf '\t')
T_LF='
'
t_script=$0 t_n=0 t_bad=0 t_verbose= t_stop= t_keep= t_only= t_trace= t_valgrind= t_root=${TMPDIR:-/tmp}
for t_arg in ${T_OPTS-} "$@"; do
	case $t_arg in
	-v) t_verbose=1 ;;
	-x) t_trace=1 t_verbose=1 ;;
	-i) t_stop=1 ;;
	-d) t_keep=1 ;;
	--run=*) t_only=${t_arg#--run=} ;;
	--valgrind) t_valgrind=1 ;;
	--root=*) t_root=${t_arg#--root=} ;;
	*) echo "Bail out! unknown option $t_arg"; exit 99 ;;
	esac
done

# ---- an environment that only the test decides
for t_var in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
	case $t_var in
	SKYRL_SHARED|SKYRL_TEST_SERVERS) ;;
	AWS_*|SKYRL_*|NCCL_*|UCX_*|OMPI_*|SLURM_*|PMI_*|PMIX_*|HF_*|GOOGLE_*|CLOUDSDK_*|XDG_*|CURL_*|SSL_CERT_*) unset "$t_var" ;;
	*_proxy|*_PROXY|NO_COLOR|FORCE_COLOR|CLICOLOR*|COLUMNS|SOURCE_DATE_EPOCH|OMP_*|DNNL_*|ONEDNN_*) unset "$t_var" ;;
	esac
done
T_DIR=$(mktemp -d "$t_root/skyrl-test.XXXXXX") || { echo 'Bail out! no scratch folder'; exit 99; }
HOME=$T_DIR/home
XDG_CONFIG_HOME=$HOME/.config XDG_CACHE_HOME=$HOME/.cache XDG_STATE_HOME=$HOME/.local/state
LC_ALL=C TZ=UTC TERM=dumb PAGER=cat
PATH=$T_BIN:$T_BUILD/tests/tool:$PATH
export HOME XDG_CONFIG_HOME XDG_CACHE_HOME XDG_STATE_HOME LC_ALL TZ TERM PAGER PATH T_SRC T_BUILD T_DIR T_SHARED
umask 022
ulimit -c 0 2>/dev/null
mkdir -p "$HOME" "$T_DIR/work" && cd "$T_DIR/work" || exit 99
exec 3>&1 4>&2 5<&0 </dev/null

t_clean() {
	cd / && if test -n "$t_keep"; then
		echo "# scratch folder: $T_DIR" >&3
	else
		chmod -R u+w "$T_DIR" 2>/dev/null
		rm -rf "$T_DIR"
	fi
}
trap 't_clean' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

if test -n "$t_valgrind"; then
	mkdir "$T_DIR/vg"
	for t_arg in $(set +f; cd "$T_BIN" && ls skyrl skyrl-* 2>/dev/null); do
		test -x "$T_BIN/$t_arg" || continue
		printf '#!/bin/sh\nexec valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite %s "$@"\n' \
			"$T_BIN/$t_arg" >"$T_DIR/vg/$t_arg"
		chmod +x "$T_DIR/vg/$t_arg"
	done
	PATH=$T_DIR/vg:$PATH
fi

# ---- running tests

t_selected() { # N: does --run name this test?
	test -n "$t_only" || return 0
	t_ifs=$IFS IFS=,
	for t_arg in $t_only; do
		IFS=$t_ifs
		case $t_arg in
		*-*) test "$1" -ge "${t_arg%-*}" && test "$1" -le "${t_arg#*-}" && return 0 ;;
		*) test "$1" -eq "$t_arg" && return 0 ;;
		esac
	done
	IFS=$t_ifs
	return 1
}

t_do() { eval "$1"; }    # a function of its own, so that a script may say return 1 in a loop

t_eval() { # SCRIPT: in this shell, output to the log; a missing && anywhere in the chain is a failure
	set +f
	t_why=
	test -z "$t_trace" || set -x
	t_do "$1" >"$T_DIR/log" 2>&1 </dev/null
	t_rc=$?
	{ set +x; } 2>/dev/null
	set -f
	cd "$T_DIR/work" || exit 99
	return $t_rc
}

t_chained() {   # with a failing first command nothing of a whole chain runs and its status comes through
	(eval "(exit 117) && $1") >/dev/null 2>&1 </dev/null
	test $? -eq 117
}

t_show_log() {
	sed 's/^/#   /' "$T_DIR/log" | head -n "${T_LOG_LINES:-60}" >&3
}

t_report() { # ok|not-ok NAME [DIRECTIVE]
	printf '%s %d - %s%s\n' "$1" "$t_n" "$2" "${3:+ # $3}" >&3
}

# t_ok NAME SCRIPT: passes when the script's status is 0.
t_ok() {
	t_n=$((t_n + 1))
	t_selected "$t_n" || { t_report ok "$1" 'SKIP not in --run'; return 0; }
	test -z "$t_verbose" || printf '# %s\n' "$2" | sed 's/^[^#]/#&/' >&3
	if ! t_chained "$2"; then
		t_report 'not ok' "$1"
		echo '#   broken && chain in the script of this test' >&3
	elif t_eval "$2"; then
		t_report ok "$1"
		test -z "$t_verbose" || t_show_log
		return 0
	else
		t_report 'not ok' "$1"
		echo "#   ${t_why:-status $t_rc}" >&3
		t_show_log
	fi
	t_bad=$((t_bad + 1))
	test -z "$t_stop" || { t_keep=1; t_done; }
	return 0
}

# t_fails NAME SCRIPT: a known bug. Reported when it starts to pass.
t_fails() {
	t_n=$((t_n + 1))
	if t_eval "$2"; then t_report ok "$1" 'TODO known bug'; else t_report 'not ok' "$1" 'TODO known bug'; fi
	return 0
}

# t_skip REASON [NAME]: one test that cannot run here.
t_skip() {
	t_n=$((t_n + 1))
	t_report ok "${2:-}" "SKIP $1"
}

# t_skip_all REASON: before the first test.
t_skip_all() {
	echo "1..0 # SKIP $1" >&3
	exit 0
}

# t_done: last line of every script. Status 1 after a failure, except under make, which counts the lines.
t_done() {
	echo "1..$t_n" >&3
	test "$t_bad" -eq 0 || test -n "${T_UNDER_MAKE-}"
	exit $?
}

# ---- prerequisites: t_has is a condition, t_need skips the whole script

# t_has cmd NAME | shared PATH | py MODULE… | file PATH | inject | user (not root) | native (not under valgrind)
t_has() {
	case $1 in
	cmd) command -v "$2" >/dev/null 2>&1 ;;
	shared) test -e "$T_SHARED/$2" ;;
	file) test -e "$2" ;;
	py) t_what=$1; shift; t_py -c "import $(echo "$@" | tr ' ' ',')" >/dev/null 2>&1 ;;
	inject) test -e "$T_BUILD/tests/inject/inject.so" && test -z "${T_SANITIZERS-}$t_valgrind" ;;
	user) test "$(id -u)" -ne 0 ;;
	native) test -z "$t_valgrind" ;;
	*) echo "Bail out! t_has: unknown prerequisite $1" >&3; exit 99 ;;
	esac
}

t_need() {
	t_has "$@" && return 0
	case $1 in
	cmd) t_skip_all "$2 not found on PATH" ;;
	shared) t_skip_all "golden data $2 not found below \$SKYRL_SHARED or ../shared" ;;
	py) shift; t_skip_all "no Python with $* (T_PYTHON names one)" ;;
	inject) t_skip_all 'no fault injection here (sanitizers have an allocator of their own)' ;;
	user) t_skip_all 'root is not subject to permissions' ;;
	*) t_skip_all "$* is missing" ;;
	esac
}

# t_py ARGS…: the Python that tests may use (T_PYTHON, else python3).
t_py() {
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE HF_HUB_OFFLINE=1 "${T_PYTHON:-python3}" "$@"
}

# ---- helpers inside scripts

# t_run CMD…: status 0 demanded; stdout goes to the file out, stderr to err.
t_run() {
	"$@" >out 2>err
	t_code=$?
	test $t_code -eq 0 && return 0
	echo "status $t_code of: $*"
	sed 's/^/  stderr: /' err
	return 1
}

# t_expect_code N CMD…: exactly that status; death by a signal never passes.
t_expect_code() {
	t_want=$1
	shift
	"$@"
	t_code=$?
	test $t_code -eq "$t_want" && return 0
	t_why="status $t_code instead of $t_want of: $*"        # a variable: the caller may have redirected both outputs
	return 1
}

# t_json FILE PATH [VALUE]: the value at .a.b[0].c of the first JSON document in FILE (FILE:N = line N of NDJSON), printed,
# or compared with VALUE as text. Strings without quotes; objects and arrays compact; .a.length counts.
t_json() {
	t_got=$(jsonq "$1" "$2") || return 1
	test $# -lt 3 && { printf '%s\n' "$t_got"; return 0; }
	test "$t_got" = "$3" && return 0
	echo "$1 $2: got $t_got, want $3"
	return 1
}

# t_inject CALLS N ACTION CMD…: runs CMD with its Nth call of CALLS (see tests/inject/inject.c) made to fail. ACTION is kill,
# torn, or an errno name; NAME+ makes every later call fail as well.
t_inject() {
	t_calls=$1 t_at=$2 t_act=$3
	shift 3
	case $t_act in
	kill|torn) env LD_PRELOAD="$T_BUILD/tests/inject/inject.so" INJECT_CALLS="$t_calls" INJECT_AT="$t_at" \
		INJECT_DO="$t_act" "$@" ;;
	*+) env LD_PRELOAD="$T_BUILD/tests/inject/inject.so" INJECT_CALLS="$t_calls" INJECT_AT="$t_at" INJECT_FROM=1 \
		INJECT_DO=fail INJECT_ERRNO="${t_act%+}" "$@" ;;
	*) env LD_PRELOAD="$T_BUILD/tests/inject/inject.so" INJECT_CALLS="$t_calls" INJECT_AT="$t_at" \
		INJECT_DO=fail INJECT_ERRNO="$t_act" "$@" ;;
	esac
}

# t_count CALLS CMD…: how many such calls CMD makes, on stdout; its own output goes to the files out and err.
t_count() {
	t_calls=$1
	shift
	rm -f "$T_DIR/calls"
	env LD_PRELOAD="$T_BUILD/tests/inject/inject.so" INJECT_CALLS="$t_calls" INJECT_COUNT="$T_DIR/calls" "$@" >out 2>err
	awk '{ n += $1 } END { print n + 0 }' "$T_DIR/calls"
}

# The calls by which a publish can be cut in two.
T_CALLS=open,write,pwrite,fsync,rename,link,unlink,mkdir,rmdir,truncate,close,copy

# t_everywhere ACTION CALLS CMD CHECK [PREPARE]: for n = 1, 2, … runs the strings PREPARE, CMD with its nth call cut, CHECK.
# CHECK sees the exit status in $t_cut_code and n in $t_cut_n and decides what is legal then. Ends after the first run that
# was not reached by the cut; beyond 150 calls it goes in steps, T_STEP overrides. CMD is one simple command.
t_everywhere() {
	t_action=$1 t_where=$2 t_cmd=$3 t_check=$4 t_prepare=${5:-:}
	eval "$t_prepare" || { echo "prepare failed"; return 1; }
	t_total=$(eval "t_count \"\$t_where\" $t_cmd")
	test "$t_total" -gt 0 || { echo "no call of $t_where in: $t_cmd"; sed 's/^/  /' err; return 1; }
	t_step=${T_STEP:-$(( (t_total + 149) / 150 ))}
	t_cut_n=1
	while test "$t_cut_n" -le "$t_total"; do
		eval "$t_prepare" || { echo "prepare failed before call $t_cut_n"; return 1; }
		eval "t_inject \"\$t_where\" $t_cut_n $t_action $t_cmd" >out 2>err
		t_cut_code=$?
		if ! eval "$t_check"; then
			echo "call $t_cut_n of $t_total ($t_where, $t_action), status $t_cut_code: $t_cmd"
			sed 's/^/  stderr: /' err
			return 1
		fi
		t_cut_n=$((t_cut_n + t_step))
	done
	echo "$t_total calls, step $t_step"
}

# t_kill_everywhere CMD CHECK [PREPARE]: killed before each call that can cut a publish, then once more in mid-write.
t_kill_everywhere() {
	t_everywhere kill "$T_CALLS" "$@" && t_everywhere torn write,pwrite "$@"
}

# t_fail_everywhere ERRNO CALLS CMD CHECK [PREPARE]: as above with a failing call; the status must be an error of ours, or 0
# when the program can live without that call.
t_fail_everywhere() {
	t_errno=$1 t_fail_calls=$2 t_fail_cmd=$3 t_fail_check=$4
	shift 4
	t_everywhere "$t_errno" "$t_fail_calls" "$t_fail_cmd" \
		'test "$t_cut_code" -le 10 && { test "$t_cut_code" -eq 0 || test -s err; } && '"$t_fail_check" "$@"
}

# t_none FILE: passes when FILE is empty, else shows its first lines. For lists of offenders.
t_none() {
	head -n 30 "$1"
	! test -s "$1"
}

# t_same A B: two files are equal byte for byte.
t_same() {
	cmp "$1" "$2"
}

# t_cut FILE BYTES OUT: the first BYTES of FILE.
t_cut() {
	head -c "$2" "$1" >"$3"
}

# t_flip FILE OFFSET: inverts one byte in place.
t_flip() {
	t_old=$(dd if="$1" bs=1 skip="$2" count=1 2>/dev/null | od -An -tu1 | tr -d ' ') &&
	test -n "$t_old" &&
	printf "\\$(printf %o $((255 - t_old)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# t_no_temps [DIR]: no temp of an unfinished output is left.
t_no_temps() {
	t_left=$(find "${1:-.}" -name '.*.tmp.*' 2>/dev/null)
	test -z "$t_left" || { echo "left behind: $t_left"; return 1; }
}
