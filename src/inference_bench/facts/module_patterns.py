"""Whether a list of patterns from a config names a module of a model: "lm_head", "model.layers.3.mlp*", "re:.*gate$".

In:   patterns as quantisers write them, and a module's name
Out:  yes or no
Leaves out: what is done with the module
Read next by: quantization.

A config may come from anywhere, so regular expressions are limited to forms that take little time on any name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

from inference_bench.errors import ModelConfigError
from inference_bench.facts.fields import shown

MAX_PATTERNS: Final = 4096
MAX_PATTERN_LENGTH: Final = 256
MAX_EXPRESSIONS: Final = 64  # regular expressions among them
_MAX_REPEATS: Final = 3  # of one regular expression: the time a match takes grows with the name's length to this power
_REPEAT: Final = re.compile(r"(?<!\\)[*+{]")
_REPEATED_GROUP: Final = re.compile(r"\)\s*[*+?{]|\(\?(?!:)|\\\d")


class ModulePatterns:
    """Patterns made ready to be asked about many modules.

    Where:  a pattern is a name, the end of one, or the name of what holds the module, with * wildcards;
            "re:" begins a regular expression, matched from the name's beginning

    >>> [m in ModulePatterns(["gate", "model.layers.1*.mlp", "re:.*head$"], "x") for m in
    ...  ("model.layers.2.mlp.gate", "model.layers.2.mlp.gate_proj", "layers.12.mlp.up_proj", "lm_head")]
    [True, False, True, True]
    """

    def __init__(self, patterns: Sequence[str], what: str) -> None:
        if len(patterns) > MAX_PATTERNS:
            raise ModelConfigError(f"{what} holds {len(patterns)} patterns; allowed: up to {MAX_PATTERNS}")
        self._by_layer: dict[str, list[list[str]]] = {}
        self._anywhere: list[list[str]] = []
        self._expressions: list[re.Pattern[str]] = []
        for pattern in patterns:
            self._add(pattern, what)

    def __contains__(self, module: str) -> bool:
        parts = module.split(".")
        if any(expression.match(module) for expression in self._expressions):
            return True
        if "layers" in parts:
            at = parts.index("layers")
            inside, layer = parts[at + 1 :], parts[at + 1] if at + 1 < len(parts) else ""
            for wanted in (*self._by_layer.get(layer, ()), *self._by_layer.get("*", ())):
                if _begin_alike(wanted, inside):
                    return True
        return any(_begin_alike(wanted, parts[start:]) for wanted in self._anywhere for start in range(len(parts)))

    def _add(self, pattern: str, what: str) -> None:
        if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
            raise ModelConfigError(f"{what} holds {shown(pattern)}; 1 to {MAX_PATTERN_LENGTH} characters are needed")
        if pattern.startswith("re:"):
            if len(self._expressions) >= MAX_EXPRESSIONS:
                raise ModelConfigError(f"{what} holds over {MAX_EXPRESSIONS} regular expressions; allowed: up to that")
            self._expressions.append(_expression(pattern[3:], what))
            return
        wanted = pattern.strip(".").split(".")
        if "layers" not in wanted or wanted[-1] == "layers":
            self._anywhere.append(wanted)
            return
        inside = wanted[wanted.index("layers") + 1 :]  # what stands before differs between classes of one model
        layer = inside[0] if inside[0].isdigit() else "*"
        self._by_layer.setdefault(layer, []).append(inside)


def _begin_alike(wanted: Sequence[str], parts: Sequence[str]) -> bool:
    """Part by part; what the module has beyond the pattern lies inside the module that the pattern names."""
    if len(wanted) > len(parts):
        return False
    return all(
        want == part or ("*" in want and fnmatchcase(part, want)) for want, part in zip(wanted, parts, strict=False)
    )


def _expression(text: str, what: str) -> re.Pattern[str]:
    if len(_REPEAT.findall(text)) > _MAX_REPEATS or _REPEATED_GROUP.search(text):
        raise ModelConfigError(
            f"{what} holds {shown(text)}; a regular expression with up to {_MAX_REPEATS} repeats, none of a group, "
            "is needed"
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError):
        raise ModelConfigError(f"{what} holds {shown(text)}, which is not a regular expression") from None
