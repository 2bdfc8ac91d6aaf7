#!/bin/sh
# Writes the completions of programs from their option tables into a folder with bash/, zsh/ and fish/.
#	completions/gen.sh OUTDIR PROGRAM…         programs and jsonq (tests/tool) are found on PATH
# The results are checked in, so that packagers run nothing: `make completions` writes them, tests/lint/options.t compares.
set -e
out=$1
shift
mkdir -p "$out/bash" "$out/zsh" "$out/fish"
table=$(mktemp)
trap 'rm -f "$table" "$table.tsv"' EXIT

for prog in "$@"; do
	"$prog" --dump-options >"$table"
	jsonq -t "$table" .type .name .title .sub .letter .kind .arg .ext .help >"$table.tsv"
	awk -F '\t' -v prog="$prog" '
		$1 == "sub" { subs = subs " " $2 }
		$1 == "option" && !(("--" $2) in seen) {
			seen["--" $2] = 1
			words = words " --" $2
			if ($6 == "choice") { gsub(/\|/, " ", $7); choice[$2] = $7 }
			else if ($6 == "file") file = file "|--" $2 ($5 != "" ? "|-" $5 : "")
			else if ($6 == "dir") dir = dir "|--" $2 ($5 != "" ? "|-" $5 : "")
			else if ($7 != "") other = other "|--" $2 ($5 != "" ? "|-" $5 : "")
		}
		END {
			fn = "_" prog
			gsub(/-/, "_", fn)
			print "# bash completion for " prog "; made by completions/gen.sh"
			print fn "() {"
			print "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}"
			print "\tif [[ $prev == \"=\" ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi"
			print "\tif [[ $cur == \"=\" ]]; then prev=${COMP_WORDS[COMP_CWORD - 1]} cur=; fi"
			print "\tcase $prev in"
			n = 0
			for (o in choice) names[n++] = o
			for (i = 0; i < n; i++)         # awk has no order of its own
				for (k = i + 1; k < n; k++)
					if (names[k] < names[i]) { t = names[i]; names[i] = names[k]; names[k] = t }
			for (i = 0; i < n; i++)
				print "\t--" names[i] ") COMPREPLY=($(compgen -W \"" choice[names[i]] "\" -- \"$cur\")); return ;;"
			if (dir != "") print "\t" substr(dir, 2) ") COMPREPLY=($(compgen -d -- \"$cur\")); return ;;"
			if (file != "") print "\t" substr(file, 2) ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;"
			if (other != "") print "\t" substr(other, 2) ") return ;;"
			print "\tesac"
			print "\tif [[ $cur == -* ]]; then"
			print "\t\tCOMPREPLY=($(compgen -W \"" substr(words, 2) "\" -- \"$cur\"))"
			if (subs != "") {
				print "\telif [[ $COMP_CWORD -eq 1 ]]; then"
				print "\t\tCOMPREPLY=($(compgen -W \"" substr(subs, 2) "\" -- \"$cur\") $(compgen -f -- \"$cur\"))"
			}
			print "\telse"
			print "\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))"
			print "\tfi"
			print "}"
			print "complete -o filenames -F " fn " " prog
		}' "$table.tsv" >"$out/bash/$prog"
	awk -F '\t' -v prog="$prog" '
		function quoted(s) { gsub(/\047/, "\047\\\047\047", s); gsub(/\[/, "\\\\[", s); gsub(/\]/, "\\\\]", s); gsub(/:/, "\\\\:", s); return s }
		$1 == "sub" { subs = subs " " $2 }
		$1 == "option" && !(("--" $2) in seen) {
			seen["--" $2] = 1
			act = ""
			if ($6 == "choice") { gsub(/\|/, " ", $7); act = ":value:(" $7 ")" }
			else if ($6 == "file") act = ":file:_files"
			else if ($6 == "dir") act = ":folder:_files -/"
			else if ($7 != "") act = ":" quoted($7) ": "
			eq = $7 != "" ? "=" : ""
			list = list " \\\n\t\047*--" $2 eq "[" quoted($9) "]" act "\047"
			if ($5 != "") list = list " \\\n\t\047*-" $5 (eq == "" ? "" : "+") "[" quoted($9) "]" act "\047"
		}
		END {
			print "#compdef " prog
			print "# made by completions/gen.sh"
			print "_arguments -s -S" list " \\"
			if (subs != "") print "\t\0471:command:{_alternative \"commands:command:(" substr(subs, 2) ")\" \"files:file:_files\"}\047 \\"
			print "\t\047*:file:_files\047"
		}' "$table.tsv" >"$out/zsh/_$prog"
	awk -F '\t' -v prog="$prog" '
		function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/\047/, "\\\047", s); return "\047" s "\047" }
		BEGIN { print "# fish completion for " prog "; made by completions/gen.sh" }
		$1 == "sub" { print "complete -c " prog " -n __fish_use_subcommand -a " $2 " -d " quoted($3) }
		$1 == "option" {
			line = "complete -c " prog
			if ($4 != "") line = line " -n " quoted("__fish_seen_subcommand_from " $4)
			if ($5 != "") line = line " -s " $5
			line = line " -l " $2
			if ($6 == "choice") { gsub(/\|/, " ", $7); line = line " -x -a " quoted($7) }
			else if ($6 == "file") line = line " -r -F"
			else if ($6 == "dir") line = line " -x -a " quoted("(__fish_complete_directories)")
			else if ($7 != "") line = line " -x"
			print line " -d " quoted($9)
		}' "$table.tsv" >"$out/fish/$prog.fish"
done
