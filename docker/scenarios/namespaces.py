"""Network namespaces for a local cluster: one per node, and one with the bridges between them.

Every name starts with a fixed prefix, so that what a killed run left behind is found and removed.
"""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from only_one import AnotherRuns, only_one

PREFIX = "pscl"
HUB = f"{PREFIX}-hub"
BRIDGES = (f"{PREFIX}br0", f"{PREFIX}br1")
FOLDERS = f"penstock-{PREFIX}-"
SEGMENTS = "/dev/shm/penstock.cl-*"
TRAFFIC_SEGMENTS = "/dev/shm/penstock-traffic-"  # and the process id
LOCK = f"/run/lock/penstock-{PREFIX}.lock"


class ClusterError(Exception):
    """What went wrong, in words for the user."""


def call(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def space_of(index):
    return f"{PREFIX}-{index}"


def address_of(index):
    return f"10.79.0.{index + 1}"


def why_not():
    """The reason why this machine cannot run a local cluster, or None."""
    if sys.platform != "linux":
        return "a local cluster needs Linux"
    if os.geteuid() != 0:
        return "a local cluster needs root, for network namespaces"
    if not shutil.which("ip"):
        return "'ip' is missing: install iproute2"
    probe = f"{PREFIX}-probe"
    try:
        call("ip", "netns", "add", probe)
        call("ip", "-n", probe, "link", "add", "probe", "type", "bridge")
        call("ip", "-n", probe, "link", "add", "p0", "type", "veth", "peer", "name", "p1")
    except ClusterError as error:
        return f"network namespaces or bridges are not permitted here ({error})"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


def build_hub():
    call("ip", "netns", "add", HUB)
    for bridge in BRIDGES:
        call("ip", "-n", HUB, "link", "add", bridge, "type", "bridge", "forward_delay", "0",
             "stp_state", "0")
        call("ip", "-n", HUB, "link", "set", bridge, "up")


def add_node(index):
    space, port = space_of(index), f"{PREFIX}{index}"
    call("ip", "netns", "add", space)
    call("ip", "-n", space, "link", "set", "lo", "up")
    call("ip", "-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", port,
         "netns", HUB)
    call("ip", "-n", HUB, "link", "set", port, "master", BRIDGES[0], "up")
    call("ip", "-n", space, "addr", "add", f"{address_of(index)}/24", "dev", "eth0")
    call("ip", "-n", space, "link", "set", "eth0", "up")


def plug(index, side):
    """From now on the node reaches only those on the same side; nobody is told."""
    call("ip", "-n", HUB, "link", "set", f"{PREFIX}{index}", "master", BRIDGES[side])


# -- what must not be left behind -----------------------------------------------------------------


def spaces_there():
    return sorted(os.path.basename(path) for path in glob.glob(f"/run/netns/{PREFIX}-*"))


def pids_in(space):
    done = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True,
                          check=False)
    return [int(pid) for pid in done.stdout.split()]


def remove_leftovers():
    """Ends what runs in the namespaces, and removes them, the folders and the shared memory."""
    for space in spaces_there():
        for pid in pids_in(space):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + 5
    while any(pids_in(space) for space in spaces_there()) and time.monotonic() < end:
        time.sleep(0.05)
    for space in spaces_there():
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), FOLDERS + "*")):
        shutil.rmtree(folder, ignore_errors=True)
    orphans = [path for path in glob.glob(TRAFFIC_SEGMENTS + "*")
               if not os.path.exists(f"/proc/{path.removeprefix(TRAFFIC_SEGMENTS)}")]
    for segment in glob.glob(SEGMENTS) + orphans:
        with contextlib.suppress(OSError):
            os.unlink(segment)


@contextlib.contextmanager
def only_cluster():
    """One local cluster at a time; see only_one."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_one(LOCK, remove_leftovers))
        except AnotherRuns:
            raise ClusterError("another local cluster is running on this machine") from None
        yield
