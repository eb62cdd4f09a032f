"""A result of the quantise lab, written down by hand, for the tests of its page and its charts."""

from __future__ import annotations

from dataclasses import replace

from inference_bench.labs.checks import Check
from inference_bench.labs.quantise.formats import format_rows
from inference_bench.labs.quantise.result import (
    GgufRow,
    LossInterval,
    MethodRow,
    OutlierRow,
    QuantiseResult,
    ReferenceRow,
)
from labs.made_page import HEAD

PLAIN = 20.0
# name, family, bits a weight, perplexity
METHODS = (
    ("float32", "Unquantised", 32.0, 20.0),
    ("int8 channel", "Rounding to nearest", 8.03, 20.1),
    ("int4 channel", "Rounding to nearest", 4.03, 46.0),
    ("int4 group 64", "Rounding to nearest", 4.25, 29.0),
    ("GPTQ int4 group 64", "GPTQ", 4.25, 23.0),
    ("W8A8 static", "8-bit activations", 8.03, 41.0),
    ("SmoothQuant 0.8 static", "SmoothQuant", 8.04, 24.0),
    ("KV 2 bits", "KV cache", 32.0, 25.0),
    ("KV 4 bits", "KV cache", 32.0, 20.2),
)


def method(name: str, family: str, bits: float | None, perplexity: float) -> MethodRow:
    import math

    loss = math.log(perplexity / PLAIN)
    return MethodRow(
        name=name,
        family=family,
        detail="as set",
        weight_bytes=None if bits is None else round(bits * 1_000_000),
        bits_per_weight=bits,
        cache_bytes_per_token=3960.0 if family == "KV cache" else None,
        weight_error=None if family == "KV cache" else 0.1,
        perplexity=perplexity,
        loss_change=loss,
        loss_change_interval=LossInterval(loss - 0.01, loss + 0.01),
        exact_copy_fraction=0.5 if name == "int4 channel" else 0.9,
        json_valid_fraction=0.25 if name == "int4 channel" else 1.0,
        is_restored=True,
    )


def outlier(block: int, kind: str, ratio: float) -> OutlierRow:
    return OutlierRow(f"model.layers.{block}.{kind}", block, kind, 64, ratio * 2, 7, 2.0, ratio, int(ratio > 10))


def sample_result(references: tuple[ReferenceRow, ...] = (), note: str | None = None) -> QuantiseResult:
    return QuantiseResult(
        head=replace(HEAD, lab="quantise", question="What do fewer bits cost?"),
        checks=(Check("something holds", True, "1", "1"),),
        text_name="a text",
        text_source="somewhere",
        text_sha256="1" * 64,
        calibration_start_token=0,
        calibration_tokens=1024,
        evaluation_start_token=4096,
        num_windows=8,
        window_tokens=512,
        scored_tokens=4088,
        stored_format="q4_1",
        float32_perplexity=PLAIN,
        formats=format_rows(),
        methods=tuple(method(*row) for row in METHODS),
        gguf=(
            GgufRow("f16", 270_000_000, 269_000_000, 20.0, 20.0, 20.0, 510, 25.0, 1.0, 1.0),
            GgufRow("q4_0", 92_000_000, 90_000_000, 24.0, 23.9, 20.0, 510, 50.0, 2.98, 2.0),
        ),
        outliers=tuple(
            outlier(block, kind, ratio)
            for block in range(3)
            for kind, ratio in (("q_proj", 4.0), ("down_proj", 30.0 + block))
        ),
        references=references,
        reference_note=note,
    )
