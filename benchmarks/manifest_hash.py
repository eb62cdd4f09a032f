"""Is hashing as fast as reading? The rate of hash_files beside plain sequential reading of the same file, in the same run.

    python benchmarks/manifest_hash.py [--bytes 2GB] [--files 4] [--folder DIR]

Each is done in turn, several times, with the file out of the cache (Linux: POSIX_FADV_DONTNEED) and with it in the cache; the quickest
of each is taken, since other work on the machine only adds. Out of the cache the disk decides, and the ratio should be 0.8 or more. In
the cache reading is copying memory, faster than any disk and than SHA-256 on one core. Run it on a quiet machine: two threads that
share a core with others show the others. The rate of a core is by its own clock of work, which others do not touch: SHA-256 cannot go
through one file quicker, and a disk that is slower than it is kept busy.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from inference_bench.manifest.hashing import PIECE_BYTES, NamedFile, hash_files
from inference_bench.units import format_bytes, format_fraction, format_si, parse_bytes, parse_count

_ROUNDS = 7


def _write(folder: Path, num_bytes: int, num_files: int) -> list[NamedFile]:
    files = []
    for number in range(num_files):
        path = folder / f"weights-{number:03d}.safetensors"
        with path.open("wb") as file:
            left = num_bytes // num_files
            while left > 0:
                left -= file.write(os.urandom(min(PIECE_BYTES, left)))
            file.flush()
            os.fsync(file.fileno())
        files.append(NamedFile(path.name, path))
    return files


def _evict(files: Sequence[NamedFile]) -> None:
    for each in files:
        with each.path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read(files: Sequence[NamedFile]) -> None:
    place = bytearray(PIECE_BYTES)
    for each in files:
        with each.path.open("rb", buffering=0) as file:
            while file.readinto(place):
                pass


def _one_thread(files: Sequence[NamedFile]) -> None:
    for each in files:
        with each.path.open("rb") as file:
            hashlib.file_digest(file, "sha256")


def _one_at_a_time(files: Sequence[NamedFile]) -> None:
    hash_files(files, at_once=1)


def _core_rate() -> float:
    """SHA-256 of what is in memory already, bytes a second of work of one core."""
    content = bytes(16 * PIECE_BYTES)
    times = []
    for _ in range(_ROUNDS):
        began_s = time.thread_time()
        hashlib.sha256(content).digest()
        times.append(time.thread_time() - began_s)
    return len(content) / min(times)


def _seconds(work: Callable[[Sequence[NamedFile]], object], files: Sequence[NamedFile], is_cold: bool) -> float:
    if is_cold:
        _evict(files)
    began_s = time.perf_counter()
    work(files)
    return time.perf_counter() - began_s


def _compare(files: Sequence[NamedFile], is_cold: bool) -> None:
    total = sum(each.path.stat().st_size for each in files)
    ways = {"reading alone": _read, "hash_files": hash_files, "one thread (file_digest)": _one_thread}
    if len(files) > 1:
        ways["one file at a time"] = _one_at_a_time
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_ROUNDS):
        for name, work in ways.items():
            taken[name].append(_seconds(work, files, is_cold))
    fastest = {name: min(times) for name, times in taken.items()}
    print(
        f"{len(files)} files of {format_bytes(total)}, {'out of' if is_cold else 'in'} the cache, the quickest of {_ROUNDS}:"
    )
    core, reading = _core_rate(), total / fastest["reading alone"]
    print(
        f"  SHA-256 on a core to itself {format_si(core, 'B/s'):>11}   {format_fraction(core / reading):>7} of reading"
    )
    for name, least_s in fastest.items():
        rate = total / least_s
        print(f"  {name:<26} {format_si(rate, 'B/s'):>12}   {format_fraction(rate / reading):>7} of reading")


def main() -> None:
    """Write the files, time each way of going through them, take them away again."""
    parser = argparse.ArgumentParser(description="Hashing beside reading.")
    parser.add_argument("--bytes", default="2GB", help="size of all files; default 2GB")
    parser.add_argument("--files", default="4", help="how many; default 4, as a model of some size has")
    parser.add_argument("--folder", help="where they are written; default: the folder for temporary files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files = _write(Path(folder), parse_bytes(options.bytes), parse_count(options.files))
        for is_cold in (True, False):
            _compare(files, is_cold)


if __name__ == "__main__":
    main()
