#!/usr/bin/env python3
"""The metrics of a real service against what watches them: every metric that a rule or the dashboard
names is in a scrape, and promtool takes the scrape, the rules, their tests and the configuration.

    run.py --bin DIR names | promtool
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
MONITORING = TOP / "docker" / "monitoring"
SKIPPED = 77
METRIC = re.compile(r"\bpenstock_[a-z0-9_]+")


class Service:
    """One penstockd that has moved a megabyte."""

    def __init__(self, binaries, folder):
        self.binaries, self.endpoint = binaries, f"ipc://{folder}/socket"
        self.log = open(folder / "log", "w+")
        settings = ["node.name=a", f"request.bind={self.endpoint}", "gossip.bind=tcp://127.0.0.1:*",
                    "fabric.cards=[{domain: lo, address: 127.0.0.1}]", "devices.pin=false",
                    "devices.gpus=none", "metrics.endpoint=http://127.0.0.1:0"]
        command = [binaries / "penstockd"]
        for setting in settings:
            command += ["--set", setting]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)

    def __enter__(self):
        for _ in range(200):
            found = re.search(r"metrics +(http://\S+)", pathlib.Path(self.log.name).read_text())
            if found:
                self.url = found.group(1)
                break
            if self.process.poll() is not None:
                sys.exit("penstockd ended: " + pathlib.Path(self.log.name).read_text())
            time.sleep(0.05)
        self.cli("allocate", "source", "1MiB")
        self.cli("allocate", "target", "1MiB")
        self.cli("transfer", "source", "--to", "a:target", "--pages", "0-15", "--page-bytes", "64K")
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(20)
        self.log.close()

    def cli(self, *arguments):
        subprocess.run([self.binaries / "penstock", "-e", self.endpoint, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def scrape(self):
        with urllib.request.urlopen(self.url, timeout=10) as answer:
            return answer.read().decode()


def names_of(scrape):
    return {METRIC.match(line).group() for line in scrape.splitlines() if METRIC.match(line)}


def expressions():
    """(where, PromQL) of the rules and of the dashboard."""
    for line in (MONITORING / "alerts.yml").read_text().splitlines():
        if "description" not in line and "summary" not in line:
            yield "alerts.yml", line
    dashboard = json.loads((MONITORING / "grafana" / "dashboards" / "penstock.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"dashboard, panel '{panel['title']}'", target["expr"]
    for variable in dashboard["templating"]["list"]:
        yield f"dashboard, variable {variable['name']}", variable.get("definition", "")


def check_names(scrape):
    there = names_of(scrape)
    used, wrong = 0, []
    for where, text in expressions():
        for name in METRIC.findall(text):
            used += 1
            if name not in there:
                wrong.append(f"{where}: {name} is in no scrape")
    # The manual has them all.
    manual = (TOP / "docs" / "monitoring.md").read_text()
    base = {re.sub(r"_(bucket|sum|count)$", "", name) if "seconds_" in name else name
            for name in there}
    wrong += [f"docs/monitoring.md does not tell of {name}" for name in sorted(base)
              if f"`{name}`" not in manual]
    if wrong or used < 30:
        sys.exit("\n".join(wrong) or f"only {used} uses of metrics were found")
    print(f"{used} uses of {len(there)} metrics")


def promtool(*arguments, **more):
    subprocess.run(["promtool", *map(str, arguments)], check=True, **more)


def check_with_promtool(scrape):
    if shutil.which("promtool") is None:
        print("promtool is not installed (Debian: prometheus)")
        return SKIPPED
    promtool("check", "metrics", input=scrape.encode())
    promtool("check", "rules", MONITORING / "alerts.yml")
    promtool("test", "rules", TOP / "tests" / "monitoring" / "alerts_test.yml")
    # The paths of the configuration are those in its container.
    with tempfile.TemporaryDirectory() as folder:
        text = (MONITORING / "prometheus.yml").read_text()
        text = text.replace("/etc/prometheus/alerts.yml", str(MONITORING / "alerts.yml"))
        password = pathlib.Path(folder) / "password"
        password.write_text("x\n")
        text = text.replace("/run/secrets/penstock_metrics", str(password))
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(text)
        promtool("check", "config", config)
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", type=pathlib.Path, required=True)
    parser.add_argument("what", choices=["names", "promtool"])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with Service(arguments.bin.resolve(), pathlib.Path(folder)) as service:
            scrape = service.scrape()
    if arguments.what == "names":
        return check_names(scrape)
    return check_with_promtool(scrape)


if __name__ == "__main__":
    os.environ.pop("PENSTOCK_ENDPOINT", None)
    sys.exit(main())
