#!/bin/sh
# Chat templates beside Jinja2 as transformers runs it: MB/s of rendered text on one core, by CPU time; ours includes
# reading the messages from JSON, its second number also the loss mask. The peer's first number is json.loads and
# render_jinja_template (what apply_chat_template does), its second the compiled template's render alone.
# usage: p0103-template.sh CHATS.jsonl TEMPLATE.jinja…      PEER_PYTHON: a Python with transformers; MAX_LINES (default 5000)
set -eu
chats=${1:?usage: p0103-template.sh CHATS.jsonl TEMPLATE.jinja…}
shift
here=$(dirname "$0")
bench=${BENCH:-./tests/perf/templatebench}
lines=${MAX_LINES:-5000}
for t in "$@"; do
	ours=$("$bench" "$t" "$chats" 3 "$lines")
	peer=$(env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE HF_HUB_OFFLINE=1 "${PEER_PYTHON:-python3}" "$here/peer_template.py" \
		"$t" "$chats" "$lines" 2>/dev/null) || peer=-
	echo "$(basename "$t") $ours|$peer" | awk -F'|' '{ split($1, w, " "); split($2, p, " ")
		printf "%-26s ours %7.1f MB/s, with mask %7.1f | Jinja2 %6.1f, bare %6.1f | ratio %.1f, to bare %.1f\n", w[1], w[2], w[5],
			p[1], p[2], (p[1] > 0 ? w[2] / p[1] : 0), (p[2] > 0 ? w[2] / p[2] : 0) }'
done
