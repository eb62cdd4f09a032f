"""What is run around a server, around one real vLLM: its contract, its manifest, a watch, a drill, and its cache by tenant.

Runs where INFERENCE_BENCH_VLLM names an environment with vLLM in it, as `make test-vllm` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_bench.engines.start import start_engine
from inference_bench.engines.startup import StartedServer
from inference_bench.manifest.check import check_manifest
from inference_bench.manifest.components import Group
from inference_bench.manifest.create import Sources, create_manifest
from inference_bench.operate.contract.flow import Wish, check_contract
from inference_bench.operate.contract.rows import Verdict
from inference_bench.operate.drill.flow import DrillRequest, run_drill
from inference_bench.operate.drill.isolation import IsolationRequest, probe_isolation
from inference_bench.operate.drill.isolation import Verdict as Isolation
from inference_bench.operate.drill.scenarios import scenarios_named
from inference_bench.operate.watch.flow import Watch
from inference_bench.operate.watch.observer import WatchOptions
from inference_bench.operate.watch.states import Alive, Ready, Room
from inference_bench.operate.watch.targets import watched
from real.vllm_model import ONLY_WHERE_IT_IS, SETTINGS, model_folder

pytestmark = ONLY_WHERE_IT_IS


@pytest.fixture(scope="module")
def folder() -> Path:
    return model_folder()


@pytest.fixture(scope="module")
def server(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartedServer]:
    with start_engine("vllm", folder, SETTINGS, log_path=tmp_path_factory.mktemp("vllm") / "engine.log") as running:
        yield running


def test_its_contract_is_told(server: StartedServer) -> None:
    found = check_contract(server.base_url, Wish(is_quick=True))
    assert (found.lost, found.is_interrupted) == (None, False)
    told = {row.id: row.verdict for row in found.rows}
    for held in (
        "limits.max_tokens",
        "streaming.include_usage",
        "stops.string",
        "structured.json_schema",
        "greedy.batched",
    ):
        assert told[held] is Verdict.YES, held
    for not_held in ("limits.n_predict", "tools.accepted"):  # the server was started without a parser of tool calls
        assert told[not_held] is Verdict.NO, not_held


def test_it_serves_what_its_folder_holds_and_renders_the_template_to_the_same_tokens(
    server: StartedServer, folder: Path
) -> None:
    manifest = create_manifest(Sources((str(folder),)))
    found = check_manifest(manifest, Sources((server.base_url,)))
    assert not found.differs
    same = {each.group for each in found.components if each.verdict == "same"}
    assert same >= {Group.WEIGHTS, Group.TOKENIZER, Group.CHAT_TEMPLATE, Group.TOKEN_IDS}


def test_it_is_alive_ready_and_has_room(server: StartedServer) -> None:
    (view,) = Watch(watched([server.base_url]), WatchOptions(probe_timeout_s=60)).once().views
    assert (view.alive, view.ready, view.room) == (Alive.YES, Ready.YES, Room.ROOM)
    assert view.engine == "vLLM"
    assert view.figures is not None
    assert view.figures.cache_headroom_tokens == 23_296  # as test_vllm_engine counts


def test_streams_of_it_that_break_are_accounted_for(server: StartedServer) -> None:
    scenarios = scenarios_named(["stall", "reset", "server-errors"])
    found = run_drill(DrillRequest(scenarios, url=server.base_url, least_requests=8), lambda line: None)
    assert [scenario.problems for scenario in found.scenarios] == [()] * 3
    assert found.has_passed


def test_a_salt_keeps_its_tenants_apart_and_nothing_else_does(server: StartedServer) -> None:
    found = probe_isolation(IsolationRequest(server.base_url, rounds=8), lambda line: None)
    assert (found.engine, [arm.verdict for arm in found.arms]) == ("vllm", [Isolation.SHARED, Isolation.NOT_SEEN])
