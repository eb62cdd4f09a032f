"""Do a server's own figures agree with what this client recorded?

In:   ServerMetrics, RequestRecords on the same clock
Out:  ServerChecks: both sides of each comparison, and a sentence where they do not agree
Leaves out: which of the two is right
Read next by: report.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from inference_bench.measure.server_metrics import ServerMetrics, ServerSample, counter_change, summarise_server
from inference_bench.records import RequestRecord
from inference_bench.units import format_count, format_fraction, format_number

MAX_TOKEN_ERROR: Final = 0.01
MAX_RUNNING_ERROR: Final = 0.1
_LEAST_REQUESTS: Final = 1.0  # of difference in requests, below which nothing is said
_FEWEST_SAMPLES: Final = 5
_LEAST_HITS: Final = 0.01


@dataclass(frozen=True, slots=True)
class SideBySide:
    """One quantity as the server and as the records have it; finding says in words that they do not agree.

    Where:    the records leave client_low to client_high possible: num_open requests that ended without a count of tokens,
              or were in flight at either end, gave anything from none to all that they were asked for
    """

    name: str
    server: float
    client_low: float
    client_high: float
    finding: str | None
    num_open: int = 0

    @property
    def agreement(self) -> str | None:
        """That both agree, with how much the records leave open; None where they do not."""
        if self.finding is not None:
            return None
        server, low, high = map(_figure, (self.server, self.client_low, self.client_high))
        if abs(self.server - self.client_low) <= max(MAX_TOKEN_ERROR * self.client_low, _LEAST_REQUESTS):
            return f"the server's own count agrees: {self.name} {server}, by the records {low}"
        if not self.num_open:
            return f"the server's own count is near: {self.name} {server}, by the records {low}"
        requests = "1 request was" if self.num_open == 1 else f"{format_count(self.num_open)} requests were"
        return (
            f"the server's own count is possible: {self.name} {server}, by the records {low} to {high}, "
            f"as {requests} under way when it was first or last asked, or not counted"
        )


@dataclass(frozen=True, slots=True)
class ServerChecks:
    """Every comparison that could be made; None for one that could not."""

    output_tokens: SideBySide | None
    in_flight: SideBySide | None
    prefix_hits: str | None

    @property
    def findings(self) -> tuple[str, ...]:
        """What does not agree, and what should be known, as sentences."""
        both = (check.finding for check in (self.output_tokens, self.in_flight) if check is not None)
        return tuple(line for line in (*both, self.prefix_hits) if line)


def _figure(value: float) -> str:
    return format_count(int(value)) if value == int(value) else format_number(value)


def check_server(metrics: ServerMetrics | None, records: Sequence[RequestRecord]) -> ServerChecks:
    """All comparisons of a run; records of every stage, since the server counts them all."""
    samples = () if metrics is None else metrics.samples
    return ServerChecks(
        check_output_tokens(samples, records), check_in_flight(samples, records), _prefix_hits_finding(samples)
    )


def check_output_tokens(samples: Sequence[ServerSample], records: Sequence[RequestRecord]) -> SideBySide | None:
    """The server's count of output tokens beside that of the records.

    Formula:  last - first sample of the counter, against Σ output tokens of the requests sent between the two
    Unit:     tokens
    Ignores:  up to 1 %: a closing token that one side counts
    """
    known = [sample for sample in samples if sample.output_tokens_total is not None]
    change = counter_change(known, "output_tokens_total")
    if change is None:
        return None
    begin_s, end_s = known[0].at_s, known[-1].at_s
    low = high = num_open = 0
    for record in records:
        if record.end_s <= begin_s or record.sent_s >= end_s:
            continue
        least = record.output_tokens
        most = least if least is not None else record.requested_output_tokens or 0
        is_inside = begin_s <= record.sent_s and record.end_s <= end_s
        known_least = (least or 0) if is_inside else 0
        num_open += known_least < most
        low += known_least
        high += most
    return SideBySide("output tokens", change, low, high, _tokens_finding(change, low, high), num_open)


def _tokens_finding(change: float, low: int, high: int) -> str | None:
    said = f"the server counted {format_count(round(change))} output tokens during the run"
    if change < low * (1 - MAX_TOKEN_ERROR):
        return f"{said}, the replies say {format_count(low)}: tokens are reported that were not generated"
    if change > high * (1 + MAX_TOKEN_ERROR):
        return f"{said}, its replies to this client at most {format_count(high)}: somebody else used it, or tokens did not arrive"
    return None


def check_in_flight(samples: Sequence[ServerSample], records: Sequence[RequestRecord]) -> SideBySide | None:
    """The server's running and waiting requests beside those that this client had in flight at the same moments.

    Formula:  the means over the samples that lie between the first send and the last end
    Unit:     requests; None below five samples
    """
    known = [(sample.at_s, both) for sample in samples if (both := _present(sample)) is not None]
    begun, ended = sorted(record.sent_s for record in records), sorted(record.end_s for record in records)
    within = [(at_s, both) for at_s, both in known if begun and begun[0] <= at_s <= ended[-1]]
    if len(within) < _FEWEST_SAMPLES:
        return None
    server = math.fsum(both for _, both in within) / len(within)
    client = sum(bisect_right(begun, at_s) - bisect_right(ended, at_s) for at_s, _ in within) / len(within)
    return SideBySide("requests in flight", server, client, client, _in_flight_finding(server, client))


def _present(sample: ServerSample) -> float | None:
    return None if sample.running is None else sample.running + (sample.waiting or 0.0)


def _in_flight_finding(server: float, client: float) -> str | None:
    if abs(server - client) <= max(_LEAST_REQUESTS, MAX_RUNNING_ERROR * client):
        return None
    said = (
        f"the server says that {format_number(server)} requests were running or waiting on average, this client had "
        f"{format_number(client)} in flight"
    )
    if server > client:
        return f"{said}: somebody else used it"
    return f"{said}: the others were before its scheduler or behind it, in a proxy, a tokenizer or a connection"


def _prefix_hits_finding(samples: Sequence[ServerSample]) -> str | None:
    summary = summarise_server(samples)
    share = None if summary is None else summary.prefix_hit_fraction
    if share is None or share < _LEAST_HITS:
        return None
    return (
        f"the server found {format_fraction(share)} of prompt tokens in its prefix cache: TTFT and throughput are those of "
        f"prompts that were partly read before"
    )
