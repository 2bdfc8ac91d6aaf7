#!/bin/sh
# options: table, manual page and completions of every program say the same
. "${srcdir:-.}/tests/testlib.sh"

programs=${T_PROGRAMS:-$(cd "$T_BUILD" && set +f && ls skyrl skyrl-* | grep -v '\.')}

# OPTIONS items of a page: "-x --name" a line, and the text of each item for its default.
items() {
	sed -n 's/^\.It \(Fl .*\)/\1/p' "$1" | awk '{
		out = ""
		for (i = 1; i < NF; i++)
			if ($i == "Fl") { o = $(i + 1); out = out " -" o }
		print out
	}'
}

for prog in $programs; do
	page=$T_SRC/man/$prog.1
	# --version N of skyrl-delta's subcommands is a version of weights; -V stays
	t_ok "$prog: no name or letter stands twice in a table" '
		$prog --dump-options >dump && jsonq -t dump .type .sub .letter .name .common >table &&
		awk -F "\t" "
			\$1 == \"option\" && \$5 == \"true\" { common[\"--\" \$4] = 1; if (\$3 != \"\") common[\"-\" \$3] = 1; next }
			\$1 != \"option\" { next }
			{ names[1] = \"--\" \$4; names[2] = \$3 == \"\" ? \"\" : \"-\" \$3
			  for (i = 1; i <= 2; i++) if (names[i] != \"\") {
				if ((names[i] in common && names[i] != \"--version\") || (\$2 SUBSEP names[i]) in seen) { print \$2, names[i]; bad = 1 }
				seen[\$2, names[i]] = 1 } }
			END { exit bad }" table
	'
	t_ok "$prog has a page that mandoc accepts" '
		{ test -e "$page" || { echo "man/$prog.1 is missing (man/options.sh $prog starts one)"; false; }; } &&
		{ ! t_has cmd mandoc || mandoc -T lint -W error "$page"; }
	'
	test "$prog" = skyrl || test ! -e "$page" || t_ok "$prog: the page lists the options of the table, no more and no fewer" '
		awk -F "\t" "\$1 == \"option\" && \$5 != \"true\" { print (\$3 == \"\" ? \"\" : \" -\" \$3) \" --\" \$4 }" table | sort -u >want &&
		items "$page" | sort -u >got &&
		diff want got
	'
	test "$prog" = skyrl || test ! -e "$page" || t_ok "$prog: the page says the default of every option that has one" '
		jsonq -t dump .type .common .kind .name .default | awk -F "\t" "\$1 == \"option\" && \$2 != \"true\" && \$5 != \"\" && \$3 != \"flag\" { print \$4 \"\t\" \$5 }" |
		while IFS="$T_TAB" read -r name def; do
			awk -v name="$name" "/^\\.It / { on = index(\$0 \" \", \"Fl -\" name \" \") > 0 } /^\\.El/ { on = 0 } on" "$page" | grep -qF -- "$def" ||
				echo "--$name: default $def is not in its item"
		done >bad && t_none bad
	'
done
# Commands of examples: those of --help, and lines of the pages that begin with a program or hold one behind a pipe.
commands() {
	for prog in $programs; do
		{ $prog --help; $prog --dump-options | sed -n 's/.*"type":"sub","v":1,"name":"\([^"]*\)".*/\1/p' | while read -r sub; do $prog "$sub" --help; done; } |
			sed -n 's/^example: //p'
	done
	find "$T_SRC/man" -name '*.[157]' -exec cat {} + | awk '/^\.Sh EXAMPLES/ { on = 1; next } /^\.Sh/ { on = 0 } on' | sed 's/^\.Dl //'
}
t_ok 'examples use options that exist' '
	for prog in $programs; do
		$prog --dump-options >dump && jsonq -t dump .type .name .letter |
			awk -F "\t" -v p=$prog "\$1 == \"option\" { print p, \"--\" \$2; print p, \"--no-\" \$2; if (\$3 != \"\") print p, \"-\" \$3 }"
	done >known &&
	commands | tr "|;&" "\n\n\n" >segments && test "$(wc -l <segments)" -gt 10 &&
	awk "NR == FNR { known[\$0] = 1; next }
		{
			prog = \"\"
			for (i = 1; i <= NF; i++) {
				if (\$i ~ /^skyrl(-[a-z]+)?\$/) prog = \$i == \"skyrl\" && \$(i + 1) ~ /^[a-z]+\$/ ? \"skyrl-\" \$(i + 1) : \$i
				word = \$i; sub(/=.*/, \"\", word)
				if (prog != \"\" && word ~ /^--[a-z]/ && !((prog \" \" word) in known)) { print prog \": \" word \" in: \" \$0; bad = 1 }
			}
		}
		END { exit bad }" known segments
'
t_ok 'common options are in skyrl(1)' '
	skyrl --dump-options >dump && jsonq -t dump .type .letter .name .common |
		awk -F "\t" "\$1 == \"option\" && \$4 == \"true\" { print (\$2 == \"\" ? \"\" : \" -\" \$2) \" --\" \$3 }" | sort >want &&
	items "$T_SRC/man/skyrl.1" >all && while read -r line; do grep -qxF -- " $line" all || echo "missing: $line"; done <want >bad && t_none bad
'
t_ok 'completions are what gen.sh makes (make completions)' '
	"$T_SRC/completions/gen.sh" fresh $programs &&
	for f in $(cd fresh && find . -type f); do
		cmp "fresh/$f" "$T_SRC/completions/$f" || diff "$T_SRC/completions/$f" "fresh/$f"
	done >bad 2>&1 && t_none bad
'
t_ok 'bash can read every completion' '
	t_has cmd bash && for f in $(find "$T_SRC/completions/bash" -type f); do bash -n "$f" || return 1; done
'
t_ok 'README.md has a row for every program' '
	for prog in $programs; do grep -q "^| .$prog. |" "$T_SRC/README.md" || echo "$prog"; done >bad && t_none bad
'
t_ok 'other pages are accepted by mandoc' '
	{ ! t_has cmd mandoc || for p in $(find "$T_SRC/man" -name "*.[1-9]"); do mandoc -T lint -W error "$p" || echo "$p"; done; } >bad &&
	t_none bad
'
t_done
