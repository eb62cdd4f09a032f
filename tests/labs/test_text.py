from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_server import FakeHub, RemoteFile, running
from inference_bench.errors import DownloadError, InferenceBenchError, RequestError
from inference_bench.labs import text as text_module
from inference_bench.labs.text import (
    WIKITEXT,
    WIKITEXT_FILE,
    WIKITEXT_REVISION,
    default_text,
    read_text_file,
    shipped_text,
    wikitext2_test,
)

ROWS = ["", " = Robert Boulter = \n", "", " Robert Boulter is an English actor .\n"]


def say_nothing(_line: str) -> None:
    return


def write_parquet(path: Path, columns: dict[str, object]) -> Path:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table(columns), path)
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """WikiText-2 as the hub would give it, with other rows."""
    pytest.importorskip("huggingface_hub")
    file = RemoteFile(write_parquet(tmp_path / "test.parquet", {"text": ROWS}).read_bytes())
    with running(FakeHub({WIKITEXT: {WIKITEXT_FILE: file}}, commit=WIKITEXT_REVISION)) as fake:
        monkeypatch.setenv("HF_ENDPOINT", fake.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
        yield fake


def test_the_shipped_text_is_the_one_that_is_named() -> None:
    text = shipped_text()
    assert text.text.lstrip().upper().startswith("CHAPTER 1")
    assert "Call me Ishmael." in text.text
    assert text.sha256 == hashlib.sha256(text.text.encode()).hexdigest()
    assert text.licence == "public domain"


def test_wikitext_is_read_at_its_commit_and_joined_by_empty_lines(hub: FakeHub, tmp_path: Path) -> None:
    text = wikitext2_test(say_nothing, tmp_path / "cache")
    assert text.text == "\n\n = Robert Boulter = \n\n\n\n\n Robert Boulter is an English actor .\n"
    assert WIKITEXT_REVISION in text.source
    assert text.sha256 == hashlib.sha256(text.text.encode()).hexdigest()


def test_a_copy_that_is_here_serves_without_asking_the_hub(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = wikitext2_test(say_nothing, tmp_path / "cache")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    num_asked = len(hub.authorizations)
    assert default_text(say_nothing, tmp_path / "cache") == first
    assert len(hub.authorizations) == num_asked


def test_without_a_hub_the_shipped_text_is_read_and_says_why(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    said: list[str] = []
    text = default_text(said.append, tmp_path / "cache")
    assert text.text == shipped_text().text
    assert "WikiText-2 is the default and was not to be had" in text.note
    assert any("the shipped text is read" in line for line in said)
    with pytest.raises(DownloadError):
        wikitext2_test(say_nothing, tmp_path / "cache")


def test_a_hub_that_answers_with_something_else_is_no_wikitext(hub: FakeHub, tmp_path: Path) -> None:
    hub.repos[WIKITEXT][WIKITEXT_FILE] = RemoteFile(b"<html>log in</html>")
    with pytest.raises(DownloadError, match="not the file that was asked for"):
        wikitext2_test(say_nothing, tmp_path / "cache")


def test_a_user_s_text_is_known_by_name_hash_and_length_alone(tmp_path: Path) -> None:
    path = tmp_path / "secret folder" / "mine.txt"
    path.parent.mkdir()
    path.write_bytes("\ufeffZwölf Boxkämpfer\r\njagen".encode())
    text = read_text_file(path)
    assert text.text == "Zwölf Boxkämpfer\njagen"
    assert text.name == "mine.txt"
    assert text.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert "secret" not in f"{text.name}{text.source}{text.note}{text.licence}"


def test_a_parquet_file_s_rows_are_joined_by_empty_lines(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "mine.parquet", {"id": [1, 2, 3], "text": ["a", None, "b"]})
    assert read_text_file(path).text == "a\n\n\n\nb"


@pytest.mark.parametrize("columns", [{"words": ["a"], "id": [1]}, {"text": [1, 2]}])
def test_parquet_without_a_column_of_texts_is_refused_with_those_it_has(
    tmp_path: Path, columns: dict[str, object]
) -> None:
    with pytest.raises(RequestError, match=f"no column 'text' of texts; its columns: {next(iter(columns))} "):
        read_text_file(write_parquet(tmp_path / "mine.parquet", columns))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "is empty"),
        ("a.txt", b" \n\t\n", "is empty"),
        ("a.txt", b"ok\xff", r"not text in UTF-8 \(byte 2\)"),
        ("a.pdf", b"x", "kinds: .txt, .parquet"),
        ("a.parquet", b"PAR1 but no more", "cannot be read as Parquet"),
        ("a.parquet", b"", "cannot be read as Parquet"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(RequestError, match=said) as told:
        read_text_file(tmp_path / name)
    assert "\n" not in str(told.value)
    assert str(tmp_path) not in str(told.value)


@pytest.mark.parametrize("name", ["", "none.txt", "folder.txt", "loop.txt", "n" * 5000 + ".txt"])
def test_a_path_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "loop.txt").symlink_to("loop.txt")
    with pytest.raises(RequestError):
        read_text_file(name)


def test_a_text_that_is_too_large_is_refused_in_both_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_module, "MAX_TEXT_BYTES", 1000)
    plain, packed = tmp_path / "a.txt", tmp_path / "a.parquet"
    plain.write_text("a" * 1001)
    write_parquet(packed, {"text": ["a" * 900] * 2})  # one word in the file's dictionary, twice in the text
    for path in (plain, packed):
        with pytest.raises(InferenceBenchError, match="or more; allowed: up to"):
            read_text_file(path)
