"""Does a server answer as it will be asked: found out, and said in one line, before any clock starts.

In:   a Target as a person gave it
Out:  the Target with the model that is served; else an error that says what is wrong and what to try
Leaves out: what a server refuses of a request's body (measure.warmup)
Read next by: session.

Only what is in doubt is asked for: a server that lists the model is believed. Where the list says otherwise, one request for
one token decides, since some servers take any name, and some list nothing. Messages never hold a key, and name no option.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import Final, NamedTuple

from inference_bench.errors import MeasurementError, RequestError, ServerError
from inference_bench.loadtest.preflight_probe import Reply, Unanswered, ask
from inference_bench.measure.blocking_http import AFTER_SILENCE
from inference_bench.measure.http1 import Timeouts
from inference_bench.measure.load import LoadOptions, run_load
from inference_bench.measure.prompts import PromptMaker
from inference_bench.measure.target import Target
from inference_bench.records import RequestStatus, Stage
from inference_bench.workload import RequestShape, closed_loop

MOST_WAIT_S: Final = 10.0
"""For each question: a healthy server says what it serves at once."""

ROUTES: Final = ("/v1/completions", "/v1/chat/completions", "/completion", "/generate")
_READ_ONLY: Final = ("/v1/models", "/health")
_MOST_LISTED: Final = 8
_MOST_NAME_CHARS: Final = 120


class Reached(NamedTuple):
    """A server that answers: the target with the model that is served, and its own list of models, None where it gave none."""

    target: Target
    models: object


def preflight(target: Target, timeout_s: float = 120.0) -> Target:
    """The target, with the model that is served where none was named; see `reach`."""
    return reach(target, timeout_s).target


def reach(target: Target, timeout_s: float = 120.0) -> Reached:
    """The target, with the model that is served where none was named, and what it lists.

    Where:    timeout_s is for the one request that may be sent; questions are given at most ten seconds each
    Raises:   RequestError for a model or route that is not there; ServerError where nothing usable answers
    """
    wait_s = min(timeout_s, MOST_WAIT_S)
    try:
        listed = ask(target, "GET", target.models_path, wait_s)
    except Unanswered:
        if target.endpoint.is_openai or _is_dead(target, wait_s):
            raise
        return Reached(target, None)
    names, models = _safe_names(target, listed), listed.value if listed.status == 200 else None
    if names and (target.model is None or target.model in names):
        takes_first = target.model is None and target.endpoint.is_openai
        return Reached(replace(target, model=names[0]) if takes_first else target, models)
    if not _answers(target, timeout_s):
        raise explain(target, timeout_s)
    return Reached(target, models)


def explain(target: Target, timeout_s: float = 120.0) -> RequestError | ServerError:
    """Why a request to this target is refused, from harmless questions; for a warm-up that failed, too."""
    wait_s = min(timeout_s, MOST_WAIT_S)
    try:
        listed, route = ask(target, "GET", target.models_path, wait_s), ask(target, "POST", target.path, wait_s)
    except Unanswered as failure:
        return failure
    where, names = target.address, _safe_names(target, listed)
    if listed.wants_key or route.wants_key:
        what = "the API key that was given" if target.secret_headers else "a request without an API key"
        return ServerError(
            f"{where} refuses {what} (HTTP {(route if route.wants_key else listed).status}); give the key in an environment "
            "variable or a file, and say which"
        )
    if 503 in (listed.status, route.status):
        return ServerError(f"{where} is not ready (HTTP 503): it may still be loading its model; ask again when it has")
    if not route.has_route:
        return _wrong_route(target, route, wait_s)
    if names and target.model is not None and target.model not in names:
        return RequestError(f"{where} serves no model {_shown(target.model)}; it lists {listing(names, target.model)}")
    return ServerError(f"{where} has the route {target.path}, but answers no request there; look into the server's log")


def served_names(listed: Reply) -> list[str]:
    """The models in a server's list; empty where it gives none."""
    models = listed.value.get("data") if isinstance(listed.value, dict) else None
    if listed.status != 200 or not isinstance(models, list):
        return []
    names = [model.get("id") for model in models if isinstance(model, dict)]
    return [name.encode("utf-8", "replace").decode() for name in names if isinstance(name, str) and name]


def _safe_names(target: Target, listed: Reply) -> list[str]:
    """The served names, without any in which the server says a key or a header's value again: names go into files."""
    return [name for name in served_names(listed) if target.hide_secrets(name) == name]


def listing(names: Sequence[str], asked: str) -> str:
    """Served models in words, those most like the one that was asked for first."""
    nearest = sorted(names, key=lambda name: -SequenceMatcher(None, asked.lower(), name.lower()).ratio())
    shown = ", ".join(map(_shown, nearest[:_MOST_LISTED]))
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _shown(name: str) -> str:
    """A name from outside as one printable piece of text."""
    cut = name if len(name) <= _MOST_NAME_CHARS else f"{name[:_MOST_NAME_CHARS]}…"
    return ascii(cut) if not cut.isprintable() else f"'{cut}'"


def _answers(target: Target, timeout_s: float) -> bool:
    """Whether one request for one token is answered."""
    options = LoadOptions(
        stage=Stage.WARMUP,
        group="preflight",
        timeouts=Timeouts(total_s=timeout_s),
        prompts=PromptMaker(0, salt="preflight"),
    )
    try:
        records = run_load(target, closed_loop("preflight", [RequestShape(1, 1)], 1, 1), options).records
    except MeasurementError:
        return False
    return any(record.status is RequestStatus.COMPLETED for record in records)


def _is_dead(target: Target, wait_s: float) -> bool:
    """Whether not even an empty request is answered at the route itself."""
    try:
        ask(target, "POST", target.path, wait_s)
    except Unanswered:
        return True
    return False


def _wrong_route(target: Target, route: Reply, wait_s: float) -> RequestError | ServerError:
    """What answered instead: the routes that do, or a page."""
    where = target.address
    found = _routes_that_answer(target, wait_s)
    others = [path for path in found if path in ROUTES and path != target.path]
    if others:
        return RequestError(
            f"{where} has no route {target.path} (HTTP {route.status}); it answers at {', '.join(found)}: choose the endpoint or "
            "the address to match"
        )
    if route.is_html:
        return ServerError(
            f"{where} answers with a web page instead of JSON (HTTP {route.status}): a proxy or a login stands before the "
            "server, or this is another server; check host, port and path"
        )
    only = f"; only {', '.join(found)} answers" if found else " nor at any other that a model server has"
    return RequestError(
        f"nothing answers at {where}{target.path} (HTTP {route.status}){only}: check the path in front of it, and the port"
    )


def _routes_that_answer(target: Target, wait_s: float) -> list[str]:
    asked = [("GET", path) for path in _READ_ONLY] + [("POST", path) for path in ROUTES]
    found, patience_s = [], wait_s
    for method, path in asked:
        try:
            reply = ask(target, method, path, patience_s)
        except Unanswered as failure:
            patience_s = AFTER_SILENCE * wait_s if failure.is_late else patience_s
            continue
        if reply.has_route and (method == "POST" or reply.status == 200):
            found.append(path)
    return found
