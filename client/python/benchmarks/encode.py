"""What Python adds to a write_pages: what its lists cost by their types and, with --services, the
time from the call to the acceptance and to the end, between two services on loopback. Prints only.

    python benchmarks/encode.py [PAGES] [--services]
"""

import argparse
import pathlib
import statistics
import sys
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


def through_services(pages, page_bytes=64):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
    from demo_services import Services

    rng = np.random.default_rng(1)
    source, destination = (rng.permutation(pages).astype("<u4") for _ in range(2))
    with Services("a", "b") as services:
        services.connect_all("a", "b")
        with services.client("a") as a, services.client("b") as b:
            here = a.allocate("pages", pages * page_bytes)
            b.allocate("pages", pages * page_bytes)
            rows = []
            for _ in range(12):
                started = time.perf_counter()
                transfer = a.write_pages(here, "b", "pages", page_bytes=page_bytes,
                                         src_pages=source, dst_pages=destination)
                called = time.perf_counter()
                transfer.wait_accepted(60)
                accepted = time.perf_counter()
                result = transfer.result(60)
                ended = time.perf_counter()
                rows.append([called - started, accepted - started, ended - started,
                             ended - started - result.elapsed_us / 1e6])
    medians = np.median(rows[2:], axis=0) * 1000
    print(f"a write of {pages} pages of {page_bytes} bytes through two services, ms, median of 10")
    for words, value in zip(("the call returned", "accepted", "ended",
                             "of that, not in the service (request read, client)"), medians):
        print(f"  {words:50} {value:7.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=int, nargs="?", default=100_000)
    parser.add_argument("--services", action="store_true")
    options = parser.parse_args()
    if options.services:
        through_services(options.pages)
        return
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
