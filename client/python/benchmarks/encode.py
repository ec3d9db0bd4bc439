"""What the lists of a write_pages cost by their types. What Python adds to a whole transfer:
write_pages.py. Prints only.

    python benchmarks/encode.py [PAGES]
"""

import argparse
import statistics
import time

import numpy as np

from penstock import Pages, Target, TransferSpec, _wire


def cost_ms(work, rounds=30):
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times), max(times)


def encode(source, destination):
    spec = TransferSpec("write", "kv", (Target("b", "kv"),), Pages(4096, source, destination))
    return _wire.encode(1, "transfer", {"transfers": [spec.fields()]})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=int, nargs="?", default=100_000)
    options = parser.parse_args()
    pages = options.pages
    rng = np.random.default_rng(1)
    source, destination = rng.permutation(pages), rng.permutation(pages)
    print(f"encoding a write of {pages} pages, ms: median (most) of 30")
    for words, lists in (
            ("u32 arrays, as they are", [source.astype("<u4"), destination.astype("<u4")]),
            ("i64 arrays, checked and converted", [source, destination]),
            ("lists of Python integers", [source.tolist(), destination.tolist()])):
        median, most = cost_ms(lambda lists=lists: encode(*lists))
        print(f"  {words:36} {median:7.3f} ({most:.3f})")


if __name__ == "__main__":
    main()
