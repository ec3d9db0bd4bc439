#!/bin/bash
# The tests and measurements that need a GPU, on a machine that has one and no build tools.
#
#   run.sh bundle BUILD [FOLDER]   here: programs of a release build and the libraries that they link
#                                  go into FOLDER (build/device-bundle), 64 MiB at most
#   run.sh run [FOLDER] [STEP...]  there: runs the steps (tests/device/steps, all of them unless some
#                                  are named), correctness first, prints one table, and writes
#                                  device.json and logs to $OUT (build/device-results)
#
# All steps together end within TOTAL_SECONDS (600): what is left of it is given to the next step.
# Exits 1 when a step failed. To build on a machine with CUDA, see docs/gpu.md.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
most_mib=64

# Programs by their place in a build folder; those that are not built are left out, and said.
programs=(tests/gpu_test tests/gpu_bench bin/penstockd bin/penstock bin/gpu_service_test)

bundle() {
  local build=$1 folder=${2:-$root/build/device-bundle} program path library
  rm -rf "$folder"
  mkdir -p "$folder/bin" "$folder/lib"
  for program in "${programs[@]}" ${EXTRA_PROGRAMS:-}; do
    path=$build/$program
    [ -x "$path" ] || { echo "not built, left out: $program"; continue; }
    strip -o "$folder/bin/$(basename "$program")" "$path"
    # glibc and the compiler's runtime are there, in versions that are no older.
    ldd "$path" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
      grep -vE '/(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux[^/]*)\.so' |
      while read -r library; do cp -Lu "$library" "$folder/lib/"; done
  done
  # A libfabric that knows CUDA, for the steps that need one: where `make install` put it.
  if [ -n "${HMEM_LIBFABRIC:-}" ]; then
    mkdir -p "$folder/lib-hmem"
    cp -L "$HMEM_LIBFABRIC"/lib/libfabric.so.1 "$folder/lib-hmem/"
    strip --strip-unneeded "$folder"/lib-hmem/*
    # It looks for the runtime by this name.
    cp -L "${CUDA_HOME:-/usr/local/cuda}/lib64/libcudart.so" "$folder/lib-hmem/"
  fi
  # To compare with: libfabric's fi_rma_bw (a fabtests build), and NIXL (a folder of site-packages for
  # the python3 there, which has torch).
  if [ -n "${FABTESTS:-}" ]; then strip -o "$folder/bin/fi_rma_bw" "$FABTESTS/fi_rma_bw"; fi
  if [ -n "${NIXL:-}" ]; then cp -a "$NIXL" "$folder/nixl"; fi
  [ -z "${TRACE:-}" ] || head -n 500 "$TRACE" >"$folder/trace.jsonl"
  strip --strip-unneeded "$folder"/lib/* 2>/dev/null
  local mib
  mib=$(du -sm "$folder" | cut -f1)
  echo "$folder: $(cd "$folder" && echo bin/* lib*/*), $mib MiB"
  [ "$mib" -le "$most_mib" ] || { echo "more than $most_mib MiB"; return 1; }
}

run() {
  local folder=$1
  shift
  export BUNDLE=$folder
  export OUT=${OUT:-$root/build/device-results}
  export PATH=$BUNDLE/bin:$PATH
  export LD_LIBRARY_PATH=$BUNDLE/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  mkdir -p "$OUT"
  export RESULTS=$OUT/steps
  rm -rf "$RESULTS"
  mkdir -p "$RESULTS"
  local end=$((SECONDS + ${TOTAL_SECONDS:-600} - 5)) failed=0 step name left status start
  nvidia-smi --query-gpu=name,driver_version,pci.bus_id --format=csv,noheader
  for step in "$here"/steps/*.sh; do
    name=$(basename "$step" .sh)
    name=${name#*-}
    [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
    left=$((end - SECONDS))
    if [ "$left" -lt 10 ]; then
      echo "== $name: no time left"
      failed=1
      continue
    fi
    echo "== $name"
    start=$SECONDS
    timeout "$left" bash "$step" 2>&1 | tee "$RESULTS/$name.log"
    status=${PIPESTATUS[0]}
    echo "{\"step\": \"$name\", \"status\": $status, \"seconds\": $((SECONDS - start))}" \
      >"$RESULTS/$name.status"
    [ "$status" -eq 0 ] || failed=1
  done
  python3 "$here/summary.py" "$RESULTS" "$OUT/device.json"
  cat "$RESULTS"/*.log >"$OUT/device.log"
  return $failed
}

case "${1:-}" in
  bundle) bundle "${2:?a build folder}" "${3:-}" ;;
  run)
    folder=${2:-$root/build/device-bundle}
    shift
    [ $# -gt 0 ] && shift
    run "$(cd "$folder" && pwd)" "$@"
    ;;
  *) sed -n '2,13p' "${BASH_SOURCE[0]}"; exit 2 ;;
esac
