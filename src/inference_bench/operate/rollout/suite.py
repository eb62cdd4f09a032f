"""Does a server still answer what it must? Each question asked once, greedily, and its answer held to the expected one.

In:   a Suite, an address, a route
Out:  SuiteOutcome
Leaves out: how fast it answers: few are asked at a time, and nothing is timed
Read next by: cli.

The same is an answer that is equal to the letter once the space around it is left out. The text is held only until it is judged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import MeasurementError
from inference_bench.loadtest.preflight import explain, preflight
from inference_bench.measure.http1 import RunClock, Timeouts
from inference_bench.measure.sender import Ask, Sender
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.measure.text_checks import TextFindings
from inference_bench.operate.rollout.suite_file import Suite, SuiteItem
from inference_bench.operate.rollout.suite_outcome import SuiteAnswer, SuiteEnd, SuiteOutcome
from inference_bench.records import RequestStatus
from inference_bench.workload.checks import require_count

_NOT_ASKED: Final = SuiteAnswer(SuiteEnd.NOT_ASKED)


@dataclass(frozen=True, slots=True)
class SuiteRequest:
    """Which server is asked, and how.

    Unit:   seconds
    """

    url: str
    endpoint: str = "completions"
    served_model: str | None = None
    api_key: ApiKey | None = None
    timeout_s: float = 120.0
    concurrency: int = 1
    target: Target = field(init=False)

    def __post_init__(self) -> None:
        require_count(self.concurrency, "number of questions at once", most=256)
        target = Target(self.url, self.served_model, Endpoint(self.endpoint), self.api_key, {"temperature": 0})
        object.__setattr__(self, "target", target)


def ask_suite(
    request: SuiteRequest,
    suite: Suite,
    progress: Callable[[str], None] | None = None,
    ready: Callable[[], None] = lambda: None,
) -> SuiteOutcome:
    """Every question of a suite, asked once; Ctrl-C ends it, and what was answered by then is the outcome.

    Where:   ready is called once the server is found, and nothing is asked where it raises
    Raises:  RequestError, ServerError; MeasurementError where no question got a whole answer
    """
    target = preflight(request.target, request.timeout_s)
    ready()
    found: dict[int, SuiteAnswer] = {}
    with suppress(KeyboardInterrupt):
        asyncio.run(_ask_all(target, request, suite, found, progress or (lambda _text: None)))
    answers = tuple(found.get(number, _NOT_ASKED) for number in range(len(suite.items)))
    if all(answer.end is SuiteEnd.FAILED for answer in answers):
        raise MeasurementError(
            f"none of the suite's {len(answers)} questions got a whole answer; {explain(target, request.timeout_s)}"
        )
    return SuiteOutcome(suite.name, suite.digest, target.model, target.endpoint.value, answers)


async def _ask_all(
    target: Target, request: SuiteRequest, suite: Suite, found: dict[int, SuiteAnswer], progress: Callable[[str], None]
) -> None:
    sender = Sender(target, RunClock(), Timeouts(total_s=request.timeout_s))
    waiting = iter(enumerate(suite.items))

    async def ask_in_turn() -> None:
        for number, item in waiting:
            found[number] = await _ask(sender, suite, item, number)
            progress(f"suite: {len(found)} of {len(suite.items)} questions")

    async with asyncio.TaskGroup() as group:
        for _ in range(min(request.concurrency, len(suite.items))):
            group.create_task(ask_in_turn())


async def _ask(sender: Sender, suite: Suite, item: SuiteItem, number: int) -> SuiteAnswer:
    hashes: list[str] = []

    def judge(text: str) -> TextFindings:
        hashes.append(suite.hash_of(text.strip()))
        return TextFindings(is_valid=text.strip() == item.expected)

    ask = Ask(f"suite-{number:05d}", item.prompt, item.max_tokens, 0.0, examine=judge)
    record = await sender.send(ask, sender.target.build_body(item.prompt, item.max_tokens))
    if record.status is not RequestStatus.COMPLETED or not hashes:
        return SuiteAnswer(SuiteEnd.FAILED, None, record.output_tokens)
    return SuiteAnswer(SuiteEnd.RIGHT if record.document_valid else SuiteEnd.WRONG, hashes[0], record.output_tokens)
