#!/bin/bash
# Breaks each rule of layering.sh once, in a tree of its own, and expects to be told.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0

# refuses RULE FILE TEXT: the tree with this file is refused with these words.
refuses() {
  mkdir -p "$tree/$(dirname "$2")"
  printf '%b\n' "$3" >"$tree/$2"
  local said
  if said=$("$here/layering.sh" "$tree"); then
    echo "not refused: $1" && failed=1
  elif [[ "$said" != *"$2:"*"$1"* ]]; then
    echo "refused with other words: $1: $said" && failed=1
  fi
  rm "$tree/$2"
}
# accepts WHAT FILE TEXT
accepts() {
  mkdir -p "$tree/$(dirname "$2")"
  printf '%b\n' "$3" >"$tree/$2"
  local said
  said=$("$here/layering.sh" "$tree") || { echo "refused: $1: $said" && failed=1; }
  rm "$tree/$2"
}

refuses "a floor above" transport/a.hpp '#include "actors/clock.hpp"'
refuses "a floor above" transport/a.hpp '  #  include <apps/x.hpp>'
refuses "a floor above" actors/a.cpp '#include "client/cpp/client.hpp"'
refuses "apps/ or actors/" client/cpp/a.hpp '#include "apps/x.hpp"'
refuses "apps/ or actors/" client/cpp/a.hpp '#include "actors/clock.hpp"'
refuses "includes tests/" apps/penstock/a.cpp '#include "tests/sim/card.hpp"'
refuses "includes CAF" transport/a.hpp '#include <caf/all.hpp>'
refuses "includes CAF" transport/a.cu '#include <zmq.hpp>'
refuses "includes CAF" transport/a.cpp '#include <msgpack.hpp>'
refuses "includes CAF" transport/plan/a.cpp '#include <yaml-cpp/yaml.h>'
refuses "client/ includes CAF" client/cpp/a.cpp '#include <caf/actor.hpp>'
refuses "touch ZeroMQ" actors/node/a.cpp '#include <zmq.h>'
refuses "transport/ (include)" actors/nic/a.cpp '#include <rdma/fabric.h>'
refuses "transport/ (include)" apps/penstock/a.cpp '#include <cuda_runtime.h>'
refuses "transport/ (call)" actors/nic/a.cpp 'int n = fi_cq_read(cq, entries, 16);'
refuses "transport/ (call)" client/cpp/a.cpp 'cudaMalloc(&p, n);'
refuses "transport/ (call)" apps/penstock/a.cpp 'cuMemAlloc(&p, n);'
refuses "plan is pure" transport/plan/a.cpp '#include <rdma/fi_rma.h>'
refuses "more than 600" actors/a.cpp "$(printf '// line\\n%.0s' {1..601})"
refuses "says nothing" actors/peer_manager.cpp '// a drawer'
refuses "says nothing" transport/util/a.hpp '// a drawer'
refuses "not ASCII" actors/a.hpp '// a \xc3\xa9'
refuses "bidirectional" docs/a.md 'x \xe2\x80\xae y'
refuses "carriage return" config/a.yaml 'key: 1\r'
refuses "somebody's machine" docs/a.md 'see /wor''k/main'
refuses "somebody's machine" config/a.yaml 'data: ../share''d/data'
refuses "somebody's machine" apps/a.cpp '// /hom''e/me/x'

accepts "an include below" apps/penstock/a.cpp '#include "transport/error.hpp"'
accepts "a rule named in a comment" actors/nic/a.cpp 'int x;  // the poller calls fi_read(...)'
accepts "ZeroMQ in the gateway" actors/gateway/a.cpp '#include <zmq.hpp>'
accepts "a word that only looks like a call" actors/a.cpp 'wifi_send(x); int cuda_devices = 0;'
accepts "letters of other languages in documents" docs/a.md 'caf\xc3\xa9 /workshop'

[ "$failed" = 0 ] && echo "layering.sh refuses what it should"
exit "$failed"
