"""What may be asked of the cache lab, and how it is typed."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from inference_bench.cli import lab_cache
from inference_bench.errors import RequestError
from inference_bench.labs.cache.request import CacheRequest
from inference_bench.labs.settings import LabSettings


def typed(*words: str) -> CacheRequest:
    parser = argparse.ArgumentParser()
    lab_cache.add_options(parser)
    return lab_cache.request(parser.parse_args(words), LabSettings())


def test_without_options_the_mode_decides() -> None:
    assert (typed().emitted, typed().timed_lengths) == (64, (32, 64, 128, 256, 512, 1024))
    quick = CacheRequest(LabSettings(is_quick=True))
    assert (quick.emitted, quick.timed_lengths) == (24, (32, 64, 128, 256))


def test_options_are_read_and_a_prompt_is_its_files_text(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("Ahoy, grüezi", encoding="utf-8")
    found = typed("--tokens", "40", "--lengths", "16,64", "--prompt", str(tmp_path / "own.txt"))
    assert (found.emitted, found.timed_lengths, found.prompt_text) == (40, (16, 64), "Ahoy, grüezi")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"num_tokens": 2}, "give 3 to 1024"),
        ({"num_tokens": 1025}, "give 3 to 1024"),
        ({"prompt_text": " \n"}, "prompt is empty"),
        ({"lengths": (64, 32)}, "must go up"),
        ({"lengths": (32, 32)}, "must go up"),
        ({"lengths": (1, 32)}, "2 to 8192"),
        ({"lengths": tuple(range(2, 15))}, "at most 12"),
        ({"settings": LabSettings(dtype="bfloat16")}, "float32"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_allowed(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        CacheRequest(**asked)


def test_a_prompt_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "no.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RequestError, match="cannot be read as a UTF-8 text"):
        typed("--prompt", str(tmp_path / "no.txt"))
    with pytest.raises(RequestError, match="cannot be read"):
        typed("--prompt", str(tmp_path / "absent.txt"))


def test_a_prompt_as_long_as_a_book_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes(b"a" * 100_001)
    with pytest.raises(RequestError, match="longer than 100 kB"):
        typed("--prompt", str(tmp_path / "book.txt"))
    (tmp_path / "book.txt").write_bytes(b"a" * 100_000)
    assert len(typed("--prompt", str(tmp_path / "book.txt")).prompt_text or "") == 100_000
