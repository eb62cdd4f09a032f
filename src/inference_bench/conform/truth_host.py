"""The process that is the truth server and nothing else.

In:   stdin, which stays open for as long as the starter lives
Out:  one line on stdout, the port; then the server of server.py, until stdin closes
Leaves out: what the server says (server)
Read next by: truth_process, which starts `python -m inference_bench.conform.truth_host`.

The system closes stdin when the starter dies by any means. Ctrl-C is left to the starter, which may still want the log.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from inference_bench.conform.server import TruthServer


def main() -> None:
    """Serve until the starter is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = TruthServer()
    threading.Thread(target=server.serve, daemon=True).start()
    sys.stdout.write(f"{server.port}\n")
    sys.stdout.flush()
    while os.read(0, 1):
        pass
    os._exit(0)  # not by an exception: streams in flight would be waited for


if __name__ == "__main__":
    main()
