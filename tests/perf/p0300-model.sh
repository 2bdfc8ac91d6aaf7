#!/bin/sh
# Model speed beside PyTorch on the same batch: SFT step (AdamW, bf16), scoring, decoding at batch 1 and 32.
# usage: p0300-model.sh DIR          a model directory, e.g. SmolLM2-135M-Instruct
#   PEER_PYTHON   a Python with torch and transformers (default python3); without them only our side is shown
#   ROUNDS        both sides take turns this often (default 2)
# Prints median tokens/s of both sides and the ratio, and the same by CPU time, which is what a busy machine leaves to
# compare. Needs `make tests/perf/bench_model`.
set -eu
dir=${1:?usage: p0300-model.sh DIR}
here=$(dirname "$0")
bench=${BENCH:-./tests/perf/bench_model}
python=${PEER_PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

median()	# file column
{
	awk -v c="$2" '{ print $c }' "$1" | sort -n | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

ratio()
{
	awk -v o="$1" -v p="$2" 'BEGIN { print (p > 0 ? sprintf("%.2f", o / p) : "-") }'
}

job()	# mode batch length steps
{
	: >"$tmp/ours"
	: >"$tmp/peer"
	for _ in $(seq "${ROUNDS:-2}"); do
		"$bench" "$1" "$dir" bf16 "$2" "$3" "$4" |
			sed -n 's/.*: \([0-9.]*\) tokens.*, \([0-9.]*\) a CPU.*/\1 \2/p' >>"$tmp/ours"
		env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=passive "$python" \
			"$here/peer_model.py" "$1" "$dir" "$2" "$3" "$4" 2>"$tmp/err" >>"$tmp/peer" ||
			sed -n '$s/^/# no peer: /p' "$tmp/err"
	done
	o=$(median "$tmp/ours" 1) oc=$(median "$tmp/ours" 2) p=$(median "$tmp/peer" 1) pc=$(median "$tmp/peer" 2)
	echo "$1 batch $2 length $3: ours $o tokens/s, torch $p, ratio $(ratio "$o" "$p");" \
		"a CPU second $oc, $pc, ratio $(ratio "$oc" "$pc")"
}

job train 4 1024 2
job score 4 1024 2
job decode 1 128 2
job decode 32 64 2
