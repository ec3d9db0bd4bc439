"""The processes of the rig: services, load and bare loop, each in its namespace."""

import ctypes
import json
import os
import select
import signal
import subprocess
import time

from network import SPACES, RigError, card_address, card_name, gossip_address

CARDS_PER_DEVICE = 4
# The GPUs of config/topology/p5.48xlarge.xml.
GPUS = [f"0000:{bus}:00.0" for bus in ("53", "64", "75", "86", "97", "a8", "b9", "ca")]
GOSSIP_PORT = 7412
PR_SET_PDEATHSIG = 1


def devices_of(cards):
    return (cards + CARDS_PER_DEVICE - 1) // CARDS_PER_DEVICE


def cpus_of(side):
    """Half of the processors that we may use for each side; all where there is only one."""
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    if half == 0:
        return cpus
    return cpus[:half] if side == 0 else cpus[half:]


class Process:
    """A program in a namespace that takes lines and answers each with a line of JSON."""

    def __init__(self, side, argv, log, cpus=None):
        libc = ctypes.CDLL(None, use_errno=True)

        def prepare():
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if cpus:
                os.sched_setaffinity(0, cpus)

        self.name = os.path.basename(argv[0])
        self.log = log
        self._text = b""
        with open(log, "ab") as errors:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", SPACES[side], *argv], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, preexec_fn=prepare)

    def tail(self, lines=15):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def check(self):
        if self.process.poll() is not None:
            raise RigError(f"{self.name} ended with {self.process.returncode}:\n{self.tail()}")

    def answer(self, patience=30.0):
        """The next line that it says."""
        end = time.monotonic() + patience
        out = self.process.stdout.fileno()
        while b"\n" not in self._text:
            if not select.select([out], [], [], max(0.0, end - time.monotonic()))[0]:
                raise RigError(f"{self.name} says nothing for {patience:.0f} s:\n{self.tail()}")
            got = os.read(out, 1 << 20)
            if not got:
                self.process.wait(5)
                self.check()
            self._text += got
        line, self._text = self._text.split(b"\n", 1)
        return json.loads(line)

    def tell(self, line):
        try:
            self.process.stdin.write(line.encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.process.wait(5)
            self.check()

    def ask(self, line, patience=30.0):
        self.tell(line)
        return self.answer(patience)

    def cpu_seconds(self):
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            words = file.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def service_config(side, cards, options, folder, topology):
    """penstockd's configuration. JSON, which is YAML, too."""
    return {
        "node": {"name": f"rig-{'ab'[side]}"},
        "request": {"bind": [request_endpoint(side, folder)]},
        "gossip": {
            "bind": f"tcp://{gossip_address(side)}:{GOSSIP_PORT}",
            "members": [f"tcp://{gossip_address(s)}:{GOSSIP_PORT}" for s in (0, 1)],
        },
        "fabric": {
            "provider": "tcp",
            "topology_file": topology,
            "cards": [{"domain": card_name(card), "address": card_address(side, card),
                       "device": f"gpu{card // CARDS_PER_DEVICE}"} for card in range(cards)],
            "window_bytes": options.window,
            "link_window_bytes": options.window,
            "max_chunk_bytes": min(options.window, 65536),
            "quantum_bytes": options.quantum,
        },
        # Namespaces of this machine: nobody else is on their network.
        "security": {"insecure": True},
        "devices": {"gpus": GPUS[:devices_of(cards)], "cpus": cpus_of(side)},
        "timeouts": {"drain_ms": 1000},
    }


def request_endpoint(side, folder):
    return f"ipc://{folder}/{'ab'[side]}.ipc"


def start_service(side, options, folder, topology):
    config = os.path.join(folder, f"{'ab'[side]}.yaml")
    with open(config, "w", encoding="utf-8") as file:
        json.dump(service_config(side, options.cards, options, folder, topology), file, indent=1)
    argv = [os.path.join(options.bin, "penstockd"), "--config", config]
    for setting in options.set:
        argv += ["--set", setting]
    return Process(side, argv, os.path.join(folder, f"{'ab'[side]}.log"))


def start_load(options, folder):
    devices = [f"gpu{device}" for device in range(devices_of(options.cards))]
    return Process(1, [
        os.path.join(options.bin, "rig_load"), request_endpoint(0, folder),
        request_endpoint(1, folder), json.dumps({
            "devices": devices, "region_bytes": options.region_bytes,
            "page_bytes": options.page_bytes, "transfer_bytes": options.transfer_bytes,
            "in_flight": options.in_flight, "verify": options.verify})],
        os.path.join(folder, "load.log"))


def start_raw(side, options, folder):
    part = max(options.region_bytes // CARDS_PER_DEVICE, options.page_bytes)
    cards = [f"{card_name(card)}:{card_address(side, card)}" for card in range(options.cards)]
    return Process(side, [
        os.path.join(options.bin, "rig_raw"), ("initiator", "target")[side], str(part),
        str(options.window), str(options.page_bytes), *cards],
        os.path.join(folder, f"raw-{'ab'[side]}.log"), cpus_of(side))


def wait_until_connected(services, folder, patience=30.0):
    """Both services listen for requests; the load waits for the rest."""
    end = time.monotonic() + patience
    for side, service in enumerate(services):
        path = request_endpoint(side, folder).removeprefix("ipc://")
        while not os.path.exists(path):
            service.check()
            if time.monotonic() > end:
                raise RigError(f"node {'ab'[side]} does not start:\n{service.tail()}")
            time.sleep(0.05)
