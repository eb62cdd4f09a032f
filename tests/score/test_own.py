"""A user's own table or verify run becomes corrections of the fit; a file that cannot is one line that says why."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inference_bench.errors import InferenceBenchError, RequestError
from inference_bench.facts.hardware import hardware, hardware_from_description
from inference_bench.facts.load import known_loaded_model
from inference_bench.origin import Origin
from inference_bench.predict.efficiency import Calibration, OwnMeasurements, Phase, Question, engine_setting, expect
from inference_bench.predict.efficiency.bounds import bound_of
from inference_bench.predict.efficiency.question import shape
from inference_bench.predict.step_cost import ServedModel
from inference_bench.score.own import calibration_from
from shapes import cache_in

HEADER = "model,weight_format,hardware,engine,phase,batch_or_concurrency,input_len,output_len,metric,value,unit"
CARD = hardware("rtx-4090")
MODEL = known_loaded_model("llama-3.1-8b")


def table(folder: Path, *rows: str) -> Path:
    path = folder / "mine.csv"
    path.write_text("\n".join([HEADER, *rows]), encoding="utf-8")
    return path


def row(value: float, engine: str = "llama.cpp", on: str = "RTX 4090", batch: int = 1) -> str:
    return f"Llama-3.1-8B,Q4_K_M,{on},{engine},decode,{batch},512,128,decode_tok_s,{value},tok/s"


def question_of(machine: Any = CARD) -> Question:
    from inference_bench.accounting.weight_plan import weight_plan
    from inference_bench.accounting.weights import count_weights

    served = ServedModel(MODEL.spec, count_weights(MODEL.spec, weight_plan("q4_k_m")), cache_in("fp16"))
    return Question(engine_setting(served, machine, "llama.cpp"), Phase.DECODE, 1, 512, 128)


def expected_s(machine: Any = CARD, own: OwnMeasurements | None = None) -> float:
    return expect(question_of(machine), None, own.offsets(question_of(machine).setting) if own else {}).seconds


def bound_s() -> float:
    return bound_of(shape(question_of()))


def test_a_row_of_the_machine_and_engine_is_reproduced(tmp_path: Path) -> None:
    found = calibration_from(str(table(tmp_path, row(0.8 / expected_s()))), "llama.cpp", CARD)
    assert (len(found.rows), found.engine, found.machine, found.origin) == (1, "llama.cpp", "RTX 4090", "mine.csv")
    assert expected_s(own=found) == pytest.approx(expected_s() / 0.8, rel=0.08)
    assert found.calibration(question_of().setting, Phase.DECODE) is Calibration.SEVERAL


def test_rows_of_others_are_left_out_and_a_family_is_one_engine(tmp_path: Path) -> None:
    rows = [row(100, batch=batch) for batch in (1, 2)]
    path = table(tmp_path, *rows, row(1, engine="vLLM"), row(1, on="H100 SXM"), row(120, engine="ollama"))
    assert len(calibration_from(path, "llama.cpp", CARD).rows) == 3


@pytest.mark.parametrize("name", ["Ryzen 9 7950X", "my processor"])
def test_a_row_of_a_processor_keeps_the_threads_it_used(tmp_path: Path, name: str) -> None:
    machine = replace(hardware("Ryzen 9 7950X"), name=name)
    path = tmp_path / "mine.csv"
    half = f"{row(5, on=name)},threads={(machine.cores or 0) // 2}"
    path.write_text(f"{HEADER},notes\n{half}\n{row(5, on=name)},\n", encoding="utf-8")
    found = calibration_from(path, "llama.cpp", machine)
    assert [row.question.setting.threads_fraction for row in found.rows] == [0.5, 1.0]


def test_a_machine_only_the_user_knows_is_matched_by_its_name(tmp_path: Path) -> None:
    described = {"name": "my card", "memory": "24 GB", "bandwidth": "1 TB/s", "peak": {"bf16": "165 TFLOPS"}}
    mine = hardware_from_description(described, "mine.toml")
    found = calibration_from(table(tmp_path, row(0.5 / expected_s(mine), on="My Card")), "llama.cpp", mine)
    assert expected_s(mine, found) == pytest.approx(2 * expected_s(mine), rel=0.1)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row(100, engine="vLLM"),), "mine.csv has no row of llama.cpp on RTX 4090; it has vllm on RTX 4090"),
        ((), "it has no rows"),
        ((row(100).replace("Llama-3.1-8B", "nobody's model"),), "can be used: row 2"),
        ((row(100).replace("tok/s", "s", 1).replace(",tok/s", ",ms"),), "row 2"),
        ((row(-1),), "row 2: value"),
        ((row(math.inf),), "row 2: value"),
    ],
)
def test_a_table_that_holds_nothing_to_use_is_one_line(tmp_path: Path, rows: tuple[str, ...], said: str) -> None:
    with pytest.raises(RequestError) as error:
        calibration_from(table(tmp_path, *rows), "llama.cpp", CARD)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def seconds_row(seconds: float) -> str:
    return row(1).replace("decode_tok_s,1,tok/s", f"tpot_ms,{seconds * 1000},ms")


def test_rows_that_cannot_be_are_left_out_and_said(tmp_path: Path) -> None:
    setting = question_of().setting
    good, fast, slow = row(0.8 / expected_s()), row(1e12), seconds_row(1001 * expected_s())
    found = calibration_from(table(tmp_path, fast, good, slow), "llama.cpp", CARD)
    assert len(found.rows) == 1
    assert found.alone == calibration_from(table(tmp_path, good), "llama.cpp", CARD).alone
    assert [line.split(" (")[0] for line in found.left_out] == ["row 2", "row 4"]
    assert "faster than the bound of 4.66 ms" in found.left_out[0]
    assert "over 1,000 times" in found.left_out[1]
    assert "left out: row 2 (0.00100 ns) is faster than the bound" in found.describe(setting)
    assert "left out" not in calibration_from(table(tmp_path, good), "llama.cpp", CARD).describe(setting)
    assert len(calibration_from(table(tmp_path, seconds_row(900 * expected_s())), "llama.cpp", CARD).rows) == 1


def test_a_table_of_rows_that_cannot_be_is_refused_by_file_and_row(tmp_path: Path) -> None:
    with pytest.raises(RequestError) as error:
        calibration_from(table(tmp_path, *[row(1e12)] * 7), "llama.cpp", CARD)
    said = str(error.value)
    assert said.startswith("mine.csv: no row of llama.cpp on RTX 4090 can be right: row 2 (0.00100 ns) is faster than")
    assert said.endswith("2 more")


def test_published_rates_may_be_a_tenth_off_and_measured_ceilings_leave_out_small_caches(tmp_path: Path) -> None:
    bound = bound_s()
    for machine, allowed in ((CARD, 1.1), (replace(HERE, name="RTX 4090"), 2.0)):
        with pytest.raises(RequestError, match="faster than the bound"):
            calibration_from(table(tmp_path, seconds_row(bound / (allowed * 1.01))), "llama.cpp", machine)
        near = table(tmp_path, seconds_row(bound / (allowed * 0.99)))
        assert len(calibration_from(near, "llama.cpp", machine).rows) == 1


# ── a verification ─────────────────────────────────────────────────────────────────────────────────

HERE = replace(CARD, name="this machine (a test, 2 cores)", origin=Origin.MEASURED, kind=None, vendor=None)
RESULT: dict[str, Any] = {
    "schema": "inference-bench/verify/1",
    "machine": {"name": HERE.name},
    "model": {"name": "llama-3.1-8b", "weights": {"format": "Q4_K_M + fp32", "bytes": 4_912_000_000}},
    "engine": {"name": "llama.cpp"},
    "cache": {"format": "fp16"},
    "points": [
        {"phase": "prefill", "batch": 1, "context_tokens": 256, "measured_s": 0.5},
        {"phase": "decode", "batch": 1, "context_tokens": 300, "measured_s": 0.02},
        {"phase": "decode", "batch": 4, "context_tokens": 300, "measured_s": 0.03},
    ],
}


def run_folder(folder: Path, **changes: Any) -> Path:
    (folder / "result.json").write_text(json.dumps({**RESULT, **changes}), encoding="utf-8")
    return folder


def test_a_run_of_this_machine_gives_a_row_a_point(tmp_path: Path) -> None:
    found = calibration_from(run_folder(tmp_path), "llama.cpp", HERE)
    assert [row.question.phase for row in found.rows] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]
    assert found.alone
    assert calibration_from(tmp_path / "result.json", "llama.cpp", HERE).alone == found.alone


def test_a_run_of_a_model_file_is_matched_by_its_parameters(tmp_path: Path) -> None:
    from inference_bench.accounting.params import count_params

    shape = {"params_total": count_params(MODEL.spec).total, "num_hidden_layers": MODEL.spec.num_hidden_layers}
    model = {**RESULT["model"], "name": "a file of mine", **shape}
    assert len(calibration_from(run_folder(tmp_path, model=model), "llama.cpp", HERE, MODEL).rows) == 3
    with pytest.raises(RequestError, match="not known by name"):
        calibration_from(run_folder(tmp_path, model=model), "llama.cpp", HERE)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "inference-bench/load/1"}, "not the result of a verification"),
        ({"engine": {"name": "vLLM"}}, "is a run of vLLM"),
        ({"machine": {"name": "another"}}, "on another"),
        ({"machine": None}, "no machine name"),
        ({"model": {"name": 7}}, "no model name"),
        ({"points": []}, "no measured point"),
        ({"points": {}}, "no measured point"),
        ({"points": [7]}, "point 1"),
        ({"points": [{**RESULT["points"][0], "measured_s": None}]}, "point 1"),
        ({"points": [{**RESULT["points"][0], "batch": 0}]}, "point 1"),
        ({"points": [{**RESULT["points"][0], "batch": True}]}, "point 1"),
        ({"points": [{**RESULT["points"][0], "phase": "load"}]}, "point 1"),
    ],
)
def test_a_run_that_cannot_be_used_is_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InferenceBenchError) as error:
        calibration_from(run_folder(tmp_path, **changes), "llama.cpp", HERE)
    assert said in str(error.value)
    assert error.value.exit_code == 2


def test_a_folder_or_file_that_holds_no_result_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "no.csv", tmp_path / "no.json"):
        with pytest.raises(RequestError):
            calibration_from(path, "llama.cpp", HERE)
    (tmp_path / "result.json").write_text("{", encoding="utf-8")
    with pytest.raises(RequestError, match="not JSON"):
        calibration_from(tmp_path, "llama.cpp", HERE)


def run_result(folder: Path, **changed: Any) -> Path:
    """The result of a run of the engine on the card, with something else in it."""
    result = {
        "schema": "inference-bench/verify/1",
        "machine": {"name": CARD.name},
        "engine": {"name": "llama.cpp"},
        "cache": {"format": "fp16"},
        "model": {"name": "llama-3.1-8b", "weights": {"format": "q4_k_m", "bytes": changed.pop("bytes", 4.9e9)}},
        "points": [{"phase": "decode", "batch": 1, "context_tokens": 512, "measured_s": 0.01} | changed],
    }
    path = folder / "result.json"
    path.write_text(json.dumps(result))
    return path


@pytest.mark.parametrize("value", [1e308, 10**400, 5e-324, 0, -1, True])
@pytest.mark.parametrize("key", ["bytes", "measured_s"])
def test_a_run_with_a_number_that_nothing_has_is_refused(tmp_path: Path, key: str, value: float) -> None:
    assert len(calibration_from(run_result(tmp_path), "llama.cpp", CARD, MODEL).rows) == 1
    with pytest.raises(RequestError, match=key):
        calibration_from(run_result(tmp_path, **{key: value}), "llama.cpp", CARD, MODEL)


def test_a_result_that_is_a_pipe_or_very_large_is_refused_at_once(tmp_path: Path) -> None:
    pipe, large = tmp_path / "run" / "result.json", tmp_path / "large.json"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    with large.open("wb") as file:
        file.truncate(65 << 20)
    for path, what in ((pipe, "regular file"), (pipe.parent, "regular file"), (large, "larger than 64 MiB")):
        with pytest.raises(RequestError, match=what):
            calibration_from(path, "llama.cpp", CARD, MODEL)


def test_a_table_that_doubts_all_its_rows_says_so(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER},notes\n{row(100)},suspect\n", encoding="utf-8")
    with pytest.raises(RequestError, match="their notes doubt all of them"):
        calibration_from(path, "llama.cpp", CARD)
