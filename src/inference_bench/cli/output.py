"""What the commands share: printing JSON, and progress that is silent when nobody watches."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any


def print_json(value: Mapping[str, Any]) -> None:
    """One JSON object on stdout; a number that is not finite is a bug and raises."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


class ProgressLine:
    """One line on stderr that is rewritten as work goes on; silent when stderr is not a terminal."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._width = 0

    def __call__(self, text: str) -> None:
        """Show what is happening now."""
        if not self._live:
            return
        line = " ".join(text.split())[:98]
        print(f"\r{line.ljust(self._width)}", end="", file=sys.stderr, flush=True)
        self._width = len(line)

    def done(self) -> None:
        """Clear the line."""
        if self._live and self._width:
            print(f"\r{' ' * self._width}\r", end="", file=sys.stderr, flush=True)
            self._width = 0
