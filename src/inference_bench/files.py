"""How is a file that a person named said, opened and written, without harm to what stands there already?

In:   a path, a text
Out:  the file, whole or not at all; its name as it is said in a message
Leaves out: records that are appended one by one (measure.store), and what a file holds
Read next by: measure.store, verify, simulate.step_profile, cli.

A name may be more than a file: a link, a pipe, a device, this program's own output. A new file takes the place of an old one only
where that is a regular file, found through all links; anything else is written to as it stands and never replaced.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from inference_bench.errors import RequestError, StorageError

_MOST_SHOWN: Final = 120  # characters of a name in a message
_HEAD: Final = 40
_OWN_OUTPUTS: Final = (1, 2)
NOT_THERE: Final = "not there"
REGULAR: Final = "a file"
_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def shown_name(name: Path | str) -> str:
    """A file's name for a message: of one that is overlong, its beginning and its end."""
    text = str(name)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_HEAD]}...{text[_HEAD - _MOST_SHOWN :]}"


def require_file_name(name: str, what: str) -> str:
    """The name of a file that is to be read or written; asked before anything that takes long.

    Raises:   RequestError for a name that is empty, or longer than a file's may be
    """
    if not name.strip():
        raise RequestError(f"the {what} is named by an empty text; give the path of a file")
    try:
        Path(name).stat()
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise RequestError(
                f"the {what} {shown_name(name)!r} has a name that is longer than a file's may be"
            ) from None
    return name


def require_writable_name(name: str, what: str) -> str:
    """The name of a file that is to be written.

    Raises:   RequestError for an empty name, or a folder
    """
    require_file_name(name, what)
    if name.endswith(("/", os.sep)) or Path(name).is_dir():
        raise RequestError(f"the {what} {shown_name(name)!r} is a folder; give the path of a file")
    return name


def require_writable_place(name: str, what: str) -> str:
    """The same, where the file can also be made, and nothing stands there but a regular file.

    Raises:   RequestError
    """
    path = Path(require_writable_name(name, what))
    if path.exists() and not path.is_file():
        raise RequestError(f"the {what} {shown_name(name)!r} is there, and no regular file; give another path")
    return require_output_place(name, what)


def require_output_place(name: str, what: str) -> str:
    """The same, where what stands there may also be a pipe or a device, which is written to as it stands.

    Where:    a new file is made in the folder for a moment, since permissions alone do not say whether one can be
    Raises:   RequestError
    """
    path = Path(require_writable_name(name, what))
    found, shown = None, shown_name(name)
    with suppress(OSError):  # what cannot be reached is found out where the trial file is made
        found = path.stat()
    if found is not None and not os.access(path, os.W_OK):
        raise RequestError(f"the {what} {shown!r} may not be written; give another path")
    if found is not None and not stat.S_ISREG(found.st_mode):
        return name
    real = Path(os.path.realpath(path))
    if not real.parent.is_dir():
        raise RequestError(f"the {what} {shown!r} would lie in a folder that is not there; make it first")
    if not os.access(real.parent, os.W_OK):
        raise RequestError(f"the {what} {shown!r} may not be written; give another path")
    temporary = _beside(real)
    try:
        temporary.touch(exist_ok=False)
        temporary.unlink()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise RequestError(f"the {what} {shown!r} may not be written ({reason}); give another path") from None
    return name


def what_stands_at(path: Path | str) -> str:
    """What a name leads to, as a message says it: "a pipe"; "not there" for nothing."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads in a circle"
        if error.errno == errno.EACCES:
            return "in a folder that may not be read"
        return "a link to nothing" if os.path.islink(path) else NOT_THERE
    except ValueError:  # a null byte
        return NOT_THERE
    return _KINDS.get(stat.S_IFMT(mode), REGULAR)


def open_regular(path: Path) -> BinaryIO:
    """A file to be read; not one that reading could block on, such as a pipe, nor a folder.

    Raises:   OSError
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.open("rb")


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all.

    Where:    links are followed, and the file they lead to is replaced; a pipe, a device or this program's own output is
              written to as it is, and may have got a part of the text when that fails
    Raises:   StorageError
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        found = _status(path)
        if found is None or (stat.S_ISREG(found.st_mode) and _own_output(found) is None):
            _replace(Path(os.path.realpath(path)), content, None if found is None else stat.S_IMODE(found.st_mode))
        else:
            _write_in_place(path, content, _own_output(found))
    except OSError as error:
        raise StorageError(
            f"could not write {shown_name(path)}: {(error.strerror or type(error).__name__).lower()}"
        ) from None


def _status(path: Path) -> os.stat_result | None:
    """What stands there, through all links; None for nothing."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _own_output(found: os.stat_result) -> int | None:
    """Which of this program's own outputs it is, if any: what was printed before and after is kept."""
    for number in _OWN_OUTPUTS:
        with suppress(OSError):
            if os.path.samestat(found, os.fstat(number)):
                return number
    return None


def _replace(path: Path, content: bytes, mode: int | None) -> None:
    """A new file in the place of a regular one, or of none; it keeps the permissions of the old one."""
    temporary = _beside(path)
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # Ctrl-C too leaves nothing half written
        with suppress(OSError):
            temporary.unlink()
        raise


def _beside(path: Path) -> Path:
    """A name for a file in the same folder that nobody else uses."""
    return path.with_name(f".{path.name[:_HEAD]}.{os.getpid()}.{secrets.token_hex(4)}")


def _write_in_place(path: Path, content: bytes, number: int | None) -> None:
    """Into what stands there, which is no regular file, or is where this program prints."""
    if number is None:
        with path.open("wb", buffering=0) as file:
            _write_all(file.fileno(), content)
        return
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    _write_all(number, content)


def _write_all(number: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(number, rest) :]
