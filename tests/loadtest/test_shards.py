"""Several processes send one schedule together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from inference_bench.arrival_proof import Verdict, prove_arrivals
from inference_bench.errors import MeasurementError
from inference_bench.loadtest.shards import run_sharded
from inference_bench.loadtest.shards_clock import check_clock
from inference_bench.loadtest.shards_merge import merge_health
from inference_bench.loadtest.shards_work import Secrets, ShardOutcome, deal, make_tasks
from inference_bench.measure.client_health import ClientHealth, ErrorBound
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.load import LoadOptions
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.measure.target import ApiKey, Target
from inference_bench.origin import Origin
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.workload import Fixed, OpenLoop, Poisson, RequestShape, Workload, closed_loop, generate
from measure.truth_server import TruthServer

PATIENCE_S = 30.0
KEY = "sk-a-secret-of-tests"


@pytest.fixture
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def schedule(count: int = 60, rate: float = 100.0) -> Workload:
    return generate(Poisson(rate), Fixed(20), Fixed(3), count, seed=5)


def children() -> set[int]:
    """Processes whose parent is this one."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(folder.name))
    return found


def test_two_processes_send_every_request_once_with_the_prompt_one_process_would_have_sent(
    server: TruthServer, tmp_path: Path
) -> None:
    workload, folder = schedule(), RunFolder.create(tmp_path, "load")
    prompts = PromptMaker(7, salt="s")
    alone = [PromptMaker(7, salt="s").make(20, serial).text for serial in range(len(workload))]
    target = Target(server.url("steady"), "tiny", api_key=ApiKey(KEY))
    said: list[tuple[int, int]] = []
    options = LoadOptions(prompts=prompts, progress=lambda *so_far: said.append(so_far), group="measure")
    before = children()
    result = run_sharded(target, workload, options, 2, folder)
    assert children() == before
    assert sorted(record.index for record in result.records if record.index is not None) == list(range(60))
    assert {record.status for record in result.records} == {RequestStatus.COMPLETED}
    assert sorted(request.prompt for request in server.of("steady")) == sorted(alone)
    assert {request.headers["authorization"] for request in server.of("steady")} == {f"Bearer {KEY}"}
    assert [shard.num_requests for shard in result.shards] == [30, 30]
    assert said[-1] == (60, 60)
    assert prompts.reserve(1) == 60
    stored = read_records(folder.path)
    assert {record.request_id for record in stored.records} == {record.request_id for record in result.records}
    assert len(list(folder.path.glob("requests-*.journal"))) == 2
    assert KEY not in "".join(path.read_bytes().decode("latin-1") for path in folder.path.iterdir())


def test_the_processes_begin_together_on_one_clock_and_the_arrivals_are_as_asked(server: TruthServer) -> None:
    workload = schedule(80)
    options = LoadOptions()
    asked_s = options.clock()
    result = run_sharded(Target(server.url("steady"), "tiny"), workload, options, 2)
    if sys.platform == "linux":
        assert all(shard.clock.is_shared and shard.clock.offset_s == 0 for shard in result.shards)
    planned = {record.index: record.planned_s for record in result.records}
    times_s = workload.arrival.times_s if isinstance(workload.arrival, OpenLoop) else array("d")
    begin_s = planned[0] - times_s[0]
    assert begin_s > asked_s
    assert max(abs(planned[index] - begin_s - time_s) for index, time_s in enumerate(times_s)) < 1e-6
    assert "gaps" not in " ".join(prove_arrivals(result.records, workload.arrival).reasons)


def test_the_proof_over_merged_records_catches_workers_that_share_a_seed() -> None:
    one = generate(Poisson(50.0), Fixed(1), Fixed(1), 200, seed=5)
    assert isinstance(one.arrival, OpenLoop)
    both = sorted([*one.arrival.times_s, *one.arrival.times_s])
    records = [record_at(f"r{index}", time_s) for index, time_s in enumerate(both)]
    asked = generate(Poisson(100.0), Fixed(1), Fixed(1), 400, seed=5)
    assert prove_arrivals(records, asked.arrival).verdict is Verdict.BROKEN
    right = [record_at(f"r{index}", asked.arrival.times_s[index]) for part in deal(asked, 2) for index in part]  # type: ignore[union-attr]
    assert prove_arrivals(right, asked.arrival).verdict is Verdict.KEPT


