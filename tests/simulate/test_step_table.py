"""Tables of measured step times."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from inference_bench.errors import MeasurementTableError, RequestError
from inference_bench.origin import Origin
from inference_bench.simulate.step_table import (
    Grid,
    MeasuredStep,
    read_step_times,
    step_time_from_rows,
    table_step_time,
)
from inference_bench.simulate.step_time import Coefficients, StepPart, StepTime

PLAIN = """phase,batch,tokens,seconds
decode,1,100,0.010
decode,1,300,0.012
decode,1,100,0.011
decode,1,100,0.030
decode,4,100,0.014
decode,4,300,0.020
prefill,1,100,0.020
prefill,1,400,0.050
prefill,2,200,0.054
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8")
    return path


def decode_s(found: object, batch: int, context: int) -> float:
    return found.step_s([StepPart(context - 1, 1, True)] * batch)  # type: ignore[attr-defined,no-any-return]


def test_settings_are_medians_and_what_lies_between_is_linear(tmp_path: Path) -> None:
    found = read_step_times(written(tmp_path, PLAIN))
    assert found.origin is Origin.MEASURED
    assert decode_s(found, 1, 100) == pytest.approx(0.011)
    assert decode_s(found, 1, 200) == pytest.approx(0.0115)
    assert decode_s(found, 4, 300) == pytest.approx(0.020)
    assert decode_s(found, 2, 100) == pytest.approx(0.011 + (0.014 - 0.011) / 3)
    assert found.step_s([StepPart(0, 400, False)]) == pytest.approx(0.052)  # the median of 0.050 and 0.054
    assert found.step_s([StepPart(0, 250, False)]) == pytest.approx((0.020 + 0.052) / 2)


def test_a_mixed_step_pays_the_least_step_once(tmp_path: Path) -> None:
    found = read_step_times(written(tmp_path, PLAIN))
    mixed = [*[StepPart(299, 1, True)] * 4, StepPart(0, 400, False)]
    assert found.step_s(mixed) == pytest.approx(0.020 + 0.052 - 0.011)


def test_gaps_in_the_grid_are_filled_along_each_batch() -> None:
    rows = [
        MeasuredStep(True, 1, 100, 0.010),
        MeasuredStep(True, 1, 300, 0.020),
        MeasuredStep(True, 8, 200, 0.040),
        MeasuredStep(False, 1, 100, 0.010),
    ]
    found = step_time_from_rows(rows, "made")
    assert decode_s(found, 1, 200) == pytest.approx(0.015)
    assert decode_s(found, 8, 300) == pytest.approx(0.040)


