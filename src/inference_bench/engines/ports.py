"""A free port on the loopback interface, for engines that want to be told one.

In:   nothing, or a port that a person chose
Out:  a port that nobody listens at now
Read next by: vllm, sglang.
"""

from __future__ import annotations

import socket

from inference_bench.errors import RequestError, ServerStartError

LOOPBACK = "127.0.0.1"
_LARGEST_PORT = 65535


def choose_port(wanted: int | None = None) -> int:
    """The wanted port where it is free, or one that the system chooses.

    Ignores:  that another program may take it before the engine does; the engine then says so
    Raises:   RequestError for a number that is no port; ServerStartError where it is taken
    """
    if wanted is not None and not 1 <= wanted <= _LARGEST_PORT:
        raise RequestError(f"port {wanted} does not exist; give 1 to {_LARGEST_PORT}, or none to have one chosen")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, wanted or 0))
        except OSError:
            raise ServerStartError(
                f"port {wanted} is used by another program; give another, or none to have one chosen"
            ) from None
        return int(probe.getsockname()[1])
