"""How is the page put together? One document that is complete before any script has run.

In:   the views of the bridge and their first answers, what draws, and what the scripts need to know
Out:  index.html
Leaves out: figures (bridge); what happens later (web/app.js)
Read next by: build.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from inference_bench import __version__, bridge
from inference_bench.bridge.drawings import slot
from inference_bench.bridge.fields import Json, View
from inference_bench.charts.grammar import PALETTE, Spec
from inference_bench.page.forms import form, lists
from inference_bench.report.html_pieces import origins, say

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "worker-src 'self'",
        "connect-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
    )
)
TITLE: Final = "Does it fit, how fast could it be, and what limits it?"
_ABOUT: Final = (
    "Every figure is computed on this machine, by the Python core of inference-bench that its tests hold. Nothing you type "
    "or drop is sent anywhere."
)
_NO_SCRIPT: Final = (
    "Scripts are off, so this page can only show its first answer and the article. Allow scripts for this page, or use the "
    "command line: pip install inference-bench."
)
_ASLEEP: Final = (
    "The scripts of this page did not start, so only its first answer and the article can be read. Reload it, or use the "
    "command line: pip install inference-bench."
)
_WAITING: Final = "Python is loading; this answer follows by itself."
_RUN_FIRST: Final = "Set what should be simulated, then start it."
_ICON: Final = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Cpath d='M1 14L8 4h7' "
    "fill='none' stroke='%231d5fbf' stroke-width='2.5'/%3E%3C/svg%3E"
)


@dataclass(frozen=True, slots=True)
class Asset:
    """A file that the document loads: its address and its integrity."""

    address: str
    integrity: str


def document(
    views: tuple[View, ...], draw: Callable[[Spec], str] | None, script: Asset, old: Asset, style: Asset
) -> str:
    """The whole of index.html; without `draw` the first answer has its tables and its charts come with the scripts.

    Where:  script is what modern browsers run, old what others do
    """
    data = json.dumps(_page_data(views), ensure_ascii=True).replace("<", "\\u003c")
    sections = "\n".join(_view(view, draw, is_first=view is views[0]) for view in views)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<meta name="description" content="{say(TITLE)} {say(_ABOUT)}">
<title>inference-bench: {say(TITLE.lower())}</title>
<link rel="icon" href="{_ICON}">
<link rel="stylesheet" href="{style.address}" integrity="{style.integrity}">
<script type="module" src="{script.address}" integrity="{script.integrity}"></script>
<script nomodule defer src="{old.address}" integrity="{old.integrity}"></script>
</head>
<body>
<a class="skip" href="#main">To the answer</a>
<header class="top">
<p class="brand">inference-bench <span class="quiet">{say(__version__)}</span></p>
<nav aria-label="Questions">{"".join(map(_link, views))}</nav>
</header>
<p id="status" class="quiet" role="status">{say(_ABOUT)}</p>
<p id="trouble" class="trouble" role="alert" hidden></p>
<p id="asleep" class="trouble">{say(_ASLEEP)}</p>
<noscript><p class="trouble">{say(_NO_SCRIPT)}</p></noscript>
<main id="main">
{sections}
</main>
<footer class="quiet"><p>{say(_ABOUT)} Where a figure comes from is written beside it:</p>{origins()}
<p>Tables of models and machines carry the date each row was read. <a href="licences.txt">Licences</a> of what this page
ships.</p></footer>
{lists()}
<script type="application/json" id="page-data">{data}</script>
</body>
</html>
"""


def _link(view: View) -> str:
    return f'<a href="#{view.name}" data-view="{view.name}">{say(view.title)}</a>'


def _page_data(views: tuple[View, ...]) -> Json:
    """What the scripts need to know; no figure."""
    return {
        "views": {
            view.name: {
                "title": view.title,
                "defaults": view.defaults,
                "live": view.is_live,
                "run": view.run_label,
            }
            for view in views
        },
        "palette": {role: list(colours) for role, colours in PALETTE.items()},
    }


def _view(view: View, draw: Callable[[Spec], str] | None, *, is_first: bool) -> str:
    hidden = "" if is_first else " hidden"
    name = view.name
    return f"""<section class="view" id="view-{name}" data-view="{name}" aria-labelledby="title-{name}"{hidden}>
<h1 id="title-{name}">{say(view.question)}</h1>
<div class="sides">
{form(view)}
<div class="side">
{_tools(view)}
<div class="answer" id="answer-{name}" tabindex="-1">{_first_answer(view, draw)}</div>
</div>
</div>
</section>"""


def _tools(view: View) -> str:
    """What can be taken along; the scripts bring it to life."""
    command = (
        '<details class="same"><summary>The same on the command line</summary><pre><code></code></pre>'
        '<button type="button" data-take="command" disabled>Copy command</button></details>'
        if view.command
        else ""
    )
    return (
        '<div class="tools"><button type="button" data-take="link" disabled>Copy link</button>'
        '<button type="button" data-take="json" disabled>Copy as JSON</button>'
        '<button type="button" data-take="csv" disabled>Download CSV</button>'
        f"{command}</div>"
    )


def _first_answer(view: View, draw: Callable[[Spec], str] | None) -> str:
    """What the page shows before it is alive: the default answer where that is quick to read, or that it will come."""
    if not view.is_live:
        return f'<p class="quiet">{say(_RUN_FIRST)}</p>'
    if not view.is_shown_first:
        return f'<p class="quiet">{say(_WAITING)}</p>'
    found = bridge.answer({"view": view.name, "fields": {}, "width": None})
    return _drawn(found["html"], found["charts"], draw)


def _drawn(html: str, charts: Mapping[str, Spec], draw: Callable[[Spec], str] | None) -> str:
    """The answer with every chart in its place."""
    if draw is None:
        return html
    for place, spec in charts.items():
        name, _, width = place.rpartition("-")
        empty = slot(name, width)
        html = html.replace(empty, empty.replace("></div>", f">{draw(spec)}</div>"))
    return html