def test_without_a_folder_every_record_goes_to_the_writer(server: TruthServer) -> None:
    written: list[RequestRecord] = []
    options = LoadOptions(writer=written.append)
    result = run_sharded(Target(server.url("steady"), "tiny"), schedule(20), options, 2)
    assert len(written) == 20
    assert tuple(written) == result.records


def test_the_slots_of_a_closed_loop_are_split_and_each_request_has_one(server: TruthServer) -> None:
    workload = closed_loop("loop", [RequestShape(20, 5)], 5, 40)
    parts = deal(workload, 2)
    assert sorted(index for part in parts for index in part) == list(range(40))
    tasks = make_tasks(Target("http://127.0.0.1:1"), workload, LoadOptions(), 2)
    assert [task.workload.arrival.concurrency for task in tasks] == [3, 2]  # type: ignore[union-attr]
    assert [len(task.indices) for task in tasks] == [24, 16]
    result = run_sharded(Target(server.url("steady"), "tiny"), workload, LoadOptions(), 2)
    assert len({record.index for record in result.records}) == 40
    concurrency = prove_arrivals(result.records, workload.arrival).concurrency
    assert concurrency is not None
    assert concurrency.peak <= 5


def test_fewer_slots_than_processes_leave_some_out() -> None:
    assert len(deal(closed_loop("loop", [RequestShape(1, 1)], 2, 10), 8)) == 2
    assert len(deal(schedule(3), 8)) == 3


def test_the_turns_of_a_conversation_stay_in_one_process() -> None:
    workload = schedule(6)
    requests = replace(workload.requests, session=array("q", [0, 1, 0, 1, 0, 1]), turn=array("q", [0, 0, 1, 1, 2, 2]))
    assert deal(replace(workload, requests=requests), 2) == [(0, 2, 4), (1, 3, 5)]


def test_a_timed_load_sets_aside_every_prompt_that_it_sent(server: TruthServer) -> None:
    prompts, target = PromptMaker(3), Target(server.url("steady"), "tiny")
    options = LoadOptions(prompts=prompts, duration_s=0.5, cooldown_s=0.1)
    run_sharded(target, closed_loop("loop", [RequestShape(20, 2)], 4, 8), options, 2)
    said = [request.prompt for request in server.of("steady")]
    assert len(said) > 8
    assert len(set(said)) == len(said)
    later = PromptMaker(3).make(20, prompts.reserve(1)).text
    assert later not in said


def test_two_loads_of_one_run_keep_journals_of_their_own(server: TruthServer, tmp_path: Path) -> None:
    folder, target = RunFolder.create(tmp_path, "load"), Target(server.url("steady"), "tiny")
    prompts = PromptMaker(1)
    for group in ("one", "two"):
        run_sharded(target, schedule(10), LoadOptions(group=group, prompts=prompts), 2, folder)
    groups = [record.group for record in read_records(folder.path).records]
    assert sorted(groups) == ["one"] * 10 + ["two"] * 10


def test_no_secret_is_in_a_task_or_a_repr() -> None:
    target = Target("http://127.0.0.1:1", api_key=ApiKey(KEY), extra_headers={"X-Other": "another-secret"})
    (task, _) = make_tasks(target, schedule(4), LoadOptions(), 2)
    secrets = Secrets.of(target)
    for shown in (repr(task), repr(secrets)):
        assert KEY not in shown
        assert "another-secret" not in shown
    whole = task.target_with(secrets)
    assert whole.secret_headers == target.secret_headers


def test_an_error_in_one_process_ends_all_and_is_raised_here(server: TruthServer) -> None:
    before = children()
    with pytest.raises(MeasurementError, match="failed; the first"):
        run_sharded(Target(server.url("broken"), "tiny"), schedule(40, 50.0), LoadOptions(), 2)
    assert children() == before


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are counted in /proc, which is not here")
def test_a_process_that_is_killed_ends_the_others_and_what_was_measured_is_kept(
    server: TruthServer, tmp_path: Path
) -> None:
    folder, before = RunFolder.create(tmp_path, "load"), children()
    killed: list[int] = []

    def kill_one(ended: int, planned: int) -> None:
        if not killed and ended > 20:
            mine = [pid for pid in children() - before if b"spawn_main" in command_of(pid)]
            killed.append(mine[-1])
            os.kill(mine[-1], signal.SIGKILL)

    options = LoadOptions(progress=kill_one)
    with pytest.raises(MeasurementError, match=r"process \d of 2 .* was ended by SIGKILL") as failure:
        run_sharded(Target(server.url("steady"), "tiny"), schedule(400, 80.0), options, 2, folder)
    assert str(folder.path) in str(failure.value)
    assert children() == before
    kept = read_records(folder.path).records
    assert 20 < sum(record.status is RequestStatus.COMPLETED for record in kept) < 400


