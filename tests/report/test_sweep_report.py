"""The table of a sweep says which figures must not be believed, and counts nothing that this client stopped as a failure."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.arrival_proof import Verdict
from inference_bench.loadtest.sweep import SweepRun
from inference_bench.report.sweep_report import sweep_json, sweep_text
from inference_bench.units import format_number

from . import load_samples


def rows_of(text: str) -> dict[str, list[str]]:
    """The table's cells by level, marks kept with the level."""
    begin = text.index("-----------  ")
    lines = text[begin:].splitlines()[1:]
    cells = [line.split("  ") for line in lines if line.strip()[:1].isdigit()]
    return {kept[0]: kept for row in cells if (kept := [cell.strip() for cell in row if cell.strip()])}


def changed(run: SweepRun, place: int, **fields: object) -> SweepRun:
    points = list(run.points)
    points[place] = replace(points[place], **fields)  # type: ignore[arg-type]
    return replace(run, points=tuple(points))


def test_percentiles_of_few_samples_are_marked_and_their_number_is_said() -> None:
    run = load_samples.closed().run
    text = sweep_text(run)
    rows = rows_of(text)
    assert [row[1] for row in rows.values()] == [str(point.metrics.requests.sent) for point in run.points]
    few = next(point for point in run.points if point.level == 2)
    assert few.metrics.ttft_s is not None
    assert few.metrics.ttft_s.p99_interval is None
    assert any(cell.endswith("†") for cell in next(iter(rows.values())))
    assert "† too few samples" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_table_and_the_json_say_what_their_rates_are_of() -> None:
    run = load_samples.closed().run
    assert "are of the steady or measured window" in " ".join(sweep_text(run).split())
    found = sweep_json(run)
    assert "points[].window" in found["scope"]
    cells = [row[2:5] for row in rows_of(sweep_text(run)).values()]
    names = ("output_tokens_per_s", "requests_per_s", "good_requests_per_s")
    windows = [point["window"] for point in found["points"]]
    assert cells == [["n/a"] * 3 if w is None else [format_number(w[name]) for name in names] for w in windows]


def test_what_this_client_cancelled_is_no_failure() -> None:
    run = load_samples.closed().run
    last = run.points[-1].metrics.requests
    assert last.cancelled == 2
    text = sweep_text(run)
    assert [row[-1] for row in rows_of(text).values()] == ["0"] * len(run.points)
    assert f"neither good nor failed: {last.cancelled} at 24" in text


def test_a_level_in_doubt_has_a_letter_and_the_reason_below() -> None:
    run = load_samples.closed().run
    proof = replace(run.points[1].arrivals, verdict=Verdict.NOT_REACHED, reasons=("at most 3 in flight of 4 asked",))
    text = sweep_text(changed(run, 1, arrivals=proof))
    (marked,) = [level for level in rows_of(text) if level.startswith("4 ")]
    letter = marked.split()[1][-1]
    assert f"\n{letter} fewer in flight than asked" in text
    assert "concurrency-4: at most 3 in flight of 4 asked" in text
    broken = changed(run, 1, arrivals=replace(proof, verdict=Verdict.BROKEN), is_complete=False)
    said = sweep_text(broken)
    assert "requests did not arrive as asked" in said
    assert "(cut short)" in said


def test_rates_of_a_level_without_a_steady_window_are_not_available_and_it_judges_nothing() -> None:
    run = load_samples.closed().run
    short = replace(run, points=tuple(replace(point, window=None) for point in run.points), saturated_level=None)
    text = sweep_text(short)
    assert all(row[2:6] == ["n/a"] * 4 for row in rows_of(text).values())
    assert "whether the server was saturated is not decided" in text
    assert not any(point["is_judged"] for point in sweep_json(short)["points"])


def test_where_this_client_did_not_keep_up_it_is_not_said_that_the_server_was_saturated() -> None:
    run = load_samples.closed().run
    valid = replace(run, points=tuple(replace(p, client={**p.client, "invalid_because": None}) for p in run.points))
    assert "saturated at concurrency 8" in sweep_text(valid)
    late = tuple(
        replace(p, client={**p.client, "invalid_because": "this client was late" if p.level >= 8 else None})
        for p in run.points
    )
    text = sweep_text(replace(run, points=late))
    assert "saturated at concurrency 8" not in text
    assert "this client did not keep up" in text
