"""What is asked of the speculate lab.

In:   what a person gives
Out:  SpeculateRequest
Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.settings import LabSettings

MOST_DRAFT_TOKENS: Final = 32
MOST_TEMPERATURE: Final = 10
MOST_TOKENS: Final = 1024  # logits of every token are held against the plain ones
_QUICK_GAMMAS: Final = (2, 4)
_GAMMAS: Final = (1, 2, 4, 8)
_QUICK_TOKENS: Final = 32
_TOKENS: Final = 128


@dataclass(frozen=True, slots=True)
class SpeculateRequest:
    """One run of the lab.

    Where:  draft is a model as `LabSettings.model` is one, None without; gammas are the draft lengths, empty for 1, 2, 4 and 8 (2 and
            4 in quick mode); exit_layer is after how many layers the early-exit draft stops, None for two thirds of them;
            temperature and top_p are applied to target and draft alike where tokens are drawn; num_tokens is the longest answer,
            None for 128 (32 in quick mode); has_server also asks a real server with its own option off and on
    Raises: RequestError
    """

    settings: LabSettings = field(default_factory=LabSettings)
    draft: str | None = None
    gammas: tuple[int, ...] = ()
    exit_layer: int | None = None
    temperature: float = 0.8
    top_p: float = 0.95
    num_tokens: int | None = None
    has_server: bool = True

    def __post_init__(self) -> None:
        for gamma in self.gammas:
            if not 1 <= gamma <= MOST_DRAFT_TOKENS:
                raise RequestError(f"a draft of {gamma} tokens cannot be; give 1 to {MOST_DRAFT_TOKENS}")
        if self.exit_layer is not None and self.exit_layer < 1:
            raise RequestError(f"a draft of {self.exit_layer} layers computes nothing; give 1 or more")
        if not 0 < self.temperature <= MOST_TEMPERATURE:
            raise RequestError(
                f"a temperature of {self.temperature:g} cannot be drawn with; give one above 0, up to {MOST_TEMPERATURE}: greedy decoding "
                "is measured anyway"
            )
        if not 0 < self.top_p <= 1:
            raise RequestError(
                f"a top-p of {self.top_p:g} keeps no token, or more than all; give one above 0 and up to 1"
            )
        if self.num_tokens is not None and not 2 <= self.num_tokens <= MOST_TOKENS:
            raise RequestError(f"{self.num_tokens} tokens cannot be decoded here; give 2 to {MOST_TOKENS}")

    @property
    def draft_lengths(self) -> tuple[int, ...]:
        """Every γ, ascending, each once."""
        return tuple(sorted(set(self.gammas))) or (_QUICK_GAMMAS if self.settings.is_quick else _GAMMAS)

    @property
    def most_tokens(self) -> int:
        """The longest answer."""
        return self.num_tokens or (_QUICK_TOKENS if self.settings.is_quick else _TOKENS)
