"""Who counted the tokens: the server's usage, its timings, its token ids, or nobody; never the one who asked."""

from __future__ import annotations

import pytest

from inference_bench.measure.reply import Reply
from inference_bench.measure.sender import Ask, _build_record, _Course
from inference_bench.measure.stream_events import Channel, Content, Done, StreamEvent, Timings, TokenIds, Usage
from inference_bench.records import ServerTimings, TokenCountSource

TEXT = Content(3, Channel.CONTENT)
IDS, USAGE, TIMINGS = TokenIds(5), Usage(9, 7, None), Timings(ServerTimings(output_tokens=6))


@pytest.mark.parametrize(
    ("events", "tokens", "source"),
    [
        ((TEXT, IDS, USAGE, TIMINGS), 7, TokenCountSource.SERVER_USAGE),
        ((TEXT, IDS, TIMINGS), 6, TokenCountSource.SERVER_USAGE),
        ((TEXT, IDS), 5, TokenCountSource.SERVER_TOKEN_IDS),
        ((TEXT, Usage(9, None, None), IDS), 5, TokenCountSource.SERVER_TOKEN_IDS),
        ((TEXT,), None, TokenCountSource.UNKNOWN),
    ],
)
def test_the_first_who_counted_is_believed(
    events: tuple[StreamEvent, ...], tokens: int | None, source: TokenCountSource
) -> None:
    reply = Reply()
    reply.add(events, 1.0)
    reply.add((Done(),), 2.0)
    record = _build_record(Ask("r", "p", 64, 0.0), _Course(sent_s=0.0, reply=reply), 2.0, None)
    assert (record.output_tokens, record.token_count_source) == (tokens, source)
    assert record.requested_output_tokens == 64
