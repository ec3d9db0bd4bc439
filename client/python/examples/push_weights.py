"""Pushes a model's weights from a trainer to N inference nodes, as one scatter.

The trainer has a safetensors file in a region; every inference node has a region of the same size.
The first push sends all of it. Later ones send only the tensors that a step has changed, as ranges.
Inference reads the tensors where they land: its views are made once and are never copied.

    python push_weights.py --demo
    python push_weights.py trainer ENDPOINT --file model.safetensors --nodes node-b node-c
    python push_weights.py inference ENDPOINT --bytes SIZE_OF_THE_FILE
"""

import argparse
import hashlib
import os
import pathlib
import sys
import tempfile
import threading

import numpy as np

import penstock
import safetensors_file
from demo_services import Services


class Trainer:
    def __init__(self, client, file, nodes):
        self.client, self.nodes = client, nodes
        self.region = client.allocate("weights", os.path.getsize(file))
        with open(file, "rb", buffering=0) as source:
            rest = memoryview(self.region.array)
            while rest:  # a read takes 2 GiB at most
                rest = rest[source.readinto(rest):]
        self.places = safetensors_file.places(self.region.array)
        self.tensors = safetensors_file.views(self.region.array)
        for node in nodes:
            client.wait_connected(node)

    def push(self, step, names=None, progress=None):
        """All of the file, or the tensors with these names, to every node at once."""
        if names is None:
            ranges = [(0, 0, self.region.size)]
        else:
            ranges = [(begin, begin, size) for _, _, begin, size in
                      (self.places[name] for name in names)]
        transfers = self.client.scatter(
            self.region, [(node, "weights") for node in self.nodes], penstock.Ranges(ranges),
            deadline=120, notify=f"step {step}", progress=progress)
        return [each.result() for each in transfers]


class Inference:
    def __init__(self, client, size):
        self.client = client
        self.region = client.allocate("weights", size)
        self.notifications = client.subscribe(["notify"])
        self.tensors = {}

    def wait(self, timeout=120):
        """Until the next step is here; its name."""
        told = self.notifications.get(timeout).body
        if not self.tensors:
            self.tensors = safetensors_file.views(self.region.array)
        return told.data.decode()

    def digest(self):
        return hashlib.sha256(self.region.array).hexdigest()


def make_model(path, layers=8, width=512):
    rng = np.random.default_rng(7)
    tensors = {"embed": rng.standard_normal((2048, width), np.float32).astype(np.float16)}
    for layer in range(layers):
        for part, shape in (("attention.qkv", (3 * width, width)),
                            ("attention.out", (width, width)),
                            ("mlp.up", (4 * width, width)), ("mlp.down", (width, 4 * width)),
                            ("norm", (width,))):
            tensors[f"layers.{layer}.{part}"] = \
                rng.standard_normal(shape, np.float32).astype(np.float16)
    safetensors_file.save(path, tensors)


def demo(inference_nodes=3):
    names = [f"inference-{number}" for number in range(inference_nodes)]
    with tempfile.TemporaryDirectory() as folder, Services("trainer", *names) as services:
        file = pathlib.Path(folder) / "model.safetensors"
        make_model(file)
        size = file.stat().st_size
        clients = [services.client(name) for name in names]
        nodes = [Inference(client, size) for client in clients]
        with services.client("trainer") as client:
            trainer = Trainer(client, file, names)
            print(f"{len(trainer.tensors)} tensors, {size / 2**20:.1f} MiB, to {len(names)} nodes")
            report(trainer.push(0))
            check(trainer, nodes, "step 0")
            changed = ["layers.3.attention.qkv", "layers.3.norm"]
            for name in changed:
                trainer.tensors[name] += np.float16(0.5)
            report(trainer.push(1, changed))
            check(trainer, nodes, "step 1")
        for each in clients:
            each.close()


def report(results):
    moved = sum(result.bytes for result in results)
    slowest = max(result.elapsed_us for result in results)
    print(f"pushed {moved / 2**20:.1f} MiB in {slowest / 1000:.0f} ms")


def check(trainer, nodes, step):
    expected = hashlib.sha256(trainer.region.array).hexdigest()
    waits = [threading.Thread(target=check_node, args=(node, step)) for node in nodes]
    for each in waits:
        each.start()
    for each in waits:
        each.join()
    for node in nodes:
        if node.digest() != expected:
            raise AssertionError(f"{node.client.service.node}: other weights than the trainer's")
        for name, tensor in trainer.tensors.items():
            if not np.array_equal(node.tensors[name], tensor):
                raise AssertionError(f"{node.client.service.node}: {name} differs")
    print(f"{step}: all {len(nodes)} nodes have the trainer's weights")


def check_node(node, step):
    if node.wait() != step:
        raise AssertionError("a notification of another step")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo", action="store_true", help="start services for it")
    roles = parser.add_subparsers(dest="role")
    trainer = roles.add_parser("trainer", help="push a file once, with a progress bar")
    trainer.add_argument("endpoint")
    trainer.add_argument("--file", required=True)
    trainer.add_argument("--nodes", nargs="+", required=True)
    inference = roles.add_parser("inference", help="receive one push and print its digest")
    inference.add_argument("endpoint")
    inference.add_argument("--bytes", type=int, required=True)
    options = parser.parse_args()
    if options.demo:
        demo()
    elif options.role == "trainer":
        with penstock.Client(options.endpoint) as client:
            trainer = Trainer(client, options.file, options.nodes)
            report(trainer.push(0, progress=sys.stderr.isatty()))
    elif options.role == "inference":
        with penstock.Client(options.endpoint) as client:
            node = Inference(client, options.bytes)
            print(f"{node.wait(600)}: {len(node.tensors)} tensors, sha256 {node.digest()}")
    else:
        parser.error("give --demo, or a role")


if __name__ == "__main__":
    sys.exit(main())
