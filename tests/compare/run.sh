#!/bin/bash
# run.sh [OPTIONS of compare.py]: installs the rivals' published wheels in a virtual environment of
# its own and compares. The wheels' GPU dependencies (several GB) are left out: no GPU is used here.
#
#   tests/compare/run.sh --rounds 7 --json comparison.json
#
# PENSTOCK_COMPARE_VENV names another folder than build/compare for the environment.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${PENSTOCK_COMPARE_VENV:-$here/../../build/compare}

if [ ! -e "$venv/ready" ]; then
  python3 -m venv "$venv"
  timeout 600 "$venv/bin/pip" install -q --disable-pip-version-check numpy pyzmq msgpack
  # A rival that cannot be had is told as "does not run"; the others are compared all the same.
  for wheel in nixl-cu13 mooncake-transfer-engine-non-cuda; do
    timeout 600 "$venv/bin/pip" install -q --disable-pip-version-check --no-deps "$wheel" ||
      echo "run.sh: $wheel could not be installed" >&2
  done
  touch "$venv/ready"
fi
exec "$venv/bin/python" "$here/compare.py" "$@"
