"""Which words may stand in a record? Names from a list, ids of a pattern, and the few kinds of end that there are.

In:   the lists of a service's own applications and teams; what an Answer says
Out:  the word, or OTHER, or a refusal: never free text
Leaves out: what is recorded (recorder)
Read next by: recorder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.operate.answers import AttemptEnd
from inference_bench.records import RequestStatus

OTHER: Final = "other"
FINISH_REASONS: Final = frozenset(
    {
        "stop",
        "length",
        "content_filter",
        "tool_calls",
        "function_call",
        "eos_token",
        "stop_sequence",
        "abort",
        "cancelled",
        "error",
    }
)
ERROR_KINDS: Final = frozenset({*AttemptEnd, *RequestStatus})
REQUEST_ID: Final = r"[A-Za-z0-9](?=[A-Za-z0-9._:-]*\d)[A-Za-z0-9._:-]{3,63}"  # a word alone, without a digit, is no id

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODEL: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,95}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FOLDERS: Final = re.compile(r".*[\\/]")


def known_names(names: Iterable[str], what: str) -> frozenset[str]:
    """A service's own list.

    Raises:   RequestError for a name that is a sentence, or is empty
    """
    found = frozenset(names)
    for name in sorted(found):
        if not _NAME.fullmatch(name):
            raise RequestError(
                f"the {what} {name[:40]!r} is no name for a record; give letters, digits, '.', '_' and '-', at most 64, "
                "beginning with a letter or a digit"
            )
    return found


def listed(name: str | None, known: frozenset[str]) -> str | None:
    """A name of the list, OTHER for one that is not in it, None for none."""
    return name if name is None or name in known else OTHER


def model_name(name: str | None) -> str | None:
    """What a server calls its model, without the folders of a path, which tell who runs it; OTHER for what is no name."""
    if name is None:
        return None
    if name.startswith(("/", "~", ".")) or "\\" in name or name[1:2] == ":":
        name = _FOLDERS.sub("", name)
    return name if _MODEL.fullmatch(name) else OTHER


def endpoint_name(name: str | None) -> str | None:
    """A caller's own name of an endpoint; OTHER for what is no name, such as an address with a key in it."""
    return name if name is None or _NAME.fullmatch(name) else OTHER


def digest(text: str | None) -> str | None:
    """A SHA-256 in hexadecimal digits; None for what is none."""
    return text if text is not None and _SHA256.fullmatch(text) else None


def finish_reason(reason: str | None) -> str | None:
    """One of the known reasons, or OTHER."""
    return reason if reason is None or reason in FINISH_REASONS else OTHER


def error_kind(error: str | None) -> str | None:
    """One of the known kinds; OTHER for a sentence, which may hold what was said."""
    return error if error is None or error in ERROR_KINDS else OTHER
