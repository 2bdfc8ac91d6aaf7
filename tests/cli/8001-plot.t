#!/bin/sh
# plot: pictures from metrics, keys by name, damaged lines, absent gnuplot
. "${srcdir:-.}/tests/testlib.sh"

awk 'BEGIN { for (i = 1; i <= 40; i++)
	printf "{\"step\":%d,\"reward/avg_pass_at_1\":%g,\"loss\":%s,\"note\":\"a\"}\n", i, 1 - exp(-i / 9), i == 7 ? "NaN" : 1 / i }' >m.ndjson

t_ok 'keys are listed in their order' '
	t_run skyrl-plot --list-keys m.ndjson && printf "step\nreward/avg_pass_at_1\nloss\n" >want && t_same out want
'
t_ok 'a missing key is named with its neighbour and all others, status 4' '
	t_expect_code 4 skyrl-plot --key rewrad/avg_pass_at_1 m.ndjson 2>err &&
	grep "no key rewrad/avg_pass_at_1 in m.ndjson; did you mean reward/avg_pass_at_1" err && grep "keys: step" err
'
t_ok 'a bad line in the middle is bad data with file and line; a cut last one is left out' '
	{ head -n 3 m.ndjson && echo "{\"step\":" && tail -n 3 m.ndjson; } >bad.ndjson &&
	t_expect_code 3 skyrl-plot --list-keys bad.ndjson 2>err && grep "bad.ndjson:4" err &&
	t_cut m.ndjson 200 cut.ndjson && t_run skyrl-plot --list-keys cut.ndjson && grep "cut.ndjson:4.*left out" err &&
	echo "[1]" >list.ndjson && t_expect_code 3 skyrl-plot list.ndjson 2>err && grep "list.ndjson:1" err &&
	: >empty.ndjson && t_expect_code 3 skyrl-plot empty.ndjson 2>err && grep "no numbers" err
'
! t_has native || t_ok 'without gnuplot the status is 4 and the package is named' '
	prog=$(command -v skyrl-plot) && mkdir -p nothing && PATH=$PWD/nothing t_expect_code 4 "$prog" m.ndjson 2>err &&
	grep "gnuplot-nox" err
'
if t_has cmd gnuplot; then
	t_ok 'curves on the terminal, in PNG and in SVG' '
		t_run skyrl-plot m.ndjson --key loss && grep "loss" out && grep "step" out && grep -F "*" out &&
		t_run skyrl-plot m.ndjson -o a.png -t && test -s out && head -c 4 a.png | od -An -tx1 | grep "89 50 4e 47" &&
		t_run skyrl-plot m.ndjson -o a.svg && ! test -s out && grep "<svg" a.svg
	'
	t_ok 'an existing picture is replaced only with --force, and no temp stays' '
		cp a.png was.png && t_expect_code 2 skyrl-plot m.ndjson --key loss -o a.png 2>err && t_same a.png was.png &&
		t_run skyrl-plot m.ndjson --key loss -fo a.png && ! cmp -s a.png was.png && t_no_temps
	'
	t_ok 'several keys behind one --key, two runs in one panel' '
		sed "s/\"step\":\([0-9]*\)/\"step\":1\1/" m.ndjson >n.ndjson &&
		t_run skyrl-plot m.ndjson n.ndjson --key loss reward/avg_pass_at_1 -o b.svg && grep "n.ndjson" b.svg &&
		grep "reward/avg_pass_at_1" b.svg
	'
	t_ok 'titles are text, never commands' '
		t_run skyrl-plot m.ndjson -o c.svg --title "\"; system \"touch hacked\" \`touch hacked\`" && ! test -e hacked &&
		grep "touch hacked" c.svg
	'
	t_ok 'a picture goes to standard output, and a full disk leaves nothing' '
		t_run skyrl-plot m.ndjson -o - && head -c 4 out | od -An -tx1 | grep "89 50 4e 47" &&
		t_expect_code 1 skyrl-plot m.ndjson -o - >/dev/full 2>err && grep "standard output: No space left" err
	'
else
	t_skip 'gnuplot not found on PATH' 'pictures'
fi
if t_has inject && t_has cmd gnuplot; then
	t_ok 'killed at any call of the publish, the picture is the old one or the new one' '
		skyrl-plot m.ndjson --key loss -fo new.png && printf old >old.png &&
		t_kill_everywhere "skyrl-plot m.ndjson --key loss -fo p.png" \
			"cmp -s p.png old.png || cmp p.png new.png" "cp old.png p.png"
	'
else
	t_skip 'no fault injection or no gnuplot' 'kills'
fi
t_done
