#!/bin/sh
# End to end: JSONL.zst to a token dataset, one thread, beside what its parts allow and beside Hugging Face tokenizers in Python.
# usage: p0102-pretok.sh TOKENIZER_DIR CORPUS.jsonl.zst…       in the build folder; needs make tests/perf/tokbench and zstd
#   ROUNDS    turns (default 3)
#   PEER      a Python with tokenizers and zstandard (default python3); without it only our side is shown
#   PEER_MB   megabytes of text that the peer gets (default 8)
# Rates are megabytes of text per second of CPU (user + system, all threads), medians: on a shared machine the clock tells
# nothing. Loading the tokenizer, measured apart on one row, is left out: it does not grow with the corpus. "allowed" is what `zstd -dc` and our encoder in memory (tests/perf/tokbench, cold) would give one after the other; the goal
# is 120 MB/s or 60 % of it.
set -eu
build=$PWD
rounds=${ROUNDS:-3}
tok=$1
shift
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

cpu() { # COMMAND…: seconds of CPU
	bash -c 'TIMEFORMAT="%U %S"; { time "$@" >/dev/null 2>"$0"; } 2>&1 || cat "$0" >&2' "$tmp/err" "$@" | awk '{ print $1 + $2 }'
}
median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
again() { i=0; while test $i -lt "$rounds"; do cpu "$@"; i=$((i + 1)); done | median; }

cat >"$tmp/peer.py" <<'X'
import io, json, resource, sys, tokenizers, zstandard
tok = tokenizers.Tokenizer.from_file(sys.argv[1])
limit, n, batch = int(float(sys.argv[3]) * 1e6), 0, []
cpu = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
t0 = cpu()
with open(sys.argv[2], "rb") as f, open("/dev/null", "wb") as out:
    for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(f), encoding="utf-8"):
        text = json.loads(line)["text"]
        n += len(text.encode())
        batch.append(text)
        if len(batch) == 1000 or n >= limit:
            for e in tok.encode_batch_fast(batch, add_special_tokens=False):
                out.write(b"".join(i.to_bytes(4, "little") for i in e.ids))
            batch = []
        if n >= limit:
            break
print(n / 1e6 / (cpu() - t0))
X

for file; do
	name=$(basename "$file" .jsonl.zst)
	key=$(zstd -dcq "$file" | head -n 1 | grep -q '"text"' && echo text || echo messages)
	# texts, each behind its length, as tokbench wants them
	mb=$("$build/skyrl-pretok" -q --json -f -j 1 -t "$tok" -o "$tmp/set" "$file" | sed 's/.*"bytes":\([0-9]*\).*/\1/' | awk '{ print $1 / 1e6 }')
	zstd -dcq "$file" | head -n 1 >"$tmp/one.jsonl" || :
	start=$(again "$build/skyrl-pretok" -q -f -j 1 -t "$tok" -o "$tmp/set" "$tmp/one.jsonl")
	ours=$(again "$build/skyrl-pretok" -q -f -j 1 -t "$tok" -o "$tmp/set" "$file")
	unpack=$(again zstd -dcq "$file")
	enc=-
	if test "$key" = text && command -v "${PEER:-python3}" >/dev/null; then
		zstd -dcq "$file" | "${PEER:-python3}" -c '
import json, struct, sys
for line in sys.stdin.buffer:
    t = json.loads(line)["text"].encode()
    sys.stdout.buffer.write(struct.pack("<I", len(t)) + t)' >"$tmp/docs"
		enc=$("$build/tests/perf/tokbench" "$tok" "$tmp/docs" -n "$rounds" | sed -n 's|^cold .* MB/s, \([0-9.]*\) MB per second of CPU.*|\1|p' | sort -n | tail -n 1)
	fi
	peer=-
	if test "$key" = text && "${PEER:-python3}" -c 'import tokenizers, zstandard' 2>/dev/null; then
		peer=$(TOKENIZERS_PARALLELISM=false "${PEER:-python3}" "$tmp/peer.py" "$tok/tokenizer.json" "$file" "${PEER_MB:-8}")
	fi
	awk -v n="$name" -v mb="$mb" -v o="$ours" -v s="$start" -v u="$unpack" -v e="$enc" -v p="$peer" 'BEGIN {
		rate = mb / (o - s)
		printf "%-14s %7.1f MB  ours %6.1f MB/s (load %.2f s)", n, mb, rate, s
		if (e != "-" && e > 0) { a = 1 / (u / mb + 1 / e); printf "  encoder %6.1f, zstd %6.1f, allowed %6.1f: %3.0f %%", e, mb / u, a, 100 * rate / a }
		if (p != "-") printf "  Hugging Face %5.2f MB/s, ratio %.1f", p, rate / p
		print "" }'
done
