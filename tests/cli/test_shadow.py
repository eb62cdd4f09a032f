"""`shadow`, `suite` and `compare --decide` end to end, against servers of known behaviour."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.commands import refused, run_json
from inference_bench.cli.main import main
from inference_bench.measure.store import RunFolder, read_records
from measure.truth_server import TruthServer
from operate.rollout.made import recorded_run


@pytest.fixture(scope="module")
def server() -> Iterator[TruthServer]:
    with TruthServer() as running:
        yield running


def test_a_shadow_is_sent_the_recorded_requests_and_shown_beside_them(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded_run(tmp_path)
    arguments = ("shadow", server.url("at_once"), "--from", str(run), "--runs", str(tmp_path), "--served-model", "m")
    found = run_json(capsys, *arguments)
    assert (found["schema"], found["num_requests"], found["num_compared"]) == ("inference-bench/shadow/1", 4, 4)
    # recorded: a first token after 100 ms
    assert found["figures"]["ttft_p50_s"]["first"] == pytest.approx(0.1, abs=1e-6)
    assert found["figures"]["completed_fraction"]["second"] == 1.0
    shadow = Path(found["run_dir"])
    assert RunFolder.open(shadow).read_meta()["shadow"] == {
        "of": run.name, "part": "measure", "speed": 1.0, "num_requests": 4
    }  # fmt: skip
    asked = [r.requested_output_tokens for r in read_records(shadow).records if r.group == "measure"]
    assert sorted(asked) == [2, 3, 4, 5]
    page = (shadow / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 2
    # the two are the same work by construction, so that a verdict may be asked for
    decided = run_json(capsys, "compare", str(run), str(shadow), "--decide", code=1)
    assert (decided["verdict"], decided["schema"]) == ("hold", "inference-bench/compare-decision/1")
    assert decided["needed_requests"] >= 368
    json.dumps(decided, allow_nan=False)


def test_the_server_that_was_recorded_is_not_sent_a_single_request(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = recorded_run(tmp_path, target=server.url("steady"))
    before = len(server.requests)
    assert "a shadow is another one" in refused(capsys, "shadow", server.url("steady"), "--from", str(run))
    trace = tmp_path / "t.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n")
    primary = ("--primary", server.url("steady"))
    assert "a shadow is another one" in refused(
        capsys, "shadow", server.url("at_once"), "--trace", str(trace), *primary
    )
    assert len(server.requests) == before


def test_a_trace_is_replayed_as_fast_as_asked_with_its_own_times_and_a_suite(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, suite = tmp_path / "t.csv", tmp_path / "s.jsonl"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,5,2\n1,5,2\n50,5,2\n")
    suite.write_text('{"prompt": "x", "expected": "aa", "max_tokens": 2}\n{"prompt": "x", "expected": "b"}\n')
    arguments = ("shadow", server.url("at_once"), "--trace", str(trace), "--speed", "20", "--max-requests", "2")
    more = ("--suite", str(suite), "--runs", str(tmp_path), "--served-model", "m", "--no-report")
    assert main([*arguments, *more]) == 1  # one answer is not as expected
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    said = " ".join(shown.split())
    assert "replayed at 20 times the speed" in said
    assert "2 requests, 2 completed" in said
    assert "Not compared with what was recorded: a trace holds no latencies" in said
    assert "1 of 2 answers are exactly as expected" in said
    assert "nothing says where the recorded requests went" in said


def test_a_suite_alone_exits_1_where_an_answer_is_not_as_expected_and_says_which(
    server: TruthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = tmp_path / "s.jsonl"
    suite.write_text('{"prompt": "x", "expected": "a", "max_tokens": 1}\n{"prompt": "x", "expected": "b"}\n')
    arguments = ("suite", server.url("at_once"), str(suite), "--runs", str(tmp_path), "--served-model", "m")
    assert main([*arguments]) == 1
    assert "by their place in the file: 2" in capsys.readouterr().out
    suite.write_text('{"prompt": "x", "expected": "a", "max_tokens": 1}\n')
    found = run_json(capsys, *arguments)
    assert (found["num_right"], found["num_items"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "a"), "1 runs are given"),
        (("compare", "a", "b", "--rules", "r.toml"), "add --decide"),
        (("compare", "a", "--baseline", "b", "--canary", "c"), "and none beside them"),
        (("compare", "--baseline", "b"), "name the runs of both sides"),
        (("compare", "a", "b", "--decide", "--limit", "nonsense"), "is not understood"),
        (("compare", "a", "b", "--decide"), "is not a run folder"),
        (("shadow", "http://127.0.0.1:1", "--from", "nowhere"), "is not a run folder"),
        (("shadow", "http://127.0.0.1:1", "--trace", "nowhere"), "nowhere"),
        (("suite", "http://127.0.0.1:1", "nowhere.jsonl"), "cannot be read"),
    ],
)
def test_what_is_asked_wrongly_is_one_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert said in refused(capsys, *arguments)
