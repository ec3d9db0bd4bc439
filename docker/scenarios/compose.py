"""A cluster of containers, all of one Compose service. Works with docker-compose 1.29 and with
`docker compose`."""

import calendar
import os
import shutil
import signal
import subprocess
import tempfile
import time

from cluster import STOP_PATIENCE_S, Cluster
from namespaces import ClusterError

PROJECT = "penstock-scenario"
SERVICE = "penstock"
FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def compose_command():
    """The words that start Compose, or None."""
    for words in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(words[0]) and subprocess.run(
                [*words, "version"], capture_output=True, check=False).returncode == 0:
            return words
    return None


def why_no_engine():
    """The reason why this machine cannot run containers, or None."""
    if not shutil.which("docker"):
        return "there is no docker here; --local needs none"
    done = subprocess.run(["docker", "info"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"the container engine does not answer: {done.stderr.strip().splitlines()[-1:]}"
    if not compose_command():
        return "neither 'docker compose' nor 'docker-compose' is here"
    return None


def run(*argv, check=True, timeout=300, **more):
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=timeout,
                          **more)
    if check and done.returncode != 0:
        raise ClusterError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done


class ComposeCluster(Cluster):
    def __init__(self, options, observer):
        self.options = options
        self.observer = observer
        self.nodes = []
        self.containers = {}
        self.addresses = {}
        self.traffic = {}
        self.silenced = set()
        self.folder = tempfile.mkdtemp(prefix="penstock-scenario-")
        files = [os.path.join(FOLDER, "compose.yaml"), *options.override]
        self.compose = [*compose_command(), "-p", PROJECT]
        for file in files:
            self.compose += ["-f", file]
        self.environment = {**os.environ, "PENSTOCK_IMAGE": options.image}
        self._compose("down", "--timeout", "1", "--remove-orphans")

    def _compose(self, *words):
        return run(*self.compose, *words, env=self.environment)

    def _ids(self):
        done = run("docker", "ps", "-aq", "--no-trunc", "--filter",
                   f"label=com.docker.compose.project={PROJECT}")
        return done.stdout.split()

    def _inspect(self, node, what):
        return run("docker", "inspect", "-f", what, self.containers[node]).stdout.strip()

    def name(self, node):
        return self.containers[node][:12]

    def start(self, node):
        if node in self.containers:
            run("docker", "start", self.containers[node])
        else:
            before = set(self._ids())
            self._compose("up", "-d", "--no-build", "--no-recreate", "--scale",
                          f"{SERVICE}={len(self.nodes) + 1}", SERVICE)
            new = set(self._ids()) - before
            if len(new) != 1:
                raise ClusterError(f"Compose started {len(new)} containers, not one")
            self.containers[node] = new.pop()
            self.nodes.append(node)
        self.addresses[node] = self._inspect(
            node, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
        self._start_traffic(node)
        return unix_time(self._inspect(node, "{{.State.StartedAt}}"))

    def _start_traffic(self, node):
        if node in self.traffic:
            self.traffic[node].wait(STOP_PATIENCE_S)  # it went with its container
            self.silenced.add(node)
        with open(os.path.join(self.folder, f"{node}.traffic.log"), "ab") as log:
            self.traffic[node] = subprocess.Popen(
                ["docker", "exec", "-i", self.containers[node], "penstock", "traffic",
                 "--until-eof", "--slot", str(node), "--seed", str(self.options.seed),
                 *self.options.traffic],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.observer.follow(node, self.traffic[node].stdout)

    def signal(self, node, number):
        run("docker", "kill", "--signal", signal.Signals(number).name, self.containers[node])

    def drain(self, asked, node, deadline_s):
        return run("docker", "exec", self.containers[asked], "penstock", "drain", self.name(node),
                   "--deadline", f"{deadline_s}s", check=False, timeout=deadline_s + 30).returncode

    def wait_ended(self, node, patience_s):
        end = time.monotonic() + patience_s
        while time.monotonic() < end:
            running, code = self._inspect(node, "{{.State.Running}} {{.State.ExitCode}}").split()
            if running == "false":
                return int(code)
            time.sleep(0.05)
        return None

    def running(self, node):
        return self._inspect(node, "{{.State.Running}}") == "true"

    def _in_networks(self, scripts):
        """Runs a shell script (node -> script) in the network of each node, all at the same time:
        half a partition is another fault than a whole one."""
        pids = {node: self._inspect(node, "{{.State.Pid}}") for node in scripts}
        started = [subprocess.Popen(["nsenter", "-t", pids[node], "-n", "sh", "-ec", script])
                   for node, script in scripts.items()]
        if any(process.wait(60) != 0 for process in started):
            raise ClusterError("iptables failed in the network of a node (said above)")

    def partition(self, sides):
        self._in_networks({
            node: "\n".join(f"iptables -w -A INPUT -s {self.addresses[other]} -j DROP"
                            for other, other_side in sides.items() if other_side != side)
            for node, side in sides.items()})

    def heal(self):
        self._in_networks({node: "iptables -w -F INPUT" for node in self.nodes
                           if self.running(node)})

    def resources(self, node):
        done = run("docker", "exec", self.containers[node], "sh", "-c",
                   "ls /proc/1/fd | wc -l; grep VmRSS /proc/1/status")
        files, rss = done.stdout.splitlines()[:2]
        return {"open_files": int(files), "rss_kib": int(rss.split()[1])}

    def log_tail(self, node, lines=20):
        done = run("docker", "logs", "--tail", str(lines), self.containers[node], check=False)
        return done.stdout + done.stderr

    def copy_logs(self, folder):
        os.makedirs(folder, exist_ok=True)
        for node in self.nodes:
            with open(os.path.join(folder, f"{node}.log"), "w", encoding="utf-8") as file:
                file.write(self.log_tail(node, 100000))

    def close(self):
        try:
            asked = self.ask_traffic_to_end()
            for node, process in self.traffic.items():
                process.wait(STOP_PATIENCE_S)
                if node not in asked:
                    self.silenced.add(node)
                self.observer.wait_closed(node)
        except subprocess.TimeoutExpired:
            raise ClusterError("the traffic of a node does not end") from None
        finally:
            self._compose("down", "--timeout", "40", "--volumes", "--remove-orphans")
            shutil.rmtree(self.folder, ignore_errors=True)


def unix_time(text):
    """Of docker's 2026-01-02T03:04:05.123456789Z."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return calendar.timegm(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) + float(f"0.{fraction or 0}")
