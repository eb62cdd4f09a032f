"""How is text generated, whatever the model and however it keeps what it has computed? Greedily, one token a step, timed.

In:   a Path, a prompt, how many tokens
Out:  Generation
Leaves out: what a path does (toy_paths, model_paths)
Read next by: compare, flow.

The last token that is emitted is never fed: after n of them a cache holds prompt + n - 1 positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch import Tensor

_SAY_EVERY: Final = 8


class Path(Protocol):
    """A way from token ids to the logits of the next one."""

    def begin(self, ids: Sequence[int]) -> Tensor:
        """Take a whole prompt; logits after its last token, [V]."""
        ...

    def step(self, token: int) -> Tensor:
        """Take one more token; logits after it, [V]."""
        ...


@dataclass(frozen=True, slots=True)
class Generation:
    """Tokens, the logits each was chosen from, and how long each took.

    Shape:  logits [num_emitted, V]
    """

    tokens: tuple[int, ...]
    logits: Tensor
    seconds: tuple[float, ...]

    @property
    def elapsed_s(self) -> float:
        """All of it, prompt included."""
        return sum(self.seconds)


def generate(
    path: Path,
    prompt: Sequence[int],
    num_tokens: int,
    say: Callable[[str], None] | None = None,
    as_long_as: Sequence[int] | None = None,
) -> Generation:
    """The tokens with the largest logits; a token that ends a text is as good as any other.

    Where:  as_long_as are tokens it is to be held against: after the first that differs there is nothing more to compare
    """
    tokens: list[int] = []
    logits: list[Tensor] = []
    seconds: list[float] = []
    with torch.inference_mode():
        for index in range(num_tokens):
            if say is not None and index % _SAY_EVERY == 0:
                say(f"token {index + 1} of {num_tokens}")
            start_s = time.perf_counter()
            found = path.step(tokens[-1]) if tokens else path.begin(prompt)
            tokens.append(int(found.argmax()))
            seconds.append(time.perf_counter() - start_s)
            logits.append(found)
            if as_long_as is not None and tokens[-1] != as_long_as[index]:
                break
    return Generation(tuple(tokens), torch.stack(logits), tuple(seconds))
