"""Two services with keys on loopback, and a well-behaved client that measures how they answer."""

import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "client/python/src"))
sys.path.insert(0, str(ROOT / "client/python/examples"))

import penstock  # noqa: E402
from demo_services import _die_with_us, free_port  # noqa: E402
from penstock._wire import encode  # noqa: E402, F401

CLIENTS = {"watcher": "read", "worker": "transfer", "other": "transfer", "boss": "admin"}


class Targets:
    """Services `a`, which is attacked, and `b`. Every key that a door asks for is there."""

    def __init__(self, folder_of_programs):
        self.bin = pathlib.Path(folder_of_programs).resolve()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-abuse-"))
        self.processes = {}
        for key in ("cluster", "elsewhere", "service", "nobody", *CLIENTS):
            subprocess.run([self.bin / "penstock", "keygen", self.folder / key], check=True,
                           stdout=subprocess.DEVNULL)
        lines = [f"{role} {name} {self.public(name)}\n" for name, role in CLIENTS.items()]
        self.path("clients").write_text("".join(lines))
        self.path("clients").chmod(0o600)
        self.gossip = {name: free_port() for name in ("a", "b")}
        self.request_port, self.page_port = free_port(), free_port()
        try:
            self.start("a")
        except BaseException:
            self.close()
            raise

    def path(self, name):
        return self.folder / name

    def public(self, name):
        return self.path(name + ".pub").read_text().strip()

    def endpoint(self, name):
        return f"ipc://{self.folder}/{name}.ipc"

    @property
    def request(self):
        return f"tcp://127.0.0.1:{self.request_port}"

    def start(self, name, cluster_key="cluster", known=None):
        """`known`: the port at which it finds a's gossip."""
        gossip = self.gossip.setdefault(name, free_port())
        bind = [self.endpoint(name)] + ([self.request] if name == "a" else [])
        config = {
            "node": {"name": name},
            "request": {"bind": bind},
            "gossip": {"bind": f"tcp://127.0.0.1:{gossip}",
                       "members": [f"tcp://127.0.0.1:{known}"] if known else []},
            "fabric": {"cards": [{"domain": "lo", "address": "127.0.0.1"}],
                       "staging_bytes": "8MiB"},
            "devices": {"pin": False, "gpus": "none"},
            "metrics": {"endpoint": f"http://127.0.0.1:{self.page_port}" if name == "a" else "off"},
            "security": {"key_file": str(self.path("service")),
                         "allow_list": str(self.path("clients")),
                         "cluster_key_file": str(self.path(cluster_key)) if cluster_key else ""},
        }
        self.path(f"{name}.yaml").write_text(json.dumps(config))
        with open(self.path(f"{name}.log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [self.bin / "penstockd", "--config", self.path(f"{name}.yaml")],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_us)

    def stop(self, name):
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)

    def client(self, name="a", **arguments):
        return penstock.Client(self.endpoint(name), **{"timeout": 20, **arguments})

    def keyed(self, key, server="service", **arguments):
        """At the tcp endpoint, with that key ("": none)."""
        keys = {"key_file": str(self.path(key)), "server_key": self.public(server)} if key else {}
        return penstock.Client(self.request, **{"timeout": 20, "ring": False, **keys, **arguments})

    def log(self, name="a"):
        return self.path(f"{name}.log").read_text(errors="replace")

    def sockets(self, name="a"):
        """Of its TCP sockets, the local port and the state (include/net/tcp_states.h, in hex)."""
        pid = self.processes[name].pid
        inodes = {link[len("socket:["):-1] for link in links_of(pid) if link.startswith("socket:[")}
        with open(f"/proc/{pid}/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in list(file)[1:]]
        return [(int(row[1].split(":")[1], 16), row[3]) for row in rows if row[9] in inodes]

    def ports(self, name="a"):
        """The TCP ports on which the service listens."""
        return sorted(port for port, state in self.sockets(name) if state == "0A")

    def fabric_ports(self, name="a"):
        return [port for port in self.ports(name)
                if port not in (self.request_port, self.page_port, self.gossip[name])]

    def usage(self, name="a"):
        pid = self.processes[name].pid
        status = dict(line.split(":", 1) for line in
                      pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        return {"memory_mib": int(status["RssAnon"].split()[0]) / 1024,
                "open_files": len(links_of(pid)), "threads": int(status["Threads"])}

    def close(self):
        for name in list(self.processes):
            self.stop(name)
        shutil.rmtree(self.folder, ignore_errors=True)


def links_of(pid):
    links = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except FileNotFoundError:
            pass
    return links


def _ask(pipe, request, keys):
    """The good client's process: `status` over and over; says when and how long when asked."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked = []
    with penstock.Client(request, timeout=30, ring=False, **keys) as client:
        pipe.send("ready")
        while True:
            begin = time.monotonic()
            client.status()
            asked.append((begin, (time.monotonic() - begin) * 1000))
            if pipe.poll(0.005):
                if pipe.recv() == "end":
                    return
                pipe.send(asked)
                asked = []


class GoodClient:
    """A process of its own, so that what attacks does not slow its clock."""

    def __init__(self, targets):
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        keys = {"key_file": str(targets.path("watcher")), "server_key": targets.public("service")}
        self._process = context.Process(target=_ask, args=(theirs, targets.request, keys),
                                        daemon=True)
        self._process.start()
        if not self._pipe.poll(30):
            raise RuntimeError("a good client is not served before any attack")
        self._pipe.recv()

    def times_ms(self):
        """Of all answers since the last call, ascending."""
        self._pipe.send("tell")
        if not self._pipe.poll(60):
            return [60000.0]
        return sorted(took for _, took in self._pipe.recv())

    def close(self):
        self._pipe.send("end")
        self._process.join(10)
