from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inference_bench.report.json_result import verify_json
from inference_bench.verify.result import VerifyResult
from report.closed_loop_sample import ERRORS, HELD_OUT_ERROR, LOOPS, MEASURED, nothing_came_of_it, whole_loop
from report.sample import (
    SHA256,
    SHARES,
    bare_result,
    hostile_result,
    hybrid,
    no_ceiling_result,
    sample_result,
    with_findings,
)

STABLE = {"machine", "model", "points", "calibration", "load", "report_path", "manifest_sha256"}
OF_THE_LOOP = ("calibration", "gap", "load", "capacity", "profile_path")
POINT = {
    "phase",
    "batch",
    "context_tokens",
    "measured_s",
    "bound_s",
    "fraction_of_bound",
    "limited_by",
    "verdict",
}
MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result, *LOOPS)


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    return verify_json(sample_result())


@pytest.mark.parametrize("make", MAKERS)
def test_the_json_survives_a_round_trip_with_only_finite_numbers(make: Callable[[], VerifyResult]) -> None:
    found = verify_json(make())
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["schema"] == "inference-bench/verify/1"
    assert set(found) >= STABLE
    assert all(set(point) >= POINT for point in found["points"])


def test_each_point_has_its_time_its_bound_and_the_share_it_was_made_with(found: dict[str, Any]) -> None:
    assert len(found["points"]) == len(SHARES)
    for point in found["points"]:
        key = (point["phase"], point["batch"], point["nominal_context_tokens"])
        assert point["fraction_of_bound"] == pytest.approx(SHARES[key])
        assert point["bound_s"] / point["measured_s"] == pytest.approx(SHARES[key])
        assert point["limited_by"] in {"memory", "compute"}
        assert point["verdict"] in {"near ceiling", "below ceiling"}


def test_each_figure_of_a_point_says_whether_it_was_measured_bounded_counted_or_estimated(
    found: dict[str, Any],
) -> None:
    origin = found["points"][0]["origin"]
    assert (origin["measured_s"], origin["bound_s"], origin["flops"]) == ("measured", "bound", "counted")
    assert origin["mbu"] == origin["mfu"] == "estimate"
    assert found["engine"]["figures"]["origin"] == "reported"
    assert found["curve"][0]["origin"] == "bound"


def test_identity_is_complete(found: dict[str, Any]) -> None:
    assert found["model"]["sha256"] == SHA256
    assert found["model"]["params_total"] == 134_515_008
    assert found["model"]["weights"]["bytes"] == 96_576_768
    assert found["machine"]["origin"] == "measured"
    assert found["machine"]["probe"]["peak_flops_per_s"] == found["machine"]["peak_flops_per_s"]
    assert found["engine"]["version"] == "xllamacpp 2026.10.11549"
    assert found["engine"]["model_file"] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert found["manifest_sha256"] == "9f" * 32
    assert found["versions"]["numpy"] == "2.4.6"
    assert found["report_path"].startswith(found["run_dir"])


def test_the_cache_is_counted_for_the_slots_and_context_the_engine_has(found: dict[str, Any]) -> None:
    # 2 · 30 layers · 3 heads · 64 values · 2 bytes = 23,040 bytes a token, times 4 slots of 1,024 tokens
    assert found["cache"]["bytes"] == 23_040 * 4 * 1_024 == found["cache_check"]["predicted_bytes"]
    assert found["cache"]["naive_factor"] == 1
    assert found["cache_check"]["agrees"] is True


def test_a_hybrid_model_s_usual_figure_is_shown_as_too_large() -> None:
    cache = verify_json(sample_result(hybrid()))["cache"]
    # 25 of 30 layers keep 512 of the 1,024 positions, so 17.5 layers' worth instead of 30
    assert cache["naive_factor"] == pytest.approx(30 / 17.5)
    assert [(layer["type"], layer["count"]) for layer in cache["layers"]] == [
        ("sliding_attention", 25),
        ("full_attention", 5),
    ]


def test_failed_requests_stay_in_the_counts_and_a_time_nobody_measured_is_null() -> None:
    groups = verify_json(with_findings())["groups"]
    assert [group["requests"]["failed"] for group in groups] == [0, 0, 0, 2, 3]
    assert groups[3]["ttft_s"]["count"] == 12
    assert groups[4]["ttft_s"] is None
    assert groups[4]["output_tokens_per_s"] is None


