#!/bin/sh
# Runs the test suite of the build folder it is started in and closes with one line "N passed, N failed, N skipped".
# Arguments go to make (tests/check.sh TESTS='tests/unit/err'). The status is that of make.
jobs=$(nproc 2>/dev/null || echo 1)
find . -name '*.trs' -exec rm -f {} +
"${MAKE:-make}" -j"$jobs" check "$@"
status=$?
find . -name '*.trs' -exec cat {} + | awk -v status="$status" '
	$1 == ":test-result:" && ($2 == "PASS" || $2 == "XFAIL") { pass++ }
	$1 == ":test-result:" && ($2 == "FAIL" || $2 == "XPASS" || $2 == "ERROR") { fail++ }
	$1 == ":test-result:" && $2 == "SKIP" { skip++ }
	END {
		if (status != 0 && fail == 0)
			fail = 1        # the build itself failed: nothing was tested
		printf "%d passed, %d failed, %d skipped\n", pass, fail, skip
	}'
exit "$status"
