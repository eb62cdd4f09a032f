"""What the names around a log may mean: of models and machines as tools write them, of the log's folders.

In:   a name as it was stated, the names of folders
Out:  names under which the same may be known here, likeliest first; devices and a weight format that a name states
Leaves out: which of them is known (served_log)
Read next by: log_meta.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from inference_bench.facts.names import fold_name

_MOST_PARTS: Final = 12  # of a folder's name, and in a row that are taken as one name
_LONGEST_RUN: Final = 6
_VENDOR: Final = re.compile(r"^(nvidia|amd|intel)\s+", re.IGNORECASE)
_MEMORY_KIND: Final = re.compile(r"[\s-]+(hbm\d\w*|gddr\d\w*)$", re.IGNORECASE)  # as drivers end a card's name
_HUB_FOLDER: Final = re.compile(r"models--(.+?)--([^/]+)")  # of the hub's cache
# how many of a card: 2xA100, A100x2, TP2; not the x of RTX4090 or of Mixtral-8x7B
_DEVICES: Final = re.compile(
    r"^(\d{1,2})x[-_ ]?(?=[a-z]|$)|(?<=[a-z\d])[-_ ]?x(\d{1,2})$|(?:^|[-_ ])tp[-_=]?(\d{1,2})$", re.I
)
# a tuned or converted edition has the same shapes
_EDITION: Final = re.compile(
    r"[-_.](instruct|chat|it|base|thinking|hf|bf16|fp16|\d{4}|dynamic|quantized|fp8|awq|nvfp4|mxfp4|gptq|int[48]|w4a16|w8a8|"
    r"w8a16|bnb|4bit|8bit)$",
    re.IGNORECASE,
)
# a weight format that the end of a model's name states
_FORMATS: Final = (
    (re.compile(r"[-_.]fp8(?![a-z0-9])", re.IGNORECASE), "fp8"),
    (re.compile(r"[-_.]awq(?![a-z0-9])", re.IGNORECASE), "awq"),
    (re.compile(r"[-_.]nvfp4(?![a-z0-9])", re.IGNORECASE), "nvfp4"),
    (re.compile(r"[-_.]mxfp4(?![a-z0-9])", re.IGNORECASE), "mxfp4"),
    (re.compile(r"[-_.](gptq[-_]int8|w8a8|w8a16|int8)(?![a-z0-9])", re.IGNORECASE), "int8"),
    (re.compile(r"[-_.](gptq|w4a16|int4)(?![a-z0-9])", re.IGNORECASE), "gptq"),
    (re.compile(r"[-_.]bnb[-_]4bit(?![a-z0-9])", re.IGNORECASE), "bnb-4bit"),
)


def machine_names(stated: str | None, folders: Sequence[str]) -> Iterator[str]:
    """What a machine may be called: as stated, without its vendor and kind of memory, and parts of the folders' names."""
    if stated is not None:
        yield stated
        bare = _VENDOR.sub("", stated)
        yield bare
        yield _MEMORY_KIND.sub("", bare)
    yield from _parts_of(folders)


def model_names(stated: str | None, folders: Sequence[str]) -> Iterator[str]:
    """What a model may be called: as stated, without whoever published it, without its edition, and parts of folders' names."""
    if stated is not None:
        cached = _HUB_FOLDER.search(stated)
        yield stated
        yield from _editions(cached[2] if cached else stated.rstrip("/").rsplit("/", 1)[-1])
    parts = tuple(_parts_of(folders))
    yield from parts
    for part in parts:
        yield from _editions(part)


def _editions(name: str) -> Iterator[str]:
    """A name, and what is left of it without one ending after another."""
    yield name
    while (shorter := _EDITION.sub("", name)) != name:
        name = shorter
        yield name


def _parts_of(folders: Sequence[str]) -> Iterator[str]:
    """The parts of the folders' names, whole ones and longer runs of them first, with and without a count of devices."""
    for folder in folders:
        parts = [part for part in re.split(r"[_\s]+|--", folder) if part][:_MOST_PARTS]
        yield folder
        for length in range(min(len(parts), _LONGEST_RUN), 0, -1):
            for start in range(len(parts) - length + 1):
                run = " ".join(parts[start : start + length])
                yield run
                yield _DEVICES.sub("", run)


def devices_named(folders: Sequence[str]) -> int | None:
    """How many devices the nearest folder that says so names, as in 2xA100, A100x2 or TP2."""
    for folder in folders:
        for part in re.split(r"[_\s]+|--", folder):
            if found := _DEVICES.search(part):
                return int(next(filter(None, found.groups()))) or None
    return None


def format_named(names: Sequence[str], model: str) -> str | None:
    """The weight format that one of the names states behind the model's own, as Qwen3-32B-AWQ does."""
    for name in names:
        begins = fold_name(name).startswith(fold_name(model)) and not re.search(r"[\s_]", name)
        if begins and (found := next((known for pattern, known in _FORMATS if pattern.search(name)), None)):
            return found
    return None
