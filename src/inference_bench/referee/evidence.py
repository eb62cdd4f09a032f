"""How is a cause known? In words that can be checked against the records.

In:   the Findings of one cause
Out:  sentences
Read next by: judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from inference_bench.referee.causes import Cause, Finding, median_bits
from inference_bench.referee.least import LeastTimes
from inference_bench.referee.seen import Measure
from inference_bench.referee.subject import Subject
from inference_bench.stats import median
from inference_bench.units import format_bytes, format_number, format_seconds

MEANING: Final[Mapping[Cause, str]] = {
    Cause.REQUESTED_COUNT: "the number of tokens that was asked for seems to stand for what came",
    Cause.COUNTED_TWICE: "tokens seem to be counted twice",
    Cause.WRONG_COUNT: "the token count cannot be right",
    Cause.SPECULATION: "a step seems to give several tokens: speculative decoding, which this bound leaves out",
    Cause.HELD_BACK: "something between model and client seems to hold tokens back and let them go together",
    Cause.WARM_PREFIX_CACHE: "the server seems to have had the prompt, or most of it, in its prefix cache",
    Cause.EARLY_CHUNK: "the first chunk with content seems not to be a generated token",
    Cause.WRONG_FORMAT: "the weights seem to be stored in fewer bits than was said",
    Cause.FASTER_MACHINE: "the machine seems to be faster than the one named, or more devices share the work",
    Cause.ON_CHIP: "the weights seem to stay in on-chip caches, which this bound leaves out",
    Cause.NOT_COMPUTED: "the answer seems not to have been computed for this request: a stored reply, or no model at all",
}


def explain(findings: Sequence[Finding], subject: Subject, least: LeastTimes) -> tuple[str, ...]:
    """What the findings of one cause have in common."""
    cause = findings[0].cause
    if cause in (Cause.WARM_PREFIX_CACHE, Cause.EARLY_CHUNK):
        return _first_token(findings, least)
    if cause in _COUNTS:
        requests = {id(finding.seen): finding for finding in findings}
        return (*_paces(findings), _COUNTS[cause](tuple(requests.values())))
    return (*_paces(findings), *_bits(findings, subject, least))


def _first_token(findings: Sequence[Finding], least: LeastTimes) -> tuple[str, ...]:
    worst = max(findings, key=lambda finding: finding.time.factor)
    seen, time = worst.seen, worst.time
    last = least.prompt(seen.prompt_tokens, seen.prompt_tokens - 1).seconds
    admitted = seen.record.cached_prompt_tokens
    said = "says nothing of a cache" if admitted is None else f"says that {admitted} of them were cached"
    text = (
        f"{format_seconds(time.measured_s)} to a first token after {seen.prompt_tokens} prompt tokens takes at least "
        f"{format_seconds(time.least_s)} to compute ({format_number(time.factor)} times as long); the server {said}"
    )
    if worst.cause is Cause.WARM_PREFIX_CACHE:
        return (text, f"with all but its last token cached it would take {format_seconds(last)}")
    return (text, f"even the last token of a cached prompt alone takes {format_seconds(last)}")


def _paces(findings: Sequence[Finding]) -> tuple[str, ...]:
    paces = [finding.time for finding in findings if finding.time.measure is Measure.TPOT]
    if not paces:
        times = [finding.time for finding in findings]
        measured, least = median([time.measured_s for time in times]), median([time.least_s for time in times])
        return (f"the median of them took {format_seconds(measured)}, where {format_seconds(least)} is the least",)
    steps = [time.measured_s / time.num_steps for time in paces]
    least = median([time.least_s / time.num_steps for time in paces])
    return (
        f"{format_seconds(median(steps))} a token (median) where a step alone takes at least {format_seconds(least)}: "
        f"{format_number(median([time.factor for time in paces]))} times as fast as can be",
    )


def _requested(findings: Sequence[Finding]) -> str:
    return (
        f"exactly what was asked for is counted in {_all_of(findings)}, in which {_range(findings)} chunks came; for one token a "
        "chunk there was time"
    )


def _twice(findings: Sequence[Finding]) -> str:
    return (
        f"two tokens are counted for every chunk that came in {_all_of(findings)}; for the chunks alone there was time"
    )


def _wrong(findings: Sequence[Finding]) -> str:
    record = findings[0].seen.record
    said = f", whose own counts add up to {sum(record.chunk_tokens)}" if record.chunk_tokens else ""
    return f"such as {record.output_tokens} tokens in {len(record.chunk_times_s)} chunks{said}"


def _drafts(findings: Sequence[Finding]) -> str:
    tokens = sum(finding.seen.record.output_tokens or 0 for finding in findings)
    bursts = sum(finding.seen.num_bursts for finding in findings)
    return (
        f"{format_number(tokens / bursts)} tokens come together on average, and between two such arrivals there was time "
        "for a step"
    )


def _all_of(findings: Sequence[Finding]) -> str:
    return "this request" if len(findings) == 1 else f"all of these {len(findings)} requests"


def _range(findings: Sequence[Finding]) -> str:
    counts = [finding.seen.num_chunks for finding in findings]
    return str(counts[0]) if min(counts) == max(counts) else f"{min(counts)} to {max(counts)}"


_COUNTS: Final[Mapping[Cause, Callable[[Sequence[Finding]], str]]] = {
    Cause.REQUESTED_COUNT: _requested,
    Cause.COUNTED_TWICE: _twice,
    Cause.WRONG_COUNT: _wrong,
    Cause.SPECULATION: _drafts,
    Cause.HELD_BACK: _drafts,
}


def _bits(findings: Sequence[Finding], subject: Subject, least: LeastTimes) -> tuple[str, ...]:
    """What such steps can have read at most."""
    paced = [finding.time for finding in findings if finding.time.measure is not Measure.TTFT]
    bits = median_bits(paced, subject, least)
    sentences = []
    if bits is not None:
        weights = subject.served.weights
        read = least.weight_bytes
        sentences.append(
            f"at the stated bandwidth such a step reads at most {format_number(max(0.0, bits))} bits a weight; "
            f"{format_number(weights.bits_per_weight)} ({weights.format_name}, {format_bytes(read)} a step) were declared"
        )
    if any(finding.time.measure is Measure.TTFT for finding in findings):
        sentences.append("first tokens came faster than the compute rate allows too")
    return tuple(sentences)
