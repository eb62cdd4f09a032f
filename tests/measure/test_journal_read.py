"""A journal in any state is read without harm: cut short it loses its end, damaged it says where."""

from __future__ import annotations

import os
import random
import re
import time
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.errors import RunFolderError
from inference_bench.measure.journal import Journal
from inference_bench.measure.journal_read import NEVER_ENDED, JournalContent, read_journal
from inference_bench.records import RequestRecord

from .test_journal import RECORD

BEGINNING = b"inference-bench journal 1\n"


def small_journal(path: Path) -> list[int]:
    """A journal of every kind of item; returns the places where a frame ends."""
    ends = []
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for number in range(3):
            journal.append(replace(RECORD, request_id=f"r{number}"))
            ends.append(path.stat().st_size)
        journal.started("a", 3.0, 3.0)
        journal.started("b", 3.0, 3.0)
        ends.append(path.stat().st_size)
        journal.chunks("a", [3.5, 4.0], [1, 2], "rc")
        journal.chunks("b", [3.5])
        ends.append(path.stat().st_size)
        journal.append(replace(RECORD, request_id="b", chunk_times_s=(3.25, 4.5)))
        ends.append(path.stat().st_size)
    return ends


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("journal") / "j"
    small_journal(path)
    return path.read_bytes()


def ended(records: tuple[RequestRecord, ...]) -> list[str]:
    return [record.request_id for record in records if record.error != NEVER_ENDED]


