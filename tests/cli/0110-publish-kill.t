#!/bin/sh
# base: a file or folder killed or failing at any system call is the old one or the new one, and the next run works
. "${srcdir:-.}/tests/testlib.sh"
t_need inject

t_ok 'a new file: absent or whole' '
	t_kill_everywhere "publish file p new" "{ ! test -e p || test \"\$(cat p)\" = new; }" "rm -f p"
'
t_ok 'a file that is replaced: old or new' '
	t_kill_everywhere "publish file p new replace" "grep -qxE \"old|new\" p" "printf old >p"
'
t_ok 'a new folder: absent or whole' '
	t_kill_everywhere "publish dir d new" "{ ! test -e d || test \"\$(cat d/f0 d/f1)\" = newnew; }" "rm -rf d"
'
t_ok 'a folder that is replaced: old or new' '
	t_kill_everywhere "publish dir d new replace" "case \$(cat d/f0 d/f1) in oldold|newnew) ;; *) false ;; esac" \
		"rm -rf d && publish dir d old"
'
t_ok 'a full disk or a broken one: an error, the old file stays, no temp does' '
	for e in ENOSPC EIO; do
		t_fail_everywhere $e write,fsync,close,rename,open "publish file k/p new replace" \
			"case \$t_cut_code\$(cat k/p) in 0new|?old|?new) ;; *) false ;; esac && t_no_temps k" \
			"rm -rf k && mkdir k && printf old >k/p" || return 1
	done
'
t_ok 'a folder on a full disk: an error, the old folder stays, no temp does' '
	t_fail_everywhere ENOSPC write,fsync,close,mkdir,open "publish dir k/d new replace" \
		"case \$t_cut_code\$(cat k/d/f0 k/d/f1) in 0newnew|?oldold|?newnew) ;; *) false ;; esac && t_no_temps k" \
		"rm -rf k && mkdir k && publish dir k/d old"
'
t_ok 'temps of a killed process are removed by the clean-up, not those of a living one' '
	rm -rf k && mkdir k && { t_inject rename 1 kill publish file k/p new; true; } && ! test -e k/p && ls -A k | grep "^\.p\.tmp\." &&
	publish clean k - && t_no_temps k
'
t_done
