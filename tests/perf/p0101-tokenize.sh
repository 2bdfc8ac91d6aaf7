#!/bin/sh
# Tokenizer speed beside fastokens, gigatoken, quicktok and Hugging Face tokenizers, with the Qwen3 vocabulary.
# usage: p0101-tokenize.sh TOKENIZER_DIR DOCS…      DOCS as tests/perf/tokbench reads them; make-docs.py writes them
#   PEER_PYTHON   a Python with the peers (default python3); a peer that is not there is left out
#   PEERS         default "fastokens gigatoken quicktok tokenizers"
#   ROUNDS        all take turns this often (default 3)
# One thread on one CPU, texts in memory, a fresh process for each turn, so every cache is cold; loading is not counted.
# Prints median MB/s by the clock and by CPU time (which tells more on a machine that others use), and the ratios.
set -eu
dir=${1:?usage: p0101-tokenize.sh TOKENIZER_DIR DOCS...}
shift
here=$(dirname "$0")
bench=${BENCH:-./tests/perf/tokbench}
python=${PEER_PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

median()	# file column
{
	awk -v c="$2" '{ print $c }' "$1" | sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print 0 }'
}

for docs in "$@"; do
	rm -f "$tmp"/*.t
	for _ in $(seq "${ROUNDS:-3}"); do
		taskset -c 1 "$bench" -n 1 "$dir" "$docs" | sed -n 's/^cold \([0-9.]*\) MB.s, \([0-9.]*\) .*, \([0-9]*\) ids/ours \1 \2 \3/p' >>"$tmp/ours.t"
		for peer in ${PEERS:-fastokens gigatoken quicktok tokenizers}; do
			taskset -c 1 "$python" "$here/tokenize-peer.py" "$peer" "$dir" "$docs" 2>"$tmp/err" >>"$tmp/$peer.t" ||
				sed -n "\$s/^/# no $peer: /p" "$tmp/err"
		done
	done
	wall=$(median "$tmp/ours.t" 2)
	cpu=$(median "$tmp/ours.t" 3)
	printf '%s: ours %s MB/s (CPU %s), %s ids\n' "$(basename "$docs" .docs)" "$wall" "$cpu" "$(tail -n 1 "$tmp/ours.t" | cut -d ' ' -f 4)"
	for peer in ${PEERS:-fastokens gigatoken quicktok tokenizers}; do
		if [ -s "$tmp/$peer.t" ]; then
			printf '%s %s %s %s %s %s\n' "$peer" "$(median "$tmp/$peer.t" 2)" "$(median "$tmp/$peer.t" 3)" "$wall" "$cpu" \
				"$(tail -n 1 "$tmp/$peer.t" | cut -d ' ' -f 4)" |
				awk '{ printf "  %-10s %7.1f MB/s (CPU %.1f), %s ids: ratio %.2f (CPU %.2f)\n", $1, $2, $3, $6, $4 / $2, $5 / $3 }'
		fi
	done
done