def test_splitwise_times_are_in_milliseconds_and_its_broken_rows_are_left_out(tmp_path: Path) -> None:
    head = "model,hardware,prompt_size,batch_size,token_size,peak_power,average_power,prompt_time,token_time,e2e_time,tensor_parallel\n"
    body = (
        "m,a,512,1,128,1,1,100,50,0,2\nm,a,512,1,128,1,1,120,52,0,2\nm,a,512,1,128,1,1,900,51,0,2\n"
        "m,a,512,64,128,1,1,1,1,0,2\nm,a,512,1,128,1,1,60,30,0,4\n"
    )
    path = written(tmp_path, head + body)
    found = read_step_times(path, "M", 2)
    assert found.step_s([StepPart(0, 512, False)]) == pytest.approx(0.120)
    assert decode_s(found, 1, 576) == pytest.approx(0.051)
    with pytest.raises(MeasurementTableError, match="m over 2, m over 4"):
        read_step_times(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("phase,batch,seconds\n", "no column tokens"),
        ("batch,tokens\n", "no column phase, seconds"),
        ("phase,batch,tokens,seconds\nthinking,1,1,1\n", "line 2: phase is 'thinking'"),
        ("phase,batch,tokens,seconds\ndecode,1,1,nan\n", "line 2: seconds is 'nan'"),
        ("phase,batch,tokens,seconds\ndecode,1,1,-1\n", "line 2: seconds is '-1'"),
        ("phase,batch,tokens,seconds\ndecode,1\n", "line 2: tokens"),
        ("phase,batch,tokens,seconds\ndecode,1,1,0\n", "line 2: seconds is '0'"),
        ("phase,batch,tokens,seconds\ndecode,1,1,1e308\n", "line 2: seconds is '1e308'.*between 1e-09 and 1e.06"),
        ("phase,batch,tokens,seconds\ndecode,1,1,1e-300\n", "line 2: seconds is '1e-300'"),
        ("phase,batch,tokens,seconds\ndecode,0.5,1,1\n", "line 2: batch is '0.5'"),
        ("phase,batch,tokens,seconds\n\ndecode,1.7,1,1\n", "line 3: batch is '1.7'; a whole number"),
        ("phase,batch,tokens,seconds\ndecode,1e300,1,1\n", "line 2: batch is '1e300'"),
        ("phase,batch,tokens,seconds\ndecode,1,1e300,1\n", "line 2: tokens is '1e300'"),
        ("phase,batch,tokens,seconds\ndecode,1,1,1,2\n", "line 2: it has more fields than the 4 columns"),
        ("phase,batch, Batch,tokens,seconds\ndecode,1,2,3,4\n", "two columns 'batch'"),
        ("phase,batch,tokens,context,seconds\ndecode,1,2,3,4\n", "tokens and context mean the same"),
        (
            "phase,batch,tokens,seconds\ndecode,1,100,1\ndecode,2,100,0.1\nprefill,1,1,1\n",
            "a batch of 2 with 100 tokens takes 0.1 s, less than half of the 1 s of a batch of 1",
        ),
        (
            "phase,batch,tokens,seconds\ndecode,1,1,1\nprefill,1,100,10\nprefill,1,200,0.001\n",
            "reading prompts: a batch of 1 with 200 tokens takes 0.001 s",
        ),
        ("phase,batch,tokens,seconds\ndecode,1,1,1\n", "reading prompts was not measured"),
        ("", "no column"),
    ],
)
def test_broken_tables_are_refused_by_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(MeasurementTableError, match=says):
        read_step_times(written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasurementTableError, match="cannot be read"):
        read_step_times(tmp_path / "none.csv")


def test_grids_must_grow_and_be_full() -> None:
    grid = Grid((1.0, 2.0), (0.0,), ((1.0,), (2.0,)))
    assert table_step_time(grid, grid, 0.5, Origin.GIVEN, "made").step_s([StepPart(0, 1, True)]) == 1.0
    for rows, columns, seconds in (
        ((2.0, 1.0), (0.0,), ((1.0,), (2.0,))),
        ((1.0, 2.0), (0.0,), ((1.0,),)),
        ((1.0,), (0.0,), ((-1.0,),)),
        ((), (0.0,), ()),
        ((1.0,), (0.0,), ((math.nan,),)),
        ((math.nan,), (0.0,), ((1.0,),)),
        ((1.0, math.nan), (0.0,), ((1.0,), (1.0,))),
        ((1.0, math.inf), (0.0,), ((1.0,), (1.0,))),
        ((1.0,), (0.0,), ((1e300,),)),
    ):
        with pytest.raises(RequestError):
            Grid(rows, columns, seconds)


@pytest.mark.parametrize(
    "table",
    [
        (1.0,),
        (2.0, 0.0),
        (12.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0),
        (12.0, 0.0, 1.0, 1.0, 1.0, 0.0, math.nan, 1.0, 1.0, 1.0, 0.0, 1.0),
        (12.0, 0.0, 1e9, 1e9, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0),
        (math.nan, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0),
        (),
    ],
)
def test_a_step_time_needs_two_whole_grids(table: tuple[float, ...]) -> None:
    whole = (12.0, 0.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0)
    plain = Coefficients(0.0, 0.0, 0.0, 0.0, 1.0, 1.0)
    assert StepTime(plain, table=whole).step_s([StepPart(0, 1, True)]) == 1.0
    with pytest.raises(RequestError, match="table of step times"):
        StepTime(plain, table=table)
