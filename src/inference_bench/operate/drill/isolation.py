"""Does one tenant's prefix speed up another's? A timing probe of the prefix cache, and of the option that should keep tenants apart.

In:   a server, two tenants' keys, how many pairs
Out:  IsolationResult: for each way of asking the paired differences of the time to the first token, with their interval and test
Leaves out: what is done about it; other ways to tell (cache counters of the server's metrics)
Read next by: report, cli.

A round has four questions in random order, before each of which tenant A asks with a new prefix of random words: tenant B asks with that
prefix, B asks with one that nobody has used, and A does the same two. Only the beginning is ever shared: every question ends in words of
its own. A's own pair says whether the server keeps prefixes at all and whether the time shows it: without that, no difference for B
would mean nothing.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from string import ascii_lowercase
from types import MappingProxyType
from typing import Final

from inference_bench.engines.attach import attach
from inference_bench.engines.base import LLAMA_CPP, SGLANG, VLLM, Progress
from inference_bench.errors import RequestError
from inference_bench.measure.target import ApiKey, Endpoint, Target
from inference_bench.operate.client import Client, Policy, Request, RequestFailed, Upstream
from inference_bench.stats import Interval, median, quantile_interval

LEAST_ROUNDS: Final = 6  # fewer cannot bound a median at 95 %
_LIKELY: Final = 0.05
_LEAST_CACHED: Final = 16  # tokens, a block of most engines
_NUM_FLIPS: Final = 10_000
_WORD_LETTERS: Final = (3, 8)
_TIMES: Final = Policy(
    budget_s=300.0, first_token_s=240.0, stall_s=120.0, connect_s=5.0, tries_each=1, idempotency_header=None
)
_TENANTS: Final = ("a", "b")
_SALT: Final = "cache_salt"
_NO_CACHE: Final = "cache_prompt"


class Verdict(StrEnum):
    """What the times say."""

    SHARED = "shared"  # B is quicker with A's prefix, or the server counts it as cached for B
    NOT_SEEN = "not_seen"  # the cache works for A, and B gains nothing that could be told
    NO_CACHE = "no_cache"  # nobody gains: there is no cache, or the prefix is too short for it to show
    REFUSED = "refused"  # the server does not take this field


@dataclass(frozen=True, slots=True)
class Gain:
    """How much sooner the first token came with a known prefix than with a new one, in pairs of the same round.

    Unit:     seconds
    Where:    interval is for the median at 95 %, free of any assumption on the distribution; chance is how often a difference as large
              comes from pairs whose signs are drawn at random; cached_tokens are the server's own count in the middle, None where it
              does not say
    """

    num_pairs: int
    known_ttft_s: float
    new_ttft_s: float
    median_s: float
    interval: Interval | None
    chance: float
    known_cached_tokens: int | None
    new_cached_tokens: int | None

    @property
    def is_seen(self) -> bool:
        """Whether it is there: the interval is above 0, and chance does not explain it."""
        return self.interval is not None and self.interval.low > 0 and self.chance < _LIKELY

    @property
    def is_told(self) -> bool:
        """Whether the server itself counts more of a known prefix as cached."""
        known, new = self.known_cached_tokens, self.new_cached_tokens
        return known is not None and new is not None and known - new >= _LEAST_CACHED


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of asking."""

    name: str
    what: str
    verdict: Verdict
    other: Gain | None = None
    own: Gain | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class IsolationResult:
    """What was found.

    Where:    option is the field by which this engine keeps tenants apart, None where it has none or is not known; words is the length
              of a prefix
    """

    server: str
    engine: str | None
    option: str | None
    arms: tuple[Arm, ...]
    words: int
    seed: int
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False

    @property
    def is_isolated(self) -> bool:
        """Whether, asked in the usual way, no tenant's prefix was seen to speed up another's."""
        return bool(self.arms) and self.arms[0].verdict in (Verdict.NOT_SEEN, Verdict.NO_CACHE)


