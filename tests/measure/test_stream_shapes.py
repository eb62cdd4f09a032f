"""Bytes to events for every shape of stream that the conformance suite serves, cut at every byte."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.conform.script import Case
from inference_bench.conform.table import ALL_CASES
from inference_bench.errors import StreamError
from inference_bench.measure import openai_stream
from inference_bench.measure.openai_stream import Content, EventStream, StreamEvent

SMALL_BYTES = 20_000
STREAMS = [case for case in ALL_CASES if b"text/event-stream" in case.script.head]
Events = list[tuple[StreamEvent, ...]]


@pytest.fixture(autouse=True, scope="module")
def payloads_parsed_once() -> Iterable[None]:
    """What a payload means does not depend on where the bytes were cut; reading each once makes every cut affordable."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_stream, "parse_payload", cache(openai_stream.parse_payload))
        yield


def events_of(parts: Iterable[bytes]) -> Events | str:
    """The events of all parts, or the words of the error that they end in."""
    stream = EventStream()
    try:
        return [events for part in parts for events in stream.feed(part)]
    except StreamError as error:
        return str(error)


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_a_cut_at_any_byte_gives_the_same_events(case: Case) -> None:
    data = case.script.stream
    whole = events_of([data])
    cuts = range(len(data) + 1) if len(data) < SMALL_BYTES else range(0, len(data), 4099)
    for cut in cuts:
        assert events_of([data[:cut], data[cut:]]) == whole, cut
    if len(data) < SMALL_BYTES:
        assert events_of(data[at : at + 1] for at in range(len(data))) == whole


@pytest.mark.parametrize("case", STREAMS, ids=lambda case: case.name)
def test_as_many_events_have_content_as_the_server_put_text_in(case: Case) -> None:
    found = events_of([case.script.stream])
    sent = sum(len(step.chunks) for step in case.script.steps)
    if case.name == "broken_json":
        assert found == "the server sent 18 characters that are not JSON"
        return
    assert isinstance(found, list)
    assert sum(any(isinstance(event, Content) for event in events) for events in found) == sent


@settings(max_examples=200, deadline=None)
@given(case=st.sampled_from(STREAMS), cuts=st.lists(st.integers(0, 4000), max_size=12))
def test_cuts_anywhere_give_the_same_events(case: Case, cuts: list[int]) -> None:
    data = case.script.stream
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    assert events_of(data[begin:end] for begin, end in pairwise(edges)) == events_of([data])
