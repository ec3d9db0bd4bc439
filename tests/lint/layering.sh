#!/bin/bash
# layering.sh [ROOT]: the rules of the tree that no compiler checks. Prints every breach as
# file:line: rule; exits 1 when there is one. layering_test.sh breaks each rule once.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${1:-.}" || exit 2
export LC_ALL=C

all=$("$here/files.sh") || exit 2
breaches=$(mktemp)
trap 'rm -f "$breaches"' EXIT

# below FOLDER...: the C++ and CUDA files of these folders.
below() {
  local folder
  for folder; do grep -E "^$folder/.*\.(h|hpp|cpp|cu|cuh)$" <<<"$all"; done
}

# forbid RULE REGEX: reads file names, notes each line of them that matches.
forbid() {
  xargs -r -d '\n' grep -IHnP -e "$2" |
    awk -F: -v rule="$1" '{print $1 ":" $2 ": " rule}' >>"$breaches"
}
include() { echo "^\s*#\s*include\s*[<\"]($1)"; }
outside_comments() { echo "^((?!//).)*($1)"; }

# A floor includes only what is below it: transport < actors < client < apps. A program that links
# the client must not get the service with it, so the client leaves actors/ out too.
below transport | forbid "transport/ includes a floor above it" "$(include 'actors/|client/|apps/')"
below actors | forbid "actors/ includes a floor above it" "$(include 'client/|apps/')"
below client | forbid "client/ includes apps/ or actors/" "$(include 'actors/|apps/')"
below transport actors client apps | forbid "the product includes tests/" "$(include 'tests/')"

# Libraries stay on their floor.
below transport |
  forbid "transport/ includes CAF, ZeroMQ, msgpack or YAML" "$(include 'caf/|zmq|msgpack|yaml-cpp/')"
below client | forbid "client/ includes CAF" "$(include 'caf/')"
below actors | grep -vE '^actors/(gateway|membership)/' |
  forbid "only the gateway and membership touch ZeroMQ in actors/" "$(include 'zmq')"
below actors client apps | forbid "libfabric and CUDA belong to transport/ (include)" \
  "$(include 'rdma/|cuda|driver_types')"
below actors client apps | forbid "libfabric and CUDA belong to transport/ (call)" \
  "$(outside_comments '\bfi_[a-z_0-9]+\s*\(|\bcuda[A-Z]\w*|\bcu[A-Z][A-Za-z0-9]*\s*\(')"
below transport/plan | forbid "transport/plan is pure" \
  "$(include 'rdma/|cuda|hwloc|transport/(fabric|poller|topology)/')"

# One idea a file.
grep -E '(\.(h|hpp|cpp|cu|cuh|py|sh)|^dev|CMakeLists\.txt)$' <<<"$all" |
  xargs -r -d '\n' awk 'FNR == 601 {print FILENAME ":601: more than 600 lines: split it by idea"}' \
    >>"$breaches"

# Names of the field, no drawers for everything.
grep -iE '(^|[/_.-])(manager|helper|util|utility|common)(s|ies)?([/_.-]|$)' <<<"$all" |
  sed 's/$/:1: a name that says nothing (manager, helper, util, common)/' >>"$breaches"

# Text: code is ASCII; nothing anywhere is invisible or turns the direction of writing.
grep -vE '\.(md|json|jsonl|txt|svg|png)$' <<<"$all" |
  forbid "a character that is not ASCII" '[^\x00-\x7F]'
forbid "an invisible or bidirectional character" \
  '\xE2\x80[\x8B-\x8F\xAA-\xAE]|\xE2\x81[\xA0-\xA9]|\xEF\xBB\xBF' <<<"$all"
forbid "a carriage return" '\r$' <<<"$all"

# Nothing of the machine that it was written on. The brackets keep this file from matching itself.
forbid "a path of somebody's machine" \
  '(?<![\w.}])/(wor[k]|hom[e]/\w+|User[s]/\w+)/|\.\./share[d]\b' <<<"$all"

[ -s "$breaches" ] || exit 0
sort -u "$breaches"
echo "layering: $(sort -u "$breaches" | wc -l) breaches"
exit 1
