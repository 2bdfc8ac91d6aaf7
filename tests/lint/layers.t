#!/bin/sh
# layers: who may include and link what (DESIGN.md section 6, CONTRIBUTING.md)
. "${srcdir:-.}/tests/testlib.sh"

# Folder and its layer. A file includes headers of its own folder and of lower layers.
layers='libcore/base 0
libcore/store 1
libcore/text 2
libcore/corpus 2
libcore/tokens 2
libcore/weights 2
libcore/batch 3
libcore/delta 3
libcore/model 4
libcore/peer 4
libcore/engine 5
libcore/learn 5
libcore/rollout 6
libcore/serve 6
cmd 9'
# Neighbours of one layer that may look at each other in one direction: the chain inside layer 2 and 5.
allowed='libcore/corpus libcore/text
libcore/tokens libcore/text
libcore/learn libcore/engine
cmd kernels'
# Folders that see kernels/kernels.h (types and table; the table is handed down).
kernel_users='libcore/model libcore/engine libcore/learn libcore/rollout libcore/serve libcore/peer'

# One foreign library, one home: regular expressions of the header and of the files that may include it.
homes='^curl/curl\.h$ ^libcore/store/
^archive(_entry)?\.h$ ^libcore/(store|corpus)/
^zstd(_errors)?\.h$ ^libcore/(store|delta|corpus)/
^zlib\.h$ ^libcore/(store|corpus|tokens)/|^libcore/base/hash[a-z_]*\.c$
^lzma\.h$ ^libcore/store/
^bzlib\.h$ ^libcore/store/
^snappy-c\.h$ ^libcore/(corpus|tokens)/
^pcre2\.h$ ^libcore/text/
^utf8proc\.h$ ^libcore/text/
^xxhash\.h$ ^libcore/base/hash[a-z_]*\.c$
^openssl/ ^libcore/store/|^libcore/base/hash[a-z_]*\.c$
^(microhttpd|sqlite3)\.h$ ^libcore/serve/
^(ucp/.*|mpi\.h)$ ^libcore/peer/
^(dnnl|oneapi/|omp\.h) ^kernels/cpu/
^(nccl|cuda|cublas) ^kernels/cuda/'

sources() { # every C file below the given folders
	(cd "$T_SRC" && find "$@" -name '*.[ch]' | sort)
}

t_ok 'a folder includes its own headers and those of lower layers' '
	for f in $(sources libcore cmd); do
		sed -n "s/^#[ $T_TAB]*include \"\(.*\)\".*/\1/p" "$T_SRC/$f" | sed "s|^|$f |"
	done >includes &&
	test -s includes &&
	{ echo "$layers" | sed "s/^/layer /"; echo "$allowed" | sed "s/^/allow /"; for k in $kernel_users; do echo "allow $k kernels"; done; \
		cat includes; } | awk "
		\$1 == \"layer\" { layer[\$2] = \$3; next }
		\$1 == \"allow\" { allow[\$2 \" \" \$3] = 1; next }
		{
			from = \$1; sub(/\\/[^\\/]*\$/, \"\", from); while (from != \"\" && !(from in layer) && index(from, \"/\")) sub(/\\/[^\\/]*\$/, \"\", from)
			to = \$2; if (!index(to, \"/\")) next
			sub(/\\/.*/, \"\", to)
			if (to != \"cmd\" && to != \"kernels\") to = \"libcore/\" to
			internal = \$2 ~ /_int\\.h\$/
			if (to == from || ((from \" \" to) in allow && !internal)) next
			if (to in layer && layer[to] < layer[from] && !internal) next
			print \$1 \" includes \" \$2; bad = 1
		}
		END { exit bad }"
'
t_ok 'kernels include nothing of ours but kernels.h and their own folder' '
	for f in $(sources kernels); do
		own=${f#kernels/} && own=${own%/*} &&
		sed -n "s/^#[ $T_TAB]*include \"\(.*\)\".*/\1/p" "$T_SRC/$f" | grep -vE "^(kernels/kernels.h|kernels/$own/.*|[a-z0-9_]*\.h)$" |
			sed "s|^|$f includes |"
	done >bad && t_none bad
'
t_ok 'only cmd/dev.c fetches a kernel table' '
	! grep -lE "kn_[a-z]+_ops *\(" $(sources libcore cmd | sed "s|^|$T_SRC/|") | grep -v "/cmd/dev.c$"
'
t_ok 'each foreign library has one home' '
	echo "$homes" >homes &&
	(cd "$T_SRC" && find libcore cmd kernels -name "*.[ch]" -exec grep -E "^#[ $T_TAB]*include +<" /dev/null {} +) |
		sed "s/:#[ $T_TAB]*include *</ /; s/>.*//" >includes && test -s includes &&
	awk "NR == FNR { header[NR] = \$1; home[NR] = \$2; n = NR; next }
		{ for (i = 1; i <= n; i++) if (\$2 ~ header[i] && \$1 !~ home[i]) print \$1 \" includes \" \$2 }" homes includes >bad &&
	t_none bad
'
t_ok 'libcore neither prints, exits, installs handlers, nor links a kernel' '
	nm -A -u "$T_BUILD/libcore.a" >symbols &&
	{ sed "s/.*:\([a-z0-9_A-Z-]*\.o\):.* U /\1 /" symbols | sed "s/@.*//" |
		grep -E " (kn_[a-z]+_ops|cuda[A-Z].*|nccl[A-Z].*|_?exit|quick_exit|abort|system|popen|printf|__printf_chk|vprintf|__vprintf_chk|puts|putchar|fputc|perror|psignal|stdout|stderr|signal|sigaction|atexit|setlocale)$" >bad || :; } &&
	t_none bad
'
t_ok 'files outside the named ones do not switch features by the preprocessor' '
	! grep -nE "^#[ $T_TAB]*(if|ifdef|ifndef|elif).*(HAVE_|ENABLE_|WITH_)" $(sources libcore cmd | sed "s|^|$T_SRC/|") |
		grep -vE "/cmd/dev.c:|/libcore/base/|/libcore/store/store.c:"
'
cc=${CC:-gcc}
flags="-fsyntax-only -Wall -I$T_SRC -I$T_SRC/libcore -I$T_BUILD -include config.h"
headers() { (cd "$T_SRC" && find libcore cmd kernels/kernels.h tests/testlib.h -name '*.h' | sort | sed "s|^|$T_SRC/|"); }
# One call, a translation unit a header.
t_ok 'every header compiles alone as C11' '
	$cc -std=gnu11 -Werror $flags -x c $(headers)
'
if t_has cmd "${CXX:-g++}"; then
	t_ok 'every public header compiles alone as C++17' '
		${CXX:-g++} -std=gnu++17 -Werror $flags -x c++ $(headers | grep -v "_int\.h$")
	'
else
	t_skip 'no C++ compiler' 'every header compiles alone as C++17'
fi
t_ok 'each folder of libcore opens its header with its role' '
	for d in $(cd "$T_SRC/libcore" && ls -d */ | tr -d /); do
		ls "$T_SRC/libcore/$d" | grep -q "\.c$" || continue
		test -e "$T_SRC/libcore/$d/$d.h" || { echo "libcore/$d has no $d.h"; continue; }
		head -n 1 "$T_SRC/libcore/$d/$d.h" | grep -q "^/\* [a-z].*" || echo "libcore/$d/$d.h does not open with its role"
	done >bad && t_none bad
'
t_done
