"""Which combinations does a matrix ask for, and in which order are they run?

In:   texts such as "weights=q4_1,f16"
Out:  MatrixAxes; its Combinations; an order drawn from a seed
Leaves out: whether an engine takes a combination (see matrix)
Read next by: matrix, cli.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from inference_bench.convert.plan import GGUF_FORMATS
from inference_bench.engines.llama_cpp import KV_CACHE_TYPES
from inference_bench.engines.start import ENGINES
from inference_bench.errors import RequestError, UnknownNameError

OWN: Final = "own"  # the formats of the model file as it is
AUTO: Final = "auto"  # the cache format that the engine takes by itself
MAX_COMBINATIONS: Final = 24

_ALIASES: Final = {"fp16": "f16", "fp32": "f32", "llamacpp": "llama.cpp", "llama-cpp": "llama.cpp"}
_ALLOWED: Final = {
    "weights": (OWN, *GGUF_FORMATS),
    "kv": (AUTO, *KV_CACHE_TYPES),
    "engine": ENGINES,
}
_DEFAULTS: Final = {"weights": (OWN,), "kv": (AUTO,), "engine": (ENGINES[0],)}
_EXAMPLE: Final = "weights=q4_1,f16 kv=f16,q8_0 engine=llama.cpp"


@dataclass(frozen=True, slots=True)
class Combination:
    """One set-up of the same model."""

    weights: str
    kv: str
    engine: str

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.weights} weights, {self.kv} cache, {self.engine}"

    @property
    def slug(self) -> str:
        """The name of its folder."""
        return f"{self.weights}-kv-{self.kv}-{self.engine}".replace("/", "+")


@dataclass(frozen=True, slots=True)
class MatrixAxes:
    """What is varied: each value of an axis with each of the others."""

    weights: tuple[str, ...]
    kv: tuple[str, ...]
    engine: tuple[str, ...]

    def combinations(self) -> tuple[Combination, ...]:
        """All of them, in the order in which they were asked for."""
        return tuple(Combination(*values) for values in product(self.weights, self.kv, self.engine))


def parse_axes(texts: Sequence[str]) -> MatrixAxes:
    """The axes that were named; one that was not has a single value.

    Where:   a cache may hold keys and values apart, as KEYS/VALUES
    Raises:  RequestError for an axis that is named twice, holds a value twice, or makes too many combinations;
             UnknownNameError for a name that is none of those allowed

    >>> len(parse_axes(["weights=q4_1,f16", "kv=f16,q8_0"]).combinations())
    4
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        axis, _, listed = text.partition("=")
        if axis not in _ALLOWED:
            raise UnknownNameError(
                f"matrix axis {axis[:40]!r} is not known; known: {', '.join(_ALLOWED)}, as in {_EXAMPLE}"
            )
        if axis in found:
            raise RequestError(f"matrix axis {axis} is named twice; list all of its values behind one {axis}=")
        found[axis] = _values(axis, listed)
    if not found:
        raise RequestError(f"a matrix needs at least one axis; known: {', '.join(_ALLOWED)}, as in {_EXAMPLE}")
    axes = MatrixAxes(**{**_DEFAULTS, **found})
    count = len(axes.weights) * len(axes.kv) * len(axes.engine)
    if count > MAX_COMBINATIONS:
        raise RequestError(f"the matrix has {count} combinations; up to {MAX_COMBINATIONS} are run at once")
    return axes


def _values(axis: str, listed: str) -> tuple[str, ...]:
    values = tuple(_ALIASES.get(value.strip().lower(), value.strip().lower()) for value in listed.split(","))
    for value in values:
        parts = value.split("/") if axis == "kv" else [value]
        if len(parts) > 2 or not set(parts) <= set(_ALLOWED[axis]) or (len(parts) == 2 and AUTO in parts):
            shape = ", or KEYS/VALUES apart" if axis == "kv" else ""
            raise UnknownNameError(
                f"matrix axis {axis}: {value[:40]!r} is not known; known: {', '.join(_ALLOWED[axis])}{shape}"
            )
    twice = next((value for value in values if values.count(value) > 1), None)
    if twice is not None:
        raise RequestError(f"matrix axis {axis}: {twice} is listed twice; give each value once")
    return values


def shuffled_rounds(
    combinations: Sequence[Combination], seed: int, num_rounds: int
) -> Iterator[tuple[int, Combination]]:
    """(round, combination): every combination once a round, each round in an order of its own.

    Where:   a spell in which the machine is slow then hits no axis alone; the same seed gives the same orders
    """
    draw = random.Random(seed)
    for number in range(num_rounds):
        order = list(combinations)
        draw.shuffle(order)
        for combination in order:
            yield number, combination
