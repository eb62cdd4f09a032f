"""Greedy decoding, plain and speculative: the same tokens, if the cache is rolled back right.

In:   CachedNetwork, a Draft, a prompt
Out:  Decoded: the tokens, the logits that chose them, every round, and where the time went
Leaves out: whether the two are equal (compare)
Read next by: flow, account.

Before each round the target's cache holds the prompt and all emitted tokens but the last. One step reads that last token and the γ
proposals: γ + 1 positions, so that it also says what follows when all are right. The proposals up to the first wrong one stay; the
target's own choice takes the place of that one; everything behind is taken out of the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inference_bench.labs.cached_network import CachedNetwork
from inference_bench.labs.logits import common_length
from inference_bench.labs.speculate.drafts import Draft

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Limits:
    """Where an answer ends: after so many tokens, or at one of the stop tokens, which it still holds."""

    num_tokens: int
    stop_ids: Collection[int] = ()

    def reached(self, emitted: Sequence[int]) -> bool:
        """Whether nothing may follow."""
        return len(emitted) >= self.num_tokens or emitted[-1] in self.stop_ids


@dataclass(frozen=True, slots=True)
class Round:
    """One step of the target over a draft.

    Where:  num_trials are the proposals that were judged: up to the first that was wrong, or the answer's end; is_cut says that the
            length asked for or a stop token made the round shorter than the draft could have been
    """

    num_wanted: int
    num_proposed: int
    num_trials: int
    num_accepted: int
    num_emitted: int
    is_cut: bool


@dataclass(slots=True)
class Times:
    """Where decoding spent its time, after the first token. Unit: seconds"""

    elapsed_s: float = 0.0
    draft_s: float = 0.0
    verify_s: float = 0.0
    rollback_s: float = 0.0


@dataclass(slots=True)
class Decoded:
    """One answer.

    Where:  steps_s is what each step of a plain answer took, from the second token on
    Shape:  logits hold one row of the vocabulary for each token, in as many pieces as there were steps
    """

    ids: list[int]
    logits: list[torch.Tensor]
    rounds: list[Round] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    steps_s: list[float] = field(default_factory=list)

    @property
    def all_logits(self) -> torch.Tensor:
        """One tensor of [num_tokens, vocabulary]."""
        import torch

        return torch.cat(self.logits)

    def first(self, num_tokens: int) -> Decoded:
        """A plain answer as it would be, had it ended after so many tokens."""
        steps_s = self.steps_s[: max(0, num_tokens - 1)]
        times = Times(sum(steps_s), verify_s=sum(steps_s))
        return Decoded(self.ids[:num_tokens], self.logits[:num_tokens], [], times, steps_s)


def _tell_nobody(_num_tokens: int) -> None:
    return


def decode_plainly(
    target: CachedNetwork, prompt: Sequence[int], limits: Limits, told: Callable[[int], None] = _tell_nobody
) -> Decoded:
    """One token a step, each the likeliest; told is how many there are by now."""
    done = _begin(target, prompt)
    while not limits.reached(done.ids):
        begun_s = time.perf_counter()
        logits = target.extend(done.ids[-1:])
        done.ids.append(int(logits[-1].argmax()))
        done.logits.append(logits)
        done.steps_s.append(time.perf_counter() - begun_s)
        told(len(done.ids))
    done.times.elapsed_s = done.times.verify_s = sum(done.steps_s)
    return done


def decode_speculatively(
    target: CachedNetwork,
    draft: Draft,
    prompt: Sequence[int],
    gamma: int,
    limits: Limits,
    told: Callable[[int], None] = _tell_nobody,
) -> Decoded:
    """Rounds of proposing up to γ tokens and verifying them in one step."""
    done = _begin(target, prompt)
    draft.begin(prompt)
    while not limits.reached(done.ids):
        begun_s = time.perf_counter()
        _round(target, draft, [*prompt, *done.ids], gamma, limits, done)
        done.times.elapsed_s += time.perf_counter() - begun_s
        told(len(done.ids))
    return done


def _begin(target: CachedNetwork, prompt: Sequence[int]) -> Decoded:
    """The first token, which the prompt alone decides."""
    target.restart()
    last = target.extend(prompt)[-1:].clone()
    return Decoded([int(last.argmax())], [last])


def _round(target: CachedNetwork, draft: Draft, context: list[int], gamma: int, limits: Limits, done: Decoded) -> None:
    wanted = min(gamma, limits.num_tokens - len(done.ids) - 1)  # a round emits one more than it accepts
    begun_s = time.perf_counter()
    proposals = draft.propose(context, wanted)[:wanted] if wanted else []
    drafted_s = time.perf_counter()
    logits = target.extend([context[-1], *proposals])
    choices = logits.argmax(dim=-1).tolist()
    verified_s = time.perf_counter()
    emitted, judged = judge(proposals, choices, limits.stop_ids, gamma, wanted)
    target.keep(len(context) + len(emitted) - 1)
    done.times.rollback_s += time.perf_counter() - verified_s
    done.times.draft_s += drafted_s - begun_s
    done.times.verify_s += verified_s - drafted_s
    done.ids += emitted
    done.logits.append(logits[: len(emitted)].clone())
    done.rounds.append(judged)


def judge(
    proposals: Sequence[int], choices: Sequence[int], stop_ids: Collection[int], gamma: int, wanted: int
) -> tuple[list[int], Round]:
    """The tokens that a verified draft emits, and the round in numbers.

    Where:  choices are the target's own after each prefix of the draft, one more than proposals; wanted is what the answer had room
            for

    >>> judge([5, 6], [5, 9, 7], (), 2, 2)
    ([5, 9], Round(num_wanted=2, num_proposed=2, num_trials=2, num_accepted=1, num_emitted=2, is_cut=False))
    """
    accepted = common_length(proposals, choices)
    emitted = list(choices[: accepted + 1])
    stop = next((place for place, token in enumerate(emitted) if token in stop_ids), None)
    ends_early = stop is not None and stop < accepted
    if ends_early:
        emitted, accepted = emitted[: (stop or 0) + 1], (stop or 0) + 1
    trials = accepted + (1 if accepted < len(proposals) and not ends_early else 0)
    return emitted, Round(wanted, len(proposals), trials, accepted, len(emitted), ends_early or wanted < gamma)
