"""Which rule produced a published memory figure: the true count, a known mistake, or nothing we know.

In:   LoadedModel, a figure as printed ("15.5 GiB"), a context, a number of sequences, a cache format
Out:  Explanation: every rule with the bytes it gives, and which of them reproduce the figure
Leaves out: rules of thumb with free constants (a percentage "for overhead"), which can reproduce anything
Read next by: report, cli.

A rule matches when it lies within half the last printed digit of the figure, or within 0.2 % of it. A figure whose
unit may be mixed up is tried both ways: 6.7 "GiB" that are really GB.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from inference_bench.accounting.cache import CacheFormat, count_cache, count_kept, count_position_bytes
from inference_bench.accounting.params import count_params
from inference_bench.accounting.weights import WeightCount
from inference_bench.errors import QuantityError, RequestError
from inference_bench.facts.models import Attention, LayerType, Mixer, ModelSpec
from inference_bench.predict.placement import allocate
from inference_bench.units import parse_bytes

RELATIVE_TOLERANCE: Final = 0.002
_FIGURE: Final = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*([kMGT]?i?B?)\s*")
_LEAST_PLAIN_BYTES: Final = 100_000  # a smaller bare number with a B is more likely a count of parameters in billions
_OTHER_UNIT: Final = {
    "KB": "KiB",
    "MB": "MiB",
    "GB": "GiB",
    "TB": "TiB",
    "KIB": "kB",
    "MIB": "MB",
    "GIB": "GB",
    "TIB": "TB",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """One way to arrive at a figure.

    Where:  is_true marks what is really there; says names the mistake in words
    """

    name: str
    says: str
    num_bytes: int
    is_true: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that reproduces the figure, and under which reading of its unit."""

    rule: Rule
    relative_error: float
    unit_note: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a figure can come from; `matches` is empty when no known rule gives it.

    Unit:  bytes
    """

    model: str
    figure: str
    figure_bytes: int
    context_tokens: int
    sequences: int
    true_bytes: int
    rules: tuple[Rule, ...]
    matches: tuple[Match, ...]

    @property
    def verdict(self) -> str:
        """One sentence."""
        if not self.matches:
            return f"No rule known here gives {self.figure}."
        best = self.matches[0]
        if best.unit_note is None:
            word = "is right" if best.rule.is_true else "comes from a mistake"
            return f"{self.figure} {word}: {best.rule.says}."
        return f"{self.figure} has the wrong unit ({best.unit_note}): {best.rule.says}."


def explain_figure(
    model: ModelSpec,
    weights: WeightCount,
    fmt: CacheFormat,
    figure: str,
    context_tokens: int,
    sequences: int = 1,
) -> Explanation:
    """Which rules reproduce a published figure of this model's memory.

    Raises:  QuantityError for a figure that is not an amount of memory, RequestError for an impossible context
    """
    if context_tokens < 1 or sequences < 1:
        raise RequestError(f"context {context_tokens} and sequences {sequences} must be at least 1")
    printed, half_digit = _read_figure(figure)
    rules = tuple(_rules(model, weights, fmt, context_tokens, sequences))
    matches = [match for rule in rules for match in _matches(rule, figure, printed, half_digit)]
    matches.sort(key=lambda match: (match.unit_note is not None, not match.rule.is_true, match.relative_error))
    return Explanation(
        model=model.name,
        figure=figure.strip(),
        figure_bytes=printed,
        context_tokens=context_tokens,
        sequences=sequences,
        true_bytes=rules[0].num_bytes,
        rules=rules,
        matches=tuple(matches),
    )


def _read_figure(figure: str) -> tuple[int, int]:
    """The figure in bytes, and half of its last printed digit in bytes."""
    match = _FIGURE.fullmatch(figure)
    if match is None:
        raise QuantityError(f"figure {figure[:40]!r} is not an amount of memory; write for example 15.5GiB or 8.6 GB")
    if match.group(2) == "B" and Decimal(match.group(1)) < _LEAST_PLAIN_BYTES:
        raise QuantityError(f"figure {figure[:40]!r} may be parameters or bytes; write bytes as MB, GB, MiB or GiB")
    digits = -int(Decimal(match.group(1)).as_tuple().exponent)
    unit_bytes = parse_bytes(f"1{match.group(2)}", "figure")
    return int(Decimal(match.group(1)) * unit_bytes), round(unit_bytes / 10**digits / 2)


def _matches(rule: Rule, figure: str, printed: int, half_digit: int) -> Iterator[Match]:
    unit = figure.strip().lstrip("0123456789. ")
    readings: list[tuple[int, str | None]] = [(printed, None)]
    other = _OTHER_UNIT.get(unit.upper())
    if other is not None:
        number = Decimal(figure.strip()[: -len(unit)].strip())
        readings.append((int(number * parse_bytes(f"1{other}", "figure")), f"{unit} was printed for {other}"))
    for value, note in readings:
        tolerance = max(half_digit, RELATIVE_TOLERANCE * value) if note is None else half_digit
        if value and abs(rule.num_bytes - value) <= tolerance:
            yield Match(rule, abs(rule.num_bytes - value) / value, note)
            return


def _rules(model: ModelSpec, weights: WeightCount, fmt: CacheFormat, context: int, sequences: int) -> Iterator[Rule]:
    """Every rule, the true cache first; rules that give the same bytes as an earlier one are left out."""
    true = count_cache(model, fmt, context, sequences)
    yield Rule("true", "the cache counted by layer type", true.total_bytes, True)
    seen = {true.total_bytes}
    candidates = [
        *_engine_rules(model, fmt, context, sequences),
        *_cache_rules(model, fmt, context, sequences),
        *_weight_rules(model, weights),
        Rule("weights + cache", "weights and cache together", weights.total + true.total_bytes, True),
        Rule(
            "weights + usual cache",
            "weights and the cache of the usual formula",
            weights.total + (true.naive_bytes or 0),
        ),
    ]
    for rule in candidates:
        if rule.num_bytes > 0 and rule.num_bytes not in seen:
            seen.add(rule.num_bytes)
            yield rule


def _engine_rules(model: ModelSpec, fmt: CacheFormat, context: int, sequences: int) -> Iterator[Rule]:
    """What engines allocate for the same thing; a design an engine lays out in a way that is not counted is left out."""
    with contextlib.suppress(RequestError):
        allocated = allocate(model, fmt, context, sequences, "llama.cpp")
        if allocated is not None:
            yield Rule(
                "llama.cpp", "what llama.cpp allocates, its rounding and states included", allocated.num_bytes, True
            )
    with contextlib.suppress(RequestError):
        allocated = allocate(model, fmt, context, sequences, "vllm")
        if allocated is not None:
            yield Rule("vLLM", "what vLLM sets aside to admit it", allocated.num_bytes, True)
            if allocated.pool is not None and sequences == 1:
                yield Rule("vLLM, steady", "what vLLM holds once the prompt is read", allocated.pool.steady_bytes, True)


def _cache_rules(model: ModelSpec, fmt: CacheFormat, context: int, sequences: int) -> Iterator[Rule]:
    tokens = context * sequences
    yield from _uniform_rules(model, fmt, tokens)
    yield from _partial_rules(model, fmt, context, sequences)
    yield from _latent_rules(model, fmt, tokens)


def _uniform_rules(model: ModelSpec, fmt: CacheFormat, tokens: int) -> Iterator[Rule]:
    """Rules that treat every layer alike and charge it for the whole context."""
    layers, heads = model.num_hidden_layers, _query_heads(model)
    kv_heads, head_dim = model.num_key_value_heads, model.head_dim

    def charged(row_values: int) -> int:
        return layers * tokens * (fmt.keys.count_bytes(row_values) + fmt.values.count_bytes(row_values))

    if kv_heads and head_dim:
        yield Rule("layer count", "every layer was charged for the whole context", charged(kv_heads * head_dim))
    if heads and kv_heads and model.hidden_size % heads == 0:
        says = "head size was taken as hidden size / heads, and every layer charged for the whole context"
        yield Rule("hidden / heads", says, charged(kv_heads * (model.hidden_size // heads)))
    if heads and head_dim:
        says = "query heads were taken for KV heads, and every layer charged for the whole context"
        yield Rule("query heads", says, charged(heads * head_dim))
    says = "the hidden size was taken for keys and for values, and every layer charged for the whole context"
    yield Rule("hidden size", says, charged(model.hidden_size))


def _query_heads(model: ModelSpec) -> int | None:
    counts = [getattr(mixer, "num_attention_heads", None) for mixer, _ in model.mixer_groups()]
    return next((count for count in counts if count), None)


def _partial_rules(model: ModelSpec, fmt: CacheFormat, context: int, sequences: int) -> Iterator[Rule]:
    """Rules that know the layer types and still leave something out or overdo it."""
    groups, true = model.mixer_groups(), count_cache(model, fmt, context, sequences)
    if true.state_bytes:
        yield Rule("state left out", "the fixed state of the recurrent layers was left out", true.num_bytes)
    bounded = sum(layer.num_bytes for layer in true.layers if layer.sliding_window is not None)
    if bounded:
        yield Rule("window layers left out", "layers with a window were counted as nothing", true.total_bytes - bounded)
        full = sum(
            count * _unwindowed_bytes(mixer, fmt, context) for mixer, count in groups if isinstance(mixer, Attention)
        )
        yield Rule("dropped window", "layers with a window were charged for the whole context", sequences * full)
        window = max(layer.sliding_window or 0 for layer in true.layers)
        everywhere = sum(count * min(context, window) * count_position_bytes(mixer, fmt) for mixer, count in groups)
        yield Rule("window everywhere", "every layer was given the window", sequences * everywhere)
    shared = [mixer for mixer, _ in groups if isinstance(mixer, Attention) and mixer.shared_kv_from is not None]
    if shared:
        owners = sum(
            count * _unshared_bytes(mixer, fmt, context) for mixer, count in groups if isinstance(mixer, Attention)
        )
        yield Rule(
            "sharing ignored",
            "layers that read another layer's cache were charged for one of their own",
            sequences * owners,
        )


def _unwindowed_bytes(attention: Attention, fmt: CacheFormat, context: int) -> int:
    plain = replace(attention, sliding_window=None, attention_chunk=None)
    return sum(kept.count_rows(context) * kept.row_bytes(fmt) for kept in count_kept(plain))


def _unshared_bytes(attention: Attention, fmt: CacheFormat, context: int) -> int:
    own = replace(attention, shared_kv_from=None)
    return sum(kept.count_rows(context) * kept.row_bytes(fmt) for kept in count_kept(own))


def _latent_rules(model: ModelSpec, fmt: CacheFormat, tokens: int) -> Iterator[Rule]:
    """Mistakes that only latent attention invites."""
    latent = [(mixer, count) for mixer, count in model.mixer_groups() if mixer.layer_type is LayerType.LATENT_ATTENTION]
    if not latent:
        return
    layers = sum(count for _, count in latent)
    first: Mixer = latent[0][0]
    rank, rope = getattr(first, "kv_lora_rank", 0), getattr(first, "qk_rope_head_dim", 0)
    width = {values: layers * tokens * fmt.keys.count_bytes(values) for values in (rank, rank + rope)}
    yield Rule("rotary key left out", "the latent was counted without its rotary key", width[rank])
    yield Rule("index left out", "the keys of the index were left out", width[rank + rope])
    yield Rule("doubled latent", "the latent was counted once as keys and once as values", 2 * width[rank])
    yield Rule(
        "doubled latent and key",
        "latent and rotary key were counted once as keys and once as values",
        2 * width[rank + rope],
    )
    heads, nope, value = (getattr(first, name, 0) for name in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    expanded = layers * tokens * (fmt.keys.count_bytes(heads * (nope + rope)) + fmt.values.count_bytes(heads * value))
    yield Rule("expanded heads", "keys and values of all heads were counted, as if the latent were not kept", expanded)


def _weight_rules(model: ModelSpec, weights: WeightCount) -> Iterator[Rule]:
    params = count_params(model)
    yield Rule("weights", f"the weights as {weights.format_name}", weights.total, True)
    if params.active != params.total:
        active = weights.total * params.active // params.total
        yield Rule("active experts", "only the experts one token uses were counted as resident", active)
    for bits, name in ((16, "16"), (8, "8"), (4, "4")):
        yield Rule(
            f"{name} bits a parameter",
            f"all parameters at exactly {name} bits, scales left out",
            params.total * bits // 8,
        )
