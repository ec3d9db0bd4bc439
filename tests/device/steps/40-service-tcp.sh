#!/bin/bash
# Pages of the GPU through whole services, over tcp loopback: the kernel on one node, staged between two,
# host memory beside them. Every way is verified by the digests of the GPU.
penstock bench --memory cuda --provider tcp --pages 4KiB,64KiB,1MiB --bytes 1GiB --region 1GiB \
  --pairs 3 --in-flight 16 --small 300 --json >"$RESULTS/service-tcp.json"
status=$?
python3 "$(dirname "$0")/../table.py" "$RESULTS/service-tcp.json"
exit $status
