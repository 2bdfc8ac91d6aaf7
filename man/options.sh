#!/bin/sh
# Prints the OPTIONS list of a program in mdoc, made from its option table: the start of a new page, to be improved by hand.
#	PATH=.:tests/tool:$PATH man/options.sh skyrl-plot
table=$(mktemp) || exit 1
trap 'rm -f "$table"' EXIT
"$1" --dump-options >"$table" || exit 1
jsonq -t "$table" .type .common .sub .letter .name .kind .arg .default .help | awk -F '\t' '
	$1 != "option" || $2 == "true" { next }
	$3 != sub_now { if (open) print ".El"; print ".Ss " ($3 == "" ? "Options" : $3); open = 0; sub_now = $3 }
	{
		if (!open) { print ".Bl -tag -width Ds"; open = 1 }
		printf ".It "
		if ($4 != "") printf "Fl %s , ", $4
		printf "Fl -%s", $5
		if ($6 == "choice") { gsub(/\|/, " | Cm ", $7); printf " Cm %s", $7 }
		else if ($7 != "") printf " Ar %s", $7
		printf "\n%s%s.\n", toupper(substr($9, 1, 1)), substr($9, 2)
		if ($8 != "" && $6 != "flag") printf "Default:\n.Cm %s .\n", $8
	}
	END { if (open) print ".El" }'
