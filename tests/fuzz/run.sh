#!/bin/bash
# Feeds every fuzz target of a build folder for some minutes, two or more at once, each from its
# seeds and from what earlier runs found: tests/fuzz/run.sh BUILD [--minutes N] [--only TARGET]
# Ends with the executions of each target; anything found is named and makes it fail.
set -euo pipefail
usage="usage: $0 BUILD [--minutes N] [--only TARGET]"
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
for word; do [ "$word" != --help ] || { echo "$usage" && exit; }; done
build=${1:?$usage}
shift
minutes=1 only=''
while [ $# -gt 0 ]; do
  case "$1" in
    --minutes) minutes=${2:?$usage} && shift ;;
    --only) only=${2:?$usage} && shift ;;
    *) echo "$usage" >&2 && exit 2 ;;
  esac
  shift
done
seconds=$(awk -v minutes="$minutes" 'BEGIN { print int(minutes * 60) }')
[ "$seconds" -ge 1 ] || { echo "$0: --minutes $minutes is no time" >&2 && exit 2; }

# feed TARGET: what it prints goes to its log.
feed() {
  local target=$1 work=$build/fuzz/work/$1
  mkdir -p "$work"
  "$build/tests/${target}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 \
    -max_len=4096 -dict="$here/$target.dict" -artifact_prefix="$build/fuzz/$target." \
    -print_final_stats=1 "$work" "$build/fuzz/corpus/$target" >"$build/fuzz/$target.log" 2>&1
}

failed=0
jobs_most=$(nproc)
declare -A running=()
# reap: waits for one of them.
reap() {
  local process status=0
  wait -n -p process "${!running[@]}" || status=$?
  local target=${running[$process]}
  unset "running[$process]"
  local log=$build/fuzz/$target.log
  printf '%-10s %12s executions, %6s a second\n' "$target" \
    "$(awk '/stat::number_of_executed_units/ {print $2}' "$log")" \
    "$(awk '/stat::average_exec_per_sec/ {print $2}' "$log")"
  [ "$status" = 0 ] || {
    failed=1
    tail -n 40 "$log"
    echo "$target: found something (above; the input is $build/fuzz/$target.*)"
  }
}

for program in "$build"/tests/*_fuzz; do
  [ -x "$program" ] || { echo "$0: no fuzz target in $build/tests: build them first" >&2 && exit 2; }
  target=$(basename "$program" _fuzz)
  [ -z "$only" ] || [ "$only" = "$target" ] || continue
  [ "${#running[@]}" -lt "$jobs_most" ] || reap
  feed "$target" &
  running[$!]=$target
done
while [ "${#running[@]}" -gt 0 ]; do reap; done
exit "$failed"
