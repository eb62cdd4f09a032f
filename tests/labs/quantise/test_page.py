"""The page of the quantise lab: what it says of figures written down by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from inference_bench.labs.quantise.result import ReferenceRow
from inference_bench.report.lab_page import lab_html, lab_text
from inference_bench.report.lab_quantise import four_bits, lab_page, smallest_lossless
from inference_bench.report.lab_quantise_tables import signed
from inference_bench.report.report_html import Provenance
from labs.quantise.sample import sample_result


def said() -> str:
    return " ".join(lab_page(sample_result()).reading)


def test_the_first_sentence_names_the_best_and_the_worst_way_to_4_bits() -> None:
    first = lab_page(sample_result()).reading[0]
    assert first.startswith("GPTQ int4 group 64 costs least here at about 4 bits: perplexity 23.00 (+15.0 %)")
    assert "int4 channel costs most, 46.00 (× 2.30)" in first


def test_only_weights_are_compared_at_4_bits() -> None:
    assert [row.name for row in four_bits(sample_result().methods)] == [
        "GPTQ int4 group 64",
        "int4 group 64",
        "int4 channel",
    ]


def test_fewest_bits_without_loss_are_those_of_a_method_within_one_percent() -> None:
    found = smallest_lossless(sample_result())
    assert found is not None
    assert found.name == "int8 channel"


def test_sentences_carry_the_figures_of_activations_outliers_cache_tasks_and_files() -> None:
    text = said()
    assert (
        "Rounding activations to 8 bits as well costs × 2.05 by W8A8 static, and +20.0 % by SmoothQuant 0.8 static"
        in text
    )
    assert "Channel 7 of the input of down_proj in block 2 reaches 32.0 times the median channel" in text
    assert "KV 4 bits costs +1.00 %; KV 2 bits costs +25.0 %, the most of 2 ways" in text
    assert (
        "float32 copies 90.0 % and int4 channel 50.0 %, the fewest; of their answers in JSON 100 % and 25.0 % are valid"
        in text
    )
    assert "q4_0 decodes × 2.00 as fast as the one in f16, where the bytes it reads promise × 2.98" in text


def test_weights_that_were_rounded_before_are_said_to_be_and_only_those() -> None:
    said_of = {fmt: lab_page(replace(sample_result(), stored_format=fmt)).reading[2] for fmt in ("q4_1", None)}
    assert said_of["q4_1"].startswith("float32 here is q4_1 read back, 5.00 bits a weight in the model's own file")
    assert "says nothing of a model of full precision" in said_of["q4_1"]
    assert "read back" not in said_of[None]  # type: ignore[index]


def test_a_gain_beyond_what_the_bytes_promise_is_not_credited_to_the_format() -> None:
    base, file = sample_result().gguf
    fast = lab_page(replace(sample_result(), gguf=(base, replace(file, measured_gain=4.61)))).reading
    assert any("× 4.61" in line and "more than the bytes explain" in line for line in fast)
    assert "more than the bytes explain" not in said()


def test_every_method_stands_in_one_table_of_perplexities() -> None:
    tables = [
        table for table in lab_page(sample_result()).tables if any(c.title == "perplexity" for c in table.columns)
    ]
    names = [row[0] for table in tables[:4] for row in table.rows]
    assert sorted(names) == sorted(row.name for row in sample_result().methods)


def test_text_fits_a_terminal_and_the_html_page_has_every_format() -> None:
    page = lab_page(sample_result())
    assert max(map(len, lab_text(page).splitlines())) <= 100
    html = lab_html(page, Provenance("0", "inference-bench lab quantise", "2026-11-30", {}), None)
    assert all(row.name in html for row in sample_result().formats)


def test_no_method_is_cut_however_long_its_name_is() -> None:
    names = {
        "GPTQ": "GPTQ int4 group 64, damping 10 %",
        "Mixed precision": "int4 group 64, down and ends at 8 bits",
        "KV cache": "KV 2 bits, K by channel, V by token, 0 exact",
    }
    rows = [replace(row, name=names.get(row.family, row.name)) for row in sample_result().methods]
    rows += [replace(rows[2], family="Mixed precision", name=names["Mixed precision"])]
    text = lab_text(lab_page(replace(sample_result(), methods=tuple(rows))))
    assert all(f"\n{name} " in text for name in names.values())


def test_known_answers_are_counted_and_one_that_is_off_is_marked() -> None:
    rows = (
        ReferenceRow("float32", 20.8462, 20.85, 0.0002, 0.002),
        ReferenceRow("int4 channel", 46.0, 50.0, 0.087, 0.01),
    )
    page = lab_page(sample_result(rows, "run on the published model"))
    assert "1 of 2 known answers are met" in page.reading[-1]
    table = next(table for table in page.tables if table.title == "Known answers")
    assert table.marked == {1}


def test_known_answers_that_could_not_be_run_say_why() -> None:
    rows = (ReferenceRow("float32", 20.8462, None, None, 0.002),)
    page = lab_page(sample_result(rows, "no network"))
    assert page.reading[-1] == "The known answers could not be checked here: no network"


def test_a_result_without_files_or_outliers_says_nothing_of_them() -> None:
    page = lab_page(replace(sample_result(), gguf=(), outliers=()))
    assert not any("real file" in line or "Channel" in line for line in page.reading)


@pytest.mark.parametrize(
    ("fraction", "text"), [(0.0, "0 %"), (0.0123, "+1.23 %"), (-0.5, "-50.0 %"), (1.0, "× 2.00"), (9.0, "× 10.0")]
)
def test_a_change_is_a_percentage_and_from_twice_on_a_factor(fraction: float, text: str) -> None:
    assert signed(fraction) == text
