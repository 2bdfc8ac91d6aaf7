#!/bin/sh
# Start-up: time of --version of every program, mean over 20 starts, beside `true` of the system and Python's empty program.
# Line: startup NAME ms. Goal: below 20 ms. Run in the build folder: tests/perf/p0001-startup.sh
now_us() { date +%s%N | sed 's/...$//'; }
mean() { # NAME CMD…
	name=$1
	shift
	"$@" >/dev/null 2>&1 || return 0
	t0=$(now_us)
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		"$@" >/dev/null
	done
	t1=$(now_us)
	echo "$name $t0 $t1" | awk '{ printf "startup %s %.2f ms\n", $1, ($3 - $2) / 20000 }'
}
mean true /bin/true
for prog in ./skyrl ./skyrl-*; do
	test -x "$prog" && mean "${prog#./}" "$prog" --version
done
command -v python3 >/dev/null && mean python3 python3 -c ''
exit 0