@dataclass(frozen=True, slots=True)
class IsolationRequest:
    """What is asked of whom.

    Where:    other_key is tenant B's, where the server tells tenants apart by key
    """

    url: str
    rounds: int = 12
    words: int = 150
    model: str | None = None
    api_key: ApiKey | None = None
    other_key: ApiKey | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.rounds < LEAST_ROUNDS:
            raise RequestError(f"{self.rounds} pairs cannot bound a difference at 95 %; give at least {LEAST_ROUNDS}")
        if not 1 <= self.words <= 100_000:
            raise RequestError(f"a prefix of {self.words} words cannot be asked; give 1 to 100,000")


@dataclass(frozen=True, slots=True)
class _Way:
    name: str
    what: str
    fields: Mapping[str, Mapping[str, object]] = field(repr=False)


def _ways(engine: str) -> tuple[str | None, tuple[_Way, ...]]:
    """The engine's own option, and the ways of asking: the usual one first."""
    usual = _Way("as usual", "each tenant its key and its name in the field user", {each: {} for each in _TENANTS})
    if engine in (VLLM, SGLANG):
        salts = {each: {_SALT: secrets.token_urlsafe(32)} for each in _TENANTS}
        return _SALT, (usual, _Way(_SALT, f"each tenant a secret of its own in the field {_SALT}", salts))
    if engine == LLAMA_CPP:
        off = {each: {_NO_CACHE: False} for each in _TENANTS}
        return None, (usual, _Way(f"{_NO_CACHE}: false", "no tenant may use the cache at all", off))
    return None, (usual,)


NOTES: Final[Mapping[str, str]] = MappingProxyType({
    VLLM: f"of vLLM it is known that the field {_SALT} keeps tenants apart: blocks of different salts never match",
    SGLANG: f"of SGLang it is known that the field {_SALT} keeps tenants apart: it becomes a part of the key in its prefix tree",
    LLAMA_CPP: f"llama.cpp has no salt; {_NO_CACHE}: false gives up the cache for a request, and is all there is",
})  # fmt: skip


def probe_isolation(request: IsolationRequest, progress: Progress | None = None) -> IsolationResult:
    """Ask, and say what the times tell; after Ctrl-C from the rounds that were complete.

    Raises:   RequestError; ServerError where nothing answers
    """
    server = attach(request.url, api_key=request.api_key)
    kind = server.identity.kind
    option, ways = _ways(kind)
    model = request.model or server.identity.model_name
    probe = _Probe(request, model, random.Random(request.seed))
    arms: list[Arm] = []
    is_interrupted = False
    for way in ways:
        try:
            arms.append(asyncio.run(probe.arm(way, progress or (lambda _text: None))))
        except KeyboardInterrupt:
            is_interrupted = True
            if len(probe.rounds) >= LEAST_ROUNDS:
                arms.append(probe.conclude(way))
            break
    note = NOTES.get(kind, "the engine is not known, so neither is its option to keep tenants apart")
    engine = server.identity.name
    return IsolationResult(
        str(Target(request.url).address),
        engine,
        option,
        tuple(arms),
        request.words,
        request.seed,
        (note,),
        is_interrupted,
    )


@dataclass(frozen=True, slots=True)
class _Timed:
    ttft_s: float
    cached_tokens: int | None


_Round = Mapping[str, _Timed]


