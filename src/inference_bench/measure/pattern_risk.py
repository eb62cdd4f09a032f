"""Could a regular expression take for ever on some text?

In:   a pattern that a user's schema holds
Out:  why it is not tried, or None when it is harmless enough
Leaves out: proof: a pattern that is turned down may be fine
Read next by: text_checks.

Python's matcher goes back and tries again. A repeated group that repeats or branches inside can be split up in as many
ways as there are numbers of n bits. Beside others, each open-ended repeat costs one more factor of the text's length, as
does a pattern that may begin anywhere, and each choice costs one more factor of two.
"""

from __future__ import annotations

import re
from typing import Final

MAX_PATTERN_LENGTH: Final = 1000
MOST_BITS: Final = 27  # of the number of ways to match that may have to be tried
REPEAT_BITS: Final = 9  # a repeat over the 500 characters that are matched at most

_CLASS: Final = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\.", re.DOTALL)
_GROUP_HEAD: Final = re.compile(r"\(\?(?:[aiLmsux-]*:|[=!>]|<[=!]|P?<\w+>)")
_REPEAT: Final = re.compile(r"(?:[*+?]|\{(\d*)(,?)(\d*)\})[?+]?")


def explain_risk(pattern: str) -> str | None:
    """Why this pattern is not tried; None when it is."""
    if len(pattern) > MAX_PATTERN_LENGTH:
        return f"a pattern of more than {MAX_PATTERN_LENGTH} characters"
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return "a pattern that cannot be read here"
    plain = _GROUP_HEAD.sub("(", _CLASS.sub("x", _ESCAPE.sub("x", pattern)))
    if _has_risky_group(plain):
        return "a pattern that repeats what repeats or branches inside"
    freedoms = [_freedom(found) for found in _REPEAT.finditer(plain)]
    num_choices = freedoms.count(1) + plain.count("|")
    num_repeats = sum(freedom > 1 for freedom in freedoms) + (not pattern.startswith("^"))
    if num_repeats * REPEAT_BITS + num_choices > MOST_BITS:
        return "a pattern with more ways to match than can be tried"
    return None


def _has_risky_group(plain: str) -> bool:
    """Whether a group that is repeated has a repeat or a branch inside, at any depth."""
    is_varied = [False]  # of the whole and of each open group, whether one text can match it in several ways
    at = 0
    while at < len(plain):
        repeat = _REPEAT.match(plain, at)
        if plain[at] == "(":
            is_varied.append(False)
        elif plain[at] == ")" and len(is_varied) > 1:
            varied = is_varied.pop()
            if varied and _repeats_often(_REPEAT.match(plain, at + 1)):
                return True
            is_varied[-1] = is_varied[-1] or varied
        elif plain[at] == "|" or (repeat and _freedom(repeat)):
            is_varied[-1] = True
        at = repeat.end() if repeat else at + 1
    return False


def _repeats_often(repeat: re.Match[str] | None) -> bool:
    return repeat is not None and repeat[0][0] != "?" and repeat[0] not in ("{1}", "{0,1}")


def _freedom(repeat: re.Match[str]) -> int:
    """In how many ways beside one it may repeat: 0 when exactly so often, 1 for a choice, 2 for more."""
    if repeat[0][0] != "{":
        return 1 if repeat[0][0] == "?" else 2
    least, comma, most = repeat.groups()
    if not comma:
        return 0
    return min(2, int(most) - int(least or 0)) if most else 2
