"""A place that cannot be written to is refused before the work begins, whatever the command."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.commands import refused

NOBODY = "http://127.0.0.1:9"  # who waits for an answer from there ends with 3, and not with 2
SIMULATE = ("simulate", "--policy", "paged", "--rate", "1", "--count", "3")
CASES = [
    ((*SIMULATE, "--chart"), ".svg"),
    ((*SIMULATE, "--report"), ".html"),
    ((*SIMULATE, "--records"), ".jsonl"),
    ((*SIMULATE, "--save-profile"), ".json"),
    (("capacity", "--ttft-p99", "3s", "--chart"), ".svg"),
    (("capacity", "--ttft-p99", "3s", "--report"), ".html"),
    (("plan", "--report"), ".html"),
    (("score", "none.csv", "--chart"), ".svg"),
    (("lab", "machine", "--chart"), ".svg"),
    (("lab", "machine", "--report"), ".html"),
    (("verify", NOBODY, "--save-profile"), ".json"),
    (("load", NOBODY, "--report"), ".html"),
    (("check", NOBODY, "--report"), ".html"),
    (("shadow", NOBODY, "--trace", "none.csv", "--report"), ".html"),
    (("drill", NOBODY, "--report"), ".html"),
    (("drill", NOBODY, "--chart"), ".svg"),
    (("drill", NOBODY, "--record"), ".jsonl"),
    (("compare", "one", "two", "--chart"), ".svg"),
    (("manifest", "create", NOBODY, "--out"), ".json"),
]


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="a folder that says it can be written to, and cannot")
@pytest.mark.parametrize(("words", "kind"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_a_folder_in_which_nothing_can_be_made_is_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], kind: str
) -> None:
    assert "may not be written" in refused(capsys, *words, f"/proc/x{kind}")


@pytest.mark.parametrize(("words", "kind"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_a_folder_that_is_not_there_is_refused_and_not_made(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    assert "a folder that is not there" in refused(capsys, *words, str(tmp_path / "none" / f"x{kind}"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every folder")
@pytest.mark.parametrize(("words", "kind"), CASES, ids=[" ".join(words) for words, _ in CASES])
def test_a_folder_that_may_not_be_written_to_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], kind: str
) -> None:
    tmp_path.chmod(0o500)
    try:
        assert "may not be written" in refused(capsys, *words, str(tmp_path / f"x{kind}"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("url", ["127.0.0.1:9", "http://", "http://me:secret@127.0.0.1:9"])
def test_the_address_of_a_server_is_read_before_a_lab_begins(capsys: pytest.CaptureFixture[str], url: str) -> None:
    said = refused(capsys, "lab", "grammar", "--quick", "--url", url)
    assert "server address" in said
    assert "secret" not in said
