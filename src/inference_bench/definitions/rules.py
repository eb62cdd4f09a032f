"""Which tool means what by which word, and why its number differs from ours.

In:   nothing
Out:  RULES: one row a tool and metric, the one table behind `load --definitions`, its JSON and docs/metrics.md
Leaves out: a tool's own faults in reading a stream (docs/conformance.md); its rounding
Read next by: recomputed, report (exports_vllm).

Read in each tool's source in 2026: vLLM 0.33, SGLang 0.5.23, GuideLLM 0.8.1, AIPerf 0.13.0, inference-perf, MLPerf
LoadGen, genai-bench and llmperf. Where a tool counts tokens with a tokenizer of its own, the server's count stands in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from inference_bench.definitions import samples
from inference_bench.definitions.samples import Samples
from inference_bench.metrics import longest_gap_s
from inference_bench.records import RequestRecord

OURS: Final = "inference-bench"
METRICS: Final = ("ttft", "ttfa", "tpot", "itl", "e2e", "output_tokens_per_s", "goodput_requests_per_s")

_CLOCK: Final = "starts at the actual send: this client's own delay is missing"
_TAIL: Final = "runs to the end of the reply: finish chunk, usage and [DONE] are in it"
_MANY: Final = "tokens after the first in the first chunk make it too small"
_CHUNKS: Final = "a chunk of several tokens is one sample"
_ASKED: Final = "where the server counts none, the requested number stands for it"
_MEAN: Final = "one mean a request: a stall in one gap hardly moves it"
_WEIGHED: Final = "a request counts once for each of its tokens"
_ANSWER: Final = "reasoning and tool calls are not seen"
_ONE: Final = "a request of one token has none"
_OVER_ALL: Final = "the first token's wait is in it"
_SPAN: Final = "from the first actual send to the end of the last reply"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a tool calls one of our metrics, how it is made, and the reason that it differs.

    Where:    of gives the samples of one request; None where a tool has no such metric, and reason says so; weighs how
              often each of them counts, None is once; counts gives the tokens behind tokens per second; passes whether
              a request is good at (TTFT limit, gap limit)
    """

    tool: str
    metric: str
    word: str
    formula: str
    reason: str
    of: Callable[[RequestRecord], Samples] | None = None
    counts: Callable[[RequestRecord], int] | None = None
    passes: Callable[[RequestRecord, float, float], bool] | None = None
    weighs: Callable[[RequestRecord], int] | None = None
    from_plan: bool = False
    needs_all: bool = False


