"""Requests are columns of equal length, of lengths that exist, whose segments add up."""

from __future__ import annotations

from array import array

import pytest

from inference_bench.errors import RequestError
from inference_bench.workload import Requests, RequestShape, Segment


def columns(*values: int) -> array[int]:
    return array("q", values)


def test_requests_of_shapes_give_the_shapes_back() -> None:
    shapes = [RequestShape(10, 5), RequestShape(1000, 50)]
    requests = Requests.of(shapes)
    assert len(requests) == 2
    assert [requests.shape_of(index) for index in range(2)] == shapes
    assert requests.prompts is None


def test_no_request_at_all_is_refused() -> None:
    with pytest.raises(RequestError, match="no request"):
        Requests.of([])


@pytest.mark.parametrize(
    ("prompts", "outputs", "message"),
    [
        (columns(1, 2, 0, -4), columns(1, 1, 1, 1), r"prompt length of request 2 \(counted from 0\) is 0"),
        (columns(1, 2, 3, 4), columns(1, -7, 1, 1), "output length of request 1 .* is -7"),
        (columns(1, 2, 3, 1 << 40), columns(1, 1, 1, 1), "prompt length of request 3 .* at most 2147483648"),
    ],
)
def test_the_first_impossible_length_is_named(prompts: array[int], outputs: array[int], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        Requests(prompts, outputs)


@pytest.mark.parametrize("name", ["output_tokens", "prompts", "answers", "priority", "tenant", "adapter", "sample_of"])
def test_a_column_of_another_length_is_refused(name: str) -> None:
    short = ((Segment(0, 1),),) if name == "prompts" else columns(1)
    with pytest.raises(RequestError, match=f"{name} has 1 values for 2 requests"):
        Requests(**{"prompt_tokens": columns(1, 1), "output_tokens": columns(1, 1), name: short})


def test_segments_add_up_to_their_prompt() -> None:
    prompts = ((Segment(0, 4), Segment(1, 6)), (Segment(0, 4),))
    assert Requests(columns(10, 4), columns(1, 1), prompts).prompts == prompts
    with pytest.raises(RequestError, match="segments of request 1 hold 4 tokens, and its prompt has 5"):
        Requests(columns(10, 5), columns(1, 1), prompts)


@pytest.mark.parametrize("first", [columns(0, 2, 2), columns(0, 0, 1), columns(-1, 0, 0), columns(0, 1, 3)])
def test_samples_are_of_an_earlier_request_that_is_none_of_another(first: array[int]) -> None:
    prompts = ((Segment(0, 4),),) * 3
    with pytest.raises(RequestError, match="it must be one of its own, or of an earlier one"):
        Requests(columns(4, 4, 4), columns(1, 2, 3), prompts, sample_of=first)


def test_samples_answer_the_same_prompt_of_the_same_tenant_and_adapter() -> None:
    lengths, first = columns(4, 4), columns(0, 0)
    same, other = ((Segment(0, 4),),) * 2, ((Segment(0, 4),), (Segment(1, 4),))
    kept = Requests(lengths, columns(1, 2), same, priority=columns(1, 2), sample_of=first)
    assert kept.sample_of == first
    with pytest.raises(RequestError, match="no prompt says what it holds"):
        Requests(lengths, columns(1, 2), sample_of=first)
    for differing in ({"prompts": other}, {"tenant": columns(0, 1)}, {"adapter": columns(0, 1)}):
        with pytest.raises(RequestError, match="request 1 is a sample of request 0, and their prompts, tenants or"):
            Requests(lengths, columns(1, 2), **{"prompts": same, **differing}, sample_of=first)


def test_a_segment_without_a_token_is_refused() -> None:
    with pytest.raises(RequestError, match="request 0 has a segment of 0 tokens"):
        Requests(columns(4), columns(1), ((Segment(0, 4), Segment(1, 0)),))


def test_lengths_that_no_column_can_hold_are_refused_in_words() -> None:
    with pytest.raises(RequestError, match=r"prompt length in tokens is 1000000000000.*at most"):
        RequestShape(10**30, 1)
