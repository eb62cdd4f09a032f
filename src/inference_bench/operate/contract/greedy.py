"""Is a greedy answer the same alone, again, in a full batch, and with a warm prefix?

In:   an opened Server
Out:  rows of the group greedy
Leaves out: whether the answers are right (verify, labs)
Read next by: flow.

Where a server takes fields that keep it from using its prefix cache, the first two rounds are asked with them, so that they
differ in nothing but time; the warm round is asked without, right after the same prompt was sent to fill the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from inference_bench.engines.answers import inside, whole_number
from inference_bench.operate.contract.divergence import (
    Answered,
    Kind,
    Parting,
    judge,
    largest_shift,
    part,
    tie_nats,
)
from inference_bench.operate.contract.reading import cached_tokens, logprobs_of, text_of
from inference_bench.operate.contract.rows import Row, Verdict
from inference_bench.operate.contract.server import Server, at_once
from inference_bench.operate.contract.wire import NoReplyError, Reply

PROMPTS: Final = (
    "List five animals that live in the sea, then say in one sentence what each of them eats.",
    "Explain to a child of six why the sky is blue in the day and red in the evening.",
    "Write the first lines of a story about a lighthouse keeper who finds a letter.",
    "Continue the series and say how it goes on: 2, 4, 8, 16, 32, and then what comes next?",
)

_TOKENS: Final = 12
_QUICK_TOKENS: Final = 6
_QUICK_PROMPTS: Final = 2
_USUAL_BATCH: Final = 8
_MOST_BATCH: Final = 16
_TOP: Final = 4
_COLD: Final[tuple[Mapping[str, Any], ...]] = ({"cache_prompt": False}, {"cache_salt": "inference-bench-check"}, {})
_WARM: Final = {"cache_prompt": True}
_WORDS: Final = {
    "greedy.repeated": "keep outputs, not seeds, as the record: the server does not repeat itself",
    "greedy.batched": "expect texts to depend on load",
    "greedy.warm": "expect texts to depend on what was asked before",
}
_BUG: Final = "more than rounding explains: look for mixed-up sequences or caches, and report it to the engine"
_TIE: Final = "near ties: compare log-probabilities with a tolerance, never texts bit by bit"
Ask = Callable[[int, Mapping[str, Any]], Reply]


def greedy(server: Server) -> Iterator[Row]:
    """The same prompts in four rounds."""
    asker = _Asker(server)
    base = asker.round(asker.cold)
    yield _row("greedy.repeated", base, [asker.round(asker.cold)], f"{len(base)} prompts asked again")
    batch, num_at_once = asker.batch()
    yield _row("greedy.batched", base, batch, f"{num_at_once} sent at once")
    warm, num_cached = asker.warm()
    told = (
        "the server does not say that its cache was used"
        if num_cached is None
        else f"{num_cached} prompt tokens from the cache"
    )
    yield _row("greedy.warm", base, [warm], told)


class _Asker:
    """Asks the prompts, with log-probabilities where they are given."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._tokens = _QUICK_TOKENS if server.is_quick else _TOKENS
        self.prompts = range(_QUICK_PROMPTS if server.is_quick else len(PROMPTS))
        listed = {"logprobs": True, "top_logprobs": _TOP} if server.is_chat else {"logprobs": _TOP}
        self._fields: dict[str, Any] = listed if self._ask(0, listed).is_ok else {}
        self.cold: Mapping[str, Any] = next(each for each in _COLD if not each or self._ask(0, each).is_ok)

    def _ask(self, prompt: int, fields: Mapping[str, Any], tokens: int = 1) -> Reply:
        return self._server.generate(PROMPTS[prompt], tokens, **fields)

    def _answer(self, prompt: int, fields: Mapping[str, Any]) -> tuple[Answered | None, Reply]:
        reply = self._ask(prompt, {**self._fields, **fields}, self._tokens)
        answer = Answered(text_of(reply.value) or "", logprobs_of(reply.value)) if reply.is_ok else None
        return answer, reply

    def round(self, fields: Mapping[str, Any]) -> list[Answered | None]:
        """Each prompt alone, one after the other."""
        return [self._answer(prompt, fields)[0] for prompt in self.prompts]

    def batch(self) -> tuple[list[list[Answered | None]], int]:
        """Every prompt several times at once, as many as the server computes together."""
        slots = whole_number(inside(self._server.props, "total_slots")) or _USUAL_BATCH
        times = max(1, min(max(slots, _USUAL_BATCH), _MOST_BATCH) // len(PROMPTS))
        order = [prompt for _ in range(times) for prompt in self.prompts]
        answers = at_once(self._server, self._answer_or_none, order)
        num = len(self.prompts)
        return [answers[start : start + num] for start in range(0, len(order), num)], len(order)

    def _answer_or_none(self, prompt: int) -> Answered | None:
        try:
            return self._answer(prompt, self.cold)[0]
        except NoReplyError as error:
            if error.is_gone:
                raise
            return None

    def warm(self) -> tuple[list[Answered | None], int | None]:
        """Each prompt right after itself; and the prompt tokens that the server says were cached, None where it does not say."""
        fields = _WARM if "cache_prompt" in self.cold else {}
        answers, cached = [], []
        for prompt in self.prompts:
            self._ask(prompt, fields)
            answer, reply = self._answer(prompt, fields)
            answers.append(answer)
            cached.append(cached_tokens(reply.value))
        known = [count for count in cached if count is not None]
        return answers, sum(known) if known else None


def _row(row_id: str, base: list[Answered | None], rounds: list[list[Answered | None]], told: str) -> Row:
    pairs = [
        part(row_id, prompt, first, second)
        for answers in rounds
        for prompt, (first, second) in enumerate(zip(base, answers, strict=True))
        if first is not None and second is not None
    ]
    num_lost = sum(map(len, rounds)) - len(pairs)
    return judged(row_id, pairs, f"{told}{f', {num_lost} not answered' if num_lost else ''}")


def judged(row_id: str, pairs: list[Parting], told: str) -> Row:
    """The verdict on every pair of one condition."""
    if not pairs:
        return Row(row_id, Verdict.UNKNOWN, told)
    shift = largest_shift(pairs)
    kinds = [judge(pair, shift) for pair in pairs]
    worst, pair = min(zip(kinds, pairs, strict=True), key=lambda item: _RANK[item[0]])
    figures = {
        "pairs": len(pairs),
        "different": sum(pair.at is not None for pair in pairs),
        "first_divergence": min((pair.at for pair in pairs if pair.at is not None), default=None),
        "gap_nats": pair.gap_nats,
        "top_two_gap_nats": pair.top_two_gap_nats,
        "shift_nats": shift,
        "tie_nats": tie_nats(shift),
        "kind": worst.value,
    }
    moved = "" if shift is None else f", log-probabilities moved by up to {shift:.3g} nats"
    if worst is Kind.SAME:
        return Row(row_id, Verdict.YES, f"{len(pairs)} of {len(pairs)} the same{moved}; {told}", "", figures)
    seen = f"{figures['different']} of {len(pairs)} differ{_where(pair)}{moved}; {told}"
    verdict, why = _VERDICTS[worst]
    return Row(row_id, verdict, seen, f"{_WORDS[row_id]}; {why}", figures)


def _where(pair: Parting) -> str:
    if pair.at is None:
        return ""
    if pair.gap_nats is None:
        return f", first after {pair.at} characters" if pair.shift_nats is None else f", at token {pair.at}"
    top = "" if pair.top_two_gap_nats is None else f", top two {pair.top_two_gap_nats:.3g} nats apart"
    return f", at token {pair.at} by a gap of {pair.gap_nats:.3g} nats{top}"


_RANK: Final = {Kind.BUG: 0, Kind.UNKNOWN: 1, Kind.NEAR_TIE: 2, Kind.SAME: 3}
_VERDICTS: Final = {
    Kind.BUG: (Verdict.NO, _BUG),
    Kind.UNKNOWN: (Verdict.UNKNOWN, "without log-probabilities a near tie cannot be told from a bug"),
    Kind.NEAR_TIE: (Verdict.PARTLY, _TIE),
}
