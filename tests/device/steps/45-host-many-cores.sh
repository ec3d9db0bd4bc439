#!/bin/bash
# Host memory over tcp loopback on a machine with cores to spare: one card beside the bare loop, and what asking
# costs. Both ends of each have cores of their own there.
cat /proc/sys/net/ipv4/tcp_congestion_control
bench() {
  local name=$1
  shift
  penstock bench --provider tcp --json "$@" >"$RESULTS/host-$name.json" || return
  python3 - "$RESULTS/host-$name.json" "$name" <<'PYTHON'
import json, sys
bench = json.load(open(sys.argv[1], encoding="utf-8"))
for row in bench["results"]:
    print(sys.argv[2], {key: value for key, value in row.items() if not isinstance(value, (list, dict))})
for key in ("small", "small_beside_bulk", "submit"):
    print(sys.argv[2], key, bench.get(key))
PYTHON
}
status=0
bench small --pairs 1 --pages 64KiB --directions write --small 2000 || status=1
bench always-awake --pairs 1 --pages 64KiB --directions write --small 2000 --set fabric.spin_us=1000 \
  --set caf.spin_us=1000 --set request.ring_spin_us=1000 || status=1
bench one-card --pairs 11 --pages 64KiB,16KiB,4KiB --directions write --set fabric.packing=never --small 100 || status=1
bench packed --pairs 7 --pages 4KiB,256KiB --directions write --small 100 || status=1
exit $status
