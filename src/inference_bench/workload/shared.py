"""Which requests share tokens: samples of one prompt, groups with a common prefix, conversations that hold all turns before.

In:   arrivals, lengths, a count, a seed, and what is shared
Out:  Workload whose requests say of which segments their prompts are made; how many of those a cache could have held
Leaves out: what a real cache keeps (simulate); the hits counted here are an upper bound
Read next by: simulate, cli.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

from inference_bench.workload.arrivals import Arrivals, OpenLoop
from inference_bench.workload.checks import require_count, require_length, require_not_negative
from inference_bench.workload.generate import MOST_REQUESTS, Workload
from inference_bench.workload.lengths import Lengths
from inference_bench.workload.requests import Requests, Segment

_MOST_GROUPS: Final = 1_000_000
_MOST_TURNS: Final = 1000  # each turn lists the segments of all before it
_MOST_SAMPLES: Final = 1000


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Groups of requests (system prompts, documents); all of one group start with the same tokens.

    Formula:  group g, counted from 1, is drawn with probability proportional to 1 / g^zipf; zipf 0 is uniform
    Where:    the prefix comes in front of the prompt that is drawn, and adds to its length
    Unit:     tokens
    Raises:   RequestError for a number below one, or a zipf that is negative or not finite
    """

    num_tokens: int
    num_groups: int = 1
    zipf: float = 0.0
    _cumulative: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_length(self.num_tokens, "shared prefix in tokens")
        require_count(self.num_groups, "number of shared prefixes", most=_MOST_GROUPS)
        require_not_negative(self.zipf, "Zipf exponent of the shared prefixes")
        weights = (group**-self.zipf for group in map(float, range(1, self.num_groups + 1)))
        object.__setattr__(self, "_cumulative", tuple(accumulate(weights)))

    def draw(self, rng: random.Random) -> int:
        """A group, counted from 0: one draw, also where there is only one."""
        place = bisect_right(self._cumulative, rng.random() * self._cumulative[-1])
        return min(place, self.num_groups - 1)


def generate_shared(
    arrivals: Arrivals,
    prompt: Lengths,
    output: Lengths,
    count: int,
    seed: int = 0,
    *,
    prefix: SharedPrefix | None = None,
    samples: int = 1,
    name: str = "shared prefixes",
    max_output_tokens: int | None = None,
) -> Workload:
    """An open-loop workload in which each prompt starts with the prefix of its group, and is answered several times.

    Formula:  one random.Random(seed); for each prompt in turn its gap, prompt length, output length, its group where there
              is a prefix, and the output lengths of its further samples
    Where:    `arrivals` sends prompts; all samples of one are sent together, each as a request; count is the number of
              requests, so the last prompt may have fewer; the nominal rate is the one of prompts times their samples
    Raises:   RequestError for a number below one
    """
    require_count(count, "number of requests", most=MOST_REQUESTS)
    require_count(samples, "number of samples", most=_MOST_SAMPLES)
    rng = random.Random(seed)
    times_s, columns = array("d"), _Columns(prefix.num_groups if prefix else 0)
    groups = tuple(Segment(group, prefix.num_tokens) for group in range(prefix.num_groups)) if prefix else ()
    starts_s = arrivals.times_s(rng)
    while len(times_s) < count:
        first, time_s = len(times_s), next(starts_s)
        own_tokens, output_tokens = prompt.draw(rng), output.draw(rng)
        shared = (groups[prefix.draw(rng)],) if prefix else ()
        segments = (*shared, columns.new_segment(own_tokens))
        columns.add(segments, output_tokens)
        for _ in range(min(samples, count - first) - 1):
            columns.add(segments, output.draw(rng), first=first)
        times_s.extend([time_s] * (len(columns) - first))
    process = arrivals.name if samples == 1 else f"{arrivals.name} prompts of {samples} samples"
    notes = () if samples == 1 else (_SAMPLES_NOTE,)
    drawn_from = arrivals if samples == 1 else None
    arrival = OpenLoop(times_s, process, arrivals.mean_rate * samples, drawn_from)
    return Workload(name, columns.requests(samples > 1), arrival, seed, max_output_tokens, notes)


_SAMPLES_NOTE: Final = (
    "the samples of a prompt are sent together, as requests of their own; where no prefix cache shares blocks, and on "
    "different servers, each reads the prompt itself"
)


