from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from inference_bench.errors import MeasurementError
from inference_bench.labs.perplexity import measure_perplexity, pooled
from inference_bench.labs.windows import cut_windows


class Says:
    """A network whose logits are a function of the ids alone."""

    def __init__(self, logits: Any) -> None:
        self.logits, self.seen = logits, list[tuple[int, ...]]()

    def __call__(self, input_ids: Any, use_cache: bool) -> Any:
        assert not use_cache
        self.seen.append(tuple(input_ids.shape))
        return SimpleNamespace(logits=self.logits(input_ids))


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary() -> None:
    torch = pytest.importorskip("torch")
    network = Says(lambda ids: torch.zeros(*ids.shape, 50))
    found = measure_perplexity(network, cut_windows([7] * 40, 4, window_tokens=10))
    assert found.value == pytest.approx(50, rel=1e-6)
    assert (found.scored_tokens, found.num_windows) == (4 * 9, 4)


def test_losses_are_pooled_over_tokens_and_then_raised_not_averaged_by_window() -> None:
    # two windows of three scored tokens: mean loss (3·1 + 3·2) / 6 = 1.5; the mean of two perplexities would be (e + e²) / 2 = 5.05
    found = pooled([3.0, 6.0], 3)
    assert found.value == pytest.approx(math.exp(1.5))
    assert found.mean_loss == 1.5


def test_the_first_token_of_a_window_is_not_scored_and_none_sees_another_window() -> None:
    torch = pytest.importorskip("torch")
    ids = [0, 1, 2, 3, 0, 1, 2, 3]

    def next_is_one_more(
        given: Any,
    ) -> Any:  # right for every token but the first of a window, where 3 would be followed by 4
        logits = torch.full((*given.shape, 8), -100.0)
        return logits.scatter(2, (given + 1).unsqueeze(2), 0.0)

    network = Says(next_is_one_more)
    assert measure_perplexity(network, cut_windows(ids, 2, window_tokens=4)).value == pytest.approx(1)
    assert network.seen == [(1, 4), (1, 4)]
    assert measure_perplexity(network, cut_windows(ids, 1, window_tokens=8)).value > 1e6


def test_several_windows_at_once_give_the_same() -> None:
    torch = pytest.importorskip("torch")
    weights = torch.randn(11, 11, generator=torch.Generator().manual_seed(1))
    windows = cut_windows([(7 * index) % 11 for index in range(50)], 5, window_tokens=10)
    one, two = (measure_perplexity(Says(lambda ids: weights[ids]), windows, window_batch=size) for size in (1, 2))
    assert one.value == pytest.approx(two.value, rel=1e-6)
    assert one.window_losses == pytest.approx(two.window_losses, rel=1e-6)


def test_a_loss_that_is_no_number_is_an_error_and_not_a_perplexity() -> None:
    with pytest.raises(MeasurementError, match="not a number"):
        pooled([1.0, math.nan], 3)


def test_perplexity_that_no_float_holds_is_an_error_in_words() -> None:
    with pytest.raises(MeasurementError, match="larger than"):
        pooled([3000.0], 3)
