#!/bin/bash
# libfabric's own fi_rma_bw between two processes on the GPU, over shm, beside our gpudirect path in the
# same minute. Only when the bundle has both (HMEM_LIBFABRIC, FABTESTS).
[[ -x "$BUNDLE/bin/fi_rma_bw" && -d "$BUNDLE/lib-hmem" ]] ||
  { echo "skipped: the bundle has no fi_rma_bw (FABTESTS) or no libfabric with CUDA (HMEM_LIBFABRIC)"; exit 0; }
export LD_LIBRARY_PATH=$BUNDLE/lib-hmem:$LD_LIBRARY_PATH
status=0
for bytes in 4096 65536 1048576; do
  common=(-p shm -D cuda -o write -e rdm -S "$bytes" -I 1000 -E)
  timeout 20 fi_rma_bw "${common[@]}" >"$RESULTS/fi-rma-bw-$bytes.server.txt" 2>&1 &
  sleep 1
  timeout 20 fi_rma_bw "${common[@]}" 127.0.0.1 >"$RESULTS/fi-rma-bw-$bytes.txt" 2>&1 || status=1
  wait $! || status=1
  tail -n 2 "$RESULTS/fi-rma-bw-$bytes.txt"
done
penstock bench --memory cuda --provider shm --pages "4KiB,64KiB,1MiB" --region 1GiB --pairs 3 --small 5 \
  --bytes 256MiB --ways gpudirect --json >"$RESULTS/fi-rma-bw-ours.json" || status=1
python3 "$(dirname "$0")/../table.py" "$RESULTS/fi-rma-bw-ours.json"
exit $status
