from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines.test_process import is_gone, wait_until_gone
from inference_bench.engines import keeper
from inference_bench.engines.process import ServerProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="adopts and finds processes as Linux does")

# A server of three processes: a child in its group, and a grandchild that left it for a session of its own.
FAMILY = """
import os, subprocess, sys, time
sleep = "import time; time.sleep(600)"
near = subprocess.Popen([sys.executable, "-c", sleep])
far = subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True)
with open(sys.argv[1] + ".new", "w") as file:
    file.write(f"{os.getpid()} {near.pid} {far.pid}")
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""
STAYS, ENDS = FAMILY + "time.sleep(600)", FAMILY + "sys.exit(7)"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + STAYS


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    started: list[ServerProcess] = []

    def run(program: str, grace_s: float = 5.0) -> ServerProcess:
        command = [sys.executable, "-c", program, str(tmp_path / "pids")]
        started.append(ServerProcess.keep(command, log_path=tmp_path / "log", env=dict(os.environ), grace_s=grace_s))
        return started[-1]

    yield run
    for server in started:
        server.stop()


def family(folder: Path) -> list[int]:
    until = time.monotonic() + 30
    while not (folder / "pids").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    return [int(each) for each in (folder / "pids").read_text().split()]


def test_stopping_ends_every_process_also_one_that_left_the_group(start, tmp_path: Path) -> None:
    server = start(STAYS)
    pids = family(tmp_path)
    assert len(set(pids)) == 3
    assert not any(map(is_gone, pids))
    server.stop()
    assert all(map(is_gone, pids))
    assert is_gone(server.pid)


def test_a_server_that_will_not_end_is_ended_by_force_with_all_its_processes(start, tmp_path: Path) -> None:
    server = start(DEAF, grace_s=0.2)
    pids = family(tmp_path)
    began = time.monotonic()
    server.stop()
    assert all(map(is_gone, pids))
    assert time.monotonic() - began < 5


def test_what_a_server_leaves_behind_when_it_ends_by_itself_is_ended_and_its_status_is_told(
    start, tmp_path: Path
) -> None:
    server = start(ENDS)
    pids = family(tmp_path)
    assert server.wait_ended(30)
    assert server.describe_end() == "ended with exit status 7"
    assert all(map(is_gone, pids))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_server_that_is_killed_is_told_to_have_been(start, tmp_path: Path, number: signal.Signals) -> None:
    server = start(STAYS)
    pids = family(tmp_path)
    os.kill(pids[0], number)
    assert server.wait_ended(30)
    assert number.name in server.describe_end()
    assert all(map(is_gone, pids))


def test_nothing_is_left_when_the_keeper_itself_is_killed(start, tmp_path: Path) -> None:
    server = start(STAYS)
    first, *others = family(tmp_path)
    os.kill(server.pid, signal.SIGKILL)
    try:
        assert wait_until_gone(first), "the system ends the command with it"
    finally:
        for pid in others:
            os.kill(pid, signal.SIGKILL)


PARENT = """
import os, sys, time
from pathlib import Path
from inference_bench.engines.process import ServerProcess
command = [sys.executable, "-c", sys.argv[2], sys.argv[1] + "/pids"]
server = ServerProcess.keep(command, log_path=Path(sys.argv[1]) / "log", env=dict(os.environ), grace_s=2.0)
print(server.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_the_program_that_asked_for_the_server(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path), STAYS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        kept = int(parent.stdout.readline())
        pids = family(tmp_path)
        parent.send_signal(number)
        assert parent.wait(30) == -number
        assert all(map(wait_until_gone, (kept, *pids)))


def test_what_every_process_prints_is_in_the_log(start, tmp_path: Path) -> None:
    server = start(
        "import os, sys; print('to stdout', flush=True); print('to stderr', file=sys.stderr); os.system('echo child')"
    )
    assert server.wait_ended(30)
    assert sorted((tmp_path / "log").read_text().splitlines()) == ["child", "to stderr", "to stdout"]


def test_a_command_that_does_not_exist_ends_at_once_and_is_named_in_the_log(tmp_path: Path) -> None:
    server = ServerProcess.keep([str(tmp_path / "nothing")], log_path=tmp_path / "log", env=dict(os.environ))
    assert server.wait_ended(30)
    assert "nothing" in (tmp_path / "log").read_text()
    server.stop()


def test_processor_time_counts_every_process_of_a_server(start) -> None:
    busy = (
        "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\nprint('done', flush=True)"
    )
    server = start(
        f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {busy!r}])\n{busy}\ntime.sleep(600)"
    )
    until = time.monotonic() + 30
    while (server.cpu_s() or 0.0) < 0.5 and time.monotonic() < until:
        time.sleep(0.05)
    assert 0.5 <= (server.cpu_s() or 0.0) < 5
    server.stop()
    assert server.cpu_s() is None


def test_descendants_are_found_down_to_the_last(start, tmp_path: Path) -> None:
    server = start(STAYS)
    pids = family(tmp_path)
    assert set(keeper.descendants(server.pid)) == set(pids)


@pytest.mark.parametrize("text", ["", "1 (a) S 1", "no bracket at all"])
def test_a_stat_file_that_is_gone_or_odd_gives_nothing(tmp_path: Path, text: str) -> None:
    assert keeper.stat_fields(tmp_path / "absent") is None
    (tmp_path / "stat").write_text(text)
    assert keeper.stat_fields(tmp_path / "stat") is None


def test_a_process_whose_name_holds_brackets_and_spaces_is_read(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("7 (a) b) c (d) S 42 " + " ".join(map(str, range(60))))
    fields = keeper.stat_fields(tmp_path / "stat")
    assert fields is not None
    assert fields[:3] == ["S", "42", "0"]
