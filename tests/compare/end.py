"""One end of a system under comparison, in a process of its own.

The parent writes one JSON object a line to standard input and reads one a line from where standard
output was; what the libraries print goes to standard error, which is the end's log. An end answers
every request, with {"error": ...} when it cannot do it.
"""

import ctypes
import json
import os
import signal
import sys
import traceback

PR_SET_PDEATHSIG = 1

# Before any library is imported: some print while they are.
replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


def serve(handlers):
    """handlers: name -> function of the request, which returns a dict."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = handlers[request["do"]](request) or {}
        except Exception as error:  # whatever the library throws ends the round, not the run
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    os._exit(0)  # some libraries hang in their destructors
