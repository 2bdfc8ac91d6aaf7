#!/bin/sh
# store: a writer to a directory that is killed or whose calls fail leaves the old object or the new one, and a store that lists whole
. "${srcdir:-.}/tests/testlib.sh"
t_need inject
test -x "$T_BUILD/tests/fake/s3d" || t_skip_all 'tests/fake/s3d is not built'
echo new >a

t_ok 'a new object: absent or whole, and the next writer succeeds' '
	t_kill_everywhere "storecp -j 1 put d a" "{ ! test -e d/a || cmp a d/a; } && storecp list d >out && ! grep tmp out" "rm -rf d"
'
t_ok 'an object that is replaced: old or new' '
	t_kill_everywhere "storecp -j 1 put d a" "grep -qxE \"old|new\" d/a" "rm -rf d && mkdir d && echo old >d/a"
'
t_ok 'a full disk or a broken one: an error that names the file, the old object stays, no temp does' '
	for e in ENOSPC EIO; do
		t_fail_everywhere $e write,fsync,rename,open "storecp -j 1 put d a" \
			"case \$t_cut_code\$(cat d/a) in 0new|?old|?new) ;; *) false ;; esac && t_no_temps d" \
			"rm -rf d && mkdir d && echo old >d/a" || return 1
	done
'
t_ok 'no memory at any place: an error, no crash, the old object stays' '
	t_fail_everywhere ENOMEM malloc "storecp -j 1 put d a" "case \$(cat d/a) in old|new) ;; *) false ;; esac" \
		"rm -rf d && mkdir d && echo old >d/a" &&
	t_fail_everywhere ENOMEM malloc "storecp list d" true
'

mkfifo hold
"$T_BUILD/tests/fake/s3d" <hold >port &
exec 8>hold
while ! test -s port; do sleep 0.05; done
url=http://127.0.0.1:$(cat port)
AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=secret AWS_EC2_METADATA_DISABLED=true SKYRL_TEST_SLEEP=0
export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_EC2_METADATA_DISABLED SKYRL_TEST_SLEEP
seq 1 40000 >big

# Allocations are where it is cut: they are spread over the whole way. Half an object or a broken listing would show.
t_ok 'killed anywhere in an upload to S3: nothing or all of it is there' '
	T_STEP=97 && t_everywhere kill malloc "storecp --endpoint-url $url --part-size 65536 -j 1 put s3://bucket/k big" \
		"rm -rf k && mkdir k && storecp --endpoint-url $url get s3://bucket/k k - && { ! test -e k/big || cmp k/big big; }"
'
exec 8>&-
t_done
