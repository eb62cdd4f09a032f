"""What goes into headers and nowhere else: an API key, and headers that the user adds.

In:   text as a person types it, or the name of a variable or file that holds it
Out:  ApiKey and SecretHeaders, whose values show in no repr, error, file or comparison
Leaves out: the headers this program sets itself (sender)
Read next by: target.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.measure.prompt_sources import read_text
from inference_bench.units import KIBI

MAX_HEADER_CHARS: Final = 8 * KIBI

_HIDDEN_KEY: Final = "[key]"
_SHORTEST_PIECE_CHARS: Final = 6
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_VALUE: Final = re.compile(r"[\x20-\x7e]+")
_OWN_HEADERS: Final = frozenset({
    "host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "upgrade", "te", "trailer",
    "expect", "accept", "accept-encoding", "user-agent",
})  # fmt: skip
_FROM_VARIABLE: Final = "env:"
_FROM_FILE: Final = "@"


def hide_secret(text: str, secret: str) -> str:
    """The text without the secret, in case a server echoes it; one that was cut off at the end goes too."""
    hidden = text.replace(secret, _HIDDEN_KEY)
    kept = hidden.removesuffix("…")
    for num_chars in range(len(secret) - 1, _SHORTEST_PIECE_CHARS - 1, -1):
        if kept.endswith(secret[:num_chars]):
            return kept[:-num_chars] + _HIDDEN_KEY
    return hidden


class ApiKey:
    """A secret that goes into one header and nowhere else: not into repr, errors, files or comparisons."""

    __slots__ = ("_secret",)

    def __init__(self, secret: str) -> None:
        if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
            raise RequestError("the API key must be printable ASCII without spaces; check how it was copied")
        self._secret = secret

    def __repr__(self) -> str:
        return "ApiKey(hidden)"

    def __reduce__(self) -> str:
        raise TypeError("an API key cannot be copied or stored")

    def authorization(self) -> str:
        """The value of the Authorization header."""
        return f"Bearer {self._secret}"

    def hide_in(self, text: str) -> str:
        """See `hide_secret`."""
        return hide_secret(text, self._secret)


class SecretHeaders(Mapping[str, str]):
    """Headers to add to each request; names may show, values never do.

    Raises:   RequestError for a name or value that cannot be a header, a name given twice, or one that this program sets
    """

    __slots__ = ("_values",)

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._values = dict(headers or {})
        for name, value in self._values.items():
            _check_header(name, value)
        if len({name.lower() for name in self._values}) < len(self._values):
            raise RequestError("a header is given twice; give each name once")

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"SecretHeaders({', '.join(self._values) or 'none'})"

    def __reduce__(self) -> str:
        raise TypeError("headers that may hold keys cannot be copied or stored")

    def hide_in(self, text: str) -> str:
        """The text without any value that is long enough to be a secret."""
        secrets = {part for value in self._values.values() for part in (value, value.rpartition(" ")[2])}
        for secret in sorted(secrets, key=len, reverse=True):
            if len(secret) >= _SHORTEST_PIECE_CHARS:
                text = hide_secret(text, secret)
        return text


def _check_header(name: str, value: str) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError("a header's name must be letters, digits and -_.~ without spaces, such as X-Api-Key")
    if name.lower() in _OWN_HEADERS:
        raise RequestError(f"the header {name} is set by this program")
    if (
        not isinstance(value, str)
        or len(value) > MAX_HEADER_CHARS
        or not _VALUE.fullmatch(value)
        or value != value.strip()
    ):
        raise RequestError(
            f"the value of the header {name} must be printable ASCII on one line, at most {MAX_HEADER_CHARS} characters"
        )


def parse_header(text: str, environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """A header as a person gives it: `Name: value`, `Name: env:VARIABLE`, or `Name: @FILE`.

    Where:    a key belongs into a variable or a file: what stands on a command line, others on the machine can read
    Raises:   RequestError, without the value
    """
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not _NAME.fullmatch(name):
        raise RequestError("a header is written Name: value, Name: env:VARIABLE or Name: @FILE")
    if value.startswith(_FROM_VARIABLE):
        variable = value.removeprefix(_FROM_VARIABLE)
        found = (os.environ if environ is None else environ).get(variable)
        if found is None:
            raise RequestError(f"the header {name} is to come from a variable of the environment that is not set")
        value = found.strip()
    elif value.startswith(_FROM_FILE):
        value = read_text(Path(value.removeprefix(_FROM_FILE)), f"file for the header {name}", MAX_HEADER_CHARS).strip()
    _check_header(name, value)
    return name, value
