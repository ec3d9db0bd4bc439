#!/usr/bin/env python3
"""table.py FILE: what `penstock bench --memory cuda --json` measured, for people."""

import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        bench = json.load(file)
    print(f"{'way':<36} {'page':>8} {'path':<14} {'GB/s':>9}  verified")
    for row in bench["results"]:
        if row["error"]:
            print(f"{row['way']:<36} {row['page_bytes']:>8} not run: {row['error']}")
            continue
        print(f"{row['way']:<36} {row['page_bytes']:>8} {row['path']:<14} {row['gigabytes_per_s']:>9.2f} "
              f"{row.get('service_us', 0):>10.0f} us  "
              f"{'yes' if row['verified'] else 'NO'}")
    small = bench["small"]
    print("a 4 KiB page on one node, asked to told:", {k: round(v, 1) for k, v in small.items()})


if __name__ == "__main__":
    main()
