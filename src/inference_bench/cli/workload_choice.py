"""What a person's options ask of a server, as a Workload.

In:   the options that `workload_options` adds to a command
Out:  Workload, or a RequestError for options that contradict each other
Leaves out: what is done with it (load, simulate, capacity)

A trace brings its own requests, so options for lengths and sharing are refused beside one. A rate beside a trace scales
its times; named arrivals beside a trace replace them.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from inference_bench.cli.given import number, refuse
from inference_bench.cli.workload_options import DEFAULT_THINK_S, TRACE_FIXES
from inference_bench.errors import RequestError
from inference_bench.files import require_file_name
from inference_bench.units import parse_count, parse_seconds, parse_tokens
from inference_bench.workload import (
    REFERENCE_OUTPUT,
    REFERENCE_PROMPT,
    Arrivals,
    ClosedLoop,
    Constant,
    OpenLoop,
    SharedPrefix,
    Workload,
    generate,
    generate_conversations,
    generate_shared,
    parse_arrivals,
    parse_lengths,
    read_trace,
    says_its_rates,
    with_arrivals,
)
from inference_bench.workload.checks import require_rate

_NOT_BESIDE_A_TRACE: Final = ("prompt_tokens", "output_tokens", "shared_prefix", "turns", "samples")


def build_workload(options: argparse.Namespace, defaults: Mapping[str, str]) -> Workload:
    """See `workload_options.workload_from`.

    Raises:   RequestError for options that are missing, contradict each other, or hold what cannot be
    """
    concurrency = getattr(options, "concurrency", None)
    if concurrency is not None and options.rate is not None:
        raise RequestError("a rate does not wait for answers and a concurrency does; ask for one of them")
    if options.trace is not None:
        workload = _from_trace(options)
    else:
        refuse(
            options,
            ("trace_format", "trace_columns", "trace_fix", "time_scale"),
            "they are about a trace, and none is named",
        )
        workload = _generated(options, defaults, is_closed=concurrency is not None)
    if options.max_output_tokens is not None:
        workload = replace(
            workload, max_output_tokens=parse_tokens(options.max_output_tokens, "limit of output tokens")
        )
    return workload if concurrency is None else _closed(workload, concurrency, options)


def _closed(workload: Workload, concurrency: str, options: argparse.Namespace) -> Workload:
    refuse(options, ("arrivals", "turns", "time_scale"), "a closed loop sends when an answer is there")
    arrival = ClosedLoop(parse_count(concurrency, "concurrency"), len(workload))
    name = "closed loop" if options.trace is None else f"closed loop of {workload.name}"
    return replace(workload, name=name, arrival=arrival)


def _from_trace(options: argparse.Namespace) -> Workload:
    refuse(options, _NOT_BESIDE_A_TRACE, "a trace brings its own requests")
    require_file_name(options.trace, "trace")
    fixes = _fixes(options.trace_fix)
    workload = read_trace(
        options.trace,
        options.trace_format,
        _columns(options.trace_columns),
        None if options.requests is None else parse_count(options.requests, "requests"),
        sort="sort" in fixes,
        drop_empty="drop-empty" in fixes,
        tokens_per_word=fixes.get("words"),
        seed=options.seed,
    )
    if options.rate is None and says_its_rates(options.arrivals):
        return with_arrivals(workload, parse_arrivals(options.arrivals, None), options.seed)
    if options.rate is None:
        return _replayed(workload, options)
    if options.time_scale is not None:
        raise RequestError("a rate and a time scale both scale a trace's times; give one of them")
    rate = _rate(options.rate)
    arrival = workload.arrival
    if options.arrivals is None and isinstance(arrival, OpenLoop) and arrival.times_s[-1] > 0:
        return workload.at_rate(rate)
    return with_arrivals(workload, parse_arrivals(options.arrivals or "poisson", rate), options.seed)


def _replayed(workload: Workload, options: argparse.Namespace) -> Workload:
    if options.arrivals is not None and getattr(options, "concurrency", None) is None:
        raise RequestError("arrivals need a rate; give one, or leave the trace its own times")
    if options.time_scale is None:
        return workload
    return workload.scaled(number(options.time_scale, "time scale"))


def _generated(options: argparse.Namespace, defaults: Mapping[str, str], is_closed: bool) -> Workload:
    """Requests from distributions; those of a closed loop get arrivals that draw nothing and are replaced."""
    given = {
        name: default if getattr(options, name) is None else getattr(options, name)
        for name, default in defaults.items()
    }
    prompt = parse_lengths(given["prompt_tokens"], "prompt tokens")
    output = parse_lengths(given["output_tokens"], "output tokens")
    count = parse_count(given["requests"], "requests")
    num_turns, think_s = _turns(options.turns)
    samples = _samples(options, is_closed)
    arrivals = Constant(1.0) if is_closed else _arrivals(options, num_turns * samples)
    prefix = _prefix(options.shared_prefix)
    limit, seed = output.longest, options.seed
    if options.turns is not None:
        return generate_conversations(
            arrivals,
            prompt,
            output,
            count,
            seed,
            num_turns=num_turns,
            think_s=think_s,
            prefix=prefix,
            max_output_tokens=limit,
        )
    if prefix is not None or samples > 1:
        name = "samples" if prefix is None else "shared prefixes"
        return generate_shared(
            arrivals, prompt, output, count, seed, prefix=prefix, samples=samples, name=name, max_output_tokens=limit
        )
    name = "reference" if (prompt, output) == (REFERENCE_PROMPT, REFERENCE_OUTPUT) else "generated"
    return generate(arrivals, prompt, output, count, seed, name=name, max_output_tokens=limit)


def _arrivals(options: argparse.Namespace, num_together: int) -> Arrivals:
    """The process that starts what is sent together: prompts with their samples, conversations with their turns."""
    if options.rate is None and says_its_rates(options.arrivals):
        arrivals = parse_arrivals(options.arrivals, None)
        if num_together > 1:
            raise RequestError("a ramp and steps are of single requests; give turns and samples a fixed rate")
        return arrivals
    if options.rate is None:
        raise RequestError("nothing says how often requests are sent; give a rate, or a trace")
    return parse_arrivals(options.arrivals or "poisson", _rate(options.rate) / num_together)


def _rate(text: str) -> float:
    rate = number(text, "rate")
    require_rate(rate)
    return rate


def _samples(options: argparse.Namespace, is_closed: bool) -> int:
    """How often each prompt is answered; once where nothing is said."""
    samples = 1 if options.samples is None else parse_count(options.samples, "samples")
    if samples < 1:
        raise RequestError(f"the number of samples is {samples}; it must be a whole number of at least 1")
    if samples != 1 and is_closed:
        raise RequestError(
            "samples of a prompt are sent together, and a closed loop sends when an answer is there; give a rate"
        )
    if samples != 1 and options.turns is not None:
        raise RequestError("a turn follows one answer, so turns have no samples; ask for one of them")
    return samples


def _prefix(text: str | None) -> SharedPrefix | None:
    if text is None:
        return None
    tokens, *more = text.split(":")
    if len(more) > 2:
        raise RequestError(
            f"the shared prefix {text[:80]!r} has {len(more) + 1} fields; write T, T:GROUPS or T:GROUPS:ZIPF"
        )
    groups = parse_count(more[0], "shared prefixes") if more else 1
    zipf = number(more[1], "Zipf exponent") if len(more) > 1 else 0.0
    return SharedPrefix(parse_tokens(tokens, "shared prefix"), groups, zipf)


def _turns(text: str | None) -> tuple[int, float]:
    """Number of turns and the pause between them; one turn where nothing is said."""
    if text is None:
        return 1, 0.0
    turns, *more = text.split(":")
    if len(more) > 1:
        raise RequestError(f"the turns {text[:80]!r} have {len(more) + 1} fields; write N or N:THINK")
    number = parse_count(turns, "turns")
    if number < 1:
        raise RequestError(f"the number of turns is {number}; it must be a whole number of at least 1")
    return number, parse_seconds(more[0], "think time") if more else DEFAULT_THINK_S


def _columns(text: str | None) -> dict[str, str] | None:
    if text is None:
        return None
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(mark and name.strip() for _, mark, name in pairs):
        raise RequestError(
            f"the columns {text[:80]!r} are not understood; write for example time=t,prompt=in,output=out"
        )
    return {meaning.strip(): name.strip() for meaning, _, name in pairs}


def _fixes(text: str | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for part in () if text is None else text.split(","):
        name, mark, value = part.strip().partition("=")
        if name not in ("sort", "drop-empty", "words") or bool(mark) != (name == "words"):
            raise RequestError(f"a trace cannot be mended by {part[:40]!r}; write some of {TRACE_FIXES}")
        found[name] = number(value, "number of tokens a word") if mark else 1.0
    return found
