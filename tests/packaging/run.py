#!/usr/bin/env python3
"""What `cmake --install` leaves: everything in its place, and manuals and completion that know what
the programs know, and documents whose links lead somewhere.

    run.py --build DIR
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

EXPECTED = ["bin/penstock", "bin/penstockd", "lib/systemd/system/penstockd.service",
            "lib/sysusers.d/penstock.conf", "share/man/man1/penstock.1",
            "share/man/man8/penstockd.8", "share/bash-completion/completions/penstock",
            "share/bash-completion/completions/penstockd", "share/doc/penstock/config/penstockd.yaml",
            "share/doc/penstock/docs/operations.md",
            "share/doc/penstock/docker/monitoring/alerts.yml"]
LINK = re.compile(r"\]\(([^)#]+)[^)]*\)")


def complete(file, *words):
    """What bash offers for the last of these words."""
    typed = " ".join(f"'{word}'" for word in words)
    script = (f"source {file}; COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; "
              f"_{words[0]}; echo \"${{COMPREPLY[@]}}\"")
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True,
                          text=True).stdout.split()


def broken_links(folder):
    """Those of the documents that lead to nothing that is installed."""
    return [f"{page.relative_to(folder)} links to {target}"
            for page in sorted(folder.rglob("*.md")) for target in LINK.findall(page.read_text())
            if "://" not in target and not (page.parent / target).exists()]


def check(prefix):
    wrong = [f"{path} is not installed" for path in EXPECTED if not (prefix / path).is_file()]
    if wrong:
        return wrong
    wrong += broken_links(prefix / "share/doc/penstock")
    if "ExecReload=" not in (prefix / "lib/systemd/system/penstockd.service").read_text():
        wrong.append("systemctl reload does nothing: SIGHUP is not sent")
    program = prefix / "bin" / "penstock"
    told = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    commands = re.findall(r"^  ([a-z-]+)  ", told.split("Subcommands:")[1].split("\n\n")[0], re.M)
    for command in commands:
        page = prefix / "share/man/man1" / f"penstock-{command}.1"
        if not page.is_file() or ".SH SYNOPSIS" not in page.read_text():
            wrong.append(f"penstock {command} has no manual")
    completions = prefix / "share/bash-completion/completions/penstock"
    for words, offered in ((["penstock", "tra"], {"trace", "transfer", "transfers", "traffic"}),
                           (["penstock", "transfer", "--urg"], {"--urgent"}),
                           (["penstock", "--end"], {"--endpoint"})):
        if set(complete(completions, *words)) != offered:
            wrong.append(f"{words} completes to {complete(completions, *words)}")
    if len(commands) < 15:
        wrong.append(f"only {len(commands)} commands were found in --help")
    if shutil.which("systemd-analyze"):
        unit = prefix / "lib/systemd/system/penstockd.service"
        text = unit.read_text().replace("/usr/bin/penstockd", str(prefix / "bin/penstockd"))
        unit.write_text(text.replace("Documentation=", "#"))
        verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
        about_us = [line for line in verified.stderr.splitlines() if "penstockd.service" in line]
        if about_us:
            wrong += about_us
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder) / "prefix"
        subprocess.run(["cmake", "--install", arguments.build, "--prefix", prefix, "--component",
                        "service"], check=True, stdout=subprocess.DEVNULL)
        wrong = check(prefix)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
