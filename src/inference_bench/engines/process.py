"""A server in a process of its own that cannot outlive this program.

In:   a command, and a file for what it writes to stderr
Out:  ServerProcess: its first line of output, whether it still runs, how it ended, its processor time, and a stop that
      always works
Leaves out: what the server is and when it is ready (startup, and the adapter of that engine)
Read next by: llama_cpp, vllm, sglang.

Four nets, one behind the other: `stop`, the exit handler of this interpreter, and for an end without either of them (a
kill, a power cut of the interpreter) the closing of the child's stdin, which the child watches. The child leads a
session of its own, so a Ctrl-C in the terminal reaches this program first and the child is ended in order. A server that
does not watch its stdin, or starts processes of its own, is run by `keeper`, which does it for all of them.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from inference_bench.engines import keeper
from inference_bench.errors import ServerStartError, StorageError

_GRACE_S: Final = 5.0
_KEPT_GRACE_S: Final = 10.0  # what a server of several processes has to end in order


class ServerProcess:
    """A child process that lives until `stop`, or until this program ends in whatever way.

    Raises:   StorageError if the log cannot be written; ServerStartError if the command cannot be run
    """

    def __init__(
        self, command: Sequence[str], *, log_path: Path, env: Mapping[str, str], grace_s: float | None = None
    ) -> None:
        self._grace_s = _GRACE_S if grace_s is None else grace_s
        try:
            log = log_path.open("wb")
        except OSError as error:
            raise StorageError(f"the server's log {log_path} cannot be written: {error.strerror}") from error
        with log:
            try:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                raise ServerStartError(f"the server process could not be started: {error.strerror}") from error
        atexit.register(self.stop)
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_first_line, name="server-stdout", daemon=True)
        self._reader.start()

    @classmethod
    def keep(
        cls, command: Sequence[str], *, log_path: Path, env: Mapping[str, str], grace_s: float = _KEPT_GRACE_S
    ) -> Self:
        """The same for a command that does not watch its stdin, with all the processes that it starts.

        Raises:   as the class
        """
        kept = [sys.executable, "-I", keeper.__file__, str(grace_s), *command]
        return cls(kept, log_path=log_path, env=env, grace_s=grace_s + _GRACE_S)

    @property
    def pid(self) -> int:
        """The number of the process."""
        return self._process.pid

    def _read_first_line(self) -> None:
        if self._process.stdout is not None:
            with contextlib.suppress(OSError, ValueError):
                self._lines.put(self._process.stdout.readline())

    def wait_first_line(self, timeout_s: float) -> bytes | None:
        """The first line the server prints: None if it did not come in time, empty if the output ended without one."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def is_running(self) -> bool:
        """Whether the process exists and has not ended."""
        return self._process.poll() is None

    def wait_ended(self, timeout_s: float) -> bool:
        """Whether the process has ended, after at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        return not self.is_running()

    def cpu_s(self) -> float | None:
        """Processor time of the server and of all its processes until now; None where the system does not show it.

        Unit:     seconds, over all cores
        Source:   Linux proc_pid_stat(5): utime, stime, cutime, cstime
        """
        ticks = 0
        for pid in (self.pid, *keeper.descendants(self.pid)):
            if (fields := keeper.stat_fields(Path(f"/proc/{pid}/stat"))) is not None:
                ticks += sum(int(each) for each in fields[11:15])
        return ticks / os.sysconf("SC_CLK_TCK") if ticks else None

    def describe_end(self) -> str:
        """How the process ended, in words."""
        code = self._process.poll()
        if code is None:
            return "still runs"
        if code >= 0:
            return f"ended with exit status {code}"
        name = next((known.name for known in signal.Signals if known == -code), f"signal {-code}")
        reason = "; the system may have run out of memory" if name == "SIGKILL" else ""
        return f"was ended by {name}{reason}"

    def stop(self) -> None:
        """Ask the process to end, wait a little, end it by force, and wait until it is gone."""
        if self.is_running():
            self._process.terminate()
            if not self.wait_ended(self._grace_s):
                self._process.kill()
                self._process.wait()
        self._reader.join(_GRACE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        atexit.unregister(self.stop)
