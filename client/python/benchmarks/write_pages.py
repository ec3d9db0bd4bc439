"""What Python adds to a write of many pages: the same transfer by the C++ client and by this one,
in turns, between two services on loopback. Prints only.

    python benchmarks/write_pages.py [PAGES] [--page-bytes N] [--rounds N] [--profile]

The C++ side is write_pages_bench, built with the services (./dev build); both are looked for as the
examples look for penstockd (PENSTOCK_BIN).
"""

import argparse
import cProfile
import pathlib
import pstats
import subprocess
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))
from demo_services import Services, binary  # noqa: E402

TURNS = 4


class Setting:
    def __init__(self, services, client, region, options):
        self.services, self.client, self.region = services, client, region
        self.options = options
        rng = np.random.default_rng(1)
        self.lists = [rng.permutation(options.pages).astype("<u4") for _ in range(2)]

    def by_cpp(self):
        ran = subprocess.run(
            [binary("write_pages_bench"), self.services.endpoint("a"), "pages", "b", "pages",
             *map(str, (self.options.pages, self.options.page_bytes, self.options.rounds))],
            check=True, stdout=subprocess.PIPE, text=True, timeout=300)
        return [tuple(map(float, line.split())) for line in ran.stdout.splitlines()]

    def by_python(self):
        rounds = []
        for _ in range(self.options.rounds):
            started = time.perf_counter()
            transfer = self.client.write_pages(
                self.region, "b", "pages", page_bytes=self.options.page_bytes,
                src_pages=self.lists[0], dst_pages=self.lists[1])
            transfer.wait_accepted(60)
            accepted = time.perf_counter()
            transfer.result(60)
            rounds.append(((accepted - started) * 1e3, (time.perf_counter() - started) * 1e3))
        return rounds


def compare(setting):
    setting.by_cpp(), setting.by_python()  # connections, caches
    takes = {"C++": [], "Python": []}
    for _ in range(TURNS):
        takes["C++"] += setting.by_cpp()
        takes["Python"] += setting.by_python()
    print(f"a write of {setting.options.pages} pages of {setting.options.page_bytes} bytes, ms, "
          f"median (least, most) of {TURNS * setting.options.rounds}")
    for place, words in enumerate(("accepted", "ended")):
        median = {}
        for client, rounds in takes.items():
            values = sorted(each[place] for each in rounds)
            median[client] = values[len(values) // 2]
            print(f"  {words:9} {client:7} {median[client]:8.3f} "
                  f"({values[0]:.3f}, {values[-1]:.3f})")
        print(f"  {words:9} Python adds {median['Python'] - median['C++']:.3f}")


def profile(setting):
    """The caller's thread alone: what the client's own thread does shows as waiting."""
    setting.by_python()
    profiler = cProfile.Profile()
    profiler.runcall(setting.by_python)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(15)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=int, nargs="?", default=100_000)
    parser.add_argument("--page-bytes", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=10, help="of each of the turns")
    parser.add_argument("--profile", action="store_true", help="where the Python client's time goes")
    options = parser.parse_args()
    size = options.pages * options.page_bytes
    with Services("a", "b") as services:
        services.connect_all("a", "b")
        with services.client("a") as a, services.client("b") as b:
            region = a.allocate("pages", size)
            b.allocate("pages", size)
            setting = Setting(services, a, region, options)
            profile(setting) if options.profile else compare(setting)


if __name__ == "__main__":
    main()
