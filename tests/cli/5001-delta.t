#!/bin/sh
# delta: SkyRL's golden chain both ways, round trips, races, locks, lost state, damage
. "${srcdir:-.}/tests/testlib.sh"
. "$T_SRC/tests/tiny.sh"

G=$T_SHARED/data/delta-golden
same_tree() { (cd "$1" && ls | grep safetensors$) >names && while read -r n; do cmp "$1/$n" "$2/$n" || return 1; done <names; }
skyrl-sft --quiet --model sft/model --data data -o v1 --steps 1 --lr 1e-4 && skyrl-sft --quiet --model v1/model --data data -o v2 --steps 1 --lr 1e-4
publish() { skyrl-delta publish --quiet --store chain --state pub --base sft/model "$@"; }
pull() { skyrl-delta pull --quiet --store chain --base sft/model "$@"; }

if test -d "$G"; then
	t_ok 'the chain that SkyRL wrote: every version, and all in one jump' '
		for v in 1 2 3; do
			skyrl-delta pull --quiet --store "$G/sync" --state g --base "$G/base" --version $v && same_tree "$G/expected/v$v" g/weights || return 1
		done &&
		skyrl-delta pull --quiet --store "$G/sync" --state jump --base "$G/base" && same_tree "$G/expected/v3" jump/weights
	'
	t_ok 'a flipped byte, a cut payload, a wrong checksum: refused, the weights stay as they are' '
		for how in flip cut sum; do
			rm -rf bad r && cp -r "$G/sync" bad && chmod -R u+w bad || return 1
			f=bad/delta-00000001/delta-rank00000-file000000.safetensors
			case $how in
			flip) printf "\377" | dd of=$f bs=1 seek=200 conv=notrunc 2>/dev/null ;;
			cut) head -c 250 "$f" >short && cp short "$f" ;;
			sum) sed -i "s/226b6e9b2589a40c/0000000000000000/" bad/delta-00000001/manifest.json ;;
			esac
			t_expect_code 3 skyrl-delta pull --store bad --state r --base "$G/base" 2>err || return 1
			same_tree "$G/base" r/weights || return 1
		done
	'
fi
t_ok 'what is published is pulled, verified and equal' '
	publish v1/model && publish v2/model && pull --state rep && same_tree v2/model rep/weights &&
	skyrl-delta verify --quiet --store chain --weights rep/weights && skyrl-delta list --json --store chain >l && test "$(wc -l <l)" -eq 2
'
t_ok 'an older version is reached by a fresh state; a chain does not go back' '
	pull --state one --version 1 && same_tree v1/model one/weights && t_expect_code 2 pull --state rep --version 1 2>err
'
t_ok 'fetch and apply are the two halves' '
	skyrl-delta fetch --quiet --store chain --state half --base sft/model && same_tree sft/model half/weights &&
	skyrl-delta apply --quiet --state half && same_tree v2/model half/weights
'
t_ok 'nothing to do is status 0 and silent, 6 when asked for' '
	skyrl-delta pull --quiet --store chain --state rep >out 2>err && ! test -s out && ! test -s err &&
	t_expect_code 6 skyrl-delta pull --quiet --store chain --state rep --fail-if-unchanged 2>err
'
t_ok 'an unchanged model gives a version without tensors' '
	publish v2/model && skyrl-delta list --json --store chain >l && tail -n 1 l >last && t_json last .tensors 0 && pull --state rep && same_tree v2/model rep/weights
'
t_ok 'a lost state goes on from the store with --base, and is status 4 without' '
	mv pub lost && t_expect_code 4 skyrl-delta publish --quiet --store chain --state pub v1/model 2>err && grep -e --base err &&
	publish v1/model && pull --state rep && same_tree v1/model rep/weights
'
t_ok 'a second publisher on the same chain exits 5, its state stays' '
	t_expect_code 5 skyrl-delta publish --quiet --store chain --state lost v2/model 2>err && same_tree v2/model lost/weights
'
t_ok 'a state in use is status 5' '
	exec 9>rep.lock && flock 9 && t_expect_code 5 skyrl-delta pull --quiet --store chain --state rep 2>err && exec 9>&- && grep rep err
'
t_ok 'another base, another type, a missing tensor: refused with what to do' '
	t_expect_code 3 skyrl-delta publish --store chain --state pub --base v1/model v2/model 2>err &&
	t_expect_code 3 skyrl-delta pull --store chain --state wrong --base v1/model 2>err
'
t_ok 'a reader that has the old weights open keeps them' '
	pull --state held --version 1 && exec 8<held/weights/model.safetensors && pull --state held && cksum <&8 >a && exec 8<&- &&
	cksum <v1/model/model.safetensors >b && cmp a b
'
t_ok '--json tells bytes, times and requests' '
	skyrl-delta publish --json --quiet --store c2 --state p2 --base sft/model v1/model >rec && t_json rec .version 1 && t_json rec .bytes_changed >n && test "$(cat n)" -gt 0
'
t_ok 'missing stores, bases and directories are status 4' '
	t_expect_code 4 skyrl-delta list --store nowhere 2>err && t_expect_code 4 skyrl-delta pull --store chain --state fresh 2>err &&
	t_expect_code 4 skyrl-delta publish --store c3 --state p3 --base nobase v1/model 2>err
'
t_done
