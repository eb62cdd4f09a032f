"""Hashes are compared with hashlib's of the whole content, which FIPS 180-4 vectors hold elsewhere."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from inference_bench.errors import ModelFileError
from inference_bench.manifest.hashing import PIECE_BYTES, HashedFile, NamedFile, hash_files


def made(folder: Path, name: str, content: bytes) -> NamedFile:
    (folder / name).write_bytes(content)
    return NamedFile(name, folder / name)


@pytest.mark.parametrize(
    "num_bytes", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES, 3 * PIECE_BYTES + 7]
)
def test_a_file_of_any_size_is_hashed_whole_with_reading_ahead_or_without(tmp_path: Path, num_bytes: int) -> None:
    content = os.urandom(num_bytes)
    found = hash_files([made(tmp_path, "weights", content)])
    assert found == {"weights": HashedFile(num_bytes, hashlib.sha256(content).hexdigest())}


def test_several_files_at_once_keep_their_names_and_order(tmp_path: Path) -> None:
    files = [made(tmp_path, f"{number}", bytes([number]) * (PIECE_BYTES + number)) for number in range(5)]
    found = hash_files(files, at_once=4)
    assert list(found) == [file.name for file in files]
    assert [each.sha256 for each in found.values()] == [
        hashlib.sha256(file.path.read_bytes()).hexdigest() for file in files
    ]


def test_ten_thousand_files_are_hashed(tmp_path: Path) -> None:
    files = [made(tmp_path, f"{number:05d}", b"%d" % number) for number in range(10_000)]
    found = hash_files(files)
    assert len(found) == 10_000
    assert found["00007"].sha256 == hashlib.sha256(b"7").hexdigest()


def test_a_file_that_is_written_while_it_is_hashed_is_refused(tmp_path: Path) -> None:
    file = made(tmp_path, "weights", bytes(3 * PIECE_BYTES))

    def write_more(_text: str) -> None:
        with file.path.open("ab") as opened:
            opened.write(b"more")

    with pytest.raises(ModelFileError, match="changed while it was hashed"):
        hash_files([file], progress=write_more)


def test_a_file_that_is_replaced_while_it_is_hashed_is_refused(tmp_path: Path) -> None:
    file, new = made(tmp_path, "weights", bytes(3 * PIECE_BYTES)), made(tmp_path, "new", bytes(3 * PIECE_BYTES))
    with pytest.raises(ModelFileError, match="changed while it was hashed"):
        hash_files([file], progress=lambda _text: new.path.replace(file.path) if new.path.exists() else None)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "weights")
    with pytest.raises(ModelFileError, match="not a regular file"):
        hash_files([NamedFile("weights", tmp_path / "weights")])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"gone\.bin cannot be read: no such file"):
        hash_files([NamedFile("gone.bin", tmp_path / "gone.bin")])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    file = made(tmp_path, "weights", b"content")
    file.path.chmod(0)
    with pytest.raises(ModelFileError, match="weights cannot be read: permission denied"):
        hash_files([file])


def test_how_far_it_is_is_said_in_bytes_of_all_bytes(tmp_path: Path) -> None:
    said: list[str] = []
    hash_files([made(tmp_path, "weights", bytes(1000))], progress=said.append)
    assert said[0].startswith("hashing 1.00 kB of 1.00 kB (100%), 0 of 1 files")


def test_a_hash_that_is_known_spares_reading_the_file(tmp_path: Path) -> None:
    file = made(tmp_path, "weights", b"content")
    assert hash_files([file], known={"weights": "5" * 64}) == {"weights": HashedFile(7, "5" * 64)}


def test_ctrl_c_ends_the_hashing_and_leaves_no_thread(tmp_path: Path) -> None:
    before = threading.active_count()

    def press(_text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hash_files([made(tmp_path, "weights", bytes(4 * PIECE_BYTES))], progress=press)
    assert threading.active_count() == before
