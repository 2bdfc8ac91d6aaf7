#!/bin/sh
# Model speed beside PyTorch on the same batch: SFT step (AdamW, bf16), scoring, decoding at batch 1 and 32.
# usage: p0300-model.sh DIR          a model directory, e.g. SmolLM2-135M-Instruct
#   PEER_PYTHON   a Python with torch and transformers (default python3); without them only our side is shown
#   ROUNDS        both sides take turns this often (default 2)
# Prints median tokens/s of both sides and the ratio. Needs `make tests/perf/bench_model`.
set -eu
dir=${1:?usage: p0300-model.sh DIR}
here=$(dirname "$0")
bench=${BENCH:-./tests/perf/bench_model}
python=${PEER_PYTHON:-python3}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

median()
{
	sort -n "$1" | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "-" }'
}

job()	# mode batch length steps
{
	: >"$tmp/ours"
	: >"$tmp/peer"
	for _ in $(seq "${ROUNDS:-2}"); do
		"$bench" "$1" "$dir" bf16 "$2" "$3" "$4" | sed -n 's/.*: \([0-9.]*\) tokens.*/\1/p' >>"$tmp/ours"
		env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE HF_HUB_OFFLINE=1 "$python" "$here/peer_model.py" \
			"$1" "$dir" "$2" "$3" "$4" 2>"$tmp/err" >>"$tmp/peer" || sed -n '$s/^/# no peer: /p' "$tmp/err"
	done
	ours=$(median "$tmp/ours")
	peer=$(median "$tmp/peer")
	awk -v m="$1" -v b="$2" -v l="$3" -v o="$ours" -v p="$peer" 'BEGIN {
		printf "%-8s batch %2d length %4d: ours %8.1f tokens/s, torch %8s, ratio %s\n",
			m, b, l, o, p, p > 0 ? sprintf("%.2f", o / p) : "-" }'
}

job train 4 1024 2
job score 4 1024 2
job decode 1 128 2
job decode 32 64 2
