"""`capacity` end to end: the published search through the command line, replays, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli.main import main
from inference_bench.report.text import display_columns
from inference_bench.simulate.capacity import _interval
from simulate.reference_case import published

QUICK = ("--seeds", "0", "--longer", "1", "--steps", "3", "--count", "40")
PROMISE = ("--ttft-p99", "3s", "--itl-p99", "100ms")


class Command:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def text(self, *options: str, code: int = 0) -> str:
        assert main(["capacity", *options]) == code
        return self._capsys.readouterr().out

    def json(self, *options: str, code: int = 0) -> dict[str, Any]:
        found = json.loads(self.text(*options, "--json", code=code))
        assert isinstance(found, dict)
        return found

    def refused(self, *options: str) -> str:
        with pytest.raises(SystemExit) if "--concurrency" in options else _nothing():
            assert main(["capacity", *options]) == 2
        shown = self._capsys.readouterr()
        assert shown.out == ""
        return shown.err


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


@pytest.fixture
def capacity(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    draws, now_s, lines = random.Random(1), 0.0, ["arrival_s,prompt_tokens,output_tokens"]
    for index in range(120):
        now_s += 0.0 if index % 12 else 12.0  # a dozen at once, and then nobody
        lines.append(f"{now_s},{draws.randint(500, 1500)},{draws.randint(5, 80)}")
    path = tmp_path / "bursts.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("profile", ["24GB-bf16", "H100-bf16"])
def test_the_published_capacity_comes_through_the_command_line(capacity: Command, profile: str) -> None:
    expected = published("slo_capacity")["rows"][profile]
    options = ("--low", "0.01", "--high", "4", "--seeds", "0", "--longer", "1", "--profile", profile)
    found = capacity.json(*PROMISE, *options)
    assert found["nominal_rate"] == pytest.approx(expected["nominal"], abs=1e-9)
    assert found["policy"] == "chunked"
    assert found["preemptions"] == expected["preemptions"]
    for column, key in (("ttft99", "ttft_p99_s"), ("itl99", "itl_p99_s"), ("throughput", "output_tokens_per_s")):
        assert found[key] == pytest.approx(expected[column], rel=1e-6)
    assert found["realised_rate"] == pytest.approx(expected["realised"], rel=1e-6)
    price = published("slo_capacity")["profiles"][profile]["usd_per_hour"]
    usd = price / (expected["throughput"] * 3600) * 1e6
    assert found["usd_per_million_output_tokens"] == pytest.approx(usd, rel=1e-6)


def test_every_promised_key_is_there(capacity: Command) -> None:
    found = capacity.json(*PROMISE, "--seeds", "2", "--longer", "2", "--steps", "3", "--count", "40")
    assert found["schema"] == "inference-bench/capacity/1"
    stable = {
        "nominal_rate",
        "realised_rate",
        "interval",
        "nearby",
        "usd_per_million_output_tokens",
        "ttft_p99_s",
        "preemptions",
    }
    more = {"below", "longer", "warnings", "seed_rates", "limits", "num_runs", "checks", "assumptions", "server"}
    assert stable | more <= set(found)
    assert len(found["seed_rates"]) == 3
    assert found["interval"]["low"] < found["interval"]["high"]
    assert all({"nominal_rate", "met", "missed", "ttft_p99_s"} <= set(each) for each in found["nearby"])
    assert found["longer"]["num_requests"] == 80
    assert found["checks"]["kept"] is True


def test_where_no_rate_keeps_the_promise_the_answer_is_no(capacity: Command) -> None:
    found = capacity.json("--ttft-p99", "1ms", *QUICK, code=1)
    assert (found["nominal_rate"], found["ttft_p99_s"], found["interval"]) == (None, None, None)
    assert "no rate keeps p99 TTFT <= 1.00 ms" in capacity.text("--ttft-p99", "1ms", *QUICK, code=1)


def test_a_looser_promise_allows_a_higher_rate(capacity: Command) -> None:
    strict, loose = (capacity.json("--ttft-p99", limit, *QUICK)["nominal_rate"] for limit in ("2s", "20s"))
    assert strict < loose


def test_two_servers_take_more_than_one_and_cost_twice_as_much_an_hour(capacity: Command) -> None:
    options = ("--ttft-p99", "3s", *QUICK, "--policy", "paged", "--prompt-tokens", "500", "--output-tokens", "50")
    one = capacity.json(*options)
    two = capacity.json(*options, "--replicas", "2", "--routing", "least-work")
    assert two["nominal_rate"] > one["nominal_rate"]
    assert two["servers"] == 2
    ratio = two["usd_per_million_output_tokens"] / one["usd_per_million_output_tokens"]
    assert ratio == pytest.approx(2 * one["output_tokens_per_s"] / two["output_tokens_per_s"])


def test_a_trace_in_bursts_has_a_longer_tail_than_random_arrivals(capacity: Command, trace: Path) -> None:
    found = capacity.json("--trace", str(trace), "--replay")
    assert found["schema"] == "inference-bench/replay/1"
    assert found["ttft_p99_ratio"] > 1
    assert found["ttft_p99_ratio"] == pytest.approx(found["replayed"]["ttft_p99_s"] / found["poisson"]["ttft_p99_s"])
    assert found["capacity"] == {"replayed": None, "poisson": None}
    both = capacity.json("--trace", str(trace), "--replay", "--ttft-p99", "5s", "--longer", "1")["capacity"]
    assert both["replayed"]["nominal_rate"] < both["poisson"]["nominal_rate"]
    shown = capacity.text("--trace", str(trace), "--replay", "--ttft-p99", "5s", "--longer", "1")
    assert "times that of random (Poisson) arrivals" in " ".join(shown.split())
    assert max(map(display_columns, shown.splitlines())) <= 100


def test_a_trace_is_scaled_to_its_capacity(capacity: Command, trace: Path) -> None:
    found = capacity.json("--trace", str(trace), "--ttft-p99", "5s")
    assert found["num_requests"] == 120
    assert (found["longer"], found["seed_rates"]) == (None, [found["nominal_rate"]])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "no objective"),
        (("--ttft-p99", "0"), "above 0"),
        (("--ttft-p99", "soon"), "not a number"),
        ((*PROMISE, "--rate", "1"), "what is looked for"),
        ((*PROMISE, "--low", "2", "--high", "1"), "not in order"),
        ((*PROMISE, "--low", "0"), "lowest rate to look at is 0.0 requests/s; it must be from 1e-09"),
        ((*PROMISE, "--high", "1e-300"), "highest rate to look at is 1e-300 requests/s; it must be from 1e-09"),
        ((*PROMISE, "--policy", "all"), "one scheduler"),
        ((*PROMISE, "--policy", "chunkd"), "nearest: chunked"),
        ((*PROMISE, "--replay"), "name a trace"),
        ((*PROMISE, "--autoscale", "1:4"), "whose number changes"),
        ((*PROMISE, "--steps", "0"), "1 to 60"),
        ((*PROMISE, "--kv-memory", "1kB"), "can never fit"),
        ((*PROMISE, "--concurrency", "4"), "--concurrency"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(capacity: Command, options: tuple[str, ...], said: str) -> None:
    assert said in capacity.refused(*options)


def test_a_trace_without_times_has_no_rate(capacity: Command, tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps([{"conversations": turns, "prompt_tokens": 200, "output_tokens": 20}] * 40))
    options = (*PROMISE, *QUICK, "--trace", str(path))
    assert "name arrivals" in capacity.refused(*options)
    assert capacity.json(*options, "--arrivals", "poisson")["nominal_rate"] > 0


def test_bursts_are_scaled_with_the_rate_and_that_is_said(capacity: Command) -> None:
    found = capacity.json(*PROMISE, *QUICK, "--arrivals", "on-off:10s:10s")
    assert any("durations of bursts" in note for note in found["notes"])


def test_what_was_tried_is_drawn(capacity: Command, tmp_path: Path) -> None:
    file = tmp_path / "chart.json"
    capacity.text(*PROMISE, *QUICK, "--chart", str(file))
    assert json.loads(file.read_text())["description"]
    assert "no known kind" in capacity.refused(*PROMISE, "--chart", "x.png")


def test_the_text_fits_a_terminal(capacity: Command) -> None:
    shown = capacity.text(*PROMISE, "--seeds", "1", "--longer", "2", "--steps", "3", "--count", "40")
    assert max(map(display_columns, shown.splitlines())) <= 100
    assert all(word in shown for word in ("simulated", "assumptions", "checks", "runs in all", "USD a million"))


@pytest.mark.timeout(60)
def test_where_servers_fail_all_the_time_the_answer_is_no_and_comes_soon(capacity: Command) -> None:
    found = capacity.json(*PROMISE, *QUICK, "--replicas", "2", "--mtbf", "10s", "--mttr", "10s", code=1)
    assert found["nominal_rate"] is None
    assert found["num_runs"] <= 20
    # no request is answered at all: missed, and no mistake in the question
    none = capacity.json(*PROMISE, *QUICK, "--replicas", "2", "--mtbf", "1ms", "--mttr", "1s", code=1)
    assert none["nominal_rate"] is None


def test_requests_that_miss_even_one_by_one_are_not_tried_at_ever_lower_rates(capacity: Command) -> None:
    for policy, most in (("chunked", 3), ("dynamic", 40)):
        found = capacity.json("--ttft-p99", "1ms", *QUICK, "--policy", policy, code=1)
        assert found["num_runs"] <= most


def test_where_there_is_nothing_to_draw_the_answer_is_printed_all_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "chart.svg"
    assert main(["capacity", "--ttft-p99", "1ms", *QUICK, "--chart", str(file)]) == 1
    shown = capsys.readouterr()
    assert "no rate keeps" in shown.out
    assert "there is nothing to draw" in shown.err
    assert not file.exists()


def test_an_interval_needs_three_draws_and_does_not_reach_below_nothing() -> None:
    assert _interval([1.0, 2.0]) is None
    wide = _interval([0.0, 0.0, 3.0])
    assert wide is not None
    assert (wide.low, wide.high > 3.0) == (0.0, True)


def test_a_draw_that_came_faster_than_asked_is_a_doubt(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                "capacity",
                "--ttft-p99",
                "3s",
                "--itl-p99",
                "100ms",
                "--low",
                "0.01",
                "--high",
                "4",
                "--seeds",
                "0",
                "--longer",
                "1",
            ]
        )
        == 0
    )
    assert "came 12% faster than asked for" in " ".join(capsys.readouterr().out.split())
