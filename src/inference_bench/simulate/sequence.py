"""What a scheduler knows of a request: everything but how long its answer will be.

In:   nothing; the server makes them from a Workload (answers)
Out:  Sequence, without a field for the true output length: a scheduler that takes these cannot look ahead
Read next by: scheduler, answers, server, batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from inference_bench.workload import Segment


@dataclass(slots=True, eq=False)
class Sequence:
    """A request as the scheduler sees it.

    Where:  filled positions are in the cache, generated tokens are out; it owes what it has not yet read: its prompt and
            answer so far, less what is filled; is_decoding from a token on, until it gives way; answer_content is what
            later prompts call its answer, None where nobody does; samples of one prompt have the same sample_of; slot is the
            stream of cache it has while it runs, of an engine that has so many
    """

    index: int
    arrival_s: float
    prompt_tokens: int
    priority: int = 0
    content: tuple[Segment, ...] = ()
    answer_content: int | None = None
    salt: tuple[int, int] = (0, 0)
    sample_of: int | None = None
    filled: int = 0
    generated: int = 0
    is_decoding: bool = False
    is_swapped: bool = False
    cached_prompt_tokens: int = 0
    admitted_s: float | None = None
    slot: int = 0

    @property
    def known_tokens(self) -> int:
        """Prompt and answer so far."""
        return self.prompt_tokens + self.generated

    @property
    def owed(self) -> int:
        """Positions it has to read before its next token."""
        return self.known_tokens - self.filled
