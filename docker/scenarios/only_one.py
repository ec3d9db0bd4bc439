"""For programs that leave namespaces, folders or shared memory behind: one at a time on a machine,
and nothing of it stays, however it ends."""

import contextlib
import fcntl
import os
import time

PATIENCE_S = 15  # the watchdog of a killed one needs a moment


class AnotherRuns(Exception):
    """Somebody else holds the lock."""


@contextlib.contextmanager
def only_one(lock_path, remove_leftovers):
    """Removes what an earlier one left, and what this one leaves.

    A watchdog in a session of its own holds the other end of a pipe: when this process is gone,
    killed too, the pipe ends and the watchdog removes what is left.
    """
    lock = os.open(lock_path, os.O_CREAT | os.O_RDWR, 0o600)
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            if time.monotonic() > end:
                os.close(lock)
                raise AnotherRuns(lock_path) from None
            time.sleep(0.2)
    remove_leftovers()
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.close(writer)
        _watch(reader, remove_leftovers)
    os.close(reader)
    try:
        yield
    finally:
        remove_leftovers()
        os.close(writer)
        os.close(lock)


def _watch(reader, remove_leftovers):
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    try:
        os.read(reader, 1)
        remove_leftovers()
    finally:
        os._exit(0)
