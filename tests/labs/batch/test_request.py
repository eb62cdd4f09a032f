"""What is refused, and what the prompts are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.batch.prompts import PROMPTS
from inference_bench.labs.batch.request import BatchRequest
from inference_bench.labs.settings import LabSettings


@pytest.mark.parametrize(
    "fields", [{"batches": ()}, {"batches": (0,)}, {"batches": (99,)}, {"batches": (2, 2)}, {"num_tokens": 1}, {"dtype": "int8"}]
)  # fmt: skip
def test_what_cannot_be_measured_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        BatchRequest(**fields)


def test_the_longer_run_has_512_tokens_and_48_in_quick_mode() -> None:
    assert BatchRequest().long_tokens == 512
    assert BatchRequest(LabSettings(is_quick=True)).long_tokens == 48
    assert BatchRequest(num_tokens=100).long_tokens == 100
    assert BatchRequest(dtype="bfloat16").dtypes == ("bfloat16",)


def test_there_are_enough_prompts_and_their_lengths_differ() -> None:
    assert len(PROMPTS) >= 16
    assert len(set(PROMPTS)) == len(PROMPTS)
    assert len({len(prompt.split()) for prompt in PROMPTS}) >= 8


def test_a_run_that_is_longer_than_the_model_has_positions_for_is_refused_before_anything_is_loaded() -> None:
    pytest.importorskip("torch")
    from inference_bench.labs.batch.flow import _PROMPT_TOKENS, _require_positions

    assert max(map(len, PROMPTS)) <= _PROMPT_TOKENS
    subject: Any = SimpleNamespace(
        spec=SimpleNamespace(max_position_embeddings=1024), identity=SimpleNamespace(name="Small")
    )
    _require_positions(subject, BatchRequest(num_tokens=1024 - _PROMPT_TOKENS))
    with pytest.raises(RequestError, match="Small has 1024"):
        _require_positions(subject, BatchRequest(num_tokens=1025 - _PROMPT_TOKENS))
