"""Tool calls, log-probabilities, sampling fields, and several requests at once: are they there, and do they what they say?

In:   an opened Server
Out:  rows of the groups tools, logprobs, sampling and parallel
Leaves out: whether texts change in a batch (greedy)
Read next by: flow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from inference_bench.engines.answers import inside
from inference_bench.errors import ServerError
from inference_bench.operate.contract.reading import choice_of, finish_of, logprobs_of, text_of, usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import COUNTING, GREETING, Server, at_once
from inference_bench.operate.contract.wire import Reply
from inference_bench.units import format_seconds

_TOOL: Final = {
    "type": "function",
    "function": {
        "name": "set_level",
        "description": "Sets the level.",
        "parameters": {"type": "object", "properties": {"level": {"type": "integer"}}, "required": ["level"]},
    },
}
_STORY: Final = "Invent a name for a town and describe it."
_PROMPT_TEXT: Final = "One two three four"
_AT_ONCE: Final = 4
_NONE: Final = "taken without an error, and none came"
_NO_COUNT: Final = "usage counts the tokens of one choice only: do not bill by it"


def tools(server: Server) -> Iterator[Row]:
    """Taken at all, and a call where one is required."""
    if not server.is_chat:
        return
    yield _taken(server)
    reply = server.generate("Set the level to 3.", 32, tools=[_TOOL], tool_choice="required")
    if not reply.is_ok:
        yield Row("tools.required", Verdict.NO, server.words(reply), "do without tools here")
        return
    calls = inside(choice_of(reply.value), "message", "tool_calls")
    if not isinstance(calls, list) or not calls:
        yield Row("tools.required", Verdict.NO, "taken without an error, and no call came", "do without tools here")
        return
    yield _call(calls[0])
    finish = finish_of(reply.value)
    action = "" if finish == "tool_calls" else "look for tool_calls, not at the finish_reason"
    yield Row("tools.finish_reason", yes_or_no(finish == "tool_calls"), f"finish_reason {finish or 'absent'}", action)


def _taken(server: Server) -> Row:
    """Whether tools are taken, and reach the prompt: they make it longer."""
    row_id, without = "tools.accepted", "do without tools here"
    plain, taken = server.generate(GREETING, 1), server.generate(GREETING, 1, tools=[_TOOL])
    if not taken.is_ok:
        return Row(row_id, Verdict.NO, server.words(taken), without)
    counts = [usage_count(reply.value, "prompt_tokens") for reply in (plain, taken)]
    if None in counts:
        return Row(
            row_id, Verdict.PARTLY, "taken; without a count of prompt tokens nothing shows that the model sees them"
        )
    seen = f"{counts[0]} prompt tokens without, {counts[1]} with a tool"
    if counts[0] == counts[1]:
        return Row(row_id, Verdict.NO, f"taken without an error, and not put into the prompt: {seen}", without)
    return Row(row_id, Verdict.YES, seen)


def _call(call: Any) -> Row:
    arguments = None
    with suppress(ValueError, TypeError, RecursionError):
        arguments = json.loads(inside(call, "function", "arguments"))
    is_named = inside(call, "function", "name") == "set_level"
    if is_named and isinstance(inside(arguments, "level"), int):
        return Row("tools.required", Verdict.YES, "a call with its arguments came")
    seen = "a call came, with arguments that do not fit" if is_named else "a call of something else came"
    return Row("tools.required", Verdict.PARTLY, seen, "check every call against its schema yourself")


def logprobs(server: Server) -> Iterator[Row]:
    """In chats, in completions, and of prompts."""
    reply = server.generate(GREETING, 4, is_chat=True, logprobs=True, top_logprobs=3)
    yield _listed(server, "logprobs.chat", reply)
    yield _top(server, reply)
    reply = server.generate(_PROMPT_TEXT, 4, is_chat=False, logprobs=3)
    yield _listed(server, "logprobs.completions", reply)
    reply = server.generate(_PROMPT_TEXT, 1, is_chat=False, logprobs=1, echo=True)
    has_echo = (text_of(reply.value) or "").startswith(_PROMPT_TEXT)
    found = choice_of(reply.value).get("logprobs")
    num = max(
        (len(each) for each in (inside(found, "tokens"), inside(found, "content")) if isinstance(each, list)), default=0
    )
    seen = (
        f"{'the prompt came back' if has_echo else 'no prompt came back'}, {num} log-probabilities"
        if reply.is_ok
        else server.words(reply)
    )
    verdict = Verdict.YES if has_echo and num >= 3 else Verdict.PARTLY if has_echo else Verdict.NO
    yield Row("logprobs.echo", verdict, seen)
    reply = server.generate(_PROMPT_TEXT, 1, is_chat=False, prompt_logprobs=1)
    listed = choice_of(reply.value).get("prompt_logprobs") or inside(reply.value, "prompt_logprobs")
    seen = f"{len(listed)} entries" if isinstance(listed, list) else _NONE if reply.is_ok else server.words(reply)
    yield Row("logprobs.prompt", yes_or_no(isinstance(listed, list)), seen)


def _listed(server: Server, row_id: str, reply: Reply) -> Row:
    if not reply.is_ok:
        return Row(row_id, Verdict.NO, server.words(reply))
    listed, num = logprobs_of(reply.value), usage_count(reply.value, "completion_tokens")
    if not listed:
        return Row(row_id, Verdict.NO, _NONE)
    seen = f"{len(listed)} for {'an unknown number of' if num is None else num} tokens"
    if any(item.logprob > 0 for item in listed):
        return Row(row_id, Verdict.NO, f"{seen}, some above 0", "do not use them: they are no log-probabilities")
    is_whole = num is None or len(listed) == num
    return Row(row_id, Verdict.YES if is_whole else Verdict.PARTLY, seen)


def _top(server: Server, reply: Reply) -> Row:
    listed = logprobs_of(reply.value)
    if not reply.is_ok or not listed:
        return Row("logprobs.top", Verdict.NO, _NONE if reply.is_ok else server.words(reply))
    fewest = min(len(item.top) for item in listed)
    is_sorted = all(first[1] >= second[1] for item in listed for first, second in pairwise(item.top))
    seen = f"{fewest} of 3 asked for{'' if is_sorted else ', not the best first'}"
    return Row(
        "logprobs.top", Verdict.YES if fewest == 3 and is_sorted else Verdict.PARTLY if fewest else Verdict.NO, seen
    )


def sampling(server: Server) -> Iterator[Row]:
    """Temperature 0, seeds, several choices."""
    reply = server.generate(GREETING, 2, temperature=0)
    yield Row("sampling.temperature_zero", yes_or_no(reply.is_ok), "taken" if reply.is_ok else server.words(reply))
    yield _seed(server)
    reply = server.generate(GREETING, 4, n=2, temperature=1, seed=3)
    if not reply.is_ok:
        yield Row("sampling.n", Verdict.NO, server.words(reply), "send the request several times")
        return
    choices, num = inside(reply.value, "choices"), usage_count(reply.value, "completion_tokens")
    num_choices = len(choices) if isinstance(choices, list) else 0
    seen = f"{num_choices} of 2 choices, {'no count of' if num is None else num} completion tokens in all"
    if num_choices < 2:
        yield Row("sampling.n", Verdict.NO, seen, "send the request several times")
    elif num is not None and num <= 4 and all(len(text_of(reply.value, index) or "") > 4 for index in (0, 1)):
        yield Row("sampling.n", Verdict.PARTLY, seen, _NO_COUNT, {"choices": num_choices, "completion_tokens": num})
    else:
        yield Row("sampling.n", Verdict.YES, seen, figures={"choices": num_choices, "completion_tokens": num})


def _seed(server: Server) -> Row:
    row_id = "sampling.seed"
    replies = [server.generate(_STORY, 12, temperature=1, seed=seed) for seed in (11, 11, 12)]
    refused = next((reply for reply in replies if not reply.is_ok), None)
    if refused is not None:
        return Row(row_id, Verdict.NO, server.words(refused))
    first, again, other = (text_of(reply.value) for reply in replies)
    if first != again:
        return Row(row_id, Verdict.NO, "the same seed gave two texts", "repeat runs by saved texts, not by seeds")
    if first == other:
        return Row(row_id, Verdict.UNKNOWN, "three equal texts, also with another seed: temperature may be ignored")
    return Row(row_id, Verdict.YES, "the same seed gave the same text, another seed another")


def parallel(server: Server) -> Iterator[Row]:
    """Several short requests at once."""
    alone = server.generate(COUNTING, 8)
    began_s = time.monotonic()
    answered = sum(at_once(server, lambda _: _is_answered(server), range(_AT_ONCE)))
    took_s = time.monotonic() - began_s
    seen = (
        f"{answered} of {_AT_ONCE} answered, in {format_seconds(took_s)}; one alone in {format_seconds(alone.took_s)}"
    )
    action = "" if answered == _AT_ONCE else "retry what is refused, and bound what you send at once"
    figures = {"answered": answered, "took_s": took_s, "alone_s": alone.took_s}
    yield Row("parallel.answered", yes_or_no(answered == _AT_ONCE), seen, action, figures)


def _is_answered(server: Server) -> bool:
    with suppress(ServerError):
        return server.generate(COUNTING, 8).is_ok
    return False
