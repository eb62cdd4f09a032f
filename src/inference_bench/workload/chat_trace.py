"""Lengths of recorded conversations (ShareGPT and the like): token counts, never the text.

In:   one conversation as a JSON object
Out:  prompt and output length of its first exchange, or why it has none
Leaves out: later turns, as vLLM's benchmark does; the text, which is only counted and then dropped
Read next by: traces.

Token counts come from fields where there are any. Text alone has words and no tokens, so it is refused unless a number
of tokens a word is given, and then every length is an estimate, which the workload's notes say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from inference_bench.errors import TraceError
from inference_bench.workload.checks import MOST_TOKENS
from inference_bench.workload.trace_values import read_length, shown

TOO_SHORT: Final = "conversations without a question and an answer"

_TURN_LISTS: Final = ("conversations", "conversation", "messages", "items")
_PROMPT_COUNTS: Final = ("prompt_tokens", "input_tokens", "input_toks", "prompt_len", "input_len")
_OUTPUT_COUNTS: Final = ("output_tokens", "completion_tokens", "output_toks", "output_len", "response_tokens")
_TURN_COUNTS: Final = ("num_tokens", "token_count", "num_toks")
_ASKING: Final = frozenset({"human", "user"})
_ANSWERING: Final = frozenset({"gpt", "assistant", "chatgpt", "model", "bing", "bard"})


class ChatLengths(NamedTuple):
    """One exchange."""

    prompt_tokens: int
    output_tokens: int
    is_estimate: bool


def read_chat(values: Mapping[str, Any], tokens_per_word: float | None) -> ChatLengths | None:
    """The first question of a conversation, with what stands before it, and the first answer; None where there is none.

    Formula:  tokens of a text = ceil(words · tokens_per_word), at least 1, where no field counts them
    Raises:   TraceError for what is not a conversation, or text without counts when tokens_per_word is None
    """
    if (counted := _counted(values)) is not None:
        return counted
    turns = _turns(values)
    places = [index for index, turn in enumerate(turns) if _role(turn) in _ASKING]
    if not places:
        return None
    asked = places[0]
    if asked + 1 >= len(turns) or _role(turns[asked + 1]) not in _ANSWERING:
        return None
    prompt = [_turn_tokens(turn, tokens_per_word) for turn in turns[: asked + 1]]
    answer = _turn_tokens(turns[asked + 1], tokens_per_word)
    is_estimate = any(estimated for _, estimated in [*prompt, answer])
    return ChatLengths(sum(tokens for tokens, _ in prompt), answer[0], is_estimate)


def _counted(values: Mapping[str, Any]) -> ChatLengths | None:
    prompt, output = _first(values, _PROMPT_COUNTS), _first(values, _OUTPUT_COUNTS)
    if prompt is None or output is None:
        return None
    return ChatLengths(read_length(prompt, "prompt length"), read_length(output, "output length"), False)


def _turns(values: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    turns = _first(values, _TURN_LISTS)
    if not isinstance(turns, list) or not all(isinstance(turn, dict) for turn in turns):
        raise TraceError(f"no list of turns under any of {', '.join(_TURN_LISTS)}")
    return turns


def _role(turn: Mapping[str, Any]) -> str:
    role = _first(turn, ("from", "role"))
    return role.lower() if isinstance(role, str) else ""


def _turn_tokens(turn: Mapping[str, Any], tokens_per_word: float | None) -> tuple[int, bool]:
    counted = _first(turn, _TURN_COUNTS)
    if counted is not None:
        return read_length(counted, "length of a turn"), False
    text = _first(turn, ("value", "content"))
    if not isinstance(text, str):
        raise TraceError(f"a turn's text is {shown(text)}; a string is needed, or a count of its tokens")
    if tokens_per_word is None:
        raise TraceError(
            "there is text and no token count; give the number of tokens a word (English: about 1.3) to estimate lengths"
        )
    estimate = len(text.split()) * tokens_per_word
    if estimate > MOST_TOKENS:
        raise TraceError(
            f"a turn of {len(text.split())} words is {estimate:g} tokens at {tokens_per_word:g} tokens a word; it must be at most "
            f"{MOST_TOKENS}"
        )
    return max(1, math.ceil(estimate)), True


def _first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((values[name] for name in names if values.get(name) is not None), None)
