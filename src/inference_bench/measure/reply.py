"""What has one streamed reply said: its events, one payload after another, to the few facts a record needs.

In:   the events of each payload, and when it arrived
Out:  Reply: times, counts, channels, the reason it ended, and the verdict
Leaves out: what was said; how the bytes came (receipts)
Read next by: stream_follower, sender.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from inference_bench.measure.stream_events import (
    Channel,
    Content,
    Done,
    ErrorObject,
    Finish,
    StreamEvent,
    Timings,
    TokenIds,
    Usage,
)
from inference_bench.records import RequestStatus, ServerTimings, TokenCountSource


@dataclass(slots=True)
class Reply:
    """What one streamed reply has said so far.

    Where:    chunk_times_s has one entry for each payload that carried content, in any channel; counted_upto how many
              tokens there were by then, as usage, timings or token ids in that same payload say, None where none did;
              other_channels has the chunks that are not content, by their number
    """

    chunk_times_s: list[float] = field(default_factory=list)
    counted_upto: list[int | None] = field(default_factory=list)
    other_channels: dict[int, Channel] = field(default_factory=dict)
    num_token_ids: int = 0
    finish_reason: str | None = None
    usage: Usage | None = None
    timings: ServerTimings | None = None
    error: str | None = None
    done: bool = False

    def add(self, events: tuple[StreamEvent, ...], time_s: float) -> None:
        """Take in the events of one payload, which arrived at `time_s`; a later usage replaces an earlier one."""
        if len(events) == 1 and type(only := events[0]) is Content and only.channel is Channel.CONTENT:
            self.chunk_times_s.append(time_s)
            self.counted_upto.append(None)
            return
        channel, upto = None, None
        for event in events:
            if isinstance(event, Content):
                channel = event.channel if channel is not Channel.CONTENT else channel
            else:
                upto = self._note(event, upto)
        if channel is not None:
            if channel is not Channel.CONTENT:
                self.other_channels[len(self.chunk_times_s)] = channel
            self.chunk_times_s.append(time_s)
            self.counted_upto.append(upto)

    def _note(self, event: StreamEvent, upto: int | None) -> int | None:
        """Take in what is not content; how many tokens there were by then, as far as this payload says."""
        match event:
            case TokenIds(count):
                self.num_token_ids += count
                upto = self.num_token_ids
            case Finish(reason):
                self.finish_reason = reason
            case Usage():
                self.usage, upto = event, event.completion_tokens if upto is None else upto
            case Timings(server):
                self.timings, upto = server, server.output_tokens if upto is None else upto
            case ErrorObject(message):
                self.error = message
            case Done():
                self.done = True
        return upto

    @property
    def prompt_tokens(self) -> int | None:
        """The whole prompt, as the server counts it: its `usage`, else llama.cpp's `timings`, which have the cached part apart."""
        if self.usage is not None and self.usage.prompt_tokens is not None:
            return self.usage.prompt_tokens
        if self.timings is None or self.timings.prompt_tokens is None:
            return None
        return self.timings.prompt_tokens + (self.timings.cached_prompt_tokens or 0)

    @property
    def cached_prompt_tokens(self) -> int | None:
        """What of the prompt was in a prefix cache, as the server counts it."""
        if self.usage is not None and self.usage.cached_prompt_tokens is not None:
            return self.usage.cached_prompt_tokens
        return None if self.timings is None else self.timings.cached_prompt_tokens

    def count_output(self) -> tuple[int | None, TokenCountSource]:
        """The server's count: its `usage`, else llama.cpp's `timings`, else the token ids it wrote."""
        counted = None if self.usage is None else self.usage.completion_tokens
        if counted is None and self.timings is not None:
            counted = self.timings.output_tokens
        if counted is not None:
            return counted, TokenCountSource.SERVER_USAGE
        if self.num_token_ids:
            return self.num_token_ids, TokenCountSource.SERVER_TOKEN_IDS
        return None, TokenCountSource.UNKNOWN

    @property
    def chunk_tokens(self) -> tuple[int, ...]:
        """The tokens that came with each chunk of content; () unless the server counted at every one of them."""
        return self.tokens_since(0)

    def tokens_since(self, first: int) -> tuple[int, ...]:
        """The tokens that came with each chunk from this one on; () unless the server counted at every one of them."""
        counted = self.counted_upto if not first else self.counted_upto[first - 1 :]
        upto = [count for count in counted if count is not None]
        if len(upto) < len(counted):
            return ()
        tokens = tuple(after - before for before, after in pairwise(upto if first else [0, *upto]))
        return tokens if min(tokens, default=0) >= 0 else ()

    def channels_since(self, first: int) -> str:
        """A letter for each chunk from this one on; "" when all of them are content."""
        numbers = range(first, len(self.chunk_times_s))
        if not self.other_channels or not any(number in self.other_channels for number in numbers):
            return ""
        return "".join(self.other_channels.get(number, Channel.CONTENT).letter for number in numbers)

    def verdict(self, lost: str | None = None) -> tuple[RequestStatus, str | None]:
        """How the request ended, now that nothing more will come, and what there is to say about it.

        Where:    `lost` says how the connection broke, None when it ended in order
        Ignores:  nothing: a reply with a finish reason but no [DONE] is complete, with a remark, because every token
                  and the reason have arrived; without either, it is truncated if tokens came and failed if none did
        """
        if self.error is not None:
            return RequestStatus.FAILED, self.error
        if self.done and (self.finish_reason or self.chunk_times_s):
            return RequestStatus.COMPLETED, self._contradiction()
        how = lost or "the stream ended"
        if self.finish_reason:
            return RequestStatus.COMPLETED, f"{how} after the finish reason and before [DONE]"
        if self.chunk_times_s:
            return RequestStatus.TRUNCATED, f"{how} after {len(self.chunk_times_s)} chunks without a finish reason"
        return RequestStatus.FAILED, f"{how} without a single token"

    def _contradiction(self) -> str | None:
        """What to say when the server counts fewer tokens than it sent chunks with content; its count stands."""
        counted = None if self.usage is None else self.usage.completion_tokens
        if counted is None or counted >= len(self.chunk_times_s):
            return None
        return f"the server counts {counted} tokens but sent {len(self.chunk_times_s)} chunks with content"
