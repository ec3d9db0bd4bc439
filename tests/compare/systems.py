"""The systems under comparison: how each is started, connected and asked for one round."""

import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
OPEN_S, CONNECT_S, ROUND_S = 60, 60, 120


class NotRunning(Exception):
    """A system cannot be used here; the text says why."""


def cpu_seconds(pid):
    """CPU time of a process and all the threads that it ever had."""
    return time.clock_gettime((~pid << 3) | 2)


class End:
    """A child process that answers a line of JSON with a line of JSON."""

    def __init__(self, arguments, log, environment=None):
        self.log = log
        with open(log, "ab") as errors:
            self.child = subprocess.Popen(
                [sys.executable, *map(str, arguments)], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=errors, cwd=HERE,
                env={**os.environ, **(environment or {})})
        self.unread = b""

    @property
    def pid(self):
        return self.child.pid

    def send(self, do, **keys):
        try:
            self.child.stdin.write(json.dumps({"do": do, **keys}).encode() + b"\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            raise NotRunning(self.last_words()) from None

    def receive(self, patience_s):
        deadline = time.monotonic() + patience_s
        while b"\n" not in self.unread:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.child.stdout], [], [], left)[0]:
                raise NotRunning(f"no answer in {patience_s} s")
            read = os.read(self.child.stdout.fileno(), 1 << 20)
            if not read:
                raise NotRunning(self.last_words())
            self.unread += read
        line, self.unread = self.unread.split(b"\n", 1)
        reply = json.loads(line)
        if "error" in reply:
            raise NotRunning(reply["error"])
        return reply

    def ask(self, do, patience_s, **keys):
        self.send(do, **keys)
        return self.receive(patience_s)

    def last_words(self):
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return "it ended: " + (lines[-1] if lines else f"exit status {self.child.poll()}")

    def signal(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)

    def stop(self):
        self.signal(signal.SIGCONT)
        self.child.kill()
        self.child.wait(10)


class Rival:
    """Two ends of the same script. Between its rounds both are stopped (SIGSTOP): some of them
    spin, which would take the cores of the others."""

    def __init__(self, name, script, arguments, environment, has_notification):
        self.name, self.has_notification = name, has_notification
        self.script, self.arguments, self.environment = script, arguments, environment
        self.ends = []

    def start(self, run):
        for role in ("source", "destination"):
            self.ends.append(End([self.script, *self.arguments, role],
                                 run.folder / f"{self.name}-{role}.log".replace(" ", "-"),
                                 self.environment))
        source, destination = self.ends
        descriptions = [each.ask("open", OPEN_S, segment=segment, bytes=run.region_bytes)
                        for each, segment in zip(self.ends, run.segment_names)]
        source.ask("connect", CONNECT_S, **descriptions[1])
        if self.has_notification:
            destination.ask("connect", CONNECT_S, **descriptions[0])
        self.pause()

    def prepare(self, page_bytes):
        self.resume()
        self.ends[0].ask("prepare", OPEN_S, page_bytes=page_bytes)
        self.pause()

    def move(self, **round_keys):
        """Seconds from the request to the completion at the target."""
        source, destination = self.ends
        if self.has_notification:
            destination.send("arrived", deadline_s=ROUND_S, **round_keys)
        moved = source.ask("move", ROUND_S + 10, deadline_s=ROUND_S, **round_keys)
        ended = moved["end_ns"]
        if self.has_notification:
            ended = max(ended, destination.receive(ROUND_S + 10)["end_ns"])
        return (ended - moved["begin_ns"]) / 1e9

    def pids(self):
        return [each.pid for each in self.ends]

    def pause(self):
        for each in self.ends:
            each.signal(signal.SIGSTOP)

    def resume(self):
        for each in self.ends:
            each.signal(signal.SIGCONT)

    def stop(self):
        for each in self.ends:
            each.stop()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Penstock:
    """Two penstockd with their defaults over loopback, and a client. They are never stopped."""

    name = "Penstock"

    def __init__(self, bin_folder, settings, environment):
        self.bin_folder, self.settings, self.environment = bin_folder, settings, environment
        self.services, self.client = [], None

    def start(self, run):
        ports = [free_port(), free_port()]
        members = ", ".join(f'"tcp://127.0.0.1:{port}"' for port in ports)
        endpoints = []
        for node, port in zip(("a", "b"), ports):
            endpoints.append(f"ipc://{run.folder}/{node}.ipc")
            config = run.folder / f"{node}.yaml"
            config.write_text(
                f"node: {{name: {node}}}\n"
                f'request: {{bind: ["{endpoints[-1]}"]}}\n'
                f'gossip: {{bind: "tcp://127.0.0.1:{port}", members: [{members}]}}\n'
                "fabric: {provider: tcp, cards: [{domain: lo, address: 127.0.0.1}]}\n"
                "devices: {pin: false, gpus: none}\n")
            command = [self.bin_folder / "penstockd", "--config", config]
            for setting in self.settings:
                command += ["--set", setting]
            with open(run.folder / f"penstockd-{node}.log", "ab") as log:
                self.services.append(subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                                      stdout=log, stderr=log,
                                                      env={**os.environ, **self.environment}))
        self.client = End(["penstock_end.py", *endpoints], run.folder / "penstock-client.log")
        self.client.ask("open", OPEN_S, bytes=run.region_bytes, source=run.segment_names[0],
                        destination=run.segment_names[1])

    def prepare(self, page_bytes):
        self.client.ask("prepare", OPEN_S, page_bytes=page_bytes)

    def move(self, **round_keys):
        moved = self.client.ask("move", ROUND_S + 20, deadline_s=ROUND_S, **round_keys)
        return (moved["end_ns"] - moved["begin_ns"]) / 1e9

    def pids(self):
        return [service.pid for service in self.services] + [self.client.pid]

    def pause(self):
        pass

    def resume(self):
        pass

    def stop(self):
        if self.client:
            self.client.stop()
        for service in self.services:
            service.terminate()
        for service in self.services:
            try:
                service.wait(10)
            except subprocess.TimeoutExpired:
                service.kill()
                service.wait(10)


