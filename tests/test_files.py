"""A file that a person names is written whole, through links, and never in the place of what is no regular file."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from inference_bench import files
from inference_bench.errors import RequestError, StorageError
from inference_bench.files import (
    open_regular,
    require_output_place,
    require_writable_name,
    require_writable_place,
    shown_name,
    what_stands_at,
    write_whole,
)


def test_a_new_file_and_an_old_one_hold_the_text_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for text in ("one\n", "2\n", "\udc80 is no text\n"):
        write_whole(path, text)
        assert path.read_text() == text.replace("\udc80", "\\udc80")
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_link_stays_a_link_and_what_it_leads_to_is_written(tmp_path: Path) -> None:
    target, link, again = tmp_path / "folder" / "target.txt", tmp_path / "link.txt", tmp_path / "again.txt"
    target.parent.mkdir()
    link.symlink_to("folder/target.txt")
    again.symlink_to("link.txt")
    write_whole(again, "through a link to nothing\n")
    assert target.read_text() == "through a link to nothing\n"
    write_whole(again, "anew\n")
    assert target.read_text() == "anew\n"
    assert link.is_symlink()
    assert again.is_symlink()


def test_the_permissions_of_an_old_file_stay(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("old")
    path.chmod(0o600)
    write_whole(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    path, got = tmp_path / "pipe", []
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()), daemon=True)
    reader.start()
    write_whole(path, "x" * 100_000)
    reader.join(10)
    assert got == [b"x" * 100_000]
    assert stat.S_ISFIFO(path.stat().st_mode)


@pytest.mark.parametrize("is_file", [True, False])
def test_what_goes_to_this_programs_own_output_stands_between_what_it_prints(tmp_path: Path, is_file: bool) -> None:
    code = (
        "from pathlib import Path; from inference_bench.files import write_whole\n"
        "print('before'); write_whole(Path('/dev/stdout'), 'between\\n'); print('after')"
    )
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        done = subprocess.run([sys.executable, "-c", code], stdout=file if is_file else subprocess.PIPE, check=True)
    assert (out.read_bytes() if is_file else done.stdout) == b"before\nbetween\nafter\n"


def test_a_full_disk_is_named_with_the_file_and_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.txt"
    path.write_text("old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageError, match=r"could not write .*a\.txt: no space left on device"):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_folder_an_empty_name_and_a_loop_of_links_are_refused(tmp_path: Path) -> None:
    for name in ("", "  ", str(tmp_path), f"{tmp_path}/new/"):
        with pytest.raises(RequestError, match="give the path of a file"):
            require_writable_name(name, "file of records")
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    for path in (loop, tmp_path, tmp_path / "no" / "such.txt"):
        with pytest.raises(StorageError):
            write_whole(path, "x")


def test_a_name_as_long_as_a_name_may_be_is_written_and_a_longer_one_is_said_in_short(tmp_path: Path) -> None:
    write_whole(tmp_path / ("n" * 255), "x")
    with pytest.raises(StorageError) as caught:
        write_whole(tmp_path / ("n" * 5_000), "x")
    assert len(str(caught.value)) < 250
    assert shown_name("short.csv") == "short.csv"
    assert shown_name("a" * 500 + ".csv").endswith("aaa.csv")


def test_a_pipe_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(tmp_path / "pipe")


def test_a_file_whose_folder_is_not_there_is_refused_before_it_is_written(tmp_path: Path) -> None:
    assert require_writable_place(str(tmp_path / "new.json"), "profile file") == str(tmp_path / "new.json")
    with pytest.raises(RequestError, match="would lie in a folder that is not there"):
        require_writable_place(str(tmp_path / "none" / "new.json"), "profile file")
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_only_says_it_can_be_written_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    assert require_output_place(str(tmp_path / "new.svg"), "chart file") == str(tmp_path / "new.svg")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "touch", full)
    for check in (require_output_place, require_writable_place):
        with pytest.raises(RequestError, match=r"the chart file .* may not be written \(read-only file system\)"):
            check(str(tmp_path / "new.svg"), "chart file")


def test_an_output_may_be_a_pipe_and_a_file_that_is_kept_may_not(tmp_path: Path) -> None:
    pipe = str(tmp_path / "pipe.svg")
    os.mkfifo(pipe)
    assert require_output_place(pipe, "chart file") == pipe
    with pytest.raises(RequestError, match="is there, and no regular file"):
        require_writable_place(pipe, "chart file")


def test_what_stands_at_a_name_is_said_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("none")
    (tmp_path / "through").symlink_to("pipe")
    found = {
        name: what_stands_at(tmp_path / name) for name in ("file", ".", "pipe", "loop", "dangling", "through", "none")
    }
    assert found == {
        "file": "a file",
        ".": "a folder",
        "pipe": "a pipe",
        "loop": "a link that leads in a circle",
        "dangling": "a link to nothing",
        "through": "a pipe",
        "none": "not there",
    }
    assert [what_stands_at(name) for name in ("/dev/null", "a\0b", "n" * 5_000)] == [
        "a device",
        "not there",
        "not there",
    ]
