#!/bin/sh
# Version of the tree: that of a release tarball, else the release number with git's description. No newline.
base=0.4.0
dir=$(dirname "$0")/..
if test -f "$dir/.tarball-version"; then
	printf %s "$(cat "$dir/.tarball-version")"
elif test -e "$dir/.git" && rev=$(git -C "$dir" rev-parse --short=8 HEAD 2>/dev/null); then
	printf %s "$base-g$rev"
else
	printf %s "$base"
fi
