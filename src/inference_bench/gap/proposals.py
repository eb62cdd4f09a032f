"""Which changes of a step are worth pricing: of the model's formats, the load, the drafts, and of what the engine reaches?

In:   a step, what there is to choose from
Out:  Proposal: the step after a change, in words
Leaves out: what each gains (changes)
Read next by: changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Final

from inference_bench.accounting.cache import CacheFormat
from inference_bench.accounting.weights import count_weights, weight_plan
from inference_bench.calibrate.steps.observations import StepKind
from inference_bench.facts.formats import number_format
from inference_bench.gap.parts import Cause
from inference_bench.gap.step_parts import Batches
from inference_bench.predict.speculation import expected_tokens
from inference_bench.predict.step_cost import ServedModel
from inference_bench.simulate.step_sources import Shares
from inference_bench.simulate.step_time import StepPart
from inference_bench.units import format_bytes, format_count, format_fraction, format_number, format_seconds

_SAME_BYTES: Final = 0.01  # weights whose bytes differ by less are the same format by another name
_READING_WEIGHTS: Final = (Cause.WEIGHTS, Cause.BANDWIDTH_LOST, Cause.BATCHING)
_CACHE: Final = (Cause.CACHE, Cause.CACHE_LOST)


@dataclass(frozen=True, slots=True)
class Choices:
    """What there is to choose from.

    Where:  formats go by the names that `accounting.weights` and `facts.formats` know; max_batch is how many sequences the
            engine takes at once (None: as many as one likes); acceptance is the chance that a drafted token is right, an
            assumption; draft_s is what drafting one token takes (0: it is looked up in the prompt); measured holds the shares
            fitted on this machine with other weight formats, by name
    """

    weight_formats: tuple[str, ...] = ("f16", "q8_0", "q4_0")
    cache_formats: tuple[str, ...] = ("f16", "q8_0")
    max_batch: int | None = None
    acceptance: float = 0.7
    draft_tokens: tuple[int, ...] = (1, 2, 3, 4)
    draft_s: float = 0.0
    measured: Mapping[str, Shares] = field(default_factory=dict)


def usual_choices(engine: str) -> Choices:
    """The formats that an engine is usually given: GGUF's of llama.cpp, those of checkpoints of the others."""
    if "llama" in engine.casefold():
        return Choices()
    return Choices(weight_formats=("bf16", "fp8", "int4-g128"), cache_formats=("bf16", "fp8"))


@dataclass(frozen=True, slots=True)
class ChosenStep:
    """A step, before or after a change.

    Where:  tokens is what it yields; besides_s is what it takes besides its batches
    """

    kind: StepKind
    batches: Batches
    served: ServedModel
    shares: Shares
    tokens: float
    besides_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """A change before it is priced.

    Where:  of several of a family only the best is worth telling; touches are the parts of the step that it makes less of, and
            the change is told beside their share; is_choice as in Change
    """

    name: str
    step: ChosenStep
    words: str
    is_assumed: bool = False
    family: str = ""
    touches: tuple[Cause, ...] = ()
    is_choice: bool = True


def propose(step: ChosenStep, choices: Choices) -> Iterator[Proposal]:
    """Every change that there is to a step."""
    yield from _weight_formats(step, choices)
    yield from _cache_formats(step, choices)
    yield from _better_kernels(step)
    if len(step.batches) > 1:
        yield _in_one_batch(step)
    if step.kind is StepKind.DECODE:
        yield from _loads(step, choices)
        yield from _drafts(step, choices)


# ── formats ────────────────────────────────────────────────────────────────────────────────────────


def _weight_formats(step: ChosenStep, choices: Choices) -> Iterator[Proposal]:
    now = step.served.weights
    for name in choices.weight_formats:
        other = count_weights(step.served.model, weight_plan(name))
        if abs(other.read_per_step / now.read_per_step - 1) < _SAME_BYTES:
            continue
        shares = choices.measured.get(name)
        rates = "the rates fitted with it here" if shares else "the rates of the present format assumed for its kernels"
        yield Proposal(
            f"weights in {other.format_name}",
            replace(step, served=replace(step.served, weights=other), shares=shares or step.shares),
            f"{format_bytes(other.read_per_step)} of weights in place of {format_bytes(now.read_per_step)}, {rates}",
            is_assumed=shares is None,
            touches=_READING_WEIGHTS,
        )


def _cache_formats(step: ChosenStep, choices: Choices) -> Iterator[Proposal]:
    for name in choices.cache_formats:
        cache = CacheFormat(number_format(name), number_format(name))
        if cache.name == step.served.cache_format.name:
            continue
        yield Proposal(
            f"cache in {cache.name}",
            replace(step, served=replace(step.served, cache_format=cache)),
            f"cache in {cache.name} in place of {step.served.cache_format.name}, read at the same rate: an assumption",
            is_assumed=True,
            touches=_CACHE,
        )