def test_what_is_missing_is_null_and_never_zero() -> None:
    found = verify_json(bare_result())
    assert found["machine"]["peak_flops_per_s"] is None
    assert found["machine"]["ridge_flops_per_byte"] is None
    assert found["machine"]["probe"] is None
    assert found["cache_check"] is None
    assert found["model"]["sha256"] is None
    assert found["points"][0]["mfu"] is None
    assert found["points"][0]["mbu"] == pytest.approx(0.5)
    assert set(found["client"].values()) == {None}
    assert verify_json(no_ceiling_result())["points"][0]["bound_s"] is None


def test_a_number_that_is_not_finite_becomes_no_value() -> None:
    result = sample_result()
    odd = replace(result, client=replace(result.client, floor_ttft_s=float("nan"), floor_chunk_cpu_s=float("inf")))
    client = verify_json(odd)["client"]
    assert (client["floor_ttft_s"], client["floor_chunk_cpu_s"]) == (None, None)
    assert client["send_delay_p99_s"] == 0.0006


# ── the closed loop ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def loop() -> dict[str, Any]:
    return verify_json(whole_loop())


def test_a_run_without_the_closed_loop_has_its_keys_and_no_values(found: dict[str, Any]) -> None:
    assert {found[key] for key in OF_THE_LOOP} == {None}
    assert found["memory"] == []
    assert [answer["mark"] for answer in found["verdict"]] == ["In part", "Not computed", "Not run", "Not run"]


def test_the_flat_objects_of_a_load_are_those_near_the_knee(loop: dict[str, Any]) -> None:
    load = loop["load"]
    assert load["place"] == "near"
    assert load["measured"] == MEASURED
    assert list(load["error"].values()) == pytest.approx(list(ERRORS["near"]))
    assert load["predicted"]["ttft_p50_s"] == pytest.approx(0.212 * 1.094)


def test_each_load_has_its_rate_its_figures_and_whether_targets_are_reached(loop: dict[str, Any]) -> None:
    rows = loop["load"]["rows"]
    assert [(row["place"], row["rate"]) for row in rows] == [("below", 1.2), ("near", 2.04), ("past", 3.0)]
    assert [row["figures"]["ttft_p99_s"]["reached"] for row in rows] == [True, False, None]
    assert rows[0]["figures"]["ttft_p50_s"]["count"] == 60
    assert len(rows[0]["requests"]["predicted_ttft_s"]) == len(rows[0]["requests"]["measured_ttft_s"]) == 60


def test_the_calibration_has_its_numbers_its_errors_and_what_was_in_each_step(loop: dict[str, Any]) -> None:
    fitted = loop["calibration"]
    assert fitted["form"] == "additive, vector kernel"
    assert fitted["parameters"]["bandwidth"] == {
        "value": 0.62,
        "interval": {"low": 0.58, "high": 0.66, "confidence": 0.95},
        "note": "",
    }
    assert fitted["parameters"]["fixed_s"]["interval"] is None
    assert (fitted["held_out_error"], fitted["held_out_p90"]) == (HELD_OUT_ERROR, 0.091)
    assert [item["is_chosen"] for item in fitted["candidates"]] == [False, False, True, False]
    assert fitted["error_by_kind"] == {"decode": 0.038, "prefill": 0.021, "mixed": 0.067}
    step = fitted["observations"][1]
    assert step["batches"] == [[{"cached_tokens": 42, "new_tokens": 1, "is_decoding": True}] * 2]
    assert step["error"] == pytest.approx(step["predicted_s"] / step["measured_s"] - 1)
    assert sum(item["is_held_out"] for item in fitted["observations"]) == 6


def test_the_parts_of_a_step_add_up_to_what_was_measured(loop: dict[str, Any]) -> None:
    for step in loop["gap"]["steps"]:
        assert sum(part["seconds"] for part in step["parts"]) == pytest.approx(step["measured_s"])
    assert loop["gap"]["changes"][0]["gain"] == 0.37


def test_capacity_and_memory_say_what_was_predicted_and_what_was_found(loop: dict[str, Any]) -> None:
    assert (loop["capacity"]["predicted_rate"], loop["capacity"]["is_confirmed"]) == (2.11, True)
    assert loop["capacity"]["error"] == pytest.approx(2.11 / 2.23 - 1)
    assert loop["capacity"]["at_rate"]["rate"] == 2.11
    assert [row["agrees"] for row in loop["memory"]] == [True, True, True, True, False]
    assert loop["memory"][-1]["difference"] is None
    assert loop["client"]["cpu"]["client_share"] == pytest.approx(6.2 / 360)


def test_an_objective_without_a_limit_and_a_capacity_without_a_rate_are_null() -> None:
    capacity = verify_json(nothing_came_of_it())["capacity"]
    assert (capacity["ttft_s"], capacity["gap_s"], capacity["predicted_rate"]) == (None, None, None)
