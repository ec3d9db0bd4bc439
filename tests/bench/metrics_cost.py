"""What being watched costs: `penstock bench` with the metrics of both services read again and again,
and with the endpoint off, in turns. Prints only.

    metrics_cost.py --bin FOLDER [--turns N] [--every SECONDS] [--pages 64KiB]

Runs differ by more than a percent for reasons of their own, so the metrics are read twenty times a
second: what a read costs is twenty times as visible, and a read a second costs a twentieth of it.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import threading
import urllib.error
import urllib.request

LISTENS = "0A"  # a state in /proc/net/tcp


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def ports(pid):
    """Of loopback, at which the process listens."""
    inodes = set()
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(str(descriptor.readlink()))
        except OSError:
            pass  # closed meanwhile
    for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS and f"socket:[{fields[9]}]" in inodes:
            yield int(fields[1].split(":")[1], 16)


def metrics_at(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1) as answer:
            return b"penstock_" in answer.read()
    except (OSError, urllib.error.URLError, ValueError):
        return False  # a port of another kind


class Reader(threading.Thread):
    """Reads the metrics of the command's services again and again, until it ends."""

    def __init__(self, pid, every):
        super().__init__(daemon=True)
        self.pid, self.every = pid, every
        self.ended = threading.Event()
        self.reads, self.known = 0, {}

    def run(self):
        while not self.ended.wait(self.every):
            try:
                for service in children(self.pid):
                    self.read(service)
            except OSError:
                pass  # it ends, or begins

    def read(self, service):
        if not self.known.get(service):
            self.known[service] = [port for port in ports(service) if metrics_at(port)]
        self.reads += sum(metrics_at(port) for port in self.known[service])


def bench(options, watched):
    command = [str(options.bin / "penstock"), "bench", "--json", "--pages", options.pages,
               "--directions", "write", "--pairs", str(options.pairs), "--small", "0"]
    if not watched:
        command += ["--set", "metrics.endpoint=off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        reader = Reader(process.pid, options.every)
        if watched:
            reader.start()
        told = json.loads(process.communicate(timeout=600)[0])
        reader.ended.set()
    if watched and not reader.reads:
        raise SystemExit("nothing was read: do the services of this machine serve metrics?")
    row = told["results"][0]
    return {"ratio": row["ratio"], "gbps": row["gbps"], "cpu_s_per_gb": row["cpu_s_per_gb"],
            "reads": reader.reads}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=25, help="of rounds, in each run")
    parser.add_argument("--every", type=float, default=0.05, help="seconds between two reads")
    parser.add_argument("--pages", default="64KiB")
    options = parser.parse_args()
    rows = {True: [], False: []}
    for turn in range(options.turns):
        for watched in (turn % 2 == 0, turn % 2 == 1):
            rows[watched].append(bench(options, watched))
    print(f"{options.pages} pages, {options.turns} runs of each in turns, "
          f"{sum(row['reads'] for row in rows[True])} reads; median (least, most)")
    medians = {}
    for watched, words in ((False, "metrics off"), (True, f"read every {options.every:g} s")):
        for field in ("ratio", "gbps", "cpu_s_per_gb"):
            values = [row[field] for row in rows[watched]]
            medians[watched, field] = statistics.median(values)
            print(f"  {words:14} {field:13} {medians[watched, field]:8.4f} "
                  f"({min(values):.4f}, {max(values):.4f})")
    kept = medians[True, "ratio"] / medians[False, "ratio"]
    print(f"  watched, against the bare loop beside it, it reaches {100 * kept:.2f} % of unwatched: "
          f"a read a second would cost {100 * (1 - kept) * options.every:.3f} %")


if __name__ == "__main__":
    main()
