"""The pacing server as seen by the benchmark: its address, its log, its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from http.client import HTTPConnection
from itertools import pairwise
from pathlib import Path
from typing import Self

import inference_bench

SOURCE = str(Path(inference_bench.__file__).parents[1])
PACER = Path(__file__).with_name("pacer.py")


def environment() -> dict[str, str]:
    """Of a child that imports what this process imports."""
    paths = filter(None, (SOURCE, os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@dataclass(frozen=True, slots=True)
class Sent:
    """One request by the server's log. Unit: seconds of time.perf_counter."""

    arrived_s: float
    sends_s: tuple[float, ...]


class Truth:
    """A running pacing server; it ends with the `with` block."""

    def __init__(self, *, real_time: bool = True) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(PACER), *(["real-time"] if real_time else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            start_new_session=True,
        )
        assert self._process.stdout is not None
        port, self.priority = self._process.stdout.readline().decode().split()
        self.port = int(port)

    def url(self, pace: str) -> str:
        return f"http://127.0.0.1:{self.port}/{pace}"

    def log(self) -> list[Sent]:
        """Every completion since the last `clear`."""
        return [
            Sent(arrived_ns / 1e9, tuple(at / 1e9 for at in sends_ns))
            for arrived_ns, sends_ns in json.loads(self._get("/_log"))
        ]

    def clear(self) -> None:
        self._get("/_clear")

    def _get(self, path: str) -> bytes:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        finally:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5)
        finally:
            self._process.kill()
            self._process.wait()


def gaps_s(streams: list[tuple[float, ...]]) -> list[float]:
    """Every pause of every stream, in order of length."""
    return sorted(after - before for times in streams for before, after in pairwise(times))