def library_environment(folder, libfabric):
    """NIXL's LIBFABRIC plugin links the GPU driver (libcuda.so.1) and a libfabric newer than some
    distributions have. Where there is no driver, the toolkit's stub of it, which answers every call
    with an error, lets the plugin load."""
    paths = [str(libfabric)] if libfabric else []
    present = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, timeout=20).stdout
    if "libcuda.so.1 " not in present:
        stubs = [stub for pattern in ("lib64", "lib", "targets/x86_64-linux/lib")
                 for stub in sorted(pathlib.Path("/usr/local").glob(
                     f"cuda*/{pattern}/stubs/libcuda.so"))]
        if stubs:
            link = folder / "driver-stub"
            link.mkdir()
            (link / "libcuda.so.1").symlink_to(stubs[0])
            paths.append(str(link))
    paths += filter(None, [os.environ.get("LD_LIBRARY_PATH")])
    return {"LD_LIBRARY_PATH": ":".join(paths)} if paths else {}


def all_systems(run, arguments):
    libraries = library_environment(run.folder, arguments.libfabric)
    progress = "no-thread" if arguments.nixl_without_thread else "thread"
    lists = "each" if arguments.nixl_lists_each_time else "prepared"
    ours = arguments.penstock_libfabric
    return {
        "penstock": Penstock(arguments.bin, arguments.set,
                             {"LD_LIBRARY_PATH": str(ours)} if ours else {}),
        "nixl-libfabric": Rival("NIXL LIBFABRIC", "nixl_end.py", ["LIBFABRIC", progress, lists],
                                {**libraries, "FI_PROVIDER": "tcp"}, True),
        "nixl-ucx": Rival("NIXL UCX", "nixl_end.py", ["UCX", progress, lists],
                          {"UCX_TLS": "tcp", "UCX_NET_DEVICES": "lo"}, True),
        # Its default queue refuses a batch of small pages; this is the most that 0.3.13 accepts.
        "mooncake": Rival("Mooncake", "mooncake_end.py", [],
                          {"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER": "65535",
                           "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER": "65535"}, False),
    }
