"""The one way into the core for the page: a question as a dict of texts, an answer as a dict ready for JSON.

In:   {"view": name, "fields": {name: text}, "file": path or None, "width": "wide", "narrow" or None for both}
Out:  {"view", "answer", "html", "charts", "tables", "command", "files", "status"}, or {"view", "error": {"message", "field"}}
Leaves out: drawing, and everything that a browser is for
Read next by: page, and web/worker.js in the browser.

`answer` is what the command line's --json prints for the same question. Every figure that `html` and `charts` show was
computed by the same call. The same request gives the same JSON here and in a browser.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from inference_bench.bridge.fields import FieldError, Json, Values, View
from inference_bench.errors import InferenceBenchError

SCHEMA: Final = "inference-bench/page/1"
_VIEWS: Final = {
    "fit": "fit_view:FIT",
    "roofline": "roofline_view:ROOFLINE",
    "simulate": "simulate_view:SIMULATE",
    "plan": "plan_view:PLAN",
    "article": "article_view:ARTICLE",
}
_WIDTHS: Final = ("wide", "narrow", None)


def view(name: str) -> View:
    """A view by its name, loaded when first asked for.

    Raises:  FieldError
    """
    if name not in _VIEWS:
        raise FieldError(None, f"there is no view {name[:40]!r}; there are: {', '.join(_VIEWS)}")
    module, _, attribute = _VIEWS[name].partition(":")
    found: View = getattr(import_module(f"{__name__}.{module}"), attribute)
    return found


def views() -> tuple[View, ...]:
    """Every view, in the order of the page."""
    return tuple(map(view, _VIEWS))


def answer(request: object) -> Json:
    """The whole answer to a question: the last of its steps."""
    *_, last = steps(request)
    return last


def steps(request: object) -> Iterator[Json]:
    """An answer as it comes: {"progress": 0 to 1, "said": text} any number of times, answers with is_partial, the answer.

    Where:  a question that cannot be answered ends in one error; nothing is raised but for a mistake of this program
    """
    if not isinstance(request, Mapping):
        yield {"schema": SCHEMA, "view": "", "error": {"message": "a question is an object with a view", "field": None}}
        return
    name = str(request.get("view", ""))
    head: Json = {"schema": SCHEMA, "view": name}
    try:
        asked = view(name)
        width = request.get("width")
        if width not in _WIDTHS:
            raise FieldError(None, "the width is wide, narrow, or none for both")
        values = Values.read(asked, request.get("fields", {}), request.get("file"))
        for step in asked.answer(values, width):
            yield {**head, **_with_own_anchors(name, step)}
    except FieldError as error:
        yield {**head, "error": {"message": str(error), "field": error.field}}
    except InferenceBenchError as error:
        yield {**head, "error": {"message": str(error), "field": None}}


def _with_own_anchors(name: str, step: Json) -> Json:
    """The sections of an answer named after their view: the page holds the answers of all views."""
    html = step.get("html")
    return step if html is None else {**step, "html": html.replace('<section id="', f'<section id="{name}-answer-')}


class Steps:
    """The same for a caller that speaks JSON texts, one step a call."""

    def __init__(self, request: str) -> None:
        self._steps = steps(json.loads(request))

    def next(self) -> str | None:
        """The next step; None after the last. A mistake of this program becomes an error like any other."""
        try:
            return next((json.dumps(step, allow_nan=False) for step in self._steps), None)
        except Exception as error:
            said = f"a mistake of this program, not of yours ({type(error).__name__}); the last answer stands"
            return json.dumps({"schema": SCHEMA, "error": {"message": said, "field": None}})
