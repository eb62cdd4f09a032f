"""What is asked of a server: how long the requests are and when they are sent.

In:   plain numbers
Out:  Workload, which the load generator sends and the simulator schedules: the same one
Leaves out: arrivals on a schedule of their own (open loop); here the next request waits for an earlier one to end
Read next by: measure.load, simulate.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.errors import RequestError


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One request's length: prompt tokens in, output tokens out.

    Raises:   RequestError for a length below one
    """

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        _require_count(self.prompt_tokens, "prompt length in tokens")
        _require_count(self.output_tokens, "output length in tokens")


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """So many requests at once; the next is sent as soon as one ends.

    Ignores:  how fast users would have sent: a slow server is asked less often
    Raises:   RequestError for a number below one
    """

    concurrency: int
    num_requests: int

    def __post_init__(self) -> None:
        _require_count(self.concurrency, "concurrency")
        _require_count(self.num_requests, "number of requests")


@dataclass(frozen=True, slots=True)
class Workload:
    """A named, seeded set of requests. Request i has shape i modulo the number of shapes.

    Raises:   RequestError for a workload without a shape
    """

    name: str
    shapes: tuple[RequestShape, ...]
    arrival: ClosedLoop
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.shapes:
            raise RequestError(f"the workload {self.name!r} has no request shape; give at least one")

    def shape_of(self, index: int) -> RequestShape:
        """The shape of the request with this index, counted from 0."""
        return self.shapes[index % len(self.shapes)]


def _require_count(value: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"the {what} is {value!r}; it must be a whole number of at least 1")
