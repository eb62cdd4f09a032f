"""One request in GuideLLM's terms: what it keeps of one, and what it computes from that.

In:   a RequestRecord, and the moment of the epoch at which the run's clock was at 0
Out:  TheirRequest, and its entry in benchmarks.json
Leaves out: text; packets sent, which its HTTP backend does not note either
Read next by: exports_guidellm.

Read in its source, version 0.8.1. It keeps the first and the last chunk's time and how many there were; those between it
takes to be evenly spaced, and the first to be one token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from inference_bench.definitions.samples import MissingError, tokens_or_asked
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.report.exports_summary import Weighted
from inference_bench.units import KILO

Json: TypeAlias = dict[str, Any]

STATUSES: Final = ("successful", "incomplete", "errored")

_STATUS: Final = {RequestStatus.COMPLETED: "successful", RequestStatus.CANCELLED: "incomplete"}
_INFO_STATUS: Final = {"successful": "completed", "incomplete": "cancelled", "errored": "errored"}
_USAGE: Final = (
    "text_words", "text_characters", "image_tokens", "image_count", "image_pixels", "image_bytes", "video_tokens",
    "video_frames", "video_seconds", "video_bytes", "audio_tokens", "audio_samples", "audio_seconds", "audio_bytes",
    "tool_call_tokens", "mixed_content_tool_tokens", "tool_call_count",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TheirRequest:
    """A request in its terms; times are seconds of the epoch."""

    record: RequestRecord
    base_s: float

    @property
    def status(self) -> str:
        """Which of its three lists the request is in."""
        return _STATUS.get(self.record.status, "errored")

    @property
    def start_s(self) -> float:
        """When it was sent."""
        return self.base_s + self.record.sent_s

    @property
    def end_s(self) -> float:
        """When its reply was over."""
        return self.base_s + self.record.end_s

    @property
    def latency_s(self) -> float:
        """From the send to the end of the reply."""
        return self.record.end_s - self.record.sent_s

    @property
    def num_iterations(self) -> int:
        """Its chunks with content."""
        return len(self.record.chunk_times_s)

    @property
    def text_tokens(self) -> int | None:
        """Counted by the server; of a request that completed, else as many as were asked for."""
        try:
            is_good = self.record.status is RequestStatus.COMPLETED
            return tokens_or_asked(self.record) if is_good else self.record.output_tokens
        except MissingError:
            return None

    @property
    def output_tokens(self) -> int | None:
        """The same; where there is no count at all, each chunk is one."""
        return self.num_iterations or None if self.text_tokens is None else self.text_tokens

    @property
    def total_tokens(self) -> int | None:
        """Those of prompt and output that are known."""
        known = [count for count in (self.record.prompt_tokens, self.output_tokens) if count is not None]
        return sum(known) if known else None

    def since_send_s(self, chunk: int) -> float | None:
        """From the send to a chunk."""
        return self.record.chunk_times_s[chunk] - self.record.sent_s if self.num_iterations else None

    @property
    def first_content(self) -> int | None:
        """The first chunk that is no reasoning and no tool call."""
        if not self.record.channels:
            return 0 if self.num_iterations else None
        place = self.record.channels.find("c")
        return None if place < 0 else place

    @property
    def first_content_s(self) -> float | None:
        """From the send to that chunk."""
        return None if self.first_content is None else self.since_send_s(self.first_content)

    @property
    def per_token_s(self) -> float | None:
        """From the send to the last token, or to the end, over all tokens."""
        last_s = self.since_send_s(-1)
        return (self.latency_s if last_s is None else last_s) / self.output_tokens if self.output_tokens else None

    @property
    def between_tokens_s(self) -> float | None:
        """From the first chunk to the last, over the tokens after the first."""
        if not self.num_iterations or self.output_tokens is None or self.output_tokens <= 1:
            return None
        times_s = self.record.chunk_times_s
        return (times_s[-1] - times_s[0]) / (self.output_tokens - 1)

    @property
    def later_tokens_each(self) -> float | None:
        """Tokens of each chunk after the first, which is taken for one token."""
        if self.output_tokens is None or self.output_tokens <= 1 or self.num_iterations <= 1:
            return None
        return (self.output_tokens - 1) / (self.num_iterations - 1)

    @property
    def later_timings(self) -> list[Weighted]:
        """Its chunks after the first, evenly spaced: it keeps no others."""
        each = self.later_tokens_each
        if each is None:
            return []
        first_s, last_s = (self.base_s + self.record.chunk_times_s[at] for at in (0, -1))
        step_s = (last_s - first_s) / (self.num_iterations - 1)
        return [(first_s + step_s * number, each) for number in range(1, self.num_iterations)]

    @property
    def output_timings(self) -> list[Weighted]:
        """All its chunks in that way, and how many tokens each holds."""
        if self.num_iterations <= 1:
            end_s = self.base_s + self.record.chunk_times_s[-1] if self.num_iterations else self.end_s
            return [(end_s, float(self.output_tokens or 0))]
        return [(self.base_s + self.record.chunk_times_s[0], float(bool(self.output_tokens))), *self.later_timings]

    @property
    def prompt_timing(self) -> Weighted:
        """When its prompt was read: at the first token; and how long it is."""
        read_s = self.base_s + self.record.chunk_times_s[0] if self.num_iterations else self.end_s
        return read_s, float(self.record.prompt_tokens or 0)


def stats_of(one: TheirRequest) -> Json:
    """One request, with what it computes from its times."""
    record, late_s = one.record, one.record.sent_s - one.record.planned_s
    latency_s, output_tokens = one.latency_s, one.output_tokens
    return {
        "type_": "generative_request_stats",
        "request_id": record.request_id,
        "response_id": None,
        "request_args": None,
        "output": "",
        "reasoning_output": None,
        "tool_calls": None,
        "info": _info(one),
        "input_metrics": _usage(record.prompt_tokens, record.cached_prompt_tokens),
        "response_metrics": None,
        "output_metrics": _usage(one.text_tokens, None),
        "request_start_time": one.start_s,
        "request_end_time": one.end_s,
        "request_latency": latency_s,
        "request_dispatch_delay": late_s,
        "turn_predecessor_delay": 0.0,
        "turn_scheduling_delay": late_s,
        "request_scheduled_latency": record.end_s - record.planned_s,
        "prompt_tokens": record.prompt_tokens,
        "cached_tokens": record.cached_prompt_tokens,
        "output_tokens": output_tokens,
        "total_tokens": one.total_tokens,
        "time_to_first_token_ms": _ms(one.since_send_s(0)),
        "time_to_last_round_trip_ms": None,
        "avg_round_trip_time_ms": None,
        "time_per_output_token_ms": _ms(one.per_token_s),
        "inter_token_latency_ms": _ms(one.between_tokens_s),
        "tokens_per_second": _over(one.total_tokens, latency_s),
        "output_tokens_per_second": _over(output_tokens, latency_s),
        "time_to_first_output_token_ms": _ms(one.first_content_s),
        "iter_tokens_per_iteration": one.later_tokens_each,
        "output_tokens_per_iteration": _over(output_tokens, one.num_iterations),
    }


def _info(one: TheirRequest) -> Json:
    record = one.record
    error = None if one.status == "successful" else record.error or record.status.value
    return {
        "request_id": record.request_id,
        "conversation_id": None if record.session is None else str(record.session),
        "turn_index": record.turn or 0,
        "status": _INFO_STATUS[one.status],
        "timings": _timings(one),
        "error": error,
        "traceback": None,
        "started_at": one.start_s,
        "completed_at": one.end_s,
    }


def _timings(one: TheirRequest) -> Json:
    times_s = one.record.chunk_times_s
    content = one.first_content
    return {
        "targeted_start": one.base_s + one.record.planned_s,
        "request_start": one.start_s,
        "first_token_iteration": one.base_s + times_s[0] if times_s else None,
        "first_output_token_iteration": None if content is None else one.base_s + times_s[content],
        "last_token_iteration": one.base_s + times_s[-1] if times_s else None,
        "request_iterations": one.num_iterations,
        "token_iterations": one.num_iterations,
        "request_end": one.end_s,
        "resolve_end": one.end_s,
    }


def _usage(text_tokens: int | None, cached_tokens: int | None) -> Json:
    counts = {"text_tokens": text_tokens, "cached_tokens": cached_tokens, "total_tokens": text_tokens}
    return counts | dict.fromkeys(_USAGE)


def _ms(time_s: float | None) -> float | None:
    return None if time_s is None else time_s * KILO


def _over(count: float | None, total: float) -> float | None:
    return None if count is None or total <= 0 else count / total
