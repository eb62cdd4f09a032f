"""Servers that a drill starts, kills and starts again, and leaves nothing of.

In:   how to start one; the address of one that somebody else runs
Out:  Restartable (ours) and Foreign (asked, and otherwise left alone), behind one interface
Leaves out: what starting means to an engine (engines)
Read next by: stage, soak, flow.

A start takes seconds and may be cut short by Ctrl-C; it runs in a thread that `stop` waits for, so that no process is forgotten.
"""

from __future__ import annotations

import os
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from inference_bench.engines.embedded_model import EmbeddedModel
from inference_bench.engines.llama_cpp import HostConfig, LlamaCppServer
from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.measure.target import Address, parse_address

EMBEDDED_SLOTS = 2
_CONTEXT_TOKENS_PER_SLOT = 2048


class Running(Protocol):
    """A server process that answers."""

    @property
    def base_url(self) -> str:
        """Where it listens."""
        ...

    @property
    def pid(self) -> int:
        """Its process."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


class Server(ABC):
    """What a drill can do with a server."""

    is_ours: bool

    @property
    @abstractmethod
    def address(self) -> Address:
        """Where it listens now."""

    def kill(self) -> None:
        """End its process by kill -9.

        Raises:   RequestError for a server that was not started here
        """
        raise RequestError("only a server that the drill itself started can be killed")

    def begin_start(self) -> None:
        """Start it again, without waiting.

        Raises:   RequestError for a server that was not started here
        """
        raise RequestError("only a server that the drill itself started can be started again")

    @property
    def is_up(self) -> bool:
        """Whether it answers, as far as is known.

        Raises:   InferenceBenchError where a start failed
        """
        return True

    def stop(self) -> None:
        """End what was started here."""
        return


class Foreign(Server):
    """A server that somebody else runs."""

    is_ours = False

    def __init__(self, address: Address) -> None:
        self._address = address

    @property
    def address(self) -> Address:
        """Where it listens."""
        return self._address


class Restartable(Server):
    """A server of ours; the first start waits until it answers.

    Raises:   InferenceBenchError, whatever the start raises
    """

    is_ours = True

    def __init__(self, start: Callable[[], Running]) -> None:
        self._start = start
        self._running: Running | None = start()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self._address = parse_address(self._running.base_url)

    @property
    def address(self) -> Address:
        """Where it listens, or last did."""
        return self._address

    def kill(self) -> None:
        """End its process by kill -9, and collect it."""
        running, self._running = self._running, None
        if running is None:
            return
        with suppress(ProcessLookupError):
            os.kill(running.pid, signal.SIGKILL)
        running.stop()

    def begin_start(self) -> None:
        """Start it again in a thread."""
        self._error = None
        self._thread = threading.Thread(target=self._start_again, name="drill-start", daemon=True)
        self._thread.start()

    def _start_again(self) -> None:
        try:
            running = self._start()
        except BaseException as error:  # for whoever asks whether it is up
            self._error = error
            return
        self._address = parse_address(running.base_url)
        self._running = running

    @property
    def is_up(self) -> bool:
        """Whether it answers.

        Raises:   InferenceBenchError where the start failed
        """
        if isinstance(self._error, InferenceBenchError):
            raise self._error
        return self._running is not None

    def stop(self) -> None:
        """End it, a start that is going on included."""
        if self._thread is not None:
            self._thread.join()
        running, self._running = self._running, None
        if running is not None:
            running.stop()


def embedded(model: EmbeddedModel, log_path: Path, num_threads: int = 1, *, caches: bool = False) -> LlamaCppServer:
    """The embedded engine, small: two slots.

    Raises:   as LlamaCppServer.start
    """
    config = HostConfig(
        str(model.path),
        model.path.stem,
        context_tokens_total=_CONTEXT_TOKENS_PER_SLOT * EMBEDDED_SLOTS,
        num_slots=EMBEDDED_SLOTS,
        num_threads=num_threads,
        prompt_caching=caches,
    )
    return LlamaCppServer.start(config, log_path=log_path, model_sha256=model.sha256)
