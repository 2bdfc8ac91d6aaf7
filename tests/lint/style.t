#!/bin/sh
# style: what a program can see of the convention in CONTRIBUTING.md
. "${srcdir:-.}/tests/testlib.sh"

ours() { # source files that people write, relative to the tree; one a line
	(cd "$T_SRC" && find libcore cmd kernels tests man completions build-aux .ci configure.ac Makefile.am bootstrap README.md \
		CONTRIBUTING.md NEWS.md -type f 2>/dev/null |
		grep -E '(\.([chty]|cu|sh|am|ac|md|in|py|[157])|/gen\.sh|bootstrap|/run)$' |
		grep -vE 'cmd/rev\.h$|build-aux/(tap-driver|compile|depcomp|install-sh|missing|test-driver|ar-lib|config|ltmain)|Makefile\.in|config\.h\.in|/(testdata|seeds|golden)/' |
		sort)
}
c_files() { ours | grep -E '\.[ch]$'; }

ours >files
c_files >cfiles
t_ok 'there are files to look at' 'test "$(wc -l <files)" -gt 50'
t_ok 'no trailing blanks, no carriage returns' '
	{ (cd "$T_SRC" && xargs grep -nE "[ $T_TAB]+\$|$(printf "\\r")\$") <files >bad || :; } &&
	t_none bad
'
t_ok 'every file ends with a line feed' '
	while read -r f; do
		test -z "$(tail -c 1 "$T_SRC/$f")" || echo "$f"
	done <files >bad && t_none bad
'
t_ok 'C is indented with tabs; blanks only align a continued line' '
	while read -r f; do
		awk -v f="$f" "/^        / && last ~ /[;{}]\$/ { print f \":\" NR \": \" \$0 } { last = \$0 }" "$T_SRC/$f"
	done <cfiles >bad && t_none bad
'
# The convention is about 100 and at most 120; what only a reader can judge (tables, prototypes) gets to 180 here.
t_ok 'no line of C is absurdly long' '
	while read -r f; do
		expand -t 8 "$T_SRC/$f" | awk -v f="$f" "{ s = \$0; gsub(/[\\200-\\277]/, \"\", s); if (length(s) > 180) print f \":\" NR \": \" length(s) }"
	done <cfiles >bad && t_none bad
'
t_ok 'file names are unique in the tree, those of programs and tests apart' '
	sed "s|.*/||" cfiles | sort | uniq -d >dup &&
	while read -r n; do grep "/$n\$" cfiles; done <dup | grep -vE "^(cmd|tests)/" |
		awk -F/ "{ name = \$NF; n[name]++; who[name] = who[name] \" \" \$0 } END { for (k in n) if (n[k] > 1) print who[k] }" >bad &&
	t_none bad
'
t_ok 'no function that the convention bans' '
	{ (cd "$T_SRC" && grep -vE "^tests/" | xargs grep -nE "\b(system|popen|alloca|strcpy|strcat|sprintf|strtok|atoi|gets|sscanf) *\(") <cfiles |
		grep -vE "^[^:]*:[0-9]+: *(/?\*|//)" >bad || :; } &&
	t_none bad
'
t_ok 'unfinished work is named by an issue, or is not there' '
	{ (cd "$T_SRC" && grep -v "tests/lint/style.t" | xargs grep -nwE "TODO|FIXME|XXX") <files |
		grep -vE "TODO\(#|tests/testlib.sh.*TODO known bug" >bad || :; } &&
	t_none bad
'
t_ok 'no path of a machine' '
	{ (cd "$T_SRC" && grep -v "tests/lint/style.t" | xargs grep -nE "(^|[^a-zA-Z.}])/(work|home/[a-z]+|root)/") <files >bad || :; } &&
	t_none bad
'
t_ok 'functions have at most 110 lines, files at most 1000' '
	while read -r f; do
		awk -v f="$f" "
			/^[a-zA-Z_].*[^;]\$/ && !/^(static )?(const )?(struct|enum|union) [a-z_0-9]* \\{/ { name = \$0 }
			/^\\{/ { start = NR }
			/^\\}/ { if (start && NR - start > 110) print f \":\" start \": \" NR - start \" lines: \" name; start = 0 }
			END { if (NR > 1000) print f \": \" NR \" lines\" }" "$T_SRC/$f"
	done <cfiles >bad && t_none bad
'
t_ok 'every source file says its role in its first line' '
	while read -r f; do
		head -n 1 "$T_SRC/$f" | grep -q "^/\*" || echo "$f"
	done <cfiles >bad && t_none bad
'
t_ok 'headers have guards' '
	grep -E "^(libcore|cmd)/.*\.h$|^kernels/kernels.h$" cfiles | grep -v "^cmd/rev.h$" | while read -r f; do
		grep -qE "^#ifndef (SKY|KN)_[A-Z0-9_]*_H$" "$T_SRC/$f" || echo "$f"
	done >bad && t_none bad
'
if t_has cmd git && git -c safe.directory="*" -C "$T_SRC" ls-files --error-unmatch configure.ac >/dev/null 2>&1; then
	t_ok 'nothing that a build or a test makes is committed' '
		git -c safe.directory="*" -C "$T_SRC" ls-files >tracked && test -s tracked &&
		{ grep -E "\.(o|a|so|log|trs)\$|^-\$|^\.deps/|/\.dirstamp\$" tracked >bad || :; } && t_none bad
	'
fi
t_ok 'no file is listed twice for installation' '
	cat "$T_SRC/man/Makemodule.am" "$T_SRC/completions/Makemodule.am" | grep "+=" | sort | uniq -d >bad && t_none bad
'
t_ok 'shell scripts parse' '
	grep -E "\.(sh|t)$|bootstrap|\.ci/run" files | while read -r f; do
		case $(head -n 1 "$T_SRC/$f") in
		*bash*) bash -n "$T_SRC/$f" || echo "$f" ;;
		*) sh -n "$T_SRC/$f" || echo "$f" ;;
		esac
	done >bad 2>&1 && t_none bad
'
t_done