# ── what the engine reaches ────────────────────────────────────────────────────────────────────────


def _better_kernels(step: ChosenStep) -> Iterator[Proposal]:
    """The same work at rates, or without times, that are this engine's and not the machine's."""
    shares = step.shares
    bandwidth, compute = max(1.0, shares.bandwidth), max(1.0, shares.compute)
    vector = None if shares.vector is None else max(1.0, shares.vector)
    whole = replace(shares, bandwidth=bandwidth, cache=_whole(shares.cache), vector=vector)
    yield Proposal(
        "all of the bandwidth",
        replace(step, shares=whole),
        "weights and cache read at the measured bandwidth, as by a perfect kernel",
        touches=(Cause.BANDWIDTH_LOST, Cause.CACHE_LOST),
        is_choice=False,
    )
    yield Proposal(
        "all of the compute rate",
        replace(step, shares=replace(shares, compute=compute, attention=_whole(shares.attention))),
        "products and attention at the measured compute rate, as by a perfect kernel",
        touches=(Cause.COMPUTE_LOST,),
        is_choice=False,
    )
    if shares.serial:
        yield Proposal(
            "reading and computing at the same time",
            replace(step, shares=replace(shares, serial=0.0)),
            "the shorter of reading and computing hidden behind the longer",
            is_choice=False,
        )
    if shares.fixed_s or shares.sequence_s:
        yield Proposal(
            "no overhead",
            replace(step, shares=replace(shares, fixed_s=0.0, sequence_s=0.0)),
            f"without {format_seconds(shares.fixed_s)} a batch and {format_seconds(shares.sequence_s)} a sequence",
            touches=(Cause.FIXED, Cause.SEQUENCE),
            is_choice=False,
        )


def _whole(share: float | None) -> float | None:
    return None if share is None else max(1.0, share)


def _in_one_batch(step: ChosenStep) -> Proposal:
    """The sequences of a step, or the pieces of a prompt, computed together."""
    parts = [part for batch in step.batches for part in batch]
    if step.kind is StepKind.DECODE:
        together, name = tuple(parts), "neighbouring slots"
    else:
        together, name = (StepPart(parts[0].cached, sum(part.new for part in parts), False),), "a larger micro-batch"
    return Proposal(
        name,
        replace(step, batches=(together,)),
        f"one batch that reads the weights once, in place of {format_count(len(step.batches))} batches",
        touches=(Cause.BATCHING,),
    )


# ── the load ───────────────────────────────────────────────────────────────────────────────────────


def _loads(step: ChosenStep, choices: Choices) -> Iterator[Proposal]:
    parts = [part for batch in step.batches for part in batch]
    wanted = {2 * len(parts), choices.max_batch or 0}
    for batch in sorted(wanted):
        if len(parts) < batch <= (choices.max_batch or batch):
            yield Proposal(
                f"batch of {format_count(batch)}",
                replace(step, batches=(tuple(islice(cycle(parts), batch)),), tokens=float(batch)),
                f"{format_count(batch)} sequences in one batch in place of {format_count(len(parts))}",
            )
    shorter = tuple(tuple(part._replace(cached=part.cached // 2) for part in batch) for batch in step.batches)
    yield Proposal(
        "half the context",
        replace(step, batches=shorter),
        "half as many cached positions of every sequence",
        touches=_CACHE,
    )


def _drafts(step: ChosenStep, choices: Choices) -> Iterator[Proposal]:
    """Drafted tokens verified in one step, each of a sequence's positions computed like one of a prompt."""
    sequences = sum(map(len, step.batches))
    cost = f"{format_seconds(choices.draft_s)} each" if choices.draft_s else "looked up in the prompt at no cost"
    for drafted in choices.draft_tokens:
        emitted = expected_tokens(choices.acceptance, drafted)
        verified = tuple(tuple(part._replace(new=part.new + drafted) for part in batch) for batch in step.batches)
        yield Proposal(
            f"speculation, {format_count(drafted)} drafted",
            replace(
                step,
                batches=verified,
                served=step.served.verifying(),
                tokens=step.tokens * emitted,
                besides_s=step.besides_s + choices.draft_s * drafted * sequences,
            ),
            f"{format_count(drafted)} drafted, {cost}, each right with a chance of {format_fraction(choices.acceptance, 2)} by "
            f"assumption: {format_number(emitted)} tokens from {format_count(drafted + 1)} positions of a sequence",
            is_assumed=True,
            family="speculation",
        )
