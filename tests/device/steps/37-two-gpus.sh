#!/bin/bash
# One service that owns two GPUs, and a second one beside it: pages cross from one GPU to the other
# within a node by the kernel, and between nodes staged; every page is compared by its digest.
count=$(nvidia-smi --query-gpu=index --format=csv,noheader | wc -l)
[ "$count" -ge 2 ] || { echo "skipped: $count GPU here"; exit 0; }
folder=$(mktemp -d)
trap 'kill $services 2>/dev/null; wait; rm -rf "$folder"' EXIT
services=''
serve() { # NAME GOSSIP-PORT OTHER'S
  cat >"$folder/$1.yaml" <<YAML
node: {name: $1}
request: {bind: ["ipc://$folder/$1.ipc"]}
gossip: {bind: "tcp://127.0.0.1:$2", members: ["tcp://127.0.0.1:$3"]}
fabric: {provider: tcp, cards: [{domain: lo, address: 127.0.0.1}]}
YAML
  penstockd --config "$folder/$1.yaml" >"$RESULTS/two-gpus-$1.log" 2>&1 &
  services="$services $!"
}
at() { # NODE COMMAND...
  local node=$1
  shift
  penstock --endpoint "ipc://$folder/$node.ipc" "$@"
}
within() { # SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "did not come true: $*"; exit 1; }
    sleep 0.1
  done
}
# shellcheck disable=SC2317
connected() { at a nodes | grep -q 'b *connected'; }
serve a 7452 7453
serve b 7453 7452
within 10 at a status
within 10 at b status
at a status
for gpu in 0 1; do
  for node in a b; do
    at "$node" allocate "gpu$gpu" 512MiB --memory cuda --device "gpu$gpu" || exit 1
  done
done
within 10 connected
status=0
pages=$(seq -s, 8191 -3 0) # every third page, from behind
cross() { # SOURCE TARGET-NODE TARGET-REGION SEED
  at a fill "$1" --seed "$4" || return 1
  at a transfer "$1" --to "$2:$3" --pages "$pages" --page-bytes 64KiB || return 1
  local sent arrived
  sent=$(at a digest "$1" --page-bytes 64KiB --pages "$pages" | md5sum)
  arrived=$(at "$2" digest "$3" --page-bytes 64KiB --pages "$pages" | md5sum)
  [ "$sent" = "$arrived" ] || { echo "$1 -> $2:$3: pages differ"; return 1; }
}
cross gpu0 a gpu1 1 || status=1
cross gpu1 a gpu0 2 || status=1
cross gpu0 b gpu1 3 || status=1
cross gpu1 b gpu0 4 || status=1
exit $status
