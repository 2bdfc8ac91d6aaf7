#!/bin/sh
# store: a chain of deltas over S3 between two hosts that share nothing but a bucket, also when the server does wrong
. "${srcdir:-.}/tests/testlib.sh"
test -x "$T_BUILD/tests/fake/s3d" || t_skip_all 'tests/fake/s3d is not built'
t_need cmd bash
t_need shared data/delta-golden
golden=$T_SHARED/data/delta-golden

mkfifo hold
"$T_BUILD/tests/fake/s3d" --page 3 <hold >port &
exec 8>hold
while ! test -s port; do sleep 0.05; done
port=$(cat port)
AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=secret
AWS_EC2_METADATA_DISABLED=true SKYRL_TEST_SLEEP=0
export AWS_ENDPOINT_URL AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED SKYRL_TEST_SLEEP

fault_says() { # PATH: the answer of a control path
	bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$1"; printf "GET /-/%s HTTP/1.1\r\nConnection: close\r\n\r\n" "$2" >&3; cat <&3' fault \
		"$port" "$1" | tail -n 1
}

fault() { # QUERY: what the server does wrong from now on
	fault_says "$1" >/dev/null
}

model() { # N DIR: the golden model after version N
	mkdir -p "$2" && cp "$golden"/base/* "$2"/ && { test "$1" = 0 || cp "$golden/expected/v$1"/* "$2"/; }
}

same() { # DIR N: DIR holds exactly the tensors' files of version N
	want=$golden/expected/v$2
	test "$2" != 0 || want=$golden/base
	for f in model-00001-of-00002.safetensors model-00002-of-00002.safetensors; do
		cmp "$1/$f" "$want/$f" || return 1
	done
}

t_ok 'files go to a bucket and come back' '
	seq 1 50000 >numbers && : >nothing && mkdir back &&
	storecp --part-size 65536 put s3://bucket/files numbers nothing &&
	storecp list s3://bucket/files >out && grep "288894.numbers" out && grep "^0.nothing" out &&
	storecp --part-size 65536 get s3://bucket/files back numbers nothing &&
	cmp numbers back/numbers && cmp nothing back/nothing
'
t_ok 'a chain is published to a bucket and pulled by another host' '
	model 0 base && model 1 m1 && model 2 m2 && model 3 m3 &&
	t_run skyrl-delta publish --store s3://bucket/run --state pub --base base m1 &&
	t_run skyrl-delta pull --store s3://bucket/run --state host --base base &&
	same host/weights 1 &&
	t_run skyrl-delta publish --store s3://bucket/run --state pub m2 &&
	t_run skyrl-delta publish --store s3://bucket/run --state pub m3 &&
	t_run skyrl-delta pull --store s3://bucket/run --state host &&
	same host/weights 3
'
t_ok 'a chain that SkyRL wrote is pulled out of a bucket' '
	(cd "$golden/sync" && find . -type f) >files &&
	while read -r f; do
		storecp put "s3://bucket/seed/$(dirname "${f#./}")" "$golden/sync/$f" || return 1
	done <files &&
	t_run skyrl-delta pull --store s3://bucket/seed --state seed --base base &&
	same seed/weights 3
'
t_ok 'faults that pass do not show' '
	fault "fault?mode=503&n=3" && fault "fault?mode=reset&method=PUT&n=2" &&
	t_run skyrl-delta publish --store s3://bucket/shaky --state pub2 --base base m1 &&
	fault "fault?mode=short&method=GET&n=2" && fault "fault?mode=429&n=2" &&
	t_run skyrl-delta pull --store s3://bucket/shaky --state host2 --base base &&
	same host2/weights 1
'
t_ok 'statuses tell what went wrong' '
	fault reset && fault "fault?mode=503&n=1000" &&
	t_expect_code 5 skyrl-delta pull --tries 3 --store s3://bucket/run --state s5 --base base 2>err && grep SlowDown err &&
	fault reset && fault "fault?mode=403&n=1000" &&
	t_expect_code 1 skyrl-delta pull --store s3://bucket/run --state s1 --base base 2>err && grep AccessDenied err &&
	fault reset && fault "fault?mode=nobucket&n=1000" &&
	t_expect_code 4 skyrl-delta pull --store s3://bucket/run --state s4 --base base 2>err && grep "no bucket" err &&
	fault reset &&
	t_expect_code 2 skyrl-delta list --store what://ever 2>err && grep "unknown kind of store" err
'
t_ok 'an unsigned request is refused by this server, a profile of files is taken' '
	t_expect_code 1 skyrl-delta list --no-sign-request --store s3://bucket/run 2>err &&
	mkdir -p "$HOME/.aws" && printf "[robot]\naws_access_key_id = test\naws_secret_access_key = secret\n" >"$HOME/.aws/credentials" &&
	t_run env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY skyrl-delta list --profile robot --store s3://bucket/run
'
t_ok 'a corpus in a bucket gives the tokens of the same files on disk, also when connections break' '
	i=0 && while test $i -lt 4000; do i=$((i + 1)); echo "{\"text\":\"document $i of many\"}"; done >c.jsonl &&
	gzip -k c.jsonl && cp c.jsonl.gz second.jsonl.gz &&
	t_run skyrl-pretok -t "$T_SRC/tests/data/chatml" -o disk c.jsonl.gz second.jsonl.gz &&
	storecp put s3://bucket/corpus c.jsonl.gz second.jsonl.gz &&
	fault reset && fault "fault?mode=short&method=GET&on=jsonl&n=2" && fault "fault?mode=503&n=2" &&
	t_run skyrl-pretok -t "$T_SRC/tests/data/chatml" -o bucket s3://bucket/corpus/c.jsonl.gz s3://bucket/corpus/second.jsonl.gz &&
	cmp disk.bin bucket.bin && cmp disk.idx bucket.idx &&
	t_expect_code 4 skyrl-pretok -t "$T_SRC/tests/data/chatml" -o none s3://bucket/corpus/absent.jsonl 2>err && grep absent err
'
tensor_file() { # FILE MiB SOURCE: one bf16 tensor of random or zero bytes
	n=$(($2 << 20))
	h=$(printf '{"w":{"dtype":"BF16","shape":[%d],"data_offsets":[0,%d]}}' $((n / 2)) "$n")
	while test $((${#h} % 8)) -ne 0; do h="$h "; done
	{ printf "\\$(printf %03o ${#h})\\000\\000\\000\\000\\000\\000\\000%s" "$h" && head -c "$n" "$3"; } >"$1"
}

t_ok 'a publisher that is told to stop leaves no parts behind, and goes on later' '
	mkdir big new && cp base/config.json big/ && cp base/config.json new/ &&
	tensor_file big/model.safetensors 8 /dev/zero && tensor_file new/model.safetensors 8 /dev/urandom &&
	fault reset &&
	{ skyrl-delta publish --store s3://bucket/slow --state slow --base big --part-size 256KiB --bwlimit 1MiB new 2>err &
	  pid=$!; } &&
	i=0 && while test $i -lt 200; do
		stats=$(fault_says stats); case $stats in *"uploads 0") ;; *) break ;; esac
		i=$((i + 1)); sleep 0.05
	done && test $i -lt 200 && kill -TERM $pid && { wait $pid; test $? -ne 0; } &&
	fault_says stats | grep "uploads 0" &&
	test -z "$(storecp list s3://bucket/slow | grep manifest)" &&
	t_run skyrl-delta publish --store s3://bucket/slow --state slow --base big new &&
	t_run skyrl-delta pull --store s3://bucket/slow --state sloth --base big &&
	cmp sloth/weights/model.safetensors new/model.safetensors
'
exec 8>&-
t_done
