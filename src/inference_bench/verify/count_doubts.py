"""Can the token counts that a server gives be right?

In:   the waves of a sweep, and how many tokens a word was found to be
Out:  sentences; none where the counts agree with what was asked for and with what came
Leaves out: a request that failed
Read next by: calibration_sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from inference_bench.metrics import has_one_token_per_chunk
from inference_bench.records import RequestRecord, RequestStatus
from inference_bench.stats import median
from inference_bench.units import format_number
from inference_bench.verify.calibration_order import Send
from inference_bench.verify.calibration_waves import Wave

_WRONG: Final = "its counts, and every figure per token, may be wrong"
_MOST_TOKENS_PER_WORD: Final = 4.0  # the words that are sent are short ones, of one or two tokens in usual vocabularies
_FEWEST_TOKENS_PER_WORD: Final = 0.5
_FAR: Final = 1.5
_MOST: Final = 0.5  # of the replies

_Pairs = Sequence[tuple[Send, RequestRecord]]


def count_doubts(waves: Iterable[Wave], tokens_per_word: float) -> tuple[str, ...]:
    """What speaks against the server's counts."""
    pairs = [
        (send, record)
        for wave in waves
        for send, record in zip(wave.plan.sends, wave.records, strict=True)
        if record.status is RequestStatus.COMPLETED
    ]
    return (*_of_prompts(pairs, tokens_per_word), *_of_answers(pairs))


def _of_prompts(pairs: _Pairs, tokens_per_word: float) -> Iterator[str]:
    """Prompts far from the length that was asked for; or words of so many tokens that no vocabulary has such."""
    shares = [
        (record.prompt_tokens / send.prompt_tokens, send, record) for send, record in pairs if record.prompt_tokens
    ]
    usual = median([share for share, _, _ in shares]) if shares else 1.0
    if not 1 / _FAR <= usual <= _FAR:
        _, send, record = min(shares, key=lambda each: abs(each[0] - usual))
        yield f"the server counts {record.prompt_tokens} prompt tokens where {send.prompt_tokens} were asked for: {_WRONG}"
    elif not _FEWEST_TOKENS_PER_WORD <= tokens_per_word <= _MOST_TOKENS_PER_WORD:
        yield (
            f"the server counts {format_number(tokens_per_word)} prompt tokens for a word, and the short words that are sent are one "
            f"or two: {_WRONG}"
        )


def _of_answers(pairs: _Pairs) -> Iterator[str]:
    """Answers whose count is neither what was asked for nor what came."""
    odd = [
        (send.output_tokens, record)
        for send, record in pairs
        if record.output_tokens is not None
        and record.output_tokens != send.output_tokens
        and len(record.chunk_times_s) == send.output_tokens
    ]
    if odd and len(odd) >= _MOST * len(pairs):
        asked, record = odd[0]
        yield f"the server counts {record.output_tokens} output tokens where {asked} were asked for and {asked} pieces came: {_WRONG}"


def why_no_steps(waves: Iterable[Wave]) -> str | None:
    """Why steps of decode are not known where most answers' pieces are not one token each; None where they are."""
    records = [
        record
        for wave in waves
        for record in wave.records
        if record.status is RequestStatus.COMPLETED and (record.output_tokens or 0) > 1
    ]
    odd = [record for record in records if record.chunk_times_s and not has_one_token_per_chunk(record)]
    if not odd or len(odd) < _MOST * len(records):
        return None
    return (
        f"a chunk is not one token ({odd[0].output_tokens} output tokens came in {len(odd[0].chunk_times_s)}), so that the time between "
        "chunks is no step"
    )
