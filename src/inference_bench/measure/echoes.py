r"""Where does a server's message begin to say again what was sent, also where it says it in another way?

In:   a short text from a server; a prompt, or something else that finds what must not show
Out:  the place from which on the text is to be dropped
Leaves out: which texts are hidden, and what stands in their place (target)
Read next by: target.

A server may echo a body as it was sent, with each letter that is not ASCII as \u8bf7, or put it into an address (%E8%AF%B7), a page
(&#35831;), a log line (\xe8\xaf\xb7) or base64, or into one of these within another. So it is the message that is decoded, which is
short, and not the prompt that is encoded, which may be long: a prompt is passed once, in steps of half a quote.
"""

from __future__ import annotations

import html
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import unquote

Find = Callable[[str], "int | None"]

_QUOTE_CHARS: Final = 24
_QUOTE_LETTERS: Final = 16
_QUOTE_FOREIGN_LETTERS: Final = 8  # of a script in which as many say more, and messages of servers are not written
_QUOTE_CUT_OFF: Final = 6  # at the end of a text that was cut off, if it is how the prompt begins
_NO_LETTER: Final = re.compile(r"[\W_]+")
_MOST_ROUNDS: Final = 3  # of escapes within escapes
_CUT_OFF: Final = "…"
_NO_CHAR: Final = "\ufffd"

# a run of each, so that the two halves of a pair and the bytes of a letter are decoded together
_ESCAPES: Final = re.compile(
    r"""(?P<utf16>(?<!\\)(?:\\+u[0-9a-fA-F]{4})+)"""
    r"""|(?P<point>(?<!\\)\\+(?:u\{[0-9a-fA-F]{1,6}\}|U[0-9a-fA-F]{8}))"""
    r"""|(?P<bytes>(?<!\\)(?:\\+x[0-9a-fA-F]{2})+)"""
    r"""|(?P<percent>(?:%[0-9a-fA-F]{2})+)"""
    r"""|(?P<html>&(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});)"""
    r"""|(?P<space>(?<!\\)\\+[nrtbfv])"""
    r"""|(?P<mark>(?<!\\)\\+(?=["'/`]))"""
)
_HEX: Final = {"utf16": re.compile("u(.{4})"), "bytes": re.compile("x(.{2})")}
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]{16,}")
_MOST_POINT: Final = 0x10FFFF


def first_place(text: str, find: Find) -> int | None:
    """The first place at which anything is found in a text: as it stands, without its escapes, or in base64."""
    shown, places = without_escapes(text)
    found = [find(text), *(places[at] for at in (find(shown),) if at is not None and at < len(places))]
    for begin, said in _in_base64(shown):
        if find(without_escapes(said)[0]) is not None:
            found.append(places[begin])
    return min((place for place in found if place is not None), default=None)


def without_escapes(text: str) -> tuple[str, list[int]]:
    """What a text shows once it is read as JSON, an address, a page or a log line, and where in it each letter stands."""
    shown, places = text, list(range(len(text)))
    for _ in range(_MOST_ROUNDS):
        before = shown
        shown, places = _one_round(shown, places)
        if shown == before:
            break
    return shown, places


def _one_round(text: str, places: list[int]) -> tuple[str, list[int]]:
    shown, at, end = [], [], 0
    for match in _ESCAPES.finditer(text):
        said = _decoded(match)
        shown += [text[end : match.start()], said]
        at += places[end : match.start()] + [places[match.start()]] * len(said)
        end = match.end()
    return "".join([*shown, text[end:]]), at + places[end:]


def _decoded(match: re.Match[str]) -> str:
    said, kind = match[0], match.lastgroup or ""
    if kind == "utf16":
        return bytes.fromhex("".join(_HEX[kind].findall(said))).decode("utf-16-be", "replace")
    if kind == "bytes":
        held = bytes.fromhex("".join(_HEX[kind].findall(said)))
        shown = held.decode("utf-8", "replace")
        return shown if shown.strip(_NO_CHAR) else held.decode("latin-1")
    if kind == "point":
        number = int(said.lstrip("\\uU").strip("{}"), 16)
        return chr(number) if number <= _MOST_POINT else " "
    if kind == "percent":
        return unquote(said, errors="replace")
    if kind == "html":
        return html.unescape(said)
    return " " if kind == "space" else ""


def _in_base64(text: str) -> Iterator[tuple[int, str]]:
    """What each run of letters is in base64, also where its beginning was cut off; nothing where that is no text."""
    for match in _BASE64.finditer(text):
        run = match[0].replace("-", "+").replace("_", "/")
        for skipped in range(4):
            kept = (len(run) - skipped) // 4 * 4
            said = b64decode(run[skipped : skipped + kept]).decode("utf-8", "replace")
            if said.count(_NO_CHAR) * 4 <= len(said):
                yield match.start(), said


class _Said:
    """A text of which a run of so many characters, or all of it, is a quote.

    Where:    each run holds a block of half its length that stands at a multiple of that, so that these are all there is to look up
    """

    def __init__(self, text: str, most_chars: int) -> None:
        self._text, self._num_chars = text, min(most_chars, len(text))
        self._step = step = max(1, (self._num_chars + 1) // 2)
        self._blocks = {text[at : at + step] for at in range(0, len(text) - step + 1, step)}

    def begin(self, shown: str, *, is_foreign: bool = False) -> int | None:
        """Where the first quote begins; a foreign one holds a letter that is not ASCII."""
        step, num_chars = self._step, self._num_chars
        blocks = (at for at in range(len(shown) - step + 1) if shown[at : at + step] in self._blocks)
        for start in sorted({at - back for at in blocks for back in range(step) if at >= back}):
            run = shown[start : start + num_chars]
            if len(run) == num_chars and not (is_foreign and run.isascii()) and run in self._text:
                return start
        return None

    def cut_off_begin(self, shown: str) -> int | None:
        """Where the beginning of what was said stands at the end of a text that was cut off."""
        for num_chars in range(min(self._num_chars, len(shown)), _QUOTE_CUT_OFF - 1, -1):
            if shown.endswith(self._text[:num_chars]):
                return len(shown) - num_chars
        return None


def without_quote(text: str, prompt: str) -> str:
    """The text, cut where it begins to quote the prompt, also in other case or with other marks between its letters."""
    letters = _NO_LETTER.sub("", prompt.casefold())
    exact, plain = _Said(" ".join(prompt.split()), _QUOTE_CHARS), _Said(letters, _QUOTE_LETTERS)
    foreign = None if letters.isascii() else _Said(letters, _QUOTE_FOREIGN_LETTERS)
    is_cut_off = text.endswith(_CUT_OFF)

    def find(shown: str) -> int | None:
        places = [(at, letter) for at, char in enumerate(shown) for letter in char.casefold() if letter.isalnum()]
        said = "".join(letter for _, letter in places)
        begins = [plain.begin(said)]
        if foreign is not None and not said.isascii():
            begins.append(foreign.begin(said, is_foreign=True))
        if is_cut_off:
            begins.append(plain.cut_off_begin(said))
        found = [places[begin][0] for begin in begins if begin is not None]
        begin = exact.begin(shown)
        return min(found if begin is None else [*found, begin], default=None)

    begin = first_place(text, find)
    return text if begin is None else f"{text[:begin]}[prompt]"
