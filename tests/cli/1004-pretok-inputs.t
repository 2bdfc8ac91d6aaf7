#!/bin/sh
# pretok: containers and stores; whatever the wrapping, the tokens are the same
. "${srcdir:-.}/tests/testlib.sh"
tok=$T_SRC/tests/data/chatml
same() { cmp "$1.bin" ref.bin && cmp "$1.idx" ref.idx; }
{ printf "%s\n" '{"text":"hello world"}' '{"text":"a [b] \"c\" {d}"}' '{"text":"line\nbreak"}'; } >in.jsonl

t_ok 'JSON arrays, objects with rows inside and pretty-printed values are rows' '
	t_run skyrl-pretok -t "$tok" -o ref in.jsonl &&
	{ echo "["; sed "\$!s/\$/,/" in.jsonl; echo "]"; } >array.json &&
	{ printf "%s" "{\"version\":1,\"data\":["; sed "\$!s/\$/,/" in.jsonl; echo "]}"; } >object.json &&
	sed "s/^{/{\n  /; s/}\$/\n}/" in.jsonl >pretty.json && cp in.jsonl lines.json &&
	for f in array object pretty lines; do t_run skyrl-pretok -f -t "$tok" -o o$f $f.json && same o$f || exit 1; done
'
t_ok 'an input that has the name of the manifest is not replaced, not even by --force' '
	cp array.json keep && t_expect_code 2 skyrl-pretok -f -t "$tok" -o array array.json 2>err && grep "not replaced" err && t_same array.json keep
'
t_ok 'a cut array and one with a comma too many are damage' '
	head -c 60 array.json >cut.json && t_expect_code 3 skyrl-pretok --on-error skip -t "$tok" -o x cut.json 2>err && grep "array is cut" err &&
	{ echo "["; sed "s/\$/,/" in.jsonl; echo "]"; } >comma.json &&
	t_expect_code 3 skyrl-pretok -t "$tok" -o x comma.json 2>err && grep "comma without a row" err
'
t_ok 'a folder, a pattern and a tar archive' '
	mkdir -p d/sub && head -n 1 in.jsonl >d/a.jsonl && sed -n 2p in.jsonl >d/b.jsonl && sed -n 3p in.jsonl >d/sub/c.jsonl && : >d/.hidden.jsonl && : >d/README &&
	t_run skyrl-pretok -t "$tok" -o dir d && same dir &&
	t_run skyrl-pretok -t "$tok" -o glob "d/[ab].jsonl" d/sub/c.jsonl && same glob &&
	(cd d && for i in a b sub/c; do mv $i.jsonl $i.json || exit 1; done && tar cf ../t.tar a.json b.json sub/c.json) &&
	t_run skyrl-pretok -t "$tok" -o tar t.tar && same tar && gzip -k t.tar && t_run skyrl-pretok -f -t "$tok" -o tar t.tar.gz && same tar &&
	head -c 1500 t.tar >cut.tar && t_expect_code 3 skyrl-pretok -t "$tok" -o x cut.tar 2>err && grep "cut tar" err &&
	t_expect_code 4 skyrl-pretok -t "$tok" -o x "nothing*.jsonl" 2>err && grep "no file matches" err
'
t_ok 'UTF-16 is named' '
	printf "\377\376{\000" >u16.jsonl && t_expect_code 3 skyrl-pretok --schema text -t "$tok" -o x u16.jsonl 2>err && grep UTF-16 err
'
t_ok 'a line beyond --max-line is refused' '
	head -c 3000000 /dev/zero | tr "\\0" x >long.jsonl &&
	t_expect_code 7 skyrl-pretok --schema text --max-line 1M -t "$tok" -o x long.jsonl 2>err && grep -e --max-line err
'
if t_has file "$T_BUILD/tests/fake/s3d" && t_has cmd curl; then
	mkfifo hold && { "$T_BUILD/tests/fake/s3d" --no-verify <hold >port & } && exec 8>hold
	while test ! -s port; do sleep 0.05; done
	url=http://127.0.0.1:$(head -n 1 port)
	s3() { skyrl-pretok --endpoint-url "$url" --no-sign-request --addressing path -t "$tok" "$@"; }
	for i in 1 2 3; do sed -n ${i}p in.jsonl >one.jsonl && curl -sf -T one.jsonl "$url/buck/raw/$i.jsonl" >/dev/null; done
	t_ok 'objects of a store, one by one and by pattern' '
		t_run s3 -o s3 s3://buck/raw/1.jsonl s3://buck/raw/2.jsonl s3://buck/raw/3.jsonl && same s3 &&
		t_run s3 -f -o s3 "s3://buck/raw/*.jsonl" && same s3 && t_run s3 -f -o s3 s3://buck/raw/ && same s3 &&
		t_expect_code 4 s3 -o x s3://buck/raw/9.jsonl
	'
	exec 8>&-
fi
fm=$T_SHARED/data/formats
if t_has shared data/formats; then
	t_ok 'every golden chat file gives the rows of the plain one' '
		t_run skyrl-pretok -t "$tok" --train-on all -o o "$fm/chat/openai.jsonl" &&
		for f in openai-array.json openai-array-one-line.json openai-object.json openai-pretty.json openai-ascii.jsonl openai-bom.jsonl \
			openai-crlf.jsonl openai-blank-lines.jsonl openai-no-last-newline.jsonl; do
			t_run skyrl-pretok -f -t "$tok" --train-on all -o p "$fm/chat/$f" && cmp o.bin p.bin && cmp o.idx p.idx || { echo $f; exit 1; }
		done
	'
	good_packed() {
		skyrl-pretok -f -q --schema text --on-error skip -t "$tok" -o l "$fm/packed/plain.jsonl" || return 1
		for f in $(set +f; cd "$fm/packed" && ls *.jsonl*); do
			case $f in
			*.lz4|*.lzma|needs-dictionary*|window30*|window31*|bad-*|empty.jsonl.gz|misnamed*|double*) continue ;;
			esac
			skyrl-pretok -f -q --schema text --on-error skip -t "$tok" -o k "$fm/packed/$f" && cmp k.bin l.bin || { echo $f; return 1; }
		done
	}
	bad_packed() {
		for f in $(set +f; cd "$fm/packed" && ls bad-*.gz bad-*.zst bad-*.bz2 bad-*.xz); do
			t_expect_code 3 skyrl-pretok -f -q --schema text --on-error skip -t "$tok" -o k "$fm/packed/$f" || { echo $f; return 1; }
		done
	}
	t_ok 'packed files are read as their plain text' 'good_packed'
	t_ok 'damaged ones are refused' 'bad_packed'
	t_ok 'Parquet and save_to_disk rows of ids' '
		t_run skyrl-pretok -o ids "$fm/hf/saved" && t_run skyrl-pretok verify ids && t_run skyrl-pretok --on-error skip -o pq "$fm/skyrl/rows.parquet" &&
		t_run skyrl-pretok --on-error skip -o jl "$fm/skyrl/rows.jsonl" && cmp pq.bin jl.bin && cmp pq.mask.bin jl.mask.bin
	'
	t_ok 'an Arrow stream that was cut is refused, though SkyRL loads it short' '
		t_expect_code 3 skyrl-pretok --on-error skip -o x "$fm/skyrl/cut-end-marker.arrow" 2>err && grep "end marker" err &&
		t_expect_code 3 skyrl-pretok --on-error skip -o x "$fm/skyrl/cut-after-batch-2.arrow" && t_expect_code 3 skyrl-pretok --on-error skip -o x "$fm/skyrl/cut-in-body.arrow"
	'
else
	t_skip 'golden data are not here'
fi
t_done
