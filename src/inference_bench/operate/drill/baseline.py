"""What does an undisturbed server say, and how fast? From that come the texts to compare with, and time limits that fit the machine.

In:   a server's address, questions
Out:  Undisturbed: the texts by question, and the times
Leaves out: faults
Read next by: flow, soak.

Each question is asked alone and together with others, since engines compute a batch in another order and may then choose another word
where two are almost equal; what was said in any of these ways counts as what the server says.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import ServerError
from inference_bench.operate.client import Client, Completion, Policy, Request, Upstream
from inference_bench.operate.drill.results import Measured
from inference_bench.operate.drill.traffic import Asking
from inference_bench.stats import median

_PATIENT: Final = Policy(budget_s=120.0, first_token_s=60.0, stall_s=60.0, connect_s=5.0)
_NUM_TOGETHER: Final = 2
_FIRST_TOKENS: Final = 4.0  # × the slowest first token of the undisturbed server
_STALLS: Final = 3.0
_LEAST_FIRST_S: Final = 0.8
_LEAST_STALL_S: Final = 0.6
_LEAST_INTERVAL_S: Final = 0.08
_SLOTS: Final = 2


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """One server when nothing is wrong. Unit: seconds."""

    texts: dict[int, frozenset[str]] = field(repr=False)
    ttft_s: float
    e2e_s: float
    slowest_ttft_s: float
    slowest_e2e_s: float
    first_ever_ttft_s: float

    def limits(self) -> Measured:
        """Time limits that an undisturbed server keeps and a broken one does not."""
        first_s = max(_LEAST_FIRST_S, _FIRST_TOKENS * self.slowest_ttft_s)
        stall_s = max(_LEAST_STALL_S, _STALLS * self.slowest_ttft_s)
        budget_s = 3 * first_s + stall_s + 2 * self.slowest_e2e_s
        interval_s = max(_LEAST_INTERVAL_S, 1.2 * self.e2e_s / _SLOTS)
        return Measured(self.ttft_s, self.e2e_s, first_s, stall_s, budget_s, interval_s)


async def ask_undisturbed(upstream: Upstream, asking: Asking) -> Undisturbed:
    """Ask each question alone, and all of them a few at a time.

    Raises:   ServerError where one is not answered: a server that fails by itself cannot be drilled
    """
    client = Client([upstream], _PATIENT)
    numbers = range(len(asking.fields))
    alone = [await _ask(client, asking, number) for number in numbers]
    gate = asyncio.Semaphore(_NUM_TOGETHER)

    async def beside(number: int) -> Completion:
        async with gate:
            return await _ask(client, asking, number)

    together = await asyncio.gather(*(beside(number) for number in (*numbers, *reversed(numbers))))
    by_question = list(zip((*numbers, *numbers, *reversed(numbers)), (*alone, *together), strict=True))
    ttft_s = [done.answer.ttft_s or 0.0 for _, done in by_question]
    e2e_s = [done.answer.e2e_s for _, done in by_question]
    texts = {number: frozenset(done.text for at, done in by_question if at == number) for number in numbers}
    return Undisturbed(texts, median(ttft_s[1:]), median(e2e_s), max(ttft_s), max(e2e_s), ttft_s[0])


async def _ask(client: Client, asking: Asking, number: int) -> Completion:
    done = await client.complete(Request(asking.fields[number]))
    if not done.text:
        raise ServerError("the server answered a question without any text; a drill compares texts: use a chat model")
    return done
