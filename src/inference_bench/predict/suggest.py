"""What would make it fit: weight formats, cache formats and contexts that do, best first; and which machines do.

In:   LoadedModel, HardwareSpec, FitRequest
Out:  Suggestions, each with what it costs in bytes and gains in speed; MachineRows for a ranking of machines
Leaves out: what rounding costs in quality: a format is better here when it keeps more bits
Read next by: report, cli.

Best first means: the context that was asked for before a shorter one, then more bits a weight, then more bits a cached
value. A suggestion that another one beats in all three is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LoadedModel
from inference_bench.predict.fit import FitAnswer, FitRequest, fit

MAX_SUGGESTIONS: Final = 10
_WEIGHTS: Final = {
    "llama.cpp": ("bf16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m"),
    "vllm": ("bf16", "fp8", "awq"),
    "none": ("bf16", "fp8", "int8", "q6_k", "q5_k_m", "int4-g128", "q4_k_m"),
}
_CACHES: Final = {
    "llama.cpp": ("fp16", "q8_0", "q4_0"),
    "vllm": ("fp16", "fp8"),
    "none": ("fp16", "fp8", "q8_0", "q4_0"),
}
_SHORTEST_CONTEXT: Final = 1024


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One way to fit: what it changes, what it needs, and how fast its bound is.

    Where:  saved_bytes are against what was asked; speed_up is bound against bound
    Unit:   bytes, tokens a second over all sequences
    """

    request: FitRequest
    answer: FitAnswer
    saved_bytes: int
    decode_bound_tokens_per_s: float | None
    speed_up: float | None

    @property
    def bits_per_weight(self) -> float:
        """Stored bits a parameter."""
        return self.answer.weights.bits_per_weight


def suggest(model: LoadedModel, machine: HardwareSpec, request: FitRequest) -> tuple[Suggestion, ...]:
    """Formats and contexts that fit the machine, best first; empty when nothing does.

    Raises:  RequestError, UnknownNameError
    """
    asked = fit(model, machine, request)
    found = [_suggestion(option, answer, asked) for option, answer in _options(model, machine, request, asked)]
    found.sort(key=lambda item: (-item.answer.cache.context_tokens, -item.bits_per_weight, -_cache_bytes(item)))
    kept: list[Suggestion] = []
    for item in found:
        if not any(_is_no_worse(other, item) for other in kept):
            kept.append(item)
    return tuple(kept[:MAX_SUGGESTIONS])


def _options(
    model: LoadedModel, machine: HardwareSpec, request: FitRequest, asked: FitAnswer
) -> Iterator[tuple[FitRequest, FitAnswer]]:
    """Every combination that keeps no more bits than was asked for, with the longest context of it that fits."""
    for weights in (request.weights, *_WEIGHTS[request.engine]):
        for cache in (request.cache or "fp16", *_CACHES[request.engine]):
            option = replace(request, weights=weights, cache=cache)
            answer = fit(model, machine, option)
            if answer.weights.total > asked.weights.total or answer.cache.num_bytes > asked.cache.num_bytes:
                continue
            longest = answer.max_context_tokens or 0
            if not answer.fits and longest < _SHORTEST_CONTEXT:
                continue
            if not answer.fits:
                option = replace(option, context_tokens=_round_down(longest))
                answer = fit(model, machine, option)
            if answer.fits:
                yield option, answer


def _round_down(tokens: int) -> int:
    """A context a person would type: whole multiples of 1024."""
    return tokens - tokens % _SHORTEST_CONTEXT


def _cache_bytes(item: Suggestion) -> float:
    cache = item.answer.cache
    return cache.num_bytes / cache.context_tokens


def _is_no_worse(other: Suggestion, item: Suggestion) -> bool:
    """Whether `other` keeps at least as much of everything."""
    return (
        other.answer.cache.context_tokens >= item.answer.cache.context_tokens
        and other.bits_per_weight >= item.bits_per_weight
        and _cache_bytes(other) >= _cache_bytes(item)
    )


def _suggestion(option: FitRequest, answer: FitAnswer, asked: FitAnswer) -> Suggestion:
    rate, before = _decode_rate(answer), _decode_rate(asked)
    return Suggestion(
        request=option,
        answer=answer,
        saved_bytes=asked.needed_bytes - answer.needed_bytes,
        decode_bound_tokens_per_s=rate,
        speed_up=rate / before if rate and before else None,
    )


def _decode_rate(answer: FitAnswer) -> float | None:
    if answer.decode is None or not answer.decode.seconds:
        return None
    return answer.cache.sequences / answer.decode.seconds


@dataclass(frozen=True, slots=True)
class MachineRow:
    """One machine's answer to the same question."""

    answer: FitAnswer
    decode_bound_tokens_per_s: float | None


def rank_machines(model: LoadedModel, machines: Iterable[HardwareSpec], request: FitRequest) -> tuple[MachineRow, ...]:
    """The same model on many machines: those it fits first, the fastest decode bound first among them.

    Raises:  RequestError, UnknownNameError
    """
    answers = [fit(model, machine, replace(request, compute_format=None)) for machine in machines]
    rows = [MachineRow(answer, _decode_rate(answer)) for answer in answers]
    order = {True: 0, None: 1, False: 2}
    return tuple(sorted(rows, key=lambda row: (order[row.answer.fits], -(row.decode_bound_tokens_per_s or 0.0))))
