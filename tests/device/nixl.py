#!/usr/bin/env python3
"""nixl.py JSON [OURS]: NIXL between two processes on the GPU, over UCX (cuda_ipc), pages of three sizes.

NIXL is imported from the Python path; it needs torch. The lists of pages and the ends are those of
tests/compare; the descriptors of all pages are prepared before the time starts. Every byte is compared.
OURS is what `penstock bench --memory cuda --json` wrote in the same run: then the ratios are told too.
"""

import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "compare"))
from systems import CONNECT_S, OPEN_S, ROUND_S, End, NotRunning  # noqa: E402

REGION = 1 << 30
ROUNDS = 3
FILL_SEED = 1
WAYS = ("GPU to GPU, one node, one request", "GPU to GPU, one node")


def measure(ends, page_bytes):
    source, destination = ends
    source.ask("prepare", OPEN_S, page_bytes=page_bytes)
    rates = []
    for number in range(ROUNDS + 1):
        keys = {"page_bytes": page_bytes, "seed": number, "round_bytes": REGION,
                "token": f"{page_bytes}/{number}"}
        destination.send("arrived", deadline_s=ROUND_S, **keys)
        moved = source.ask("move", ROUND_S + 10, deadline_s=ROUND_S, **keys)
        ended = max(moved["end_ns"], destination.receive(ROUND_S + 10)["end_ns"])
        if number > 0:
            rates.append(REGION / (ended - moved["begin_ns"]))
    wrong = destination.ask("different", ROUND_S, fill_seed=FILL_SEED, **keys)["different"]
    return {"page_bytes": page_bytes, "gigabytes_per_s": statistics.median(rates), "rounds": rates,
            "verified": wrong == 0}


def connect(folder):
    ends = []
    for role in ("source", "destination"):
        ends.append(End(["nixl_end.py", "UCX", "thread", "prepared", role],
                        pathlib.Path(folder) / f"{role}.log"))
    for each in ends:
        each.send("open", memory="cuda", bytes=REGION)
    descriptions = [each.receive(OPEN_S) for each in ends]
    ends[0].ask("fill", OPEN_S, seed=FILL_SEED)
    ends[0].ask("connect", CONNECT_S, **descriptions[1])
    ends[1].ask("connect", CONNECT_S, **descriptions[0])
    return ends


def ours(path):
    rows = json.loads(pathlib.Path(path).read_text())["results"] if path else []
    return {(row["way"], row["page_bytes"]): row["gigabytes_per_s"] for row in rows}


def main():
    rates = ours(sys.argv[2] if len(sys.argv) > 2 else None)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            ends = connect(folder)
            for page_bytes in (4 << 10, 64 << 10, 1 << 20):
                row = measure(ends, page_bytes)
                for way in WAYS:
                    if rate := rates.get((way, page_bytes)):
                        row[f"ours, {way}"] = rate
                        row[f"times, {way}"] = rate / row["gigabytes_per_s"]
                rows.append(row)
                print(row, flush=True)
        except NotRunning as error:
            print(f"NIXL does not run: {error}")
            for log in pathlib.Path(folder).glob("*.log"):
                print(log.name, log.read_text(errors="replace")[-3000:])
    pathlib.Path(sys.argv[1]).write_text(json.dumps(rows))
    return 0 if len(rows) == 3 and all(row["verified"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
