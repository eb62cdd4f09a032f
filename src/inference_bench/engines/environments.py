"""The virtual environments of engines that have one of their own: where they are, and what a program in one is given.

In:   an environment that was named, or the variable that names it
Out:  its folder, its Python, the variables that an engine starts with
Leaves out: what is installed in it (vllm, sglang)
Read next by: vllm, sglang.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

_OF_THIS_PYTHON: Final = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
_OFFLINE: Final = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


def find_environment(named: Path | None, variable: str, default: str) -> Path:
    """The folder that was named, or that a variable names, or the default in this folder; it need not be there."""
    found = named or (Path(os.environ[variable]) if os.environ.get(variable) else Path(default))
    return found.absolute()


def python_of(venv: Path) -> Path:
    """Its Python."""
    return venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def engine_environment(without: Collection[str] = (), plus: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of this program without what belongs to its own Python, with nothing fetched."""
    kept = {name: value for name, value in os.environ.items() if name not in (*_OF_THIS_PYTHON, *without)}
    return {**kept, **_OFFLINE, **(plus or {})}
