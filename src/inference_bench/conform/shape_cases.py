"""Replies that are in order, in every shape that servers give them: what the events hold.

In:   the pen of script.py
Out:  cases in its table; a function's docstring is what a person reads about its case
Leaves out: how events are cut into bytes (framing_cases), what goes wrong (fault_cases)
Read next by: server, suite.
"""

from __future__ import annotations

from typing import Final

from inference_bench.conform.script import FIRST_S, GAP_S, LAST_CHUNK, TOKENS, Script, Story, case, framed, usage_of

_LATE_S: Final = 0.3
_TAIL_S: Final = 0.5
_LLAMA: Final = "\N{LLAMA}"


@case()
def control() -> Script:
    """Everything as it should be."""
    return Story().role().tokens().close().script()


@case(is_chat=False)
def completions() -> Script:
    """The same on the route for plain completions."""
    return Story(is_chat=False).tokens().close().script()


@case()
def role_null() -> Script:
    """A role-only first chunk whose content is null."""
    return Story().role(None).tokens().close().script()


@case()
def role_then_late_token() -> Script:
    """A role chunk at once, the first token after 300 ms."""
    return Story().role().pause(_LATE_S - GAP_S).tokens().close().script()


@case()
def several_tokens_a_chunk() -> Script:
    """Chunks of 3, 1 and 5 tokens."""
    story = Story().role()
    for count in (3, 1, 5):
        story.tick().event(story.chunk(" a" * count), count)
    return story.close(9).script()


@case()
def held_characters() -> Script:
    """Bytes held until they are whole characters: 16 tokens in 5 chunks."""
    story = Story().role()
    for count in (1, 4, 4, 3, 4):
        story.tick().event(story.chunk(_LLAMA), count)
    return story.close(16).script()


@case()
def empty_tokens() -> Script:
    """Two of eight tokens have no text."""
    story = Story().role()
    for number in range(TOKENS):
        is_empty = number in (2, 5)
        story.tick().event(story.chunk("" if is_empty else " a"), *(() if is_empty else (1,)))
    return story.close().script()


def _half_reasoning(field: str) -> Script:
    story = Story().role()
    for _ in range(TOKENS // 2):
        story.tick().delta({field: " hm"}, 1)
    return story.tokens(TOKENS // 2).close().script()


@case()
def reasoning_content() -> Script:
    """Four tokens of `reasoning_content`, then four of content."""
    return _half_reasoning("reasoning_content")


@case()
def reasoning() -> Script:
    """Four tokens of `reasoning`, then four of content."""
    return _half_reasoning("reasoning")


@case()
def reasoning_only() -> Script:
    """The cap was reached while the model still reasoned."""
    story = Story().role()
    for _ in range(TOKENS):
        story.tick().delta({"reasoning_content": " hm", "content": None}, 1)
    return story.close().script()


@case()
def tool_calls() -> Script:
    """Only a tool call, in pieces."""
    story = Story().role(None)
    first = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "look", "arguments": ""}}
    story.tick().delta({"tool_calls": [first]}, 1)
    for _ in range(TOKENS - 1):
        story.tick().delta({"tool_calls": [{"index": 0, "function": {"arguments": '"a'}}]}, 1)
    return story.finish("tool_calls").usage().done().script()


@case()
def usage_in_last_chunk() -> Script:
    """Counts and finish reason inside the last content chunk."""
    story = Story().role().tokens(TOKENS - 1)
    last = story.chunk(" a", "length", usage=usage_of(TOKENS))
    return story.tick().event(last, 1).done().script()


@case()
def usage_in_every_chunk() -> Script:
    """Counts in every chunk, growing."""
    story = Story().role()
    for count in range(1, TOKENS + 1):
        story.tick().event(story.chunk(usage=usage_of(count)), 1)
    return story.finish(usage=usage_of(TOKENS)).done().script()


@case()
def usage_twice() -> Script:
    """The same counts in two closing chunks."""
    return Story().role().tokens().finish().usage().usage().done().script()


@case()
def usage_null() -> Script:
    """Counts that are null in every chunk, and nowhere else."""
    return Story().role().tokens(usage=None).finish(usage=None).done().script()


@case()
def usage_missing() -> Script:
    """No counts, although they were asked for."""
    return Story().role().tokens().finish().done().script()


@case()
def usage_contradicting() -> Script:
    """Eight chunks with text, and a count of three tokens."""
    return Story().role().tokens().close(3).script()


@case()
def llama_cpp_timings() -> Script:
    """No usage, but llama.cpp's own timings."""
    timings = {"cache_n": 0, "prompt_n": 5, "prompt_ms": 50.0, "predicted_n": TOKENS, "predicted_ms": 160.0}
    return Story().role().tokens().finish(timings=timings).done().script()


@case()
def two_choices() -> Script:
    """Two answers side by side (n > 1); the counts are for both."""
    story = Story().role()
    for _ in range(TOKENS):
        story.tick()
        for index in (0, 1):
            choice = {"index": index, "delta": {"content": " a"}, "finish_reason": None}
            story.event({"object": story.kind, "choices": [choice]}, 1)
    for index in (0, 1):
        story.event({"object": story.kind, "choices": [{"index": index, "delta": {}, "finish_reason": "length"}]})
    return story.usage(2 * TOKENS).done().script()


@case()
def logprobs() -> Script:
    """Each chunk with the log-probabilities of its token."""
    story = Story().role()
    entry = {"token": " a", "logprob": -0.5, "bytes": [32, 97], "top_logprobs": []}
    for _ in range(TOKENS):
        choice = {"index": 0, "delta": {"content": " a"}, "logprobs": {"content": [entry]}, "finish_reason": None}
        story.tick().event({"object": story.kind, "choices": [choice]}, 1)
    return story.close().script()


@case()
def stops_early() -> Script:
    """Half of the tokens that were asked for, and no counts."""
    return Story().role().tokens(TOKENS // 2).finish("stop").done().script()


@case()
def zero_tokens() -> Script:
    """The model stops at once."""
    return Story().role().pause(FIRST_S).finish("stop").usage(0).done().script()


@case()
def long_tail() -> Script:
    """The last token, then 500 ms until finish reason, counts and [DONE]."""
    return Story().role().tokens().pause(_TAIL_S).close().script()


@case()
def finish_with_content() -> Script:
    """The finish reason in the last content chunk."""
    story = Story().role().tokens(TOKENS - 1)
    return story.tick().event(story.chunk(" a", "length"), 1).usage().done().script()


@case()
def one_send() -> Script:
    """Every event in a single send."""
    story = Story().role()
    token = story.encode(story.chunk())
    closing = story.encode(story.chunk("", "length", usage=usage_of(TOKENS))) + story.encode("[DONE]")
    body = token * TOKENS + closing
    return story.tick().raw(framed(body) + LAST_CHUNK, body, *[1] * TOKENS).script()
