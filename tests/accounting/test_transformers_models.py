"""Every architecture against Transformers' own modules and caches: small models whose figures were recorded once.

The recorded file says how: the parameters of a model built from the config, and the elements of its cache objects after
5 tokens at once and after 21 tokens grown one by one, past every window.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from inference_bench.accounting.cache import count_kept, count_state
from inference_bench.accounting.params import count_params
from inference_bench.facts.config import model_from_config
from inference_bench.facts.models import ModelSpec
from shapes import GOLDEN, HERE

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (GOLDEN / "transformers_small_models.json").read_text(encoding="utf-8")
)["models"]
WITH_CACHE = [name for name, row in RECORDED.items() if "kept" in row]


RELEASED: dict[str, dict[str, Any]] = json.loads(
    (GOLDEN / "transformers_released_models.json").read_text(encoding="utf-8")
)["models"]


def model_of(name: str) -> ModelSpec:
    return model_from_config(RECORDED[name]["config"], name, HERE)


def kept_elements(model: ModelSpec, tokens: int) -> int:
    """As Transformers keeps it: W - 1 positions of a window, all columns of a convolution."""
    total = 0
    for mixer, count in model.mixer_groups():
        for row in count_kept(mixer):
            positions = tokens // row.stride if row.limit is None else min(tokens, row.limit - 1)
            total += count * row.row_values * positions
        state = count_state(mixer)
        if state:
            total += count * (state.conv_channels * state.conv_kernel + state.recurrent_elements)
    return total


def test_the_record_covers_the_designs() -> None:
    assert len(RECORDED) >= 100
    assert len(RELEASED) >= 14
    assert len(WITH_CACHE) >= 94


@pytest.mark.parametrize("name", RECORDED)
def test_parameters_equal_the_modules_own(name: str) -> None:
    assert count_params(model_of(name)).total == RECORDED[name]["total"]


@pytest.mark.parametrize("name", WITH_CACHE)
def test_cache_elements_equal_the_cache_objects_own_past_the_window(name: str) -> None:
    model, kept = model_of(name), RECORDED[name]["kept"]
    assert {tokens: kept_elements(model, int(tokens)) for tokens in kept} == kept


@pytest.mark.parametrize("name", RELEASED)
def test_parameters_of_released_models_equal_the_class_that_loads_them(name: str) -> None:
    model = model_from_config(RELEASED[name]["config"], name, HERE)
    assert count_params(model).total == RELEASED[name]["total"]
