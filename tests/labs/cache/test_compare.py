"""Two generations are held against one another on the text they share, and nowhere else."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from inference_bench.labs.cache.compare import compare  # noqa: E402
from inference_bench.labs.cache.paths import Generation, generate  # noqa: E402
from inference_bench.labs.cache.result import PathComparison  # noqa: E402


def generation(*logits: list[float]) -> Generation:
    rows = torch.tensor(logits)
    return Generation(tuple(rows.argmax(dim=1).tolist()), rows, (0.1,) * len(logits))


def held(full: Generation, other: Generation) -> PathComparison:
    return compare(full, other, subject="toy", prompt="p", num_prompt_tokens=4, store="s", fault=None)


def test_the_error_of_each_token_is_the_largest_over_the_vocabulary() -> None:
    found = held(generation([1.0, 2.0], [5.0, 3.0]), generation([1.5, 2.25], [5.0, 3.0]))
    assert found.logit_errors == (0.5, 0.0)
    assert (found.max_logit_error, found.first_over_tolerance) == (0.5, 0)
    assert (found.num_equal_tokens, found.num_compared, found.top_two_gap) == (2, 2, None)
    assert found.is_seen_by_logits_alone


def test_after_the_first_other_token_nothing_is_compared_whatever_stands_there() -> None:
    full = generation([0.0, 1.0], [2.0, 1.5], [0.0, 1.0])
    found = held(full, generation([0.0, 1.0], [1.0, 1.5], [900.0, 1.0]))
    assert found.num_equal_tokens == 1
    assert found.num_compared == 2
    assert found.logit_errors == (0.0, 1.0)
    assert found.top_two_gap == 0.5
    assert found.tokens_part
    assert not found.is_seen_by_logits_alone


def test_rounding_is_no_finding() -> None:
    found = held(generation([0.0, 1.0]), generation([0.0001, 1.0]))
    assert found.first_over_tolerance is None
    assert not found.is_seen_by_logits_alone


class Counting:
    """A path that says which tokens it was fed."""

    def __init__(self) -> None:
        self.fed: list[list[int]] = []

    def begin(self, ids: list[int]) -> torch.Tensor:
        self.fed.append(list(ids))
        return torch.tensor([0.0, 1.0, 0.0])

    def step(self, token: int) -> torch.Tensor:
        self.fed.append([token])
        return torch.tensor([0.0, 0.0, 1.0])


def test_the_last_token_is_never_fed() -> None:
    path = Counting()
    found = generate(path, [7, 8, 9], 3)
    assert found.tokens == (1, 2, 2)
    assert path.fed == [[7, 8, 9], [1], [2]]
    assert len(found.seconds) == 3


def test_a_run_ends_at_the_first_token_that_differs() -> None:
    path = Counting()
    found = generate(path, [7], 9, as_long_as=[1, 2, 0, 0, 0, 0, 0, 0, 0])
    assert found.tokens == (1, 2, 2)
