"""From files to a report, and cross-validation that never saw what it predicts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import inference_bench
from inference_bench.errors import MeasurementTableError, MissingExtraError, RequestError
from inference_bench.predict.efficiency.parameters import Calibration
from inference_bench.score.flow import score_tables
from score.tables import PROMPTS, SERVING, write_table

EXAMPLE = Path(__file__).parents[2] / "examples" / "measured.csv"
BATCHES = (1, 4, 16, 64)


def three_machines(folder: Path, factor: float = 1.0, of: str = "B200", key: str = "hardware") -> Path:
    """Steps on three machines with two models; those of one are measured so many times longer."""
    rows = [
        {
            "hardware": machine,
            "model": model,
            "batch_or_concurrency": str(batch),
            "value": repr(base * (factor if of in (machine, model) else 1.0) * (1 + 0.05 * batch)),
        }
        for machine, base in (("H100 SXM", 6.0), ("A100-80GB SXM", 10.0), ("B200", 3.5))
        for model in ("Llama-3.1-8B", "Qwen3-8B")
        for batch in BATCHES
    ]
    return write_table(folder / f"{key}.csv", *rows)


def test_the_example_that_ships_is_predicted_whole() -> None:
    found = inference_bench.score_tables([EXAMPLE])
    assert (found.overall.rows, found.overall.coverage) == (8, 1.0)
    assert all(score.rows for score in found.by_phase.values())
    assert found.overall.median_ape is not None
    assert found.overall.bound_median_ape is not None
    assert found.overall.median_ape < 0.2 < found.overall.bound_median_ape


def test_a_folder_is_its_tables_and_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    one, two = write_table(tmp_path / "a.csv", {}), write_table(tmp_path / "b.csv", {}, {})
    (tmp_path / "notes.txt").write_text("not a table")
    found = score_tables([tmp_path, one, str(two), tmp_path / ".." / tmp_path.name / "a.csv"])
    assert (found.files, found.overall.rows) == (("a.csv", "b.csv"), 3)


def test_nothing_to_score_is_a_mistake_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    header = write_table(tmp_path / "header.csv")
    for paths, message in (
        ([], "no table was named"),
        ([tmp_path / "empty"], "no \\*.csv in this folder"),
        ([header], "header.csv row 1: a header and no rows"),
        ([tmp_path / "none.csv"], "no such file"),
    ):
        with pytest.raises(MeasurementTableError, match=message):
            score_tables(paths)
    assert score_tables([header, write_table(tmp_path / "one.csv", {})]).overall.rows == 1


def test_a_table_of_which_nothing_can_be_predicted_is_a_report_without_errors(tmp_path: Path) -> None:
    found = score_tables([write_table(tmp_path / "t.csv", {"hardware": "Abacus"})])
    assert (found.overall.coverage, found.overall.median_ape, found.worst) == (0.0, None, ())


def test_a_mode_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {}, {"hardware": "B200"})
    with pytest.raises(RequestError, match="calibration 'all' is not known; known: none, one, several"):
        score_tables([path], calibrate="all")
    with pytest.raises(RequestError, match="cross-validation by 'engine' is not known; known: device, model"):
        score_tables([path], cross_validate="engine")


def test_one_machine_alone_cannot_be_left_out(tmp_path: Path) -> None:
    path = write_table(tmp_path / "t.csv", {}, PROMPTS)
    for key in ("device", "model"):
        with pytest.raises(RequestError, match="at least 2 are needed"):
            score_tables([path], cross_validate=key)


def test_serving_rows_of_one_machine_alone_are_left_out_of_cross_validation_and_said_so(tmp_path: Path) -> None:
    steps = [
        {"hardware": name, "batch_or_concurrency": str(batch)} for name in ("H100 SXM", "B200") for batch in (1, 4)
    ]
    found = score_tables([write_table(tmp_path / "t.csv", *steps, SERVING, SERVING)], cross_validate="device")
    assert (found.overall.rows, found.overall.predicted, found.by_phase["serving_tpot"].predicted) == (6, 4, 0)
    assert [(item.reason, item.rows) for item in found.not_predicted] == [
        ("no other machine of these tables has rows of its kind to fit on", 2)
    ]


def test_cross_validation_without_numpy_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("numpy", "inference_bench.score.cross_validation", "inference_bench.score.fitting"):
        monkeypatch.setitem(sys.modules, name, None)
    path = three_machines(tmp_path)
    assert score_tables([path]).overall.coverage == 1.0
    with pytest.raises(MissingExtraError, match=r"pip install 'inference-bench\[fit\]'"):
        score_tables([path], cross_validate="device")


@pytest.mark.parametrize(("key", "of"), [("device", "B200"), ("model", "Qwen3-8B")])
@pytest.mark.parametrize("mode", [Calibration.NONE, Calibration.ONE])
def test_what_is_left_out_never_moves_its_own_prediction(tmp_path: Path, key: str, of: str, mode: Calibration) -> None:
    """Rows measured twice as long change predictions of the others, and their own only where one of them was spent."""
    reports = [
        score_tables([three_machines(tmp_path, factor, of)], cross_validate=key, calibrate=mode)
        for factor in (1.0, 2.0)
    ]
    own, others = [], []
    for before, after in zip(*(found.scored for found in reports), strict=True):
        assert before.case.row.row == after.case.row.row
        changed = before.measured_s != after.measured_s
        (own if changed else others).append((before.predicted_s, after.predicted_s))
    assert own
    assert any(before != pytest.approx(after, rel=1e-3) for before, after in others)
    if mode is Calibration.NONE:
        assert all(before == pytest.approx(after, rel=1e-9) for before, after in own)


def test_progress_names_each_machine_that_is_left_out(tmp_path: Path) -> None:
    said: list[str] = []
    score_tables([three_machines(tmp_path)], cross_validate="device", progress=said.append)
    assert len(said) == 3
    assert all("refit without" in text for text in said)


def test_the_first_assumption_says_whether_the_rows_were_seen(tmp_path: Path) -> None:
    path = three_machines(tmp_path)
    shipped, crossed = score_tables([path]), score_tables([path], cross_validate="device", calibrate="one")
    assert shipped.assumptions[0].startswith("IN-SAMPLE if")
    assert "fitted without its machine" in crossed.assumptions[0]
    assert "3 rows were spent, one of each phase" in crossed.assumptions[-1]
    assert (crossed.calibration, crossed.cross_validation) == (Calibration.ONE, "device")
    assert (crossed.overall.predicted, crossed.overall.spent, crossed.overall.scored) == (24, 3, 21)


def test_a_link_that_leads_back_to_itself_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "loop.csv").symlink_to("loop.csv")
    for path in (tmp_path, tmp_path / "loop.csv"):
        with pytest.raises(MeasurementTableError, match="link that leads to no file"):
            score_tables([path])


@pytest.mark.parametrize("mode", list(Calibration))
def test_a_long_table_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: Calibration) -> None:
    monkeypatch.setattr("inference_bench.score.watched.EVERY", 10)
    monkeypatch.setattr("inference_bench.score.calibrated.EVERY", 10)
    said: list[str] = []
    score_tables([three_machines(tmp_path)], calibrate=mode, progress=said.append)
    assert said[:4] == ["read 10 rows", "read 20 rows", "asked 10 rows", "asked 20 rows"]
    assert said[-1].startswith("predicted ")
    assert len(said) >= 7
