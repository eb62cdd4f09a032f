"""What does the server say to requests that are wrong?

In:   an opened Server
Out:  rows of the group errors
Leaves out: overload, and what happens to a request in flight when a server dies (drill)
Read next by: flow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from inference_bench.engines.answers import inside
from inference_bench.operate.contract.rows import Row, Verdict, yes_or_no
from inference_bench.operate.contract.server import GREETING, Server
from inference_bench.operate.contract.wire import Reply

_UNKNOWN_FIELD: Final[dict[str, Any]] = {"inference_bench_unknown_field": 1}
_UNKNOWN_MODEL: Final = "inference-bench-no-such-model"
_BAD_REQUEST: Final = (400, 422)


def mistakes(server: Server) -> Iterator[Row]:
    """One mistake a request."""
    reply = server.generate(GREETING, 1, **_UNKNOWN_FIELD)
    is_refused = reply.status in _BAD_REQUEST
    seen = server.words(reply) if is_refused else f"HTTP {reply.status}: it is ignored"
    action = (
        "send no field that the server does not know"
        if is_refused
        else "a misspelt field has no effect and no error: check names"
    )
    yield Row("errors.unknown_field", yes_or_no(is_refused), seen, action)
    broken = server.wire.ask("POST", server.path, b'{"messages": [')
    yield _is_4xx("errors.invalid_json", server, broken, wanted=(400,))
    yield _is_4xx("errors.no_prompt", server, server.post(server.path, {**server.named, server.limit_field: 1}))
    reply = server.generate(GREETING, 1, model=_UNKNOWN_MODEL)
    is_refused = 400 <= reply.status < 500
    seen = server.words(reply) if is_refused else "answered, by whatever is loaded"
    action = "" if is_refused else "check the model in replies and in /v1/models: a wrong name is not noticed"
    yield Row("errors.unknown_model", yes_or_no(is_refused), seen, action)
    has_shape = isinstance(inside(broken.value, "error", "message"), str)
    parts = [name for name in ("message", "type", "code", "param") if inside(broken.value, "error", name) is not None]
    seen = f"error has {', '.join(parts)}" if has_shape else "no error.message"
    yield Row("errors.shape", yes_or_no(has_shape), seen, "" if has_shape else "read errors from the body as a whole")


def _is_4xx(row_id: str, server: Server, reply: Reply, wanted: tuple[int, ...] = _BAD_REQUEST) -> Row:
    seen, action = server.words(reply), "do not retry by status alone: this mistake looks like a failure"
    if reply.status in wanted:
        return Row(row_id, Verdict.YES, seen)
    if 400 <= reply.status < 500:
        return Row(row_id, Verdict.PARTLY, seen)
    return Row(row_id, Verdict.NO, seen, action)
