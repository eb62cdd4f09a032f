"""Where is another tool? In a virtual environment that is named for it, in this one, or on the path.

In:   the tool's package, and the environment's INFERENCE_BENCH_<PACKAGE>, such as INFERENCE_BENCH_GUIDELLM=/opt/guidellm
Out:  the words that its command begins with; None where it is not
Leaves out: whether it works there (it is run to see)
Read next by: tools.

Nothing is imported or run to look: a program is a file, and so is a compiled client inside a package.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

_PACKAGES: Final = "lib/python3*/site-packages"  # below a virtual environment
_SGLANG_CLIENT: Final = "sglang/benchmark/serving.py"
_SGLANG_RUST_CLIENT: Final = "sglang/srt/rust_extensions/_bench*.so"
_SGLANG_HOST: Final = Path(__file__).with_name("sglang_host.py")


def place_variable(package: str) -> str:
    """The environment variable that names a tool's virtual environment."""
    return f"INFERENCE_BENCH_{package.upper()}"


def find_program(package: str) -> list[str] | None:
    """A program called like its package, in bin of the environment; without a named one also on the path."""
    named = os.environ.get(place_variable(package))
    program = shutil.which(package, path=str(_place(package) / "bin"))
    if program is None and named is None:
        program = shutil.which(package)
    return None if program is None else [program]


def find_vllm_rust(package: str) -> list[str] | None:
    """The compiled client that lies in vLLM's package."""
    found = _packaged(package, "vllm/vllm-rs")
    return None if found is None or not os.access(found, os.X_OK) else [str(found)]


def find_sglang(package: str) -> list[str] | None:
    """The client in SGLang's package, run as a module, which loads the whole of it."""
    python = _python(package)
    is_there = python is not None and _packaged(package, _SGLANG_CLIENT) is not None
    return [str(python), "-m", "sglang.benchmark.serving"] if is_there else None


def find_sglang_rust(package: str) -> list[str] | None:
    """The compiled client in SGLang's package, an extension module of the Python that it is installed for."""
    python, found = _python(package), _packaged(package, _SGLANG_RUST_CLIENT)
    return None if python is None or found is None else [str(python), str(_SGLANG_HOST), str(found)]


def find_python_with(package: str) -> str | None:
    """The Python that a library is installed for."""
    python = _python(package)
    return None if python is None or _packaged(package, f"{package}/__init__.py") is None else str(python)


def _place(package: str) -> Path:
    return Path(os.environ.get(place_variable(package), sys.prefix))


def _python(package: str) -> Path | None:
    python = _place(package) / "bin" / "python"
    return python if python.exists() else None


def _packaged(package: str, pattern: str) -> Path | None:
    return next(iter(sorted(_place(package).glob(f"{_PACKAGES}/{pattern}"))), None)
