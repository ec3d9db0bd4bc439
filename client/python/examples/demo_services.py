"""Real services on this machine, over tcp on loopback, for demonstrations and tests.

The binary is looked for in the folder PENSTOCK_BIN, then in build/release/bin of the repository,
then in PATH.
"""

import ctypes
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import tempfile

import penstock

PR_SET_PDEATHSIG = 1
# Below the ports that the system gives to outgoing connections, which come and go meanwhile.
PORTS = range(20000, 32000)
_given = set()
# A child must not call what is not there yet after fork().
_libc = ctypes.CDLL(None)


class NoBinary(Exception):
    pass


def binary(name="penstockd"):
    repository = pathlib.Path(__file__).resolve().parents[3]
    for folder in (os.environ.get("PENSTOCK_BIN"), repository / "build" / "release" / "bin"):
        if folder and (pathlib.Path(folder) / name).is_file():
            return str(pathlib.Path(folder) / name)
    found = shutil.which(name)
    if not found:
        raise NoBinary(f"no {name}: build it (./dev build), or set PENSTOCK_BIN to its folder")
    return found


def free_port():
    while True:
        port = random.choice(PORTS)
        if port in _given:
            continue
        _given.add(port)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def _die_with_us():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Services:
    """A cluster of plain processes; the nodes named at first know all of each other."""

    def __init__(self, *names, settings=()):
        self.settings = list(settings)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="penstock-demo-"))
        self.processes = {}
        self._gossip = {}
        self._seeds = names
        try:
            for name in names:
                self._gossip[name] = free_port()
            for name in names:
                self.start(name)
        except BaseException:
            self.close()
            raise

    def endpoint(self, name):
        return f"ipc://{self.folder}/{name}.ipc"

    def start(self, name):
        """Starts a node: a new one, or again one that has ended. Does not wait for it."""
        self._gossip.setdefault(name, free_port())
        config = self.folder / f"{name}.yaml"
        # JSON, which is YAML, too.
        config.write_text(json.dumps({
            "node": {"name": name},
            "request": {"bind": [self.endpoint(name)]},
            "gossip": {"bind": f"tcp://127.0.0.1:{self._gossip[name]}",
                       "members": [f"tcp://127.0.0.1:{self._gossip[seed]}"
                                   for seed in self._seeds]},
            "fabric": {"provider": "tcp", "cards": [{"domain": "lo", "address": "127.0.0.1"}],
                       "staging_bytes": "8MiB"},
            "devices": {"pin": False, "gpus": "none"},
        }))
        arguments = [os.path.abspath(binary()), "--config", str(config)]
        for setting in self.settings:
            arguments += ["--set", setting]
        # PENSTOCK_... of ours would be taken for settings.
        environment = {key: value for key, value in os.environ.items()
                       if not key.startswith("PENSTOCK_")}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = subprocess.Popen(
                arguments, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, preexec_fn=_die_with_us)

    def client(self, name, **arguments):
        """Waits for the service to answer."""
        try:
            return penstock.Client(self.endpoint(name), **{"timeout": 20, **arguments})
        except penstock.NoAnswer as problem:
            raise RuntimeError(f"{problem}\n{self.log(name)}") from None

    def connect_all(self, *names):
        """Waits until each of these takes transfers from each."""
        for name in names:
            with self.client(name) as client:
                for other in names:
                    if other != name:
                        client.wait_connected(other)

    def signal(self, name, number):
        self.processes[name].send_signal(number)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait(10)

    def wait_ended(self, name, timeout=30):
        """Its exit status."""
        return self.processes[name].wait(timeout)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def close(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
