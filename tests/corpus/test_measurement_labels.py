"""Every machine and model that the shared measurements name is known, and counts what their table says."""

from __future__ import annotations

import csv

import pytest

from corpus.model_configs import SHARED
from inference_bench.accounting.params import count_params
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_model

MEASUREMENTS = SHARED / "data" / "measurements"

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not MEASUREMENTS.is_dir(), reason="the shared measurements are not beside this checkout"),
]


def rows() -> list[dict[str, str]]:
    read = []
    for path in sorted(MEASUREMENTS.glob("*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            read += list(csv.DictReader(file))
    return read


def nominal_bandwidths() -> dict[str, float]:
    """GB/s by machine, from the appendix of the survey the measurements came with."""
    survey = SHARED / "research" / "measurements.md"
    if not survey.is_file():
        return {}
    lines = survey.read_text(encoding="utf-8").partition("## Appendix")[2].splitlines()
    cells = [[cell.strip() for cell in line.split("|")] for line in lines if line.count("|") == 6]
    return {row[1]: float(row[3]) for row in cells if row[3].replace(".", "").isdigit()}


ROWS = rows()
NOMINAL = nominal_bandwidths()
MACHINES = sorted({row["hardware"] for row in ROWS})
MODELS = sorted({(row["model"], row["params"]) for row in ROWS})


def test_the_measurements_are_all_read() -> None:
    assert len(ROWS) == 4727
    assert (len(MACHINES), len(MODELS)) == (33, 58)


@pytest.mark.parametrize("label", MACHINES)
def test_a_machine_that_was_measured_is_known_with_what_a_prediction_needs(label: str) -> None:
    machine = hardware(label)
    assert machine.bandwidth_bytes_per_s
    assert machine.peak_flops_per_s
    assert machine.vendor
    assert machine.architecture


@pytest.mark.parametrize(("label", "billions"), MODELS)
def test_a_model_that_was_measured_is_known_and_of_the_size_given(label: str, billions: str) -> None:
    """The tables give the language model alone, so what runs once for an image is left out."""
    params = count_params(known_model(label))
    language = params.total - params.components.get("vision", 0)
    assert language == pytest.approx(float(billions) * 1e9, rel=0.03)


@pytest.mark.parametrize("label", NOMINAL)
def test_every_machine_of_the_survey_is_known_with_about_the_bandwidth_it_gives(label: str) -> None:
    machine = hardware(label)
    assert machine.bandwidth_bytes_per_s == pytest.approx(NOMINAL[label] * 1e9, rel=0.035)
    assert machine.peak_flops_per_s
