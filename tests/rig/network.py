"""The rig's network: two namespaces, N shaped veth pairs between them, one unshaped for gossip.

Every name starts with a fixed prefix, so that what a killed rig left behind is found and removed.
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

# The lock and the watchdog are those of the cluster scenarios.
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docker",
                             "scenarios"))
from only_one import AnotherRuns, only_one  # noqa: E402

PREFIX = "psrig"
SPACES = (f"{PREFIX}-a", f"{PREFIX}-b")
GOSSIP = f"{PREFIX}g"
FOLDERS = f"penstock-{PREFIX}-"
LOCK = f"/run/lock/penstock-{PREFIX}.lock"
BURST = "128kb"
LATENCY = "50ms"


class RigError(Exception):
    """What went wrong, in words for the user."""


def card_name(card):
    return f"{PREFIX}{card}"


def card_address(side, card):
    return f"10.77.{card}.{side + 1}"


def gossip_address(side):
    return f"10.78.0.{side + 1}"


def call(*argv, text=None):
    done = subprocess.run(argv, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


def why_not():
    """The reason why this machine cannot run the rig, or None."""
    if sys.platform != "linux":
        return "the rig needs Linux"
    if os.geteuid() != 0:
        return "the rig needs root, for network namespaces"
    for tool in ("ip", "tc"):
        if not shutil.which(tool):
            return f"'{tool}' is missing: install iproute2"
    probe = f"{PREFIX}-probe"
    try:
        call("ip", "netns", "add", probe)
        call("ip", "-n", probe, "link", "add", "probe", "type", "veth", "peer", "name", "probe2")
        call("tc", "-n", probe, "qdisc", "add", "dev", "probe", "root", "tbf",
             "rate", "1mbit", "burst", BURST, "latency", LATENCY)
    except RigError as error:
        return f"network namespaces or traffic shaping are not permitted here ({error})"
    finally:
        subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None


class Network:
    """Made by build(); gone after remove_leftovers()."""

    def __init__(self, cards, mbit, mtu, gso_bytes, congestion):
        self.cards = cards
        self.mbit = mbit
        self.mtu = mtu
        self.gso_bytes = gso_bytes
        self.congestion = congestion

    def build(self):
        for space in SPACES:
            call("ip", "netns", "add", space)
        pairs = [card_name(card) for card in range(self.cards)] + [GOSSIP]
        call("ip", "-batch", "-", text="".join(
            f"link add {name} mtu {self.mtu} netns {SPACES[0]} type veth "
            f"peer name {name} mtu {self.mtu} netns {SPACES[1]}\n" for name in pairs))
        for side, space in enumerate(SPACES):
            self._configure(side, space)

    def _configure(self, side, space):
        lines = ["link set lo up"]
        lines += [f"addr add {gossip_address(side)}/24 dev {GOSSIP}", f"link set {GOSSIP} up"]
        for card in range(self.cards):
            name, mine, other = card_name(card), card_address(side, card), \
                card_address(1 - side, card)
            lines += [
                f"addr add {mine}/24 dev {name}",
                f"link set {name} gso_max_size {self.gso_bytes} up",
                # What a card sends leaves through that card, whichever card it is for.
                f"rule add from {mine} lookup {1000 + card}",
                f"route add 10.77.0.0/16 via {other} dev {name} table {1000 + card}",
            ]
        call("ip", "-n", space, "-batch", "-", text="\n".join(lines) + "\n")
        call("tc", "-n", space, "-batch", "-", text="".join(
            f"qdisc add dev {card_name(card)} root {self._shape(self.mbit)}\n"
            for card in range(self.cards)))
        for key, value in (("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0"),
                           ("tcp_congestion_control", self.congestion)):
            call("ip", "netns", "exec", space, "sh", "-c",
                 f"echo {value} > /proc/sys/net/ipv4/{key}")

    @staticmethod
    def _shape(mbit):
        return f"tbf rate {int(mbit * 1000)}kbit burst {BURST} latency {LATENCY}"

    def slow(self, card, factor):
        """The card's speed becomes `factor` of the others', both ways."""
        for space in SPACES:
            call("tc", "-n", space, "qdisc", "change", "dev", card_name(card), "root",
                 *self._shape(self.mbit * factor).split())

    @staticmethod
    def cut(card):
        """From now on nothing passes, and nobody is told: the far end of the pair goes down."""
        call("ip", "-n", SPACES[1], "link", "set", card_name(card), "down")

    @staticmethod
    def mend(card):
        space, name = SPACES[1], card_name(card)
        call("ip", "-n", space, "link", "set", name, "up")
        # The kernel dropped the route with the link.
        call("ip", "-n", space, "route", "replace", "10.77.0.0/16", "via", card_address(0, card),
             "dev", name, "table", str(1000 + card))


# -- what must not be left behind -----------------------------------------------------------------


def pids_in(space):
    done = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True,
                          check=False)
    return [int(pid) for pid in done.stdout.split()]


def spaces_there():
    return [space for space in SPACES if os.path.exists(f"/run/netns/{space}")]


def remove_leftovers():
    """Ends what runs in the rig's namespaces, and removes them and the rig's folders."""
    for sign, patience in ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0)):
        end = time.monotonic() + patience
        for space in spaces_there():
            for pid in pids_in(space):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, sign)
        while any(pids_in(space) for space in spaces_there()) and time.monotonic() < end:
            time.sleep(0.05)
    for space in spaces_there():
        subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
    for folder in glob.glob(os.path.join(tempfile.gettempdir(), FOLDERS + "*")):
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def only_rig():
    """One rig at a time; see only_one."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_one(LOCK, remove_leftovers))
        except AnotherRuns:
            raise RigError("another rig is running on this machine") from None
        yield
