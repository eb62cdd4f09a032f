"""Runs of a server whose steps take what physics asks for and more: honest ones, and ones that deceive."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from inference_bench.accounting.weights import count_loaded_weights
from inference_bench.accounting.work import SequenceStep
from inference_bench.facts.hardware import hardware
from inference_bench.facts.load import known_loaded_model
from inference_bench.origin import Origin
from inference_bench.predict.step_cost import PeakShares, ServedModel, StepCost
from inference_bench.records import RequestRecord, RequestStatus, Stage, TokenCountSource
from inference_bench.referee import Subject
from inference_bench.roofline import roof
from shapes import cache_in


def subject(model: str, machine: str, weights: str | None = None, devices: int = 1) -> Subject:
    loaded = known_loaded_model(model)
    served = ServedModel(loaded.spec, count_loaded_weights(loaded, weights), cache_in("fp16"))
    return Subject(served, hardware(machine), devices)


@dataclass
class Stream:
    """A request while it runs."""

    index: int
    sent_s: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    done: int = 0
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        return self.prompt_tokens - self.cached_tokens - self.done

    @property
    def emitted(self) -> int:
        return sum(self.tokens)


@dataclass
class Server:
    """A server of continuous batching: every step decodes all that is read and reads at most a chunk of one prompt."""

    cost: StepCost
    chunk_tokens: int = 512
    draft: int = 0  # further tokens that a step may give
    admits_cache: bool = True
    delay_s: float = 1e-4

    def run(self, streams: list[Stream], rng: Random) -> list[RequestRecord]:
        now_s = 0.0
        while any(stream.emitted < stream.output_tokens for stream in streams):
            open_ = [s for s in streams if s.sent_s <= now_s and s.emitted < s.output_tokens]
            if not open_:
                now_s = min(s.sent_s for s in streams if s.emitted < s.output_tokens)
                continue
            decoding = [s for s in open_ if s.left == 0]
            reading = next((s for s in open_ if s.left), None)
            step = [SequenceStep(s.prompt_tokens + s.emitted - 1, 1) for s in decoding]
            if reading is not None:
                new = min(reading.left, self.chunk_tokens)
                step.append(SequenceStep(reading.cached_tokens + reading.done, new))
                reading.done += new
            now_s += self.cost.step_s(step)
            if reading is not None and not reading.left:
                decoding.append(reading)
            for s in decoding:
                drafted = rng.randint(0, self.draft) if s.emitted else 0
                s.tokens.append(min(1 + drafted, s.output_tokens - s.emitted))
                late_s = now_s + rng.expovariate(1 / self.delay_s)
                s.times_s.append(max([late_s, *s.times_s[-1:]]))
        return [self._record(s) for s in streams]

    def _record(self, s: Stream) -> RequestRecord:
        return RequestRecord(
            request_id=f"r{s.index}",
            origin=Origin.MEASURED,
            stage=Stage.MEASURE,
            status=RequestStatus.COMPLETED,
            planned_s=s.sent_s,
            sent_s=s.sent_s,
            end_s=s.times_s[-1] + 1e-4,
            chunk_times_s=tuple(s.times_s),
            prompt_tokens=s.prompt_tokens,
            cached_prompt_tokens=s.cached_tokens if self.admits_cache else None,
            output_tokens=s.emitted,
            requested_output_tokens=s.output_tokens,
            token_count_source=TokenCountSource.SERVER_USAGE,
            finish_reason="length",
        )


def shares(of: Subject, bandwidth_share: float, compute_share: float, weights: str | None = None) -> PeakShares:
    """What steps take at shares of the published peaks; with other weights than were declared, where they are named."""
    served = of.served
    if weights is not None:
        served = replace(served, weights=subject(served.model.name, of.machine.name, weights).served.weights)
    ceiling = roof(of.machine, served.weights.linear_format)
    return PeakShares(served, ceiling, bandwidth_share, compute_share, of.devices)


def streams(
    rng: Random,
    count: int,
    prompt: tuple[int, int],
    output: tuple[int, int],
    spread_s: float = 0.0,
    cached: float = 0.0,
) -> list[Stream]:
    """So many requests of random lengths, sent within so long."""
    made = []
    for index in range(count):
        tokens = rng.randint(*prompt)
        in_cache = min(int(tokens * cached * rng.random()), tokens - 1)
        made.append(Stream(index, rng.random() * spread_s, tokens, rng.randint(*output), in_cache))
    return made


def merged(record: RequestRecord, rng: Random, most: int, said: bool) -> RequestRecord:
    """The same tokens with text held back: several in a chunk, which comes when the last of them does."""
    times_s, tokens, held = [], [], 0
    last = len(record.chunk_times_s) - 1
    counts = record.chunk_tokens or (1,) * (last + 1)
    for at, (time_s, count) in enumerate(zip(record.chunk_times_s, counts, strict=True)):
        held += count
        if at == last or rng.randrange(most) == 0:
            times_s.append(time_s)
            tokens.append(held)
            held = 0
    return replace(record, chunk_times_s=tuple(times_s), chunk_tokens=tuple(tokens) if said else ())
