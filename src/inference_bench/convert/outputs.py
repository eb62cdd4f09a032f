"""A file or a folder that is there whole or not at all, whatever happens while it is written.

In:   where it shall be, how many bytes it will take, whether what stands there may go
Out:  a writer that counts and hashes; after it, the finished file or folder in its place
Leaves out: what is written
Read next by: gguf_file, hugging_face, flow.

Everything is written beside its place under a name of its own and moved there at the end. An error, a full disk or an interruption
takes all of it away again.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from inference_bench.errors import InferenceBenchError, RequestError, StorageError
from inference_bench.files import require_file_name, shown_name
from inference_bench.units import KIBI, format_bytes

_BUFFER_BYTES: Final = 1024 * KIBI
_HEAD: Final = 40


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """One finished file.

    Unit:  bytes
    """

    name: str
    num_bytes: int
    sha256: str


class Writer:
    """Bytes on their way into one file, counted and hashed."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self.num_bytes = 0
        self._file = file
        self._name = name
        self._digest = hashlib.sha256()

    def write(self, data: bytes | memoryview) -> None:
        """Append."""
        self._file.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)

    def done(self) -> WrittenFile:
        """Bring everything to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return WrittenFile(self._name, self.num_bytes, self._digest.hexdigest())


def require_free_target(
    target: Path, source: Path, *, is_folder: bool, to_replace: str | None, own_files: tuple[str, ...]
) -> None:
    """Refuse a place that cannot be written, or holds what would be lost; asked before anything that takes long.

    Where:    to_replace is what to do to have an earlier result replaced, None where it may be; a folder is replaced only if
              it holds nothing but own_files
    Raises:   RequestError
    """
    shown = shown_name(str(target))
    require_file_name(str(target), "target")
    if not target.parent.is_dir():
        raise RequestError(
            f"there is no folder {shown_name(str(target.parent))!r} to write {target.name[:80]!r} into; make it first"
        )
    if not os.path.lexists(target):
        return
    if target.exists() and os.path.samefile(target, source):
        raise RequestError(f"{shown!r} is the file that is converted; give the result another name")
    if is_folder != target.is_dir() or target.is_symlink():
        found = "a link" if target.is_symlink() else "a folder" if target.is_dir() else "not a folder"
        raise RequestError(f"{shown!r} exists and is {found}; give another name")
    if is_folder and (extra := _foreign(target, own_files)):
        raise RequestError(
            f"the folder {shown!r} holds {extra[:80]!r}, which is not from a conversion; give another name"
        )
    if not is_folder and not target.is_file():
        raise RequestError(f"{shown!r} is not a regular file; give another name")
    if to_replace is not None and not (is_folder and not os.listdir(target)):
        raise RequestError(f"{shown!r} exists already; give another name, or {to_replace}")


def _foreign(folder: Path, own_files: tuple[str, ...]) -> str | None:
    """A file in the folder that no conversion writes."""
    return next((name for name in sorted(os.listdir(folder)) if name not in own_files), None)


@contextmanager
def whole_file(target: Path, num_bytes: int) -> Iterator[Writer]:
    """A file that takes its place when the block ends without an error.

    Raises:   StorageError
    """
    with _placed(target, num_bytes) as temporary:
        with temporary.open("xb", buffering=_BUFFER_BYTES) as file:
            yield Writer(file, target.name)
        temporary.replace(target)


@contextmanager
def whole_folder(target: Path, num_bytes: int) -> Iterator[Path]:
    """A folder that takes its place when the block ends without an error; an earlier one goes only then.

    Raises:   StorageError
    """
    with _placed(target, num_bytes) as temporary:
        temporary.mkdir()
        yield temporary
        if not target.exists():
            temporary.replace(target)
            return
        old = _beside(target)
        target.replace(old)
        try:
            temporary.replace(target)
        except OSError:
            old.replace(target)
            raise
        _remove(old)


@contextmanager
def file_in(folder: Path, name: str) -> Iterator[Writer]:
    """One file of a folder that is not in its place yet."""
    with (folder / name).open("xb", buffering=_BUFFER_BYTES) as file:
        yield Writer(file, name)


@contextmanager
def _placed(target: Path, num_bytes: int) -> Iterator[Path]:
    """A name beside the target, of which nothing is left when the block fails."""
    temporary = _beside(target)
    try:
        free_bytes = shutil.disk_usage(target.parent).free
        if free_bytes < num_bytes:
            raise StorageError(
                f"could not write {shown_name(target)}: it takes {format_bytes(num_bytes)}, and {format_bytes(free_bytes)} are "
                "free there; free some space or choose another place"
            )
        yield temporary
    except InferenceBenchError:
        _remove(temporary)
        raise
    except OSError as error:
        _remove(temporary)
        reason = (error.strerror or type(error).__name__).lower()
        raise StorageError(f"could not write {shown_name(target)}: {reason}; nothing was left there") from error
    except BaseException:
        _remove(temporary)
        raise


def _beside(target: Path) -> Path:
    return target.with_name(f".{target.name[:_HEAD]}.{os.getpid()}.{secrets.token_hex(4)}")


def _remove(path: Path) -> None:
    """A file or folder of this program's own making."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
