#!/bin/sh
# Starts penstockd as process 1 with what only the container knows: the address that others reach it
# by, unless the environment names one. Arguments go to penstockd.
set -eu
: "${PENSTOCK_GOSSIP_ADVERTISE:=$(hostname -i | cut -d ' ' -f 1)}"
export PENSTOCK_GOSSIP_ADVERTISE
exec penstockd "$@"
