"""What does the server make of a chat before the model sees it?

In:   an opened Server
Out:  rows of the group template
Leaves out: the template's own text, and its hash (manifest)
Read next by: flow.

A template that adds a system message of its own shows in the counts: a chat without one is then longer than a chat whose system
message is empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from inference_bench.engines.answers import inside, text_in
from inference_bench.operate.contract.reading import usage_count
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import GREETING, Server

_USER: Final = {"role": "user", "content": GREETING}
_MESSAGES: Final = ({"role": "system", "content": "Be brief."}, _USER)
_EMPTY_SYSTEM: Final = ({"role": "system", "content": ""}, _USER)


def template(server: Server) -> Iterator[Row]:
    """Whether it is told, whether counts agree with it, and what it adds."""
    if not server.is_chat:
        return
    rendered, how = _rendered_tokens(server)
    is_told = rendered is not None or text_in(inside(server.props, "chat_template")) is not None
    action = "" if is_told else "compare the template's hash where the server is started"
    yield Row("template.told", yes_or_no(is_told), how if is_told else "no route tells or applies it", action)
    counted = _counted(server, _MESSAGES)
    if rendered is None or counted is None:
        missing = (
            "the server renders no chat to tokens" if rendered is None else "the server gave no count of prompt tokens"
        )
        yield Row("template.counted", Verdict.UNKNOWN, missing)
    else:
        seen = f"{rendered} tokens rendered, {counted} in usage"
        action = "" if rendered == counted else "find out which template is in force before you compare outputs"
        yield Row(
            "template.counted", yes_or_no(rendered == counted), seen, action, {"rendered": rendered, "counted": counted}
        )
    yield _own_system(_counted(server, (_USER,)), _counted(server, _EMPTY_SYSTEM))


def _counted(server: Server, messages: tuple[dict[str, str], ...]) -> int | None:
    return usage_count(server.generate("", 1, messages=list(messages)).value, "prompt_tokens")


def _rendered_tokens(server: Server) -> tuple[int | None, str]:
    """How many tokens the server itself makes of a chat without generating, and by which route."""
    asked = {**server.named, "messages": list(_MESSAGES), "add_generation_prompt": True}
    applied = server.post("/apply-template", asked)
    prompt = inside(applied.value, "prompt")
    if applied.is_ok and isinstance(prompt, str):
        tokens = server.post("/tokenize", {"content": prompt, "add_special": True, "parse_special": True})
        listed = inside(tokens.value, "tokens")
        if tokens.is_ok and isinstance(listed, list):
            return len(listed), "by /apply-template"
    tokens = server.post("/tokenize", asked)
    count = inside(tokens.value, "count")
    if tokens.is_ok and isinstance(count, int) and not isinstance(count, bool) and count > 0:
        return count, "by /tokenize"
    return None, "by /props, which holds its text"


def _own_system(without: int | None, with_empty: int | None) -> Row:
    row_id = "template.no_own_system"
    if without is None:
        return Row(row_id, Verdict.UNKNOWN, "the server gave no count of prompt tokens")
    if with_empty is None:
        return Row(row_id, Verdict.UNKNOWN, "no answer to a chat with an empty system message")
    seen = f"{without} tokens without a system message, {with_empty} with an empty one"
    figures = {"without_system": without, "empty_system": with_empty}
    if without > with_empty:
        action = (
            "send a system message of your own, an empty one if need be: otherwise the template puts in one of its own"
        )
        return Row(row_id, Verdict.NO, seen, action, figures)
    return Row(row_id, Verdict.YES, seen, figures=figures)
