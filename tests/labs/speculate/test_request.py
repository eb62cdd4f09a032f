"""What the lab may be asked."""

from __future__ import annotations

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.settings import LabSettings
from inference_bench.labs.speculate.request import SpeculateRequest


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"gammas": (2, 0)}, "a draft of 0 tokens cannot be; give 1 to 32"),
        ({"gammas": (33,)}, "a draft of 33 tokens"),
        ({"exit_layer": 0}, "a draft of 0 layers"),
        ({"temperature": 0.0}, "a temperature of 0 cannot be drawn with"),
        ({"temperature": float("nan")}, "a temperature of nan"),
        ({"top_p": 0.0}, "a top-p of 0 keeps no token"),
        ({"top_p": 1.5}, "a top-p of 1.5"),
        ({"num_tokens": 1}, "1 tokens cannot be decoded here; give 2 to 1024"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(asked: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        SpeculateRequest(**asked)  # type: ignore[arg-type]


def test_lengths_are_sorted_and_each_is_tried_once() -> None:
    assert SpeculateRequest(gammas=(4, 1, 4)).draft_lengths == (1, 4)


def test_the_quick_mode_asks_for_less() -> None:
    quick = SpeculateRequest(LabSettings(is_quick=True))
    assert (quick.draft_lengths, quick.most_tokens) == ((2, 4), 32)
    assert (SpeculateRequest().draft_lengths, SpeculateRequest().most_tokens) == ((1, 2, 4, 8), 128)
    assert SpeculateRequest(LabSettings(is_quick=True), num_tokens=48).most_tokens == 48
