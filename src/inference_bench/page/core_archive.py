"""Which part of this package runs in the browser, and as which bytes?

In:   the package's own files
Out:  one zip archive, the same bytes for the same files
Leaves out: every module that nothing in there imports, and those that need more than the standard library
Read next by: build.
"""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

_PACKAGE: Final = "inference_bench"
_WHEN: Final = (1980, 1, 1, 0, 0, 0)  # the same archive whenever it is made
# what answers, and what is imported by a name that is only known when it runs
_ROOTS: Final = ("bridge", "facts/families")
# numba and Ray: their modules are imported where those are installed, which they are in no browser
_NEED_MORE: Final = frozenset({"simulate/kernel/compiled_entry.py", "simulate/ray_tasks.py"})
_DATA: Final = (".json", ".jsonl")


def core_archive() -> bytes:
    """The modules that the bridge imports, at once or later, and the tables of their rooms."""
    found = dict(_members(files(_PACKAGE), ""))
    modules = _reached(found)
    rooms = {name.rpartition("/")[0] for name in modules}
    tables = {name for name in found if name.endswith(_DATA) and name.rpartition("/")[0].removesuffix("/data") in rooms}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(modules | tables):
            entry = zipfile.ZipInfo(f"{_PACKAGE}/{name}", _WHEN)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, found[name].read_bytes())
    return buffer.getvalue()


def _members(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            yield from _members(item, f"{prefix}{item.name}/")
        elif item.name.endswith((".py", *_DATA)):
            yield f"{prefix}{item.name}", item


def _reached(found: dict[str, Traversable]) -> set[str]:
    """The files of all modules that the roots import, directly or through others."""
    ahead = [name for name in found if name.startswith(tuple(f"{root}/" for root in _ROOTS)) and name.endswith(".py")]
    reached: set[str] = set()
    while ahead:
        name = ahead.pop()
        if name in reached or name in _NEED_MORE or name not in found:
            continue
        reached.add(name)
        ahead += _packages_of(name)
        for module in _imported(ast.parse(found[name].read_bytes())):
            path = module.replace(".", "/")
            ahead += [f"{path}.py", f"{path}/__init__.py"]
    return reached


def _packages_of(name: str) -> list[str]:
    """The modules that are loaded before this one: those of the packages it lies in."""
    parts = name.split("/")[:-1]
    return ["/".join([*parts[:depth], "__init__.py"]) for depth in range(len(parts) + 1)]


def _imported(node: ast.AST) -> Iterator[str]:
    """What a module imports of this package, but for types alone, by names within it."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{_PACKAGE}."):
        base = str(node.module).removeprefix(_PACKAGE).lstrip(".")
        yield from [base] if base else []
        yield from (f"{base}.{each.name}".lstrip(".") for each in node.names)
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)
