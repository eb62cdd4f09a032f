"""Where do the tokens of a document end, beside where its own parts do?

In:   the bytes of each token
Out:  how many tokens lie across parts of JSON, and how many are not whole characters
Read next by: tracing, naive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

STRUCTURE: Final = b'{}[]:,"'
_ALONE: Final = b"{}[]:,"
_SPACE: Final = b" \t\r\n"
_QUOTE, _BACKSLASH = ord('"'), ord("\\")


def element_ids(document: bytes) -> list[int]:
    """The number of the lexical element of JSON that each byte belongs to.

    Where:  an element is a structural character, a whole string with its quotes, a number or word, or white space
    Source: RFC 8259, section 2

    >>> element_ids(b'{"a":1}')
    [0, 1, 1, 1, 2, 3, 4]
    """
    ids: list[int] = []
    number, kind, in_string, is_escaped = -1, "", False, False
    for byte in document:
        if in_string:
            ids.append(number)
            in_string = is_escaped or byte != _QUOTE
            is_escaped = byte == _BACKSLASH and not is_escaped
            kind = "string"
            continue
        now = "alone" if byte in _ALONE else "quote" if byte == _QUOTE else "space" if byte in _SPACE else "word"
        number += now in ("alone", "quote") or now != kind
        ids.append(number)
        kind, in_string, is_escaped = now, now == "quote", False
    return ids


def spanning(tokens: Sequence[bytes]) -> list[bool]:
    """Whether each token has bytes of two or more lexical elements.

    >>> spanning([b'{"', b"a", b'":"', b"b", b'"}'])
    [True, False, True, False, True]
    """
    ids, start, found = element_ids(b"".join(tokens)), 0, []
    for token in tokens:
        found.append(len(set(ids[start : start + len(token)])) > 1)
        start += len(token)
    return found


def is_whole_text(token: bytes) -> bool:
    """Whether a token is whole characters by itself.

    >>> is_whole_text("é".encode()), is_whole_text("é".encode()[:1])
    (True, False)
    """
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def is_one_character_of_structure(token: bytes) -> bool:
    """Whether a mask that knows characters alone could allow a token: none of structure, or one and nothing else."""
    return len(token) == 1 or not any(byte in STRUCTURE for byte in token)
