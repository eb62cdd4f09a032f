from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from inference_bench.report.json_result import verify_json
from inference_bench.verify.result import VerifyResult
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

STABLE = {"machine", "model", "points", "report_path", "manifest_sha256"}
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
MAKERS = (sample_result, with_findings, bare_result, no_ceiling_result, hostile_result)


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
