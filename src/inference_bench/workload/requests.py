"""How long are the requests, and which tokens do they share: columns, so that a million of them stay small.

In:   plain numbers
Out:  Requests, in the order in which they are sent
Leaves out: when they are sent (arrivals); what the tokens are: a segment says only which of them are the same
Read next by: generate, traces; through Workload: measure.load, simulate.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from inference_bench.errors import RequestError
from inference_bench.workload.checks import MOST_TOKENS, require_length

_COLUMNS: Final = (
    "output_tokens",
    "prompts",
    "answers",
    "priority",
    "tenant",
    "adapter",
    "sample_of",
    "session",
    "turn",
)


@dataclass(frozen=True, slots=True)
class RequestShape:
    """One request's length: prompt tokens in, output tokens out.

    Raises:   RequestError for a length below one
    """

    prompt_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        require_length(self.prompt_tokens, "prompt length in tokens")
        require_length(self.output_tokens, "output length in tokens")


class Segment(NamedTuple):
    """A run of prompt tokens, by what it holds.

    Where:    two prompts share their tokens exactly as far as their leading segments are equal
    """

    content: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Requests:
    """What is asked, request by request. Treat the columns as read-only: they are shared by scaled workloads.

    Where:    prompts None means that no two prompts share a token; answers[i] is the content of request i's output,
              so that Segment(answers[i], output_tokens[i]) in a later prompt is that output; a smaller priority goes
              first; adapter is which fine-tuned variant serves it. None: all alike. Requests are samples, several answers
              to one prompt, where they have the same sample_of: the index of the first of them. session is the conversation
              a request belongs to and turn its place in it, both counted from 0
    Raises:   RequestError for no request, a length below one (naming the first, counted from 0), columns of
              different lengths, segments that do not add up to the prompt, or samples whose prompts differ
    """

    prompt_tokens: array[int]
    output_tokens: array[int]
    prompts: tuple[tuple[Segment, ...], ...] | None = None
    answers: array[int] | None = None
    priority: array[int] | None = None
    tenant: array[int] | None = None
    adapter: array[int] | None = None
    sample_of: array[int] | None = None
    session: array[int] | None = None
    turn: array[int] | None = None

    def __post_init__(self) -> None:
        if not self.prompt_tokens:
            raise RequestError("there is no request; give at least one")
        for name in _COLUMNS:
            column = getattr(self, name)
            if column is not None and len(column) != len(self.prompt_tokens):
                raise RequestError(
                    f"{name} has {len(column)} values for {len(self.prompt_tokens)} requests; give one for each"
                )
        _require_lengths(self.prompt_tokens, "prompt")
        _require_lengths(self.output_tokens, "output")
        if self.prompts is not None:
            _require_sums(self.prompts, self.prompt_tokens)
        if self.sample_of is not None:
            _require_samples(self, self.sample_of)

    @classmethod
    def of(cls, shapes: Iterable[RequestShape]) -> Requests:
        """Requests of these shapes, in order, that share nothing.

        Raises:   RequestError for no shape
        """
        kept = tuple(shapes)
        return cls(
            array("q", [shape.prompt_tokens for shape in kept]), array("q", [shape.output_tokens for shape in kept])
        )

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    def shape_of(self, index: int) -> RequestShape:
        """The shape of the request with this index, counted from 0."""
        return RequestShape(self.prompt_tokens[index], self.output_tokens[index])

    def first(self, count: int) -> Requests:
        """The first requests alone; samples of one prompt may be parted.

        Raises:   RequestError for none
        """
        columns = {name: getattr(self, name) for name in ("prompt_tokens", *_COLUMNS)}
        return Requests(**{name: column and column[:count] for name, column in columns.items()})


def _require_lengths(column: array[int], what: str) -> None:
    if min(column) >= 1 and max(column) <= MOST_TOKENS:
        return
    index = next(index for index, length in enumerate(column) if not 1 <= length <= MOST_TOKENS)
    require_length(column[index], f"{what} length of request {index} (counted from 0)")


def _require_sums(prompts: tuple[tuple[Segment, ...], ...], prompt_tokens: array[int]) -> None:
    for index, (segments, length) in enumerate(zip(prompts, prompt_tokens, strict=True)):
        total = 0
        for _, num_tokens in segments:
            if num_tokens < 1:
                raise RequestError(f"request {index} has a segment of {num_tokens} tokens; a segment holds at least 1")
            total += num_tokens
        if total != length:
            raise RequestError(f"the segments of request {index} hold {total} tokens, and its prompt has {length}")


def _require_samples(requests: Requests, sample_of: array[int]) -> None:
    same = [column for column in (requests.prompts, requests.tenant, requests.adapter) if column is not None]
    if requests.prompts is None:
        raise RequestError(
            "samples answer the same prompt, and no prompt says what it holds; give the prompts' segments"
        )
    for index, first in enumerate(sample_of):
        if not 0 <= first <= index or sample_of[first] != first:
            raise RequestError(
                f"request {index} is a sample of request {first}; it must be one of its own, or of an earlier one that is"
            )
        if any(column[index] != column[first] for column in same):
            raise RequestError(
                f"request {index} is a sample of request {first}, and their prompts, tenants or adapters differ"
            )
