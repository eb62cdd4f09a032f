"""The truth server in a process of its own, as seen by the one who started it.

In:   nothing
Out:  its address, and its log as plain dictionaries
Leaves out: what runs in there (truth_host, server)
Read next by: suite.

The log is fetched with http.client: nothing of the client that is being judged takes part.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import inference_bench
from inference_bench.conform.server import CLEAR_PATH, LOG_PATH
from inference_bench.errors import ServerError, ServerStartError

_ENDS_WITHIN_S: Final = 5.0
_ANSWERS_WITHIN_S: Final = 30.0


class TruthProcess:
    """A running truth server; it ends with the `with` block, and with this process."""

    def __init__(self) -> None:
        source = str(Path(inference_bench.__file__).parents[1])
        paths = os.pathsep.join(filter(None, (source, os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "inference_bench.conform.truth_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": paths},
        )
        try:
            self.port = self._read_port()
        except BaseException:
            self.end()
            raise

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def url(self, case: str) -> str:
        """Where a case is served; /v1/... follows."""
        return f"http://127.0.0.1:{self.port}/{case}"

    def log(self, case: str | None = None) -> list[dict[str, Any]]:
        """Every request since the last `clear`, or those for one case.

        Raises:   ServerError
        """
        entries: list[dict[str, Any]] = json.loads(self._get(LOG_PATH))
        return [entry for entry in entries if case in (None, entry["case"])]

    def clear(self) -> None:
        """Forget every request.

        Raises:   ServerError
        """
        self._get(CLEAR_PATH)

    def end(self) -> None:
        """Close its stdin, which ends it, and make sure."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_ENDS_WITHIN_S)
        finally:  # also when a second Ctrl-C comes while it is waited for
            self._process.kill()
            self._process.wait()

    def _read_port(self) -> int:
        line = b"" if self._process.stdout is None else self._process.stdout.readline()
        if not line.strip().isdigit():
            raise ServerStartError("the truth server ended before it said where it listens")
        return int(line)

    def _get(self, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_ANSWERS_WITHIN_S)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        except (OSError, HTTPException) as error:
            raise ServerError(f"the truth server did not answer ({type(error).__name__})") from None
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
