"""A cluster of plain processes, each node in a network namespace of its own."""

import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

import namespaces
from cluster import STOP_PATIENCE_S, Cluster
from namespaces import ClusterError, address_of, space_of

GOSSIP_PORT = 7412
SEEDS = 2
PR_SET_PDEATHSIG = 1


def die_with_us():
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class LocalCluster(Cluster):
    def __init__(self, options, observer):
        self.options = options
        self.observer = observer
        self.nodes = []
        self.services = {}
        self.traffic = {}
        self.silenced = set()
        self._only = namespaces.only_cluster()
        self._only.__enter__()
        self.folder = tempfile.mkdtemp(prefix=namespaces.FOLDERS)
        namespaces.build_hub()

    def name(self, node):
        return f"cl-{node}"

    def endpoint(self, node):
        return f"ipc://{self.folder}/{node}.ipc"

    def _config(self, node):
        """penstockd's configuration. JSON, which is YAML, too."""
        return {
            "node": {"name": self.name(node)},
            "request": {"bind": [self.endpoint(node)]},
            "gossip": {
                "bind": f"tcp://{address_of(node)}:{GOSSIP_PORT}",
                "members": [f"tcp://{address_of(seed)}:{GOSSIP_PORT}" for seed in range(SEEDS)],
            },
            "fabric": {"provider": "tcp", "cards": [{"domain": "eth0"}],
                       "staging_bytes": "4MiB"},
            # Namespaces of this machine: nobody else is on their network.
            "security": {"insecure": True},
            "devices": {"pin": False, "gpus": "none"},
        }

    def _spawn(self, node, what, argv, **streams):
        with open(os.path.join(self.folder, f"{node}.{what}.log"), "ab") as log:
            return subprocess.Popen(argv, **{"stdin": subprocess.DEVNULL, "stdout": log, **streams},
                                    stderr=log, preexec_fn=die_with_us)

    def start(self, node):
        if node not in self.nodes:
            namespaces.add_node(node)
            self.nodes.append(node)
            with open(os.path.join(self.folder, f"{node}.yaml"), "w", encoding="utf-8") as file:
                json.dump(self._config(node), file, indent=1)
        argv = ["ip", "netns", "exec", space_of(node), os.path.join(self.options.bin, "penstockd"),
                "--config", os.path.join(self.folder, f"{node}.yaml")]
        for setting in self.options.set:
            argv += ["--set", setting]
        started = time.time()
        self.services[node] = self._spawn(node, "service", argv)
        # The client outlives its service: it finds the next one by itself.
        if node not in self.traffic:
            self.traffic[node] = self._spawn(node, "traffic", [
                os.path.join(self.options.bin, "penstock"), "--endpoint", self.endpoint(node),
                "traffic", "--until-eof", "--slot", str(node), "--seed", str(self.options.seed),
                *self.options.traffic], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.observer.follow(node, self.traffic[node].stdout)
        return started

    def signal(self, node, number):
        self.services[node].send_signal(number)

    def drain(self, asked, node, deadline_s):
        return subprocess.run(
            [os.path.join(self.options.bin, "penstock"), "--endpoint", self.endpoint(asked),
             "drain", self.name(node), "--deadline", f"{deadline_s}s"],
            capture_output=True, check=False, timeout=deadline_s + 30).returncode

    def wait_ended(self, node, patience_s):
        try:
            return self.services[node].wait(patience_s)
        except subprocess.TimeoutExpired:
            return None

    def running(self, node):
        return node in self.services and self.services[node].poll() is None

    def partition(self, sides):
        for node, side in sides.items():
            namespaces.plug(node, side)

    def heal(self):
        for node in self.nodes:
            namespaces.plug(node, 0)

    def resources(self, node):
        pid = self.services[node].pid
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            rss = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
        return {"open_files": len(os.listdir(f"/proc/{pid}/fd")), "rss_kib": rss}

    def log_tail(self, node, lines=20):
        path = os.path.join(self.folder, f"{node}.service.log")
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:])

    def copy_logs(self, folder):
        os.makedirs(folder, exist_ok=True)
        for name in os.listdir(self.folder):
            if name.endswith((".log", ".yaml")):
                shutil.copy(os.path.join(self.folder, name), folder)

    def end_traffic(self, node):
        process = self.traffic.pop(node, None)
        if process is None:
            return
        if not self.running(node):
            process.kill()  # nobody would answer when it gives its memory back
            self.silenced.add(node)
        try:
            process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ClusterError(f"the traffic of node {node} does not end") from None
        finally:
            self.observer.wait_closed(node)

    def close(self):
        try:
            self.ask_traffic_to_end()
            for node in list(self.traffic):
                self.end_traffic(node)
            for service in self.services.values():
                if service.poll() is None:
                    service.send_signal(signal.SIGCONT)
                    service.terminate()
            for service in self.services.values():
                service.wait(STOP_PATIENCE_S)
        finally:
            self._only.__exit__(None, None, None)
