"""Clients of ServeGen: their rates, gaps and lengths come through, and a folder that is none is refused."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from inference_bench.errors import TraceError
from inference_bench.workload import OpenLoop, Workload, read_trace

# start, rate, cv, distribution, shape, scale; the mean gap is shape · scale, or scale · gamma(1 + 1 / shape)
STEADY = (
    "0,4.0,0.5,Gamma,4.0,0.0625\n600,1.0,1.0,Weibull,1.0,1.0\n1200,0.0,0.0,,0.0,0.0\n1800,4.0,0.5,Gamma,4.0,0.0625\n"
)
QUIET = "0,0.5,1.0,Gamma,1.0,2.0\n600,0.5,1.0,Gamma,1.0,2.0\n1200,0.5,1.0,Gamma,1.0,2.0\n1800,0.5,1.0,Gamma,1.0,2.0\n"
LENGTHS = {"0": {"input_tokens": "{100: 0.5, 300: 0.5}", "output_tokens": "{10: 0.25, 20: 0.75}"},
           "600": {"input_tokens": "{7: 1.0}", "output_tokens": "{3: 1.0}"}}  # fmt: skip


def client(folder: Path, number: int, windows: str, lengths: object = LENGTHS) -> Path:
    (folder / f"chunk-{number}-dataset.json").write_text(json.dumps(lengths))
    path = folder / f"chunk-{number}-trace.csv"
    path.write_text(windows)
    return path


def times(workload: Workload) -> list[float]:
    assert isinstance(workload.arrival, OpenLoop)
    return list(workload.arrival.times_s)


def test_a_client_asks_at_the_rate_and_with_the_lengths_of_each_window(tmp_path: Path) -> None:
    workload = read_trace(client(tmp_path, 0, STEADY))
    shapes = list(zip(workload.requests.prompt_tokens, workload.requests.output_tokens, strict=True))
    sent = times(workload)
    first = [shape for time_s, shape in zip(sent, shapes, strict=True) if time_s < 599]
    second = [shape for time_s, shape in zip(sent, shapes, strict=True) if 600 < time_s < 1199]
    assert len(first) == pytest.approx(2400, abs=6 * math.sqrt(2400) * 0.5)
    assert len(second) == pytest.approx(600, abs=6 * math.sqrt(600))
    assert not [time_s for time_s in sent if 1201 < time_s < 1799]  # silent
    assert set(second) == {(7, 3)}
    # one draw picks both at the same quantile: 1/4 below both, 1/4 with a short prompt and a long output, 1/2 above both
    counts = Counter(first)
    assert set(counts) == {(100, 10), (100, 20), (300, 20)}
    assert counts[(300, 20)] == pytest.approx(len(first) / 2, abs=6 * math.sqrt(len(first)) / 2)
    assert counts[(100, 10)] == pytest.approx(len(first) / 4, abs=6 * math.sqrt(len(first)) / 2)


def test_gaps_follow_the_distribution_of_the_window(tmp_path: Path) -> None:
    windows = "0,100.0,0.5,Gamma,4.0,0.0025\n"
    gaps = [after - before for before, after in pairwise(times(read_trace(client(tmp_path, 0, windows))))]
    assert len(gaps) == pytest.approx(60_000, rel=0.02)
    assert statistics.pstdev(gaps) / statistics.fmean(gaps) == pytest.approx(0.5, rel=0.03)


def test_a_folder_holds_all_clients_and_tenant_says_which(tmp_path: Path) -> None:
    client(tmp_path, 3, QUIET)
    client(tmp_path, 12, STEADY)
    workload = read_trace(tmp_path)
    tenants = Counter(workload.requests.tenant or ())
    assert tenants[0] == pytest.approx(1200, abs=6 * math.sqrt(1200))
    assert tenants[1] == pytest.approx(5400, abs=6 * math.sqrt(5400))
    assert "2 ServeGen clients" in workload.notes[0]
    assert read_trace(tmp_path, "servegen", seed=0) == workload
    assert read_trace(tmp_path, "servegen", seed=1) != workload


def test_a_limit_keeps_the_first_requests_of_the_same_draw(tmp_path: Path) -> None:
    client(tmp_path, 0, QUIET)
    client(tmp_path, 1, STEADY)
    few, more = read_trace(tmp_path, limit=50), read_trace(tmp_path, limit=100)
    assert (len(few), len(more)) == (50, 100)
    assert times(few) == times(more)[:50]


def test_what_cannot_be_sent_is_dropped_under_a_name(tmp_path: Path) -> None:
    lengths = {"600": {"input_tokens": "{0: 0.5, 8: 0.5}", "output_tokens": "{3: 1.0}"},
               "1200": {"input_tokens": "{}", "output_tokens": "{}"}}  # fmt: skip
    workload = read_trace(client(tmp_path, 0, QUIET, lengths))
    assert set(workload.requests.prompt_tokens) == {8}
    names = " ".join(workload.notes)
    assert "requests of windows without lengths" in names
    assert "requests drawn without prompt or output tokens" in names
    with pytest.raises(TraceError, match=r"no request that can be sent: .* requests of windows without lengths"):
        read_trace(client(tmp_path, 0, QUIET, {}))


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ("", "is empty"),
        ("0,1,1,Gamma,1\n", "line 1: not a window of a ServeGen client; six fields"),
        ("0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n", "line 2: not a window"),
        ("0,1,1,Pareto,1,1\n", "gaps are 'Pareto'; Gamma or Weibull"),
        ("0,1,1,Gamma,0,1\n", "that is not above 0"),
        ("0,nan,1,Gamma,1,1\n", "that is not above 0"),
        ("600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", "do not follow one another in time"),
        ("0,0,0,,0,0\n", "every client is silent"),
    ],
)
def test_windows_that_cannot_be_are_refused(tmp_path: Path, windows: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(client(tmp_path, 0, windows))


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([], "not a JSON object of windows"),
        ({"x": {}}, "start is not a number"),
        ({"0": {"text_tokens": "{1: 1.0}", "image_count": "{1: 1.0}"}}, "text clients alone"),
        ({"0": {"input_tokens": [1], "output_tokens": "{1: 1.0}"}}, "is \\[1\\]; text such as"),
        ({"0": {"input_tokens": "{'a': 1.0}", "output_tokens": "{1: 1.0}"}}, "text such as"),
        ({"0": {"input_tokens": "{1: 2.0}", "output_tokens": "{1: 1.0}"}}, "does not lie between 0 and 1"),
        ({"0": {"input_tokens": "{1: 0.0}", "output_tokens": "{1: 1.0}"}}, "no length with a probability"),
    ],
)
def test_lengths_that_cannot_be_are_refused(tmp_path: Path, lengths: object, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(client(tmp_path, 0, QUIET, lengths))


def test_a_folder_without_clients_or_a_client_without_lengths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"has no chunk-N-trace\.csv"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="is not a folder of ServeGen clients"):
        read_trace(tmp_path / "x.csv", "servegen")
    path = client(tmp_path, 0, QUIET)
    (tmp_path / "chunk-0-dataset.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(TraceError, match="not JSON"):
        read_trace(path)
    (tmp_path / "chunk-0-dataset.json").unlink()
    with pytest.raises(TraceError, match=r"no file .*dataset"):
        read_trace(path)
