"""Runs a program with a Python that has the modules it takes."""

import importlib
import os
import subprocess
import sys

SKIPPED = 77
DEBIANS = "/usr/bin/python3"


def need(*names):
    """Goes on when this Python has them, or starts the program again with Debian's; else ends it as
    skipped, with the reason."""
    try:
        for name in names:
            importlib.import_module(name)
        return
    except ImportError as missing:
        reason = missing
    has_them = [DEBIANS, "-c", "import " + ", ".join(names)]
    if sys.executable != DEBIANS and os.path.exists(DEBIANS) and \
            subprocess.run(has_them, capture_output=True, check=False).returncode == 0:
        os.execv(DEBIANS, [DEBIANS, *sys.argv])
    print(f"skipped: {reason}; Debian's packages: python3-zmq python3-msgpack python3-numpy")
    sys.exit(SKIPPED)
