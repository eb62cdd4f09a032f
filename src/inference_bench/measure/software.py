"""Which software took part in a measurement.

In:   the installed packages
Out:  versions by name
Read next by: loadtest, verify, labs.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from inference_bench import __version__

_PACKAGES: Final = ("numpy", "threadpoolctl", "msgspec", "uvloop", "xllamacpp", "vl-convert-python")


def software_versions(besides: Iterable[str] = ()) -> dict[str, str]:
    """This program, Python, the system, and the packages that take part in a measurement, those named besides among them."""
    versions = {"inference-bench": __version__, "python": platform.python_version(), "system": platform.platform()}
    for package in (*_PACKAGES, *besides):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
