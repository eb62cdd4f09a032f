"""What the scheduler may not see: how long each answer is, and what became of each request.

In:   Workload
Out:  Answers, which alone knows when an answer has ended; Journey, the token times of one request
Leaves out: any decision; nothing here is handed to a scheduler
Read next by: server, batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from inference_bench.simulate.sequence import Sequence
from inference_bench.workload import Workload


@dataclass(slots=True, eq=False)
class Journey:
    """What became of a request, kept by the server."""

    token_times_s: list[float] = field(default_factory=list)
    num_preemptions: int = 0
    cached_prompt_tokens: int = 0


class Answers:
    """How long each answer is: known to the server that plays the model, and to nobody who schedules."""

    def __init__(self, workload: Workload) -> None:
        self._output_tokens = workload.requests.output_tokens

    def is_complete(self, sequence: Sequence) -> bool:
        """Whether the token just given was its last."""
        return sequence.generated >= self._output_tokens[sequence.index]

    def remaining(self, sequence: Sequence) -> int:
        """How many tokens are still to come, for a model that emits several at once."""
        return self._output_tokens[sequence.index] - sequence.generated


def sequence_of(workload: Workload, index: int, arrival_s: float) -> Sequence:
    """A request as its scheduler sees it: without the length of its answer."""
    asked = workload.requests
    return Sequence(
        index,
        arrival_s,
        asked.prompt_tokens[index],
        priority=asked.priority[index] if asked.priority is not None else 0,
        content=asked.prompts[index] if asked.prompts is not None else (),
        answer_content=asked.answers[index] if asked.answers is not None else None,
        salt=(
            asked.tenant[index] if asked.tenant is not None else 0,
            asked.adapter[index] if asked.adapter is not None else 0,
        ),
        sample_of=asked.sample_of[index] if asked.sample_of is not None else None,
    )
