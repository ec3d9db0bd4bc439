#!/bin/bash
# tidy_one.sh BUILD_FOLDER FILE: clang-tidy on one source, silent when there is nothing to say. A
# source that was clean before and has not changed since, headers included, is not looked at again.
set -uo pipefail
build=$1 file=$2

# The compile command of the file, from CMake's compile_commands.json (one entry a line each).
command=$(awk -v want="\"file\": \"$PWD/$file\"" '
  /"command":/ {command = $0} index($0, want) {print command; exit}' "$build/compile_commands.json" |
  sed 's/^ *"command": "//; s/",$//; s/\\"/"/g; s/\\\\/\\/g')
[ -n "$command" ] || { echo "$file: not in $build/compile_commands.json" && exit 1; }

# What the verdict depends on; without it (the source does not preprocess) clang-tidy always runs.
preprocess=$(sed -E 's/ -o [^ ]+ / /; s/ -c / -E -C -fdirectives-only /' <<<"$command")
stamp=$build/lint/${file//\//.}
state=$({
  cat .clang-tidy && clang-tidy --version && echo "$command" && (cd "$build" && eval "$preprocess")
} 2>/dev/null | sha256sum | cut -d' ' -f1) || state=
if [ -n "$state" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$state" ]; then exit 0; fi

if out=$(clang-tidy --quiet -p "$build" "$file" 2>&1); then
  [ -z "$state" ] || { mkdir -p "$build/lint" && echo "$state" >"$stamp"; }
  exit 0
fi
rm -f "$stamp"
grep -vE '^[0-9]+ warnings? (and [0-9]+ errors? )?generated|^[0-9]+ warnings? treated|^Suppressed |^Use -header-filter|^Error while processing|^Found compiler error' <<<"$out"
exit 1
