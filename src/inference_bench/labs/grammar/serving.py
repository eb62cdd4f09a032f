"""What does a real server make of the same schemas: are its documents valid, and what does the constraint cost there?

In:   an address, Tasks
Out:  ServerRun
Leaves out: starting the server (flow)
Read next by: flow.

Requests go out one at a time through the load generator's own client, with the schema in the route's own words and without it, and
each answer is judged as a document of the lab is. A keyword that a server may ignore is asked for with a schema that no document
fits: a server that answers with a document has ignored it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.errors import InferenceBenchError
from inference_bench.labs.grammar.judging import judge
from inference_bench.labs.grammar.result import Outcome, ServerKeyword, ServerRun, ServerWay
from inference_bench.labs.grammar.tasks import Task
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.openai_stream import one_line
from inference_bench.measure.prompt_files import FilePrompt, FilePrompts
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.target import Endpoint, Message, Target
from inference_bench.measure.text_checks import TextFindings, structured_check
from inference_bench.metrics import tpot_s, ttft_s
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import median, proportion_interval
from inference_bench.workload import ClosedLoop, Requests, RequestShape, Workload

_LENGTH: Final = "length"
_SHOWN_CHARS: Final = 90
_CONTRADICTIONS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("uniqueItems", {"type": "array", "items": {"const": 1}, "minItems": 2, "maxItems": 2, "uniqueItems": True}),
    ("not", {"type": "boolean", "not": {"type": "boolean"}}),
    ("multipleOf", {"enum": [5, 6], "multipleOf": 7}),
    ("contains", {"type": "array", "items": {"const": 1}, "minItems": 1, "maxItems": 1, "contains": {"const": 2}}),
)
_NUM_QUICK: Final = 2
_KEYWORD_TOKENS: Final = 64
_ASK: Final = "Answer with JSON."


@dataclass(frozen=True, slots=True)
class _Answer:
    record: RequestRecord
    text: str


def ask_server(
    url: str,
    engine: str,
    is_own: bool,
    model: str | None,
    tasks: Sequence[Task],
    budget_tokens: int,
    is_quick: bool,
    say: Callable[[str], None],
) -> ServerRun:
    """Every prompt with its schema and without, then the keywords.

    Raises:  ServerError, MeasurementError where no request succeeds
    """
    ways = []
    for is_constrained in (True, False):
        say(f"server {'with' if is_constrained else 'without'} the schemas")
        judged = [
            (answer.record, is_valid)
            for task in tasks
            for answer, is_valid in _documents(url, model, task, budget_tokens, is_constrained)
        ]
        ways.append(_way(is_constrained, judged))
    keywords = []
    for keyword, schema in _CONTRADICTIONS[: _NUM_QUICK if is_quick else None]:
        say(f"server, keyword {keyword}")
        keywords.append(_keyword(url, model, keyword, schema))
    return ServerRun(engine, is_own, budget_tokens, tuple(ways), tuple(keywords))


def _documents(
    url: str, model: str | None, task: Task, budget: int, is_constrained: bool
) -> list[tuple[_Answer, bool]]:
    target = Target(url, model, endpoint=Endpoint.CHAT, document_schema=dict(task.schema) if is_constrained else None)
    answers = _send(target, task.prompts, budget)
    return [(answer, judge(answer.text, _is_whole(answer.record), task.check).is_valid) for answer in answers]


def _is_whole(record: RequestRecord) -> bool:
    """Whether the model ended the answer, and not the budget or a failure."""
    return record.status is RequestStatus.COMPLETED and record.finish_reason != _LENGTH


def _send(target: Target, prompts: Sequence[str], budget: int) -> list[_Answer]:
    """The answers to prompts, one after the other, as the client's own check sees them."""
    texts: list[str] = []

    def keep(text: str) -> TextFindings:
        texts.append(text)
        return TextFindings()

    entries = tuple(FilePrompt((Message("user", prompt),), budget) for prompt in prompts)
    source = FilePrompts("lab", entries)
    shapes = [RequestShape(1, budget)] * len(entries)
    workload = Workload("lab", Requests.of(shapes), ClosedLoop(1, len(entries)))
    result = run_load(target, workload, LoadOptions(prompts=PromptMaker(0, source=source), examine=keep))
    said = iter(texts)
    return [_Answer(record, next(said, "") if _has_text(record) else "") for record in result.records]


def _has_text(record: RequestRecord) -> bool:
    """Whether the client was given a text to examine."""
    return record.status is RequestStatus.COMPLETED or bool(record.chunk_times_s)


def _way(is_constrained: bool, judged: Sequence[tuple[RequestRecord, bool]]) -> ServerWay:
    records = [record for record, _ in judged]
    num_valid = sum(is_valid for _, is_valid in judged)
    tokens = [record.output_tokens for record in records]
    first = [value for value in map(ttft_s, records) if value is not None]
    later = [value for value in map(tpot_s, records) if value is not None]
    each_s = median(later) if later else None
    return ServerWay(
        is_constrained=is_constrained,
        num_documents=len(records),
        num_truncated=sum(record.finish_reason == _LENGTH for record in records),
        num_valid=num_valid,
        num_tokens=None if None in tokens else sum(each or 0 for each in tokens),
        valid_fraction=num_valid / len(records) if records else 0.0,
        valid_interval=proportion_interval(num_valid, len(records)),
        ttft_s=median(first) if first else None,
        tpot_s=each_s,
        tokens_per_s=1 / each_s if each_s else None,
    )


def _keyword(url: str, model: str | None, keyword: str, schema: Mapping[str, Any]) -> ServerKeyword:
    """What a server makes of a schema that nothing fits, inside of an object."""
    asked, rest = (_inside(each) for each in (schema, {name: schema[name] for name in schema if name != keyword}))
    try:
        target = Target(url, model, endpoint=Endpoint.CHAT, document_schema=asked)
        answers = _send(target, (_ASK,), _KEYWORD_TOKENS)
    except InferenceBenchError as error:
        return ServerKeyword(keyword, Outcome.REFUSED, _one_line(str(error)))
    record, text = answers[0].record, answers[0].text
    if record.status is not RequestStatus.COMPLETED:
        return ServerKeyword(keyword, Outcome.REFUSED, _one_line(record.error or f"HTTP status {record.http_status}"))
    if structured_check(rest)(text).is_valid:
        return ServerKeyword(keyword, Outcome.IGNORED, f"answered {_one_line(text)}")
    outcome = Outcome.ENFORCED if _is_whole(record) else Outcome.UNDECIDED
    return ServerKeyword(keyword, outcome, f"answered {_one_line(text) or 'nothing'}")


def _inside(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema as that of the one property of an object."""
    return {"type": "object", "properties": {"a": dict(schema)}, "required": ["a"], "additionalProperties": False}


def _one_line(text: str) -> str:
    return one_line(text, _SHOWN_CHARS)