class _Probe:
    """The questions and their times."""

    def __init__(self, request: IsolationRequest, model: str | None, draw: random.Random) -> None:
        self.rounds: list[_Round] = []
        self._request, self._draw = request, draw
        target = Target(request.url, model=model, endpoint=Endpoint.CHAT, api_key=request.api_key)
        other = target if request.other_key is None else replace(target, api_key=request.other_key)
        self._clients = {
            name: Client([Upstream(f"tenant-{name}", each)], _TIMES) for name, each in (("a", target), ("b", other))
        }

    async def arm(self, way: _Way, progress: Progress) -> Arm:
        """All rounds of one way."""
        rounds = self.rounds
        rounds.clear()
        try:
            await self._ask("a", self._text(), way)  # the first is slow for reasons of its own
            for number in range(self._request.rounds):
                progress(f"{way.name}: round {number + 1} of {self._request.rounds}")
                rounds.append(await self._round(way))
        except RequestFailed as failure:
            if rounds or not way.fields["a"] or not _is_refusal(failure):
                raise
            return Arm(way.name, way.what, Verdict.REFUSED, error=failure.answer.error)
        return self.conclude(way)

    def conclude(self, way: _Way) -> Arm:
        """What the rounds so far say."""
        rounds = self.rounds
        other = self._gain([(each["b known"], each["b new"]) for each in rounds])
        own = self._gain([(each["a known"], each["a new"]) for each in rounds])
        return Arm(way.name, way.what, _verdict(other, own), other, own)

    async def _round(self, way: _Way) -> _Round:
        asked = [(tenant, what) for tenant in _TENANTS for what in ("known", "new")]
        self._draw.shuffle(asked)
        found = {}
        for tenant, what in asked:
            prefix = self._text()
            await self._ask("a", prefix, way)  # just before each, so that a small cache still has it
            found[f"{tenant} {what}"] = await self._ask(tenant, prefix if what == "known" else self._text(), way)
        return found

    async def _ask(self, tenant: str, prefix: str, way: _Way) -> _Timed:
        said = f"{prefix} {self._text(8)}"
        fields = {
            "messages": [{"role": "user", "content": said}],
            "max_tokens": 1,
            "temperature": 0,
            "user": f"tenant-{tenant}",
            **way.fields[tenant],
        }
        answer = (await self._clients[tenant].complete(Request(fields))).answer
        return _Timed(answer.ttft_s or answer.e2e_s, answer.cached_prompt_tokens)

    def _text(self, num_words: int | None = None) -> str:
        """Random words, which no one has asked before."""
        draw = self._draw
        words = (
            "".join(draw.choices(ascii_lowercase, k=draw.randint(*_WORD_LETTERS)))
            for _ in range(num_words or self._request.words)
        )
        return " ".join(words)

    def _gain(self, pairs: Sequence[tuple[_Timed, _Timed]]) -> Gain:
        gains_s = [new.ttft_s - known.ttft_s for known, new in pairs]
        return Gain(
            len(pairs),
            median(known.ttft_s for known, _ in pairs),
            median(new.ttft_s for _, new in pairs),
            median(gains_s),
            quantile_interval(gains_s, 0.5),
            chance_of(gains_s, random.Random(self._request.seed)),
            _middle([known.cached_tokens for known, _ in pairs]),
            _middle([new.cached_tokens for _, new in pairs]),
        )


def _is_refusal(failure: RequestFailed) -> bool:
    return any(attempt.http_status in (400, 422) for attempt in failure.answer.attempts)


def _middle(counts: Sequence[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return round(median(known)) if known else None


def _verdict(other: Gain, own: Gain) -> Verdict:
    if other.is_seen or other.is_told:
        return Verdict.SHARED
    return Verdict.NOT_SEEN if own.is_seen or own.is_told else Verdict.NO_CACHE


def chance_of(gains_s: Sequence[float], draw: random.Random) -> float:
    """How often a mean as far above 0 comes from the same differences with signs drawn at random; never 0.

    Formula:  (1 + number of draws at least as large) / (1 + draws), one-sided
    Source:   Fisher 1935, The Design of Experiments, section 21
    """
    total = sum(gains_s)
    as_large = sum(
        1 for _ in range(_NUM_FLIPS) if sum(each if draw.getrandbits(1) else -each for each in gains_s) >= total
    )
    return (1 + as_large) / (1 + _NUM_FLIPS)