def _passes_by_gaps(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    first = samples.planned_to_first(record)
    return bool(first) and first[0] <= ttft_s and longest_gap_s(record) <= gap_s


def _passes_by_pace(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    """A request of one token has a TPOT of 0, and passes."""
    first = samples.sent_to_first(record)
    return bool(first) and first[0] <= ttft_s and all(pace <= gap_s for pace in samples.pace(record))


def _passes_by_pace_to_end(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    first = samples.sent_to_first(record)
    return bool(first) and first[0] <= ttft_s and all(pace <= gap_s for pace in samples.pace_of_asked_to_end(record))


def _passes_with_a_pace(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    """A request of one token has no pace, and does not pass."""
    return bool(samples.pace(record)) and _passes_by_pace(record, ttft_s, gap_s)


def _passes_with_a_pace_of_asked(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    """A request of one token is left undetermined, and does not count."""
    first, pace = samples.sent_to_first(record), samples.pace_of_asked(record)
    return bool(first and pace) and first[0] <= ttft_s and pace[0] <= gap_s


def _passes_by_answer(record: RequestRecord, ttft_s: float, gap_s: float) -> bool:
    first, pace = samples.sent_to_answer_of_several(record), samples.answer_pace(record)
    return bool(first and pace) and first[0] <= ttft_s and pace[0] <= gap_s


def _none(tool: str, metric: str, why: str = "the tool has no such metric") -> Rule:
    return Rule(tool, metric, "", "", why)


RULES: Final[tuple[Rule, ...]] = (
    Rule(OURS, "ttft", "TTFT", "f − p", "", samples.planned_to_first),
    Rule(OURS, "ttfa", "time to first answer", "a − p", "", samples.planned_to_answer),
    Rule(OURS, "tpot", "TPOT", "(l − f)/(n − k)", "", samples.own_pace),
    Rule(OURS, "itl", "ITL", "gaps where a chunk is a token, pooled", "", samples.token_gaps),
    Rule(OURS, "e2e", "E2E", "l − p", "", samples.planned_to_last),
    Rule(OURS, "output_tokens_per_s", "output tokens/s", "Σ n / (last e − first p)", "",
         counts=samples.counted_tokens, from_plan=True),
    Rule(OURS, "goodput_requests_per_s", "goodput", "TTFT and every gap in time", "",
         passes=_passes_by_gaps, from_plan=True),
    Rule("vLLM", "ttft", "TTFT", "f − s", f"{_CLOCK}; reasoning named reasoning_content is not seen", samples.sent_to_first),
    _none("vLLM", "ttfa"),
    Rule("vLLM", "tpot", "TPOT", "(l − f)/(n − 1)", _MANY, samples.pace),
    Rule("vLLM", "itl", "ITL", "gaps between chunks, pooled", _CHUNKS, samples.gaps),
    Rule("vLLM", "e2e", "E2EL", "l − s", _CLOCK, samples.sent_to_last),
    Rule("vLLM", "output_tokens_per_s", "Output token throughput", "Σ n / (last e − first s)", _SPAN,
         counts=samples.counted_tokens),
    Rule("vLLM", "goodput_requests_per_s", "Request goodput", "TTFT and TPOT in time",
         "a mean is judged, not every gap; one token counts as TPOT 0", passes=_passes_by_pace),
    Rule("SGLang", "ttft", "TTFT", "f − s", _CLOCK, samples.sent_to_first),
    _none("SGLang", "ttfa"),
    Rule("SGLang", "tpot", "TPOT", "(e − f)/(n − 1)", f"{_TAIL}; {_ASKED}", samples.pace_of_asked_to_end),
    Rule("SGLang", "itl", "ITL", "gaps between chunks, pooled", f"{_CHUNKS}, spread over its tokens on /generate alone",
         samples.gaps),
    Rule("SGLang", "e2e", "E2E latency", "e − s", f"{_CLOCK}; {_TAIL}", samples.sent_to_end),
    Rule("SGLang", "output_tokens_per_s", "Output token throughput", "Σ n / (last e − first s)", f"{_SPAN}; {_ASKED}",
         counts=samples.tokens_or_asked),
    Rule("SGLang", "goodput_requests_per_s", "goodput", "TTFT and TPOT in time",
         "a mean with the tail in it is judged; one token counts as TPOT 0", passes=_passes_by_pace_to_end),
    Rule("GuideLLM", "ttft", "TTFT", "f − s", f"{_CLOCK}; by the wall clock", samples.sent_to_first),
    Rule("GuideLLM", "ttfa", "TTFOT", "a − s", f"{_CLOCK}; by the wall clock", samples.sent_to_answer),
    Rule("GuideLLM", "tpot", "TPOT", "(l − s)/n", f"{_OVER_ALL}; {_WEIGHED}; {_ASKED}", samples.each_token_of_asked,
         weighs=samples.tokens_or_asked),
    Rule("GuideLLM", "itl", "ITL", "(l − f)/(n − 1)", f"{_MEAN}; {_WEIGHED}; {_ASKED}", samples.pace_of_asked,
         weighs=samples.steps_after_first),
    Rule("GuideLLM", "e2e", "request latency", "e − s", f"{_CLOCK}; {_TAIL}", samples.sent_to_end),
    Rule("GuideLLM", "output_tokens_per_s", "output tokens per second", "Σ n / (last e − first s)", f"{_SPAN}; {_ASKED}",
         counts=samples.tokens_or_asked),
    Rule("GuideLLM", "goodput_requests_per_s", "request goodput", "TTFT and ITL in time, n > 1",
         f"a mean is judged, not every gap; one token is left undetermined; {_ASKED}", passes=_passes_with_a_pace_of_asked),
    Rule("AIPerf", "ttft", "TTFT", "f − s", _CLOCK, samples.sent_to_first),
    Rule("AIPerf", "ttfa", "TTFO", "a − s", f"{_CLOCK}; a tool call counts as answer", samples.sent_to_answer_or_call),
    Rule("AIPerf", "tpot", "ITL", "(l − f)/(n − 1)", f"{_MANY}; it is called ITL", samples.pace),
    Rule("AIPerf", "itl", "inter chunk latency", "gaps between chunks, pooled", _CHUNKS, samples.gaps),
    Rule("AIPerf", "e2e", "request latency", "l − s", _CLOCK, samples.sent_to_last),
    Rule("AIPerf", "output_tokens_per_s", "output token throughput", "Σ n / (last e − first s)", _SPAN,
         counts=samples.counted_tokens),
    Rule("AIPerf", "goodput_requests_per_s", "goodput", "TTFT and ITL in time, n > 1",
         "a mean is judged, not every gap; one token does not pass", passes=_passes_with_a_pace),
    Rule("inference-perf", "ttft", "TTFT", "a − s", f"{_CLOCK}; {_ANSWER}; {_ONE}", samples.sent_to_answer_of_several),
    _none("inference-perf", "ttfa", "its TTFT is that: reasoning and tool calls are not seen"),
    Rule("inference-perf", "tpot", "TPOT", "(z − a)/(n − 1)", f"{_MANY}; {_ANSWER}", samples.answer_pace),
    Rule("inference-perf", "itl", "ITL", "gaps between tokens, 0 inside a chunk",
         f"tokens of one chunk share its stamp and add zeros; {_ANSWER}", samples.gaps_and_zeros),
    Rule("inference-perf", "e2e", "request latency", "e − s", f"{_CLOCK}; {_TAIL}", samples.sent_to_end),
    Rule("inference-perf", "output_tokens_per_s", "output tokens/s", "Σ n / (last e − first s)", _SPAN,
         counts=samples.counted_tokens),
    Rule("inference-perf", "goodput_requests_per_s", "request goodput", "TTFT and TPOT in time, n > 1",
         f"a mean is judged, not every gap; one token does not pass; {_ANSWER}", passes=_passes_by_answer),
    Rule("MLPerf", "ttft", "TTFT", "f − p", "a run with a failure has no value", samples.planned_to_first, needs_all=True),
    _none("MLPerf", "ttfa"),
    Rule("MLPerf", "tpot", "TPOT", "(l − f)/(n − 1)", f"{_MANY}; a run with a failure has no value", samples.pace,
         needs_all=True),
    _none("MLPerf", "itl"),
    Rule("MLPerf", "e2e", "sample latency", "l − p", "a run with a failure has no value", samples.planned_to_last,
         needs_all=True),
    Rule("MLPerf", "output_tokens_per_s", "tokens per second", "Σ n / (last e − first p)",
         "a run with a failure has no value", counts=samples.counted_tokens, from_plan=True, needs_all=True),
    _none("MLPerf", "goodput_requests_per_s", "a run passes or fails as a whole, by its p99"),
    Rule("genai-bench", "ttft", "TTFT", "f − s", _CLOCK, samples.sent_to_first),
    _none("genai-bench", "ttfa"),
    Rule("genai-bench", "tpot", "TPOT", "(e − f)/(n − 1)", f"{_TAIL}; {_MANY}", samples.pace_to_end),
    _none("genai-bench", "itl"),
    Rule("genai-bench", "e2e", "E2E latency", "e − s", f"{_CLOCK}; {_TAIL}", samples.sent_to_end),
    Rule("genai-bench", "output_tokens_per_s", "mean output throughput", "Σ n / (last e − first s)", _SPAN,
         counts=samples.counted_tokens),
    _none("genai-bench", "goodput_requests_per_s"),
    Rule("llmperf", "ttft", "TTFT", "f − s", _CLOCK, samples.sent_to_first),
    _none("llmperf", "ttfa"),
    _none("llmperf", "tpot"),
    Rule("llmperf", "itl", "ITL", "(l − s)/n", f"{_OVER_ALL}; {_MEAN}", samples.each_token),
    Rule("llmperf", "e2e", "E2E latency", "e − s", f"{_CLOCK}; {_TAIL}", samples.sent_to_end),
    Rule("llmperf", "output_tokens_per_s", "overall output throughput", "Σ n / (last e − first s)", _SPAN,
         counts=samples.counted_tokens),
    _none("llmperf", "goodput_requests_per_s"),
)  # fmt: skip
TOOLS: Final = tuple(dict.fromkeys(rule.tool for rule in RULES))
