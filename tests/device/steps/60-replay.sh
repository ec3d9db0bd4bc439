#!/bin/bash
# A serving trace with both pools in memory of the GPU, over each path; every page verified.
trace=${TRACE:-$BUNDLE/trace.jsonl}
[ -f "$trace" ] || { echo "skipped: no trace (TRACE, when the bundle was made)"; exit 0; }
status=0
replay() {
  local name=$1
  shift
  echo "-- $name"
  penstock replay "$trace" --limit 500 --memory cuda --json "$@" >"$RESULTS/replay-$name.json" || status=1
  python3 -c 'import json,sys
r = json.load(open(sys.argv[1]))
print({k: r[k] for k in ("requests", "pages", "gbps", "paths", "verified", "different_pages")})
sys.exit(not r["verified"])' "$RESULTS/replay-$name.json" || status=1
}
replay local_kernel --same-node
replay staged --provider tcp --path staged
if [ -d "$BUNDLE/lib-hmem" ]; then
  export LD_LIBRARY_PATH=$BUNDLE/lib-hmem:$LD_LIBRARY_PATH
  replay gpudirect --provider shm --path gpudirect
fi
exit $status