def generate_conversations(
    arrivals: Arrivals,
    prompt: Lengths,
    output: Lengths,
    count: int,
    seed: int = 0,
    *,
    num_turns: int,
    think_s: float,
    prefix: SharedPrefix | None = None,
    name: str = "conversations",
    max_output_tokens: int | None = None,
) -> Workload:
    """Conversations: each turn's prompt is the whole conversation so far, earlier answers included, and a new message.

    Formula:  one random.Random(seed); for each conversation in turn its gap, its group where there is a prefix, and
              for each of its turns the pause before it (expovariate(1 / think_s); none before the first), the length
              of the message, the length of the answer
    Where:    `arrivals` starts conversations; `prompt` is the length of one message; count is the number of requests,
              so the last conversation may be shorter; the nominal rate is the one of conversations times their turns
    Unit:     think_s in seconds, the mean pause between the sending of one turn and of the next
    Ignores:  how long an answer takes: a turn is planned for its time, whether or not the answer before it is there by then
    Raises:   RequestError for a number below one, a think time that is not finite or negative, or a conversation that
              grows beyond the longest prompt there can be
    """
    require_count(count, "number of requests", most=MOST_REQUESTS)
    require_count(num_turns, "number of turns", most=_MOST_TURNS)
    require_not_negative(think_s, "think time", "s")
    talk = _Talk(prompt, output, think_s, prefix)
    rng = random.Random(seed)
    turns: list[_Turn] = []
    starts_s = arrivals.times_s(rng)
    session = 0
    while len(turns) < count:
        turns += talk.turns(session, next(starts_s), min(num_turns, count - len(turns)), rng)
        session += 1
    turns.sort(key=_turn_time_s)
    times_s, columns = array("d", map(_turn_time_s, turns)), talk.columns
    for turn in turns:
        columns.add(turn.prompt, turn.output_tokens, turn.answer)
    requests = replace(
        columns.requests(),
        session=array("q", [turn.session for turn in turns]),
        turn=array("q", [turn.number for turn in turns]),
    )
    process = f"{arrivals.name} conversations of {num_turns} turns, {think_s:g} s apart"
    notes = (_TURNS_NOTE,)
    arrival = OpenLoop(times_s, process, arrivals.mean_rate * num_turns)
    return Workload(name, requests, arrival, seed, max_output_tokens, notes)


_TURNS_NOTE: Final = (
    "a turn is sent at its planned time; to a real server, when the answer before it has ended if that is later"
)


@dataclass(frozen=True, slots=True)
class _Turn:
    session: int
    number: int
    time_s: float
    prompt: tuple[Segment, ...]
    output_tokens: int
    answer: int


def _turn_time_s(turn: _Turn) -> float:
    return turn.time_s


class _Columns:
    """The columns of requests that share tokens; content ids below `num_taken` belong to prefixes."""

    def __init__(self, num_taken: int) -> None:
        self._next = num_taken
        self._prompt_tokens, self._output_tokens, self._answers = array("q"), array("q"), array("q")
        self._prompts: list[tuple[Segment, ...]] = []
        self._sample_of = array("q")

    def __len__(self) -> int:
        return len(self._prompts)

    def new_content(self) -> int:
        content, self._next = self._next, self._next + 1
        return content

    def new_segment(self, num_tokens: int) -> Segment:
        return Segment(self.new_content(), num_tokens)

    def add(
        self,
        prompt: tuple[Segment, ...],
        output_tokens: int,
        answer: int | None = None,
        first: int | None = None,
    ) -> None:
        self._sample_of.append(len(self) if first is None else first)
        self._prompts.append(prompt)
        self._prompt_tokens.append(sum(segment.num_tokens for segment in prompt))
        self._output_tokens.append(output_tokens)
        self._answers.append(self.new_content() if answer is None else answer)

    def requests(self, has_samples: bool = False) -> Requests:
        return Requests(
            self._prompt_tokens,
            self._output_tokens,
            tuple(self._prompts),
            self._answers,
            sample_of=self._sample_of if has_samples else None,
        )


class _Talk:
    """What all conversations of a workload have in common."""

    def __init__(self, prompt: Lengths, output: Lengths, think_s: float, prefix: SharedPrefix | None) -> None:
        self.columns = _Columns(prefix.num_groups if prefix else 0)
        self._prompt, self._output, self._think_s, self._prefix = prompt, output, think_s, prefix

    def turns(self, session: int, start_s: float, num_turns: int, rng: random.Random) -> Iterator[_Turn]:
        so_far: tuple[Segment, ...] = ()
        if self._prefix:
            so_far = (Segment(self._prefix.draw(rng), self._prefix.num_tokens),)
        now_s = start_s
        for number in range(num_turns):
            if number and self._think_s:
                now_s += rng.expovariate(1 / self._think_s)
            so_far = (*so_far, self.columns.new_segment(self._prompt.draw(rng)))
            turn = _Turn(session, number, now_s, so_far, self._output.draw(rng), self.columns.new_content())
            yield turn
            so_far = (*so_far, Segment(turn.answer, turn.output_tokens))


@dataclass(frozen=True, slots=True)
class SegmentHits:
    """How many leading segments (blocks, in a block trace) an earlier request already had.

    Where:    an upper bound for a prefix cache: nothing is ever evicted, and an earlier request's prompt is cached as
              soon as it is sent
    """

    num_hits: int
    num_segments: int
    hit_tokens: int
    prompt_tokens: int

    @property
    def hit_fraction(self) -> float:
        """Hits as a share of all segments."""
        return self.num_hits / self.num_segments if self.num_segments else 0.0


def leading_block_hits(workload: Workload) -> SegmentHits:
    """How much of the prompts a cache without limit could have held.

    Formula:  for each request the number of leading segments for which an earlier request's prompt starts alike; a
              request's hits stop at its first segment that was not seen
    Ignores:  answers of earlier requests that a later prompt repeats, except where a prompt in between had them
    """
    prompts: Sequence[tuple[Segment, ...]] = workload.requests.prompts or ()
    seen: dict[tuple[int, Segment], int] = {}
    num_hits = num_segments = hit_tokens = 0
    for prompt in prompts:
        node, is_hit, num_known = 0, True, len(seen)
        for segment in prompt:
            node = seen.setdefault((node, segment), len(seen) + 1)
            is_hit = is_hit and node <= num_known
            if is_hit:
                num_hits += 1
                hit_tokens += segment.num_tokens
        num_segments += len(prompt)
    return SegmentHits(num_hits, num_segments, hit_tokens, sum(workload.requests.prompt_tokens))
