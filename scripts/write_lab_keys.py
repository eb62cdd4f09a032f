"""Write the keys of `lab NAME --json` into docs/json.md: the fields of each result's type, and what each type says of itself.

    python scripts/write_lab_keys.py [--check]

They stand between two lines of that page; --check writes nothing and ends with 1 where they are not what the types say.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from inference_bench.cli.lab_options import LABS
from inference_bench.files import write_whole
from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead

PAGE: Final = Path(__file__).parent.parent / "docs" / "json.md"
BEGIN: Final = "<!-- keys of the labs -->"
END: Final = "<!-- end of the keys of the labs -->"
_WHERE: Final = re.compile(r"\.?\s*Where:\s*")
_NONE: Final = re.compile(r"\bNone\b")
_OF_ALL: Final = {"head": LabHead, "checks": tuple[Check, ...]}


def result_type(lab: str) -> type[Any]:
    """The type of a lab's result."""
    found: type[Any] = getattr(import_module(f"inference_bench.labs.{lab}.result"), f"{lab.capitalize()}Result")
    return found


def section() -> str:
    """The whole of what stands between the two lines."""
    lines = ["| result | key | holds |", "|---|---|---|"]
    lines += [f"| all | {' | '.join(row)} |" for row in _rows_of(_OF_ALL)]
    for lab in LABS:
        own = {name: hint for name, hint in get_type_hints(result_type(lab)).items() if name not in _OF_ALL}
        lines += [f"| `{lab}` | {' | '.join(row)} |" for row in _rows_of(own)]
    return "\n".join(lines)


def _rows_of(hints: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """A row for each field, with what its own type says; plain values share one."""
    plain = [f"`{name}{_shape(hint)}`" for name, hint in hints.items() if _inner(hint) is None]
    if plain:
        yield ", ".join(plain), "plain values"
    for name, hint in hints.items():
        inner = _inner(hint)
        if inner is not None:
            yield f"`{name}{_shape(hint)}`", _meaning(inner)


def _shape(hint: Any) -> str:
    """How a value of that type looks: {keys}, [{keys}], [], or nothing for a plain one."""
    if dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint)
        return "{" + ",".join(f"{field.name}{_shape(hints[field.name])}" for field in dataclasses.fields(hint)) + "}"
    origin, inside = get_origin(hint), [each for each in get_args(hint) if each not in (type(None), Ellipsis)]
    if origin in (Union, types.UnionType):
        return _shape(inside[0]) if inside else ""
    if origin in (tuple, list, frozenset, set, Sequence):
        return f"[{_shape(inside[0]) if inside else ''}]"
    if origin in (dict, Mapping):
        return "{<name>" + (f":{_shape(inside[-1])}" if _shape(inside[-1]) else "") + "}"
    return ""


def _inner(hint: Any) -> type[Any] | None:
    """The dataclass that a type is, or holds."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return hint
    return next((found for each in get_args(hint) if (found := _inner(each)) is not None), None)


def _meaning(of: type[Any]) -> str:
    """The first line of a type's docstring, and what it says of where, as one cell."""
    text = of.__doc__ or ""
    first, _, rest = text.partition("\n")
    _, where, said = rest.partition("Where:")
    more = " ".join(said.split("Unit:")[0].split("Raises:")[0].split("Source:")[0].split()) if where else ""
    whole = _WHERE.sub("; ", first.strip().rstrip(".")) + (f"; {more}" if more else "")
    return _NONE.sub("null", whole).replace("|", "\\|").replace("<", "&lt;")


def with_section(text: str) -> str:
    """The page with these keys.

    Raises:  ValueError for a page without exactly the two lines
    """
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise ValueError(f"the page needs the line {BEGIN} and after it the line {END}, once each")
    before, _, rest = text.partition(f"{BEGIN}\n")
    return f"{before}{BEGIN}\n{section()}\n{END}{rest.partition(END)[2]}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the keys, or look whether they are those of the types."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where the page is not up to date")
    options = parser.parse_args(arguments)
    text = PAGE.read_text(encoding="utf-8")
    if options.check:
        return int(with_section(text) != text)
    write_whole(PAGE, with_section(text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
