#!/bin/bash
# lint.sh BUILD_FOLDER [FILE...]: all that ./dev lint checks, over the whole tree or these files.
# Every check runs, whatever an earlier one found; exits 1 when any found something.
set -uo pipefail
here=tests/lint
build=$1
shift
jobs=${LINT_JOBS:-$(nproc)}
failed=()

# check NAME command...: runs it and says how it went.
check() {
  local name=$1 start=$SECONDS
  shift
  if "$@"; then
    echo "[lint] $name: good ($((SECONDS - start)) s)"
  else
    echo "[lint] $name: FAILED"
    failed+=("$name")
  fi
}

if [ $# -gt 0 ]; then all=$(printf '%s\n' "$@"); else all=$("$here/files.sh") || exit 2; fi
select_files() { grep -E "$1" <<<"$all"; }

formatted() {
  select_files '\.(h|hpp|cpp|cu|cuh)$' |
    xargs -r -d '\n' -P "$jobs" -n 40 clang-format --dry-run -Werror --style=file
}

# Only what the build knows (no CUDA sources without CUDA), and no tests: they take as long again
# and gtest's macros are most of what would be found.
tidy() {
  local known
  known=$(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$build/compile_commands.json" |
    sed "s|^$PWD/||") || return 1
  { select_files '^(transport|actors|client|apps)/.*\.cpp$' | grep -Fxf <(echo "$known") || true; } |
    xargs -r -d '\n' -P "$jobs" -n 1 "$here/tidy_one.sh" "$build"
}

scripts() {
  { select_files '\.sh$|^\.ci/run$|^dev$' || true; } | xargs -r -d '\n' shellcheck
}

# Skipped where what it needs is not there: it comes from PyPI.
manifests() {
  local status=0
  python3 "$here/manifests.py" || status=$?
  [ "$status" = 0 ] || [ "$status" = 77 ]
}

check "clang-format" formatted
check "kubernetes manifests" manifests
check "shellcheck" scripts
check "layering" "$here/layering.sh"
check "layering refuses what it should" "$here/layering_test.sh"
check "clang-tidy" tidy

[ ${#failed[@]} -eq 0 ] || { echo "[lint] failed: ${failed[*]}" && exit 1; }
echo "[lint] all good"
