"""What the page of the machine lab says, and that it fits a terminal."""

from __future__ import annotations

from inference_bench.report.lab_machine import lab_page
from inference_bench.report.lab_page import lab_text
from labs.machine.sample import result_of


def test_the_first_sentence_gives_both_ceilings_and_the_ridge() -> None:
    assert lab_page(result_of()).reading[0] == (
        "This machine reads memory at 10.1 GB/s and multiplies float32 matrices at 101 GFLOP/s: below 10.0 FLOP/byte memory is the limit"
    )


def test_a_difference_is_told_with_every_value_and_its_reasons() -> None:
    said = lab_page(result_of(torch_slower=2.0)).reading[1]
    assert said.startswith(
        "PyTorch, NumPy and the probe differ on bandwidth by more than 15.0 %: 5.05 GB/s by PyTorch, 10.1 GB/s by NumPy in turns with it"
    )
    assert "Haswell" in lab_page(result_of(torch_slower=2.0)).reading[2]


def test_agreement_is_told_as_such() -> None:
    assert (
        lab_page(result_of(torch_slower=1.0)).reading[1].startswith("PyTorch, NumPy and the probe agree on bandwidth")
    )


def test_rows_above_the_probes_roof_are_told_and_marked() -> None:
    page = lab_page(result_of(torch_slower=1.0, probe_slower=2.0))
    assert any("6 of 6 rows lie above the probe's roof" in line for line in page.reading)
    assert page.details[0].marked


def test_every_line_fits_100_columns() -> None:
    assert max(map(len, lab_text(lab_page(result_of())).splitlines())) <= 100
