"""How is a document written, token by token, and where does the time of a step go?

In:   a model that gives logits, Masks or none, a budget
Out:  Written: tokens, whether it was finished, and the time of each part of each step
Leaves out: which masks (matching, naive, faults), whether the text is right (judging)
Read next by: flow.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from inference_bench.errors import MeasurementError
from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.grammar.matching import Masks
from inference_bench.labs.grammar.result import ADVANCE, APPLY, CHOOSE, MASK, MODEL


class Model(Protocol):
    """What gives logits, one position after the other."""

    def restart(self) -> Any:
        """The logits after the prompt.

        Shape:  [num_vocabulary]
        """

    def step(self, token: int) -> Any:
        """The logits after one token more."""


@dataclass(slots=True)
class Written:
    """A document as it came.

    Unit:   seconds
    Where:  parts_s has a time for each step by part; the first step's logits are the prompt's, so that its model time is None
    """

    tokens: list[int] = field(default_factory=list)
    is_finished: bool = False
    elapsed_s: float = 0.0
    parts_s: list[dict[str, float]] = field(default_factory=list)


class CachedModel:
    """A Transformers model over one prompt, whose cache is cut back to the prompt before each document.

    Where:  say is told how far it is, about once a second
    """

    def __init__(self, network: Any, prompt: Sequence[int], say: Callable[[str], None] | None = None) -> None:
        self._cached, self._num_prompt = CachedNetwork(network), len(prompt)
        self._say, self._said_s = say, time.perf_counter()
        self._first = self._cached.extend(prompt)[-1].clone()

    def restart(self) -> Any:
        """The logits after the prompt."""
        self._cached.keep(self._num_prompt)
        return self._first

    def step(self, token: int) -> Any:
        """The logits after one token more."""
        logits = self._cached.extend([token])[-1]
        if self._say is not None and time.perf_counter() - self._said_s > 1.0:
            self._said_s = time.perf_counter()
            self._say(f"{len(self._cached) - self._num_prompt} tokens")
        return logits


def greedy(logits: Any) -> int:
    """The likeliest token."""
    return int(logits.argmax())


def sampled(temperature: float, seed: int) -> Callable[[Any], int]:
    """Tokens drawn as the model has it at a temperature, from one seed.

    Formula:  p = softmax((logits - their largest) / temperature); what the mask took away has probability 0
    """
    import torch

    generator = torch.Generator().manual_seed(seed)

    def choose(logits: Any) -> int:
        weights = torch.softmax((logits - logits.max()) / temperature, dim=-1)
        return int(torch.multinomial(weights, 1, generator=generator))

    return choose


def write(
    model: Model, masks: Masks | None, choose: Callable[[Any], int], budget_tokens: int, ends: frozenset[int]
) -> Written:
    """One document: until its grammar is complete, an end token comes, or the budget is used up.

    Raises:  MeasurementError where a mask allows nothing at all
    """
    written, started_s = Written(), time.perf_counter()
    logits, model_s = model.restart(), None
    for _ in range(budget_tokens):
        token, parts = _one_step(logits, masks, choose)
        if model_s is not None:
            parts[MODEL] = model_s
        written.parts_s.append(parts)
        if token in ends:
            written.is_finished = True
            break
        written.tokens.append(token)
        if masks is not None:
            before_s = time.perf_counter()
            masks.take(token)
            written.is_finished = masks.is_complete()
            parts[ADVANCE] = time.perf_counter() - before_s
        if written.is_finished or len(written.tokens) == budget_tokens:
            break
        before_s = time.perf_counter()
        logits = model.step(token)
        model_s = time.perf_counter() - before_s
    written.elapsed_s = time.perf_counter() - started_s
    return written


def _one_step(logits: Any, masks: Masks | None, choose: Callable[[Any], int]) -> tuple[int, dict[str, float]]:
    """A token, and the time of each part of choosing it."""
    parts: dict[str, float] = {}
    if masks is not None:
        started_s = time.perf_counter()
        packed = masks.packed()
        masked_s = time.perf_counter()
        logits = only(logits, masks.unpack(packed))
        parts |= {MASK: masked_s - started_s, APPLY: time.perf_counter() - masked_s}
    started_s = time.perf_counter()
    token = choose(logits)
    parts[CHOOSE] = time.perf_counter() - started_s
    return token, parts


def only(logits: Any, allowed: Any) -> Any:
    """The logits with −∞ in the place of every token that is not allowed.

    Shape:   [num_vocabulary] both
    Raises:  MeasurementError where nothing is allowed, or the two are not of one vocabulary
    """
    import torch

    if len(allowed) != logits.shape[0]:
        raise MeasurementError(f"a mask of {len(allowed)} tokens does not fit logits of {logits.shape[0]}")
    if not allowed.any():
        raise MeasurementError("the mask allows no token at all; the grammar has come to a place without a way on")
    return logits.masked_fill(~torch.from_numpy(allowed), float("-inf"))
