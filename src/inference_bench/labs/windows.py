"""How is a text cut up? Windows of token ids, and those that calibrate apart from those that judge.

In:   token ids
Out:  Windows
Leaves out: what is computed on them (perplexity, quantise)
Read next by: perplexity, quantise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.errors import RequestError

WINDOW_TOKENS: Final = 512
_LEAST_TOKENS: Final = 2


@dataclass(frozen=True, slots=True)
class Windows:
    """Neighbouring stretches of one text.

    Where:  start is the place of the first token in the text; each window has window_tokens ids
    """

    start: int
    window_tokens: int
    ids: tuple[tuple[int, ...], ...]

    @property
    def end(self) -> int:
        """The place after the last token."""
        return self.start + self.window_tokens * len(self.ids)


def cut_windows(ids: Sequence[int], num_windows: int, start: int = 0, window_tokens: int = WINDOW_TOKENS) -> Windows:
    """So many windows from a place on, none of which shares a token with another.

    Raises:  RequestError for a text that is too short, with both lengths, or a window of fewer than two tokens
    """
    if window_tokens < _LEAST_TOKENS or num_windows < 1 or start < 0:
        raise RequestError(
            f"{num_windows} windows of {window_tokens} tokens from {start} on cannot be cut; at least one window of {_LEAST_TOKENS}"
        )
    end = start + num_windows * window_tokens
    if end > len(ids):
        raise RequestError(
            f"the text has {len(ids)} tokens, and {num_windows} windows of {window_tokens} from token {start} on need {end}; "
            "give a longer text, or fewer or shorter windows"
        )
    cut = tuple(tuple(ids[place : place + window_tokens]) for place in range(start, end, window_tokens))
    return Windows(start, window_tokens, cut)


def require_disjoint(calibration: Windows, evaluation: Windows) -> None:
    """Refuse to judge on what was calibrated on: by place in the same text, and window by window.

    Raises:  RequestError
    """
    shared = set(calibration.ids) & set(evaluation.ids)
    overlap = min(calibration.end, evaluation.end) - max(calibration.start, evaluation.start)
    if overlap > 0 or shared:
        what = f"{overlap} tokens" if overlap > 0 else f"{len(shared)} windows"
        raise RequestError(
            f"calibration and evaluation share {what} of the text; a method may not be judged on what it was fitted to: let the "
            f"evaluation begin at token {calibration.end} or later"
        )
