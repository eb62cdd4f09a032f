"""Who proposes the next tokens? Every draft by the same two words: begin with a prompt, propose after a context.

In:   token ids
Out:  proposals
Leaves out: whether they are right (greedy)
Read next by: greedy, costs, stochastic, flow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.logits import common_length
from inference_bench.labs.model import as_batch
from inference_bench.labs.speculate.lookup import look_up
from inference_bench.labs.speculate.result import LOOKUP

if TYPE_CHECKING:
    import torch


class Draft(Protocol):
    """Whoever proposes tokens."""

    @property
    def name(self) -> str:
        """What it is called in every table."""
        ...

    def begin(self, prompt: Sequence[int]) -> None:
        """Read a prompt; everything before is forgotten."""
        ...

    def propose(self, context: Sequence[int], count: int) -> list[int]:
        """Up to so many tokens after a context."""
        ...

    def logits(self, ids: Sequence[int]) -> torch.Tensor | None:
        """Its logits after each token of a sequence; None where it has none, and is sure of what it proposes.

        Shape:  [num_tokens, vocabulary]
        """
        ...


class LookupDraft:
    """What followed the last time. It needs no model, and reads the prompt anew each time."""

    name = LOOKUP

    def begin(self, prompt: Sequence[int]) -> None:
        """Nothing is kept."""

    def propose(self, context: Sequence[int], count: int) -> list[int]:
        """See `look_up`."""
        return look_up(context, count)

    def logits(self, ids: Sequence[int]) -> None:
        """None: it is sure of what it proposes."""


class NetworkDraft:
    """A network that decodes greedily, with a cache of its own that is rolled back to what the context has in common with it."""

    def __init__(self, name: str, network: Any, vocabulary: int) -> None:
        self.name, self._network, self._vocabulary = name, network, vocabulary
        self._cached = CachedNetwork(network)
        self._read: list[int] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """Read all of the prompt but its last token, which the first proposal needs."""
        self._cached.restart()
        self._read = []
        self._extend(prompt[:-1])

    def propose(self, context: Sequence[int], count: int) -> list[int]:
        """As many tokens as asked for, each the likeliest after those before it."""
        self._keep(min(common_length(self._read, context), len(context) - 1))
        proposals = [self._next(context[len(self._read) :])]
        while len(proposals) < count:
            proposals.append(self._next(proposals[-1:]))
        return proposals

    def logits(self, ids: Sequence[int]) -> torch.Tensor:
        """All at once, without the cache."""
        whole = self._network(input_ids=as_batch(ids), use_cache=False).logits[0].float()
        return whole[:, : self._vocabulary]

    def _next(self, ids: Sequence[int]) -> int:
        logits = self._extend(ids)
        return int(logits[-1, : self._vocabulary].argmax())

    def _extend(self, ids: Sequence[int]) -> Any:
        self._read += ids
        return self._cached.extend(ids) if ids else None

    def _keep(self, num_tokens: int) -> None:
        self._cached.keep(num_tokens)
        del self._read[num_tokens:]
