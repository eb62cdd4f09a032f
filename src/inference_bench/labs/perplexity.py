"""How well does a model foretell a text? Perplexity over windows, as SPEC pools it.

In:   a network, Windows
Out:  Perplexity
Leaves out: what is done to the network (quantise)
Read next by: quantise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from inference_bench.errors import MeasurementError
from inference_bench.labs.windows import Windows

_MOST_LOSS: Final = 700.0  # exp of which is still a float


@dataclass(frozen=True, slots=True)
class Perplexity:
    """The exponential of the mean loss over every scored token of all windows.

    Formula:  exp(Σ -ln p(token | those before it in its window) / scored tokens)
    Unit:     nats for losses
    """

    value: float
    mean_loss: float
    scored_tokens: int
    num_windows: int
    window_losses: tuple[float, ...]


def measure_perplexity(
    network: Any, windows: Windows, say: Callable[[str], None] | None = None, window_batch: int = 1
) -> Perplexity:
    """Score every token of each window but its first; no window sees another.

    Raises:  MeasurementError where the network gives a loss that is no number
    """
    import torch

    losses: list[float] = []
    with torch.inference_mode():
        for start in range(0, len(windows.ids), window_batch):
            if say is not None:
                say(f"window {start + 1} of {len(windows.ids)}")
            ids = torch.tensor(windows.ids[start : start + window_batch], dtype=torch.long)
            logits = network(input_ids=ids, use_cache=False).logits[:, :-1].float()
            each = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(
                ids.shape[0], -1
            )
            losses += each.double().sum(dim=1).tolist()
    return pooled(losses, windows.window_tokens - 1)


def pooled(window_losses: list[float], scored_per_window: int) -> Perplexity:
    """All windows' losses as one perplexity.

    Raises:  MeasurementError
    """
    scored = scored_per_window * len(window_losses)
    mean = sum(window_losses) / scored
    if not math.isfinite(mean):
        raise MeasurementError(
            "the model gave a loss that is not a number; its weights or the change made to them are broken"
        )
    if mean > _MOST_LOSS:
        raise MeasurementError(
            f"the model's mean loss is {mean:.4g} nats a token, whose perplexity is larger than any number here; its weights or the change "
            "made to them are broken"
        )
    return Perplexity(math.exp(mean), mean, scored, len(window_losses), tuple(window_losses))
