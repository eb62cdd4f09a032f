"""What every test can rely on."""

from __future__ import annotations

import signal

# A shell that starts tests in the background has Ctrl-C ignored, and programs started from there would ignore it too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
