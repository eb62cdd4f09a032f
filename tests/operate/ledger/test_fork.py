"""A child of a fork never waits for a thread that only its parent has."""

from __future__ import annotations

from pathlib import Path

from inference_bench.workload.traces import read_trace
from operate.ledger.made import kept
from operate.ledger.test_recorder import child

# another thread is in the middle of a write, and holds the lock, when the process forks
FORKED = """
import os, signal, sys, threading
from pathlib import Path
from operate.ledger.made import whole
from inference_bench.operate.ledger import Content, ContentLog, Recorder, content_log, record_file
from inference_bench.operate.rollout import recorder as trace
from inference_bench.operate.rollout.recorder import TraceRecorder

folder, kind = Path(sys.argv[1]), sys.argv[2]
if kind == "records":
    module, log = record_file, Recorder(folder, applications=("chat",), teams=("core",))
    write = lambda number: log(whole(number))
elif kind == "content":
    module, log = content_log, ContentLog(folder, 3600)
    write = lambda number: log.write(f"id-{number}", Content("asked", "said"))
else:
    module, log = trace, TraceRecorder(folder / "trace.csv")
    write = lambda number: log.ended(log.arrived(), number, number)
write(1)
holds, goes_on = threading.Event(), threading.Event()
real = module.write_all
def slow(*arguments):
    if threading.current_thread() is not threading.main_thread():
        holds.set()
        goes_on.wait()
    real(*arguments)
module.write_all = slow
thread = threading.Thread(target=write, args=(2,))
thread.start()
holds.wait()
if (pid := os.fork()) == 0:
    signal.alarm(10)  # the end of a child that waits for ever
    write(3)
    log.close()
    if kind == "trace":
        print(log.trouble, flush=True)
    os._exit(0)
status = os.waitpid(pid, 0)[1]
goes_on.set()
thread.join()
log.close()
print(status)
"""


def forked(folder: Path, kind: str) -> str:
    out, err = child(FORKED, str(folder), kind).communicate(timeout=60)
    assert err == ""
    return out


def test_a_recorder_in_a_child_waits_for_no_thread_of_its_parent_and_has_a_file_of_its_own(tmp_path: Path) -> None:
    assert forked(tmp_path, "records") == "0\n"
    assert sorted(len(file.read_text().splitlines()) - 1 for file in tmp_path.glob("*.jsonl")) == [1, 2]
    assert kept(tmp_path).sums.num_requests == 3


def test_a_content_log_in_a_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    assert forked(tmp_path, "content") == "0\n"
    assert sorted(len(file.read_text().splitlines()) - 1 for file in tmp_path.glob("*.jsonl")) == [1, 2]


def test_a_trace_recorder_in_a_child_neither_waits_nor_writes_into_its_parents_file_and_says_why(
    tmp_path: Path,
) -> None:
    assert forked(tmp_path, "trace").startswith("this process is a child of the one that records")
    assert list(read_trace(tmp_path / "trace.csv").requests.prompt_tokens) == [1, 2]
