"""A network with its KV cache: tokens go in, logits come out, and the last tokens can be taken back.

In:   one of Transformers' causal language models
Out:  CachedNetwork
Leaves out: which tokens those are
Read next by: speculate, grammar.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from inference_bench.errors import RequestError
from inference_bench.labs.model import as_batch

if TYPE_CHECKING:
    import torch

_CAN_BE_CUT: Final = frozenset(("full_attention", "sliding_attention", "chunked_attention"))


class CachedNetwork:
    """A sequence that a network has read; its cache holds keys and values of exactly these tokens.

    Raises:  RequestError for a network whose state cannot be taken back, since it is a sum over what was read
    """

    def __init__(self, network: Any) -> None:
        kinds = set(getattr(network.config, "layer_types", None) or ())
        if kinds - _CAN_BE_CUT:
            raise RequestError(
                f"a model with layers of {', '.join(sorted(kinds - _CAN_BE_CUT))} cannot take back what it has read, so this lab cannot "
                "run it; give one whose layers all are attention"
            )
        self._network = network
        self.restart()

    def restart(self) -> None:
        """Forget everything."""
        from transformers import DynamicCache

        self._cache = DynamicCache()  # every layer keeps every position: a window could not be rolled back
        self._num_tokens = 0

    def __len__(self) -> int:
        return self._num_tokens

    def extend(self, ids: Sequence[int]) -> torch.Tensor:
        """Read more tokens; the logits after each of them.

        Shape:  [num_tokens, vocabulary], float32
        """
        import torch

        with torch.inference_mode():
            logits: torch.Tensor = (
                self._network(input_ids=as_batch(ids), cache=self._cache, use_cache=True).logits[0].float()
            )
        self._num_tokens += len(ids)
        return logits

    def keep(self, num_tokens: int) -> None:
        """Take back all but the first so many tokens.

        Where:  the library counts what is removed, as a negative number
        """
        if num_tokens < self._num_tokens:
            self._cache.crop(num_tokens - self._num_tokens)
            self._num_tokens = num_tokens
