"""Shards of one load as actors of Ray, on an instance of this machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.loadtest.ray_shards import run_on_ray_shards
from inference_bench.measure.load import LoadOptions
from inference_bench.measure.target import ApiKey, Target
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.workload import Fixed, Poisson, Workload, generate
from measure.truth_server import TruthServer

pytestmark = [
    pytest.mark.ray,
    pytest.mark.skipif(
        find_spec("ray") is None,
        reason="ray is not installed, so no load was sent from it: pip install 'inference-bench[ray]'",
    ),
]


@pytest.fixture(autouse=True)
def ends() -> Iterator[None]:
    """Whatever happens, no instance of Ray stays."""
    yield
    import ray

    ray.shutdown()


@pytest.fixture
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def schedule(count: int, rate: float = 60.0) -> Workload:
    return generate(Poisson(rate), Fixed(20), Fixed(3), count, seed=5)


def test_two_shards_on_ray_send_every_request_once_and_say_whose_clock_is_whose(server: TruthServer) -> None:
    written: list[RequestRecord] = []
    options = LoadOptions(writer=written.append)
    target = Target(server.url("steady"), "tiny", api_key=ApiKey("sk-a-secret-of-tests"))
    result = run_on_ray_shards(target, schedule(40), options, 2)
    assert sorted(record.index for record in result.records if record.index is not None) == list(range(40))
    assert {record.status for record in result.records} == {RequestStatus.COMPLETED}
    assert tuple(written) == result.records
    assert [shard.num_requests for shard in result.shards] == [20, 20]
    assert {request.headers["authorization"] for request in server.of("steady")} == {"Bearer sk-a-secret-of-tests"}
    for shard in result.shards:
        assert shard.place
        assert shard.clock.is_shared
        assert 0 < shard.clock.bound_s < 1.0
    sent_s = sorted(record.sent_s for record in result.records)
    logged_s = sorted(request.content_sent_s[0] for request in server.of("steady"))
    assert abs((sent_s[-1] - sent_s[0]) - (logged_s[-1] - logged_s[0])) < 0.5
    import ray

    assert not ray.is_initialized()


def kill_one_after(server: TruthServer, num_requests: int, killed: list[int]) -> None:
    """Kill one actor's process once the server has seen so many requests."""
    deadline_s = time.monotonic() + 60
    while len(server.requests) < num_requests and time.monotonic() < deadline_s:
        time.sleep(0.05)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "cmdline").read_bytes().startswith(b"ray::RayShard"):
                killed.append(int(folder.name))
                os.kill(killed[0], signal.SIGKILL)
                return


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="actors are found in /proc, which is not here")
def test_a_shard_that_is_killed_ends_the_others_and_what_they_measured_is_written(server: TruthServer) -> None:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    written: list[RequestRecord] = []
    killed: list[int] = []
    watcher = threading.Thread(target=kill_one_after, args=(server, 20, killed))
    watcher.start()
    options = LoadOptions(writer=written.append)
    try:
        with pytest.raises(MeasurementError, match=r"shard \d of 2, on .* was lost"):
            run_on_ray_shards(Target(server.url("steady"), "tiny"), schedule(600), options, 2)
    finally:
        watcher.join()
    assert killed
    assert ray.is_initialized()
    assert 5 < sum(record.status is RequestStatus.COMPLETED for record in written) < 600


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_a_cluster_that_is_not_there_is_said_at_once(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(MeasurementError, match="no Ray cluster answers"):
        run_on_ray_shards(Target("http://127.0.0.1:1", "tiny"), schedule(4), LoadOptions(), 2)
