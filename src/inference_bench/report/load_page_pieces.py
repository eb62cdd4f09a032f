"""What do the pages of `load` do with a wide and with a narrow screen? Tables side by side, and what can be folded away.

In:   HTML text
Out:  HTML text
Leaves out: what is in it (load_html)
Read next by: load_html.
"""

from __future__ import annotations

from collections.abc import Iterable

from inference_bench.report import html_pieces as pieces


def side_by_side(parts: Iterable[str]) -> str:
    """Narrow parts beside one another where the page is wide enough; nothing of empty ones."""
    kept = [part for part in parts if part]
    if len(kept) < 2:
        return "".join(kept)
    return f'<div class="pairs">{"".join(f"<div>{part}</div>" for part in kept)}</div>\n'


def broad(part: str) -> str:
    """A table of many columns, as wide as the page."""
    return f'<div class="broad">{part}</div>\n' if part else ""


def folded(summary: str, content: str) -> str:
    """What is there to be looked up: a line that opens it; nothing where there is nothing."""
    return f"<details><summary>{pieces.say(summary)}</summary>\n{content}</details>\n" if content else ""


def titled(title: str, content: str) -> str:
    """Under a small heading."""
    return f"<h3>{pieces.say(title)}</h3>\n{content}"
