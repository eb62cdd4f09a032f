"""How well does a served model foretell a text, and how fast does it go on? Asked over HTTP, token by token.

In:   a way to ask a llama.cpp server, Windows
Out:  Perplexity by the engine's own kernels; decode speed by its own clock
Leaves out: which file is served (gguf_quality)
Read next by: gguf_quality.

The engine gives no log-probabilities of a prompt. Each token is scored by a request whose prompt is all tokens before it, which the
engine has from the request before, and whose one new token is forced by a bias; the probability it reports is that before the bias.
So every token is computed as a decode step computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from inference_bench.errors import MeasurementError
from inference_bench.labs.perplexity import Perplexity, pooled
from inference_bench.labs.windows import Windows
from inference_bench.units import KILO

PROMPT_TOKENS: Final = 16
"""Positions before the first token that a speed is measured of."""

_FORCED: Final = 1000.0
_SAID_EVERY: Final = 64

Ask = Callable[[Mapping[str, Any]], Any]


def engine_perplexity(ask: Ask, windows: Windows, say: Callable[[str], None]) -> Perplexity:
    """Every token of each window but its first, by the engine.

    Raises:  MeasurementError, ServerError
    """
    losses = []
    for number, ids in enumerate(windows.ids, start=1):
        total = 0.0
        for place in range(1, len(ids)):
            if place % _SAID_EVERY == 1:
                say(f"token {place} of window {number} of {len(windows.ids)}")
            total -= token_logprob(ask, ids[:place], ids[place])
        losses.append(total)
    return pooled(losses, windows.window_tokens - 1)


def token_logprob(ask: Ask, before: Sequence[int], token: int) -> float:
    """Ln p(token | those before it), as the engine computes it.

    Raises:  MeasurementError where it answers for another token, or gives no such number
    """
    reply = ask(
        {
            "prompt": list(before),
            "n_predict": 1,
            "n_probs": 1,
            "temperature": 0,
            "logit_bias": [[token, _FORCED]],
            "cache_prompt": True,
        }
    )
    try:
        first = reply["completion_probabilities"][0]
        found, logprob = first["id"], float(first["logprob"])
    except (KeyError, IndexError, TypeError, ValueError):
        raise MeasurementError(
            "the engine's reply holds no log-probability of the token; its version may differ"
        ) from None
    if found != token or not math.isfinite(logprob) or logprob > 0:
        raise MeasurementError(
            f"the engine was asked about token {token} and answered {logprob} for token {found}; its perplexity would mean nothing"
        )
    return logprob


def decode_speed(ask: Ask, ids: Sequence[int], num_tokens: int, num_runs: int) -> float:
    """Tokens a second in the fastest of some runs, by the engine's own clock.

    Formula:  (tokens - 1) / time from the first token to the last
    Raises:   MeasurementError, ServerError
    """
    body = {"prompt": list(ids[:PROMPT_TOKENS]), "n_predict": num_tokens, "ignore_eos": True, "temperature": 0}
    speeds = []
    for _ in range(num_runs):
        reply = ask({**body, "cache_prompt": False})
        try:
            count, elapsed_ms = int(reply["timings"]["predicted_n"]), float(reply["timings"]["predicted_ms"])
        except (KeyError, TypeError, ValueError):
            raise MeasurementError("the engine's reply holds no timings; its version may differ") from None
        if count != num_tokens or not elapsed_ms > 0:
            raise MeasurementError(
                f"the engine made {count} tokens of {num_tokens} in {elapsed_ms} ms; no speed follows"
            )
        speeds.append((count - 1) * KILO / elapsed_ms)
    return max(speeds)
