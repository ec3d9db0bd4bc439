#!/bin/bash
# The same over shm; GPUDirect with a libfabric that knows CUDA (lib-hmem of the bundle). Its shm reports
# no immediate data, which staging needs, so the other ways are measured with the ordinary library.
common=(--memory cuda --provider shm --pages "4KiB,64KiB,1MiB" --region 1GiB --pairs 3 --small 50 --json)
penstock bench "${common[@]}" --bytes 512MiB --ways staged >"$RESULTS/service-shm-staged.json" || exit 1
python3 "$(dirname "$0")/../table.py" "$RESULTS/service-shm-staged.json"
penstock bench "${common[@]}" --bytes 512MiB --ways "host to host" >"$RESULTS/service-shm-host.json" || exit 1
python3 "$(dirname "$0")/../table.py" "$RESULTS/service-shm-host.json"
[ -d "$BUNDLE/lib-hmem" ] || { echo "skipped: the bundle has no libfabric with CUDA (HMEM_LIBFABRIC)"; exit 0; }
export LD_LIBRARY_PATH=$BUNDLE/lib-hmem:$LD_LIBRARY_PATH
penstock bench "${common[@]}" --bytes 128MiB --ways gpudirect >"$RESULTS/service-shm-gpudirect.json"
status=$?
python3 "$(dirname "$0")/../table.py" "$RESULTS/service-shm-gpudirect.json"
exit $status