def test_a_journal_cut_at_any_byte_keeps_all_before_it(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "j"
    ends = small_journal(path)
    assert ended(read_journal(path).records) == ["r0", "r1", "r2", "b"]
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        content = read_journal(path)
        num_whole = sum(end <= cut for end in ends)
        assert ended(content.records) == ["r0", "r1", "r2", "b"][: min(num_whole, 3) + (num_whole >= len(ends))]
        assert content.num_bytes + content.num_dropped_bytes == cut
        assert content.num_bytes >= max((end for end in ends if end <= cut), default=0)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_changed_byte_is_never_a_changed_record(
    tmp_path_factory: pytest.TempPathFactory, whole: bytes, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.journal"
    at = data.draw(st.integers(0, len(whole) - 1))
    path.write_bytes(whole[:at] + bytes((whole[at] ^ data.draw(st.integers(1, 255)),)) + whole[at + 1 :])
    content = read_or_refusal(path)
    if isinstance(content, str):
        found = re.search(r"damaged at byte (\d+)", content)
        assert found is not None or at < len(BEGINNING)
        assert found is None or int(found[1]) <= at
        return
    assert content.num_bytes <= at  # what was changed is the end
    assert content.num_dropped_bytes > 0
    assert set(ended(content.records)) <= {"r0", "r1", "r2", "b"}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_bytes_of_any_kind_are_read_as_nothing_or_refused(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes, checked: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "garbage.journal"
    body = framed(garbage) if checked and garbage else garbage
    path.write_bytes(BEGINNING + body)
    content = read_or_refusal(path)
    if isinstance(content, str):
        assert "damaged at byte" in content
    else:
        assert content.num_bytes + content.num_dropped_bytes == len(BEGINNING) + len(body)


def read_or_refusal(path: Path) -> JournalContent | str:
    try:
        return read_journal(path)
    except RunFolderError as error:
        return str(error)


def framed(body: bytes) -> bytes:
    """A frame by its description in docs/results.md, not by the code."""
    length, rest = bytearray(), len(body)
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    length.append(rest)
    return bytes(length) + crc32(body, len(body)).to_bytes(4, "little")[:3] + body


def test_the_bytes_are_as_they_are_described(tmp_path: Path) -> None:
    start = b'{"request_id":"a","planned_s":134217728,"sent_s":134217728}'  # 1 s is 2^27 ticks
    end = b'{"end_s":402653184,"output_tokens":3}'
    chunks = bytes((0x0A, 2, 1)) + (1 << 26).to_bytes(4, "little") + (1 << 27).to_bytes(4, "little")
    late = bytes((0x0D,)) + (1 << 33).to_bytes(8, "little")
    path = tmp_path / "j"
    path.write_bytes(
        BEGINNING
        + framed(bytes((0x00, len(start))) + start)
        + framed(chunks + late)
        + framed(bytes((0x01, len(end))) + end)
    )
    (record,) = read_journal(path).records
    assert (record.request_id, record.planned_s, record.sent_s, record.end_s) == ("a", 1.0, 1.0, 3.0)
    assert (record.chunk_times_s, record.chunk_tokens, record.output_tokens) == ((1.5, 2.5, 66.5), (1, 1, 1), 3)


DAMAGED_ITEMS = {
    "an unknown kind": b"\x05",
    "an end without a start": b"\x01\x02{}",
    "chunks without a start": b"\x09\x00\x00\x00\x00",
    "a start where one is": b"\x00\x02{}\x00\x02{}",
    "a field that no record has": b'\x00\x0c{"prompt":1}',
    "a time that is text": b'\x00\x10{"planned_s":"0"}',
    "no JSON": b"\x00\x01{",
    "a list": b"\x00\x02[]",
    "a text longer than its frame": b"\x00\x7f{}",
    "a length that never ends": b"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    "more chunks than its frame has": b"\x00\x02{}\x08\xff\x1f\x00\x00",
    "more chunks than any item has": b"\x00\x02{}\x08\xff\xff\xff\xff\x0f",
    "no chunks": b"\x00\x02{}\x08\x00",
    "an unknown way to write tokens": b"\x00\x02{}\x0b\x1f\x00\x00\x00\x00",
    "deep nesting": b"\x00\xff\x3f" + b"[" * 8191,
    "groups that are no list": b'\x03\x11{"void_groups":1}',
    "a number of digits without end": b"\x00\xff\x3f" + b'{"index":' + b"1" * 8182,
}


@pytest.mark.parametrize("body", DAMAGED_ITEMS.values(), ids=DAMAGED_ITEMS.keys())
def test_what_no_writer_writes_is_refused_with_its_place(tmp_path: Path, body: bytes) -> None:
    good = framed(b'\x10\x12{"request_id":"x"}')
    (tmp_path / "j").write_bytes(BEGINNING + good + framed(body) + good)
    place = len(BEGINNING) + len(good)
    with pytest.raises(RunFolderError, match=f"damaged at byte {place} "):
        read_journal(tmp_path / "j")


def test_a_copy_that_ends_where_the_damage_is_can_be_read(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "j"
    middle = len(whole) // 2
    path.write_bytes(whole[:middle] + bytes((whole[middle] ^ 1,)) + whole[middle + 1 :])
    with pytest.raises(RunFolderError) as refusal:
        read_journal(path)
    os.truncate(path, int(re.findall(r"damaged at byte (\d+)", str(refusal.value))[0]))
    assert ended(read_journal(path).records) == ["r0", "r1"]


def test_zeros_at_the_end_are_what_a_power_cut_leaves(tmp_path: Path, whole: bytes) -> None:
    for num_zeros in (1, 100, 3_000_000):
        (tmp_path / "j").write_bytes(whole + b"\0" * num_zeros)
        content = read_journal(tmp_path / "j")
        assert (ended(content.records), content.num_dropped_bytes) == (["r0", "r1", "r2", "b"], num_zeros)


def test_a_file_of_a_terabyte_that_is_no_journal_is_refused_at_once(tmp_path: Path, whole: bytes) -> None:
    path = tmp_path / "j"
    path.write_bytes(whole)
    begin_s = time.process_time()
    os.truncate(path, 1 << 40)  # sparse: it takes no room
    with pytest.raises(RunFolderError, match=f"damaged at byte {len(whole)}"):
        read_journal(path)
    assert time.process_time() - begin_s < 30


@pytest.mark.parametrize("pattern", [b"\xff\xff\x03", b"\xff\xff\x0f", b"\x81\x80\x10", b"\x7f", b"\x80", None])
def test_a_megabyte_of_garbage_does_not_take_for_ever(tmp_path: Path, whole: bytes, pattern: bytes | None) -> None:
    garbage = random.Random(5).randbytes(1_000_000) if pattern is None else pattern * (1_000_000 // len(pattern))
    (tmp_path / "j").write_bytes(whole + garbage)
    begin_s = time.process_time()
    content = read_or_refusal(tmp_path / "j")
    if isinstance(content, str):
        assert f"damaged at byte {len(whole)}" in content
    else:
        assert content.num_dropped_bytes >= len(garbage)
    assert time.process_time() - begin_s < 30


@pytest.mark.parametrize("content", [b"{}\n", b"inference-bench journal 2\n", b"\0" * 40, BEGINNING[1:]])
def test_another_file_is_not_a_journal(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(RunFolderError, match="not a journal of this version"):
        read_journal(tmp_path / "j")
