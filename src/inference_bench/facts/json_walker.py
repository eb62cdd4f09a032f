"""Walking the bytes of one large JSON object key by key, without building what it holds.

In:   the bytes, and what to call them in messages
Out:  keys, texts and small objects, each bounded; a ModelFileError for anything else
Leaves out: arrays and nested objects, which the files read here have no use for
Read next by: safetensors, safetensors_index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import shown
from inference_bench.units import KIBI

MAX_TEXT_BYTES: Final = KIBI

_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_STRING: Final = re.compile(rb'"((?:[^"\\\x00-\x1f]++|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*+)"')
_FLAT_OBJECT: Final = re.compile(rb"\{[^{}]{0,1024}\}")


class JsonWalker:
    """A position in the bytes of one JSON object, moved key by key."""

    def __init__(self, text: bytes, what: str) -> None:
        self.text = text
        self.what = what
        self.at = 0

    def error(self, detail: str) -> ModelFileError:
        """The error for text that says something it may not."""
        return ModelFileError(f"{self.what}: {detail}")

    def walk_keys(self) -> Iterator[str]:
        """Each key of the object at this position; the caller moves past the value before asking for the next."""
        self._expect(b"{")
        if self._at_next(b"}"):
            self.at += 1
            return
        while True:
            key = self.string("a key")
            self._expect(b":")
            yield key
            if not self._at_next(b","):
                break
            self.at += 1
        self._expect(b"}")

    def string(self, what: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
        """The text at this position."""
        self._skip_space()
        match = _STRING.match(self.text, self.at, self.at + max_bytes + 2)
        if match is None:
            raise self.error(
                f"at byte {self.at}: {what} should be text of up to {max_bytes} bytes, found {self._shown()}"
            )
        self.at = match.end()
        try:
            text = match[1].decode()
            if "\\" in text:
                text = str(json.loads(f'"{text}"'))
                text.encode()  # half of a surrogate pair is no text
        except UnicodeError:
            raise self.error(f"at byte {match.start()}: {what} is not UTF-8") from None
        return text

    def flat_object(self, what: str) -> dict[str, Any]:
        """The object at this position, which holds no other object."""
        self._skip_space()
        match = _FLAT_OBJECT.match(self.text, self.at)
        if match is None:
            raise self.error(f"at byte {self.at}: {what} should be a short object, found {self._shown()}")
        self.at = match.end()
        try:
            value = json.loads(match[0], object_pairs_hook=self._unique, parse_constant=self._no_constant)
        except (ValueError, RecursionError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise self.error(f"at byte {match.start()}: {what} is not valid JSON") from None
        return dict(value)

    def at_end(self) -> bool:
        """Nothing but blanks is left."""
        self._skip_space()
        return self.at == len(self.text)

    def at_object(self) -> bool:
        """The next value is an object."""
        return self._at_next(b"{")

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise self.error(f"the key {shown(key)} is there twice")
            found[key] = value
        return found

    def _no_constant(self, name: str) -> Any:
        raise self.error(f"{name} is not JSON")

    def _skip_space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def _at_next(self, mark: bytes) -> bool:
        self._skip_space()
        return self.text.startswith(mark, self.at)

    def _expect(self, mark: bytes) -> None:
        if not self._at_next(mark):
            raise self.error(f"at byte {self.at}: expected {mark.decode()!r}, found {self._shown()}")
        self.at += 1

    def _shown(self) -> str:
        return repr(self.text[self.at : self.at + 16]) if self.at < len(self.text) else "the end"
