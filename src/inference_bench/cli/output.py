"""What the commands share: printing JSON, and progress that is silent when nobody watches."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any, Final

_UNUSUAL: Final = re.compile(r"[^\n -~]")
_OVERLONG: Final = re.compile(r"(\S{60})\S{180,}(\S{60})")


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; a number that is not finite is a bug and raises."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    print(_UNUSUAL.sub(_escaped, text))


def _escaped(found: re.Match[str]) -> str:
    """A character that a terminal would act on, as JSON writes it in ASCII; any other stays."""
    char = found[0]
    return char if char.isprintable() else json.dumps(char)[1:-1].replace("\x7f", "\\u007f")


def one_line(text: str) -> str:
    """The text as one line of which a terminal shows every character: what it would act on becomes a mark."""
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in " ".join(text.split()))


def without_overlong(text: str) -> str:
    """The text with every overlong word cut in its middle, such as a file's name of thousands of letters."""
    return _OVERLONG.sub(lambda found: f"{found[1]}...{found[2]}", text)


class ProgressLine:
    """One line on stderr that is rewritten as work goes on; silent when stderr is not a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._width = 0

    def __call__(self, text: str) -> None:
        """Show what is happening now."""
        if not self._live:
            return
        line = one_line(text)[:98]
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)

    def done(self) -> None:
        """Clear the line."""
        if self._live and self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