def command_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


STOPPED = """
import sys
from pathlib import Path
from inference_bench.loadtest.shards import run_sharded
from inference_bench.measure.load import LoadInterrupted, LoadOptions
from inference_bench.measure.store import RunFolder
from inference_bench.measure.target import Target
from inference_bench.workload import Fixed, Poisson, generate

def say(ended, planned):
    if ended > 10:
        print("measuring", flush=True)

if __name__ == "__main__":
    folder = RunFolder.open(Path(sys.argv[2]))
    workload = generate(Poisson(50.0), Fixed(20), Fixed(3), 2000, seed=5)
    try:
        run_sharded(Target(sys.argv[1], "tiny"), workload, LoadOptions(progress=say), 2, folder)
    except LoadInterrupted as stopped:
        print("kept", len(stopped.result.records), len(stopped.result.shards))
        sys.exit(130)
"""


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("whole_group", [True, False], ids=["a terminal's Ctrl-C", "a signal to one process"])
def test_ctrl_c_keeps_what_was_measured_and_ends_every_process(
    server: TruthServer, tmp_path: Path, whole_group: bool
) -> None:
    folder, script = RunFolder.create(tmp_path, "load"), tmp_path / "stopped.py"
    script.write_text(STOPPED, encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, str(script), server.url("steady"), str(folder.path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "measuring\n"
        (os.killpg if whole_group else os.kill)(process.pid, signal.SIGINT)
        said, complaints = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.wait()
    assert complaints == ""
    assert process.returncode == 130
    word, num_kept, num_shards = said.splitlines()[-1].split()
    assert (word, num_shards) == ("kept", "2")
    assert int(num_kept) > 10
    assert len(read_records(folder.path).records) == int(num_kept)
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            os.killpg(process.pid, 0)
        except (ProcessLookupError, PermissionError):
            break
        assert time.monotonic() < deadline_s, "a process is still running"
        time.sleep(0.05)


def test_a_clock_is_known_to_half_a_round_trip() -> None:
    found = check_clock(lambda: time.perf_counter() - 5.0, same_machine=False)
    assert abs(found.offset_s - 5.0) <= found.bound_s
    assert not found.is_shared
    assert check_clock(time.perf_counter, same_machine=True).offset_s == 0
    steps = iter(range(1000))
    with pytest.raises(MeasurementError, match="stepped"):
        check_clock(lambda: time.perf_counter() + 10 * next(steps), same_machine=False)


def test_the_merged_health_is_that_of_the_worst_client() -> None:
    bound = ErrorBound("ttft_s", "p99", 0.5, 0.001)
    good = ClientHealth(0.0, 0.0, StampSource.KERNEL, 0.0, 0.1, 1e-5, 2e-5, cpu_share=0.2, error_bounds=(bound,))
    bad = replace(
        good, stamp_source=StampSource.USER, user_stamped_fraction=1.0, cpu_share=0.9, read_delay_p99_s=3e-3,
        error_bounds=(replace(bound, bound_s=0.5),),
    )  # fmt: skip
    records = [record_at(f"r{n}", n / 10, (n / 10 + 0.4,)) for n in range(4)]
    outcomes = [ShardOutcome(0, tuple(records[:3]), good), ShardOutcome(1, tuple(records[3:]), bad)]
    merged = merge_health(records, outcomes, [0.001, 0.003])
    assert merged.stamp_source is StampSource.USER
    assert merged.user_stamped_fraction == pytest.approx(0.25)
    assert (merged.cpu_share, merged.read_delay_p99_s) == (0.9, 3e-3)
    assert merged.error_bounds[0].value_s == pytest.approx(0.4)
    assert merged.error_bounds[0].bound_s == 0.5
    assert merged.invalid_because is not None
    assert merge_health(records, outcomes[:1], ()).invalid_because is None


def record_at(name: str, time_s: float, chunks_s: tuple[float, ...] = ()) -> RequestRecord:
    return RequestRecord(
        name, Origin.MEASURED, Stage.MEASURE, RequestStatus.COMPLETED, time_s, time_s, time_s + 0.5, chunks_s,
        output_tokens=len(chunks_s) or None, token_count_source=TokenCountSource.SERVER_USAGE,
    )  # fmt: skip
