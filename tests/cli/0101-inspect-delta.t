#!/bin/sh
# inspect: delta directories and chains as SkyRL writes them, and their damages
. "${srcdir:-.}/tests/testlib.sh"
t_has shared data/delta-golden/sync || t_skip_all 'no golden data (delta-golden)'

gold=$T_SHARED/data/delta-golden/sync
fresh() { rm -rf s && cp -R "$gold" s && chmod -R u+w s; }

t_ok 'a chain and its versions' '
	t_run skyrl-inspect --json --list "$gold" && t_json out:1 .kind "delta chain" && t_json out:1 .n_versions 3 &&
	t_json out:1 .last_version 3 && t_json out:2 .n_tensors 4 && t_json out:4 .n_tensors 0
'
t_ok 'one version and its tensors' '
	t_run skyrl-inspect --json -l "$gold/delta-00000001" && t_json out:1 .uncompressed_bytes 2192 &&
	t_json out:2 .name model.embed_tokens.weight && t_json out:2 .dtype bfloat16
'
t_ok 'all of it checks' 't_run skyrl-inspect --check "$gold" && grep -q "delta chain, ok" out'
t_ok 'a missing payload file' '
	fresh && rm s/delta-00000001/delta-rank00000-file000001.safetensors && t_expect_code 3 skyrl-inspect s 2>err &&
	grep -q "file000001.safetensors is missing" err
'
t_ok 'a payload file that is cut' '
	fresh && f=s/delta-00000002/delta-rank00000-file000000.safetensors && t_cut $f $(($(wc -c <$f) - 5)) x && mv x $f &&
	t_expect_code 3 skyrl-inspect s 2>err && grep -q "cut off" err
'
t_ok 'a frame that lies about its length is found by --check' '
	fresh && f=s/delta-00000001/delta-rank00000-file000000.safetensors && n=$(wc -c <$f) && t_flip $f $((n - 1)) &&
	{ t_expect_code 3 skyrl-inspect --check s 2>err || skyrl-inspect --check s; } && t_flip $f $((n - 1)) && skyrl-inspect --check -q s
'
edit() { sed "$2" "$1" >x && ! cmp -s x "$1" && mv x "$1"; }
t_ok 'base_version off by one' '
	fresh && edit s/delta-00000002/manifest.json "s/\"base_version\": 1/\"base_version\": 0/" &&
	t_expect_code 3 skyrl-inspect s 2>err && grep -q "version 2 on base_version 0" err
'
t_ok 'a payload file outside the folder' '
	fresh && edit s/delta-00000001/manifest.json "s|\"delta-rank00000-file000001.safetensors\"\]|\"../x\"]|" &&
	t_expect_code 3 skyrl-inspect s 2>err && grep -q "plain file name" err
'
t_ok 'a size of 2^40' '
	fresh && edit s/delta-00000001/manifest.json "s/\"uncompressed_num_bytes\": 128/\"uncompressed_num_bytes\": 1099511627776/" &&
	t_expect_code 3 skyrl-inspect s 2>err && grep -q "do not fit its shape" err
'
t_ok 'a version without manifest is left out with a warning' '
	fresh && rm s/delta-00000003/manifest.json && t_run skyrl-inspect --json s && t_json out .last_version 2 &&
	grep -q "delta-00000003 has no manifest" err
'
t_done
