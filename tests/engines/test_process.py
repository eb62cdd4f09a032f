from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.engines import process as process_module
from inference_bench.engines.process import ServerProcess
from inference_bench.errors import ServerStartError, StorageError

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of Unix")

UNTIL_STDIN_CLOSES = "import sys; print('ready', flush=True); sys.stdin.read()"
DEAF = "import signal, time; signal.signal(15, signal.SIG_IGN); print('ready', flush=True); time.sleep(600)"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    started: list[ServerProcess] = []

    def run(program: str) -> ServerProcess:
        started.append(ServerProcess([sys.executable, "-c", program], log_path=tmp_path / "log", env=dict(os.environ)))
        return started[-1]

    yield run
    for server in started:
        server.stop()


def is_gone(pid: int) -> bool:
    """Whether a process that is no child of ours has ended; one that only waits to be collected has."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until_gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while not (gone := is_gone(pid)) and time.monotonic() < until:
        time.sleep(0.02)
    return gone


def test_the_first_line_comes_through_and_the_process_runs_until_it_is_stopped(start) -> None:
    server = start(UNTIL_STDIN_CLOSES)
    assert server.wait_first_line(30) == b"ready\n"
    assert server.is_running()
    assert server.describe_end() == "still runs"
    server.stop()
    assert not server.is_running()
    assert is_gone(server.pid)


def test_stopping_twice_is_harmless(start) -> None:
    server = start(UNTIL_STDIN_CLOSES)
    server.stop()
    server.stop()
    assert not server.is_running()


def test_a_process_that_ignores_the_request_to_end_is_ended_by_force(start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "_GRACE_S", 0.2)
    server = start(DEAF)
    assert server.wait_first_line(30) == b"ready\n"
    server.stop()
    assert server.describe_end() == "was ended by SIGKILL; the system may have run out of memory"
    assert is_gone(server.pid)


def test_a_silent_process_gives_no_line_in_time_and_one_that_ends_gives_an_empty_one(start) -> None:
    assert start("import time; time.sleep(600)").wait_first_line(0.05) is None
    assert start("raise SystemExit(3)").wait_first_line(30) == b""


def test_how_a_process_ended_is_told_in_words(start) -> None:
    left = start("raise SystemExit(3)")
    assert left.wait_ended(30)
    assert left.describe_end() == "ended with exit status 3"
    killed = start("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert killed.wait_ended(30)
    assert killed.describe_end() == "was ended by SIGSEGV"


def test_a_running_process_has_not_ended_after_the_wait(start) -> None:
    assert not start(UNTIL_STDIN_CLOSES).wait_ended(0.05)


def test_what_the_process_writes_to_stderr_is_in_the_log(start, tmp_path: Path) -> None:
    server = start("import sys; print('about to fail', file=sys.stderr)")
    assert server.wait_ended(30)
    assert (tmp_path / "log").read_text() == "about to fail\n"


def test_a_log_that_cannot_be_written_is_said_before_anything_is_started(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="No such file or directory"):
        ServerProcess(["true"], log_path=tmp_path / "no" / "log", env={})


def test_a_command_that_does_not_exist_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ServerStartError, match="No such file or directory"):
        ServerProcess([str(tmp_path / "nothing")], log_path=tmp_path / "log", env={})


PARENT = f"""
import os, sys, time
from pathlib import Path
from inference_bench.engines.process import ServerProcess
server = ServerProcess([sys.executable, "-c", {UNTIL_STDIN_CLOSES!r}], log_path=Path(sys.argv[1]), env=dict(os.environ))
server.wait_first_line(30)
print(server.pid, flush=True)
"""


@contextlib.contextmanager
def running_parent(tmp_path: Path, rest: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A program that has started a server, and that server's number; both are gone afterwards, whatever happens."""
    command = [sys.executable, "-c", PARENT + rest, str(tmp_path / "log")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        try:
            yield parent, pid
        finally:
            parent.kill()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("rest", "exit_status"),
    [("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1), ("os._exit(4)", 4)],
    ids=["end of program", "sys.exit", "an error nobody catches", "an exit without any handler"],
)
def test_the_process_does_not_outlive_a_program_that_forgets_it(tmp_path: Path, rest: str, exit_status: int) -> None:
    with running_parent(tmp_path, rest) as (parent, pid):
        assert parent.wait(30) == exit_status
        assert wait_until_gone(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_process_does_not_outlive_a_program_that_is_ended_by_a_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with running_parent(tmp_path, "time.sleep(600)") as (parent, pid):
        parent.send_signal(number)
        assert parent.wait(30) == -number
        assert wait_until_gone(pid)
