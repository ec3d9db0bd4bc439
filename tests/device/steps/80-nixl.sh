#!/bin/bash
# NIXL beside us, between two processes on the GPU; `service-tcp` in the same run has our figures.
[ -d "$BUNDLE/nixl" ] || { echo "skipped: the bundle has no NIXL (NIXL, a folder of site-packages)"; exit 0; }
ours=$RESULTS/service-tcp.json
[ -s "$ours" ] || ours=
# shellcheck disable=SC2086 # several words
PYTHONPATH=$BUNDLE/nixl timeout 150 python3 "$(dirname "$0")/../nixl.py" "$RESULTS/nixl.json" $ours
