from __future__ import annotations

import os
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gguf as oracle
import numpy as np
import pytest
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st

from facts.gguf_builder import (
    ARRAY,
    BOOL,
    FLOAT32,
    INT32,
    STRING,
    UINT8,
    UINT32,
    UINT64,
    RecordingSource,
    array,
    entry,
    gguf,
    tensor,
    text,
    uint32,
)
from inference_bench.errors import ModelFileError
from inference_bench.facts.byte_window import MAX_HEADER_BYTES, WINDOW_BYTES
from inference_bench.facts.gguf import check_tensor_extents, parse_gguf_header, read_gguf_header
from inference_bench.facts.gguf_header import GGUFArray, GGUFHeader, GGUFLongText, GGUFTensor

FEW = settings(max_examples=60, deadline=None)
FAR_AWAY = 1 << 50  # bytes in a file that is larger than any header may be
MAX_MEMORY_BYTES = 64 << 20

# ---------------------------------------------------------------------------------------------------------------------
# the gguf package as an independent oracle


def write_with_oracle(path: Path, endianess: oracle.GGUFEndian, alignment: int | None) -> None:
    rng = np.random.default_rng(0)
    writer = oracle.GGUFWriter(path, "llama", endianess=endianess)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    writer.add_name("tiny · 模型")
    writer.add_uint8("t.uint8", 200)
    writer.add_int8("t.int8", -100)
    writer.add_uint16("t.uint16", 60_000)
    writer.add_int16("t.int16", -30_000)
    writer.add_uint32("t.uint32", 4_000_000_000)
    writer.add_int32("t.int32", -2_000_000_000)
    writer.add_uint64("t.uint64", 2**63 + 5)
    writer.add_int64("t.int64", -(2**62))
    writer.add_float32("t.float32", 1e-5)
    writer.add_float64("t.float64", 0.1)
    writer.add_bool("t.yes", True)
    writer.add_bool("t.no", False)
    writer.add_string("t.empty", "")
    writer.add_array("tokenizer.ggml.tokens", [f"token {i} é" for i in range(1000)])
    writer.add_array("tokenizer.ggml.scores", [i / 7 for i in range(1000)])
    writer.add_array("llama.attention.head_count_kv", [8, 8, 0, 4, 8])
    writer.add_array("llama.attention.sliding_window_pattern", [True, True, False])
    writer.add_tensor("token_embd.weight", rng.random((4, 64), dtype=np.float32))
    writer.add_tensor("blk.0.attn_q.weight", rng.random((3, 5, 7), dtype=np.float32).astype(np.float16))
    writer.add_tensor("blk.0.index", np.arange(11, dtype=np.int32))
    for kind in (oracle.GGMLQuantizationType.Q8_0, oracle.GGMLQuantizationType.Q4_1):
        blocks = quantize(rng.random((6, 64), dtype=np.float32), kind)
        writer.add_tensor(f"blk.0.{kind.name}", blocks, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def values_by_oracle(reader: oracle.GGUFReader) -> dict[str, Any]:
    return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}


def tensors_by_oracle(reader: oracle.GGUFReader) -> list[tuple[Any, ...]]:
    start = reader.data_offset
    return [(t.name, tuple(t.shape.tolist()), int(t.tensor_type), t.data_offset - start) for t in reader.tensors]


def rows(header: GGUFHeader) -> list[tuple[Any, ...]]:
    return [(t.name, t.shape, t.ggml_type, t.offset) for t in header.tensors]


def comparable(value: Any) -> Any:
    return list(value.values) if isinstance(value, GGUFArray) else value


@pytest.mark.parametrize("alignment", [None, 64, 1024])
@pytest.mark.parametrize("endianess", list(oracle.GGUFEndian))
def test_everything_kept_equals_what_the_gguf_package_reads(
    tmp_path: Path, endianess: oracle.GGUFEndian, alignment: int | None
) -> None:
    path = tmp_path / "tiny.gguf"
    write_with_oracle(path, endianess, alignment)
    header, reader = read_gguf_header(path), oracle.GGUFReader(path)

    expected = values_by_oracle(reader)
    assert len(expected.pop("tokenizer.ggml.tokens")) == 1000
    found = dict(header.metadata)
    assert found.pop("tokenizer.ggml.tokens") == GGUFArray("string", 1000, None)
    assert {key: comparable(value) for key, value in found.items()} == expected
    assert list(header.metadata) == [key for key in reader.fields if not key.startswith("GGUF.")]
    assert len(header.tensors) == 5
    assert rows(header) == tensors_by_oracle(reader)
    assert [t.num_values for t in header.tensors] == [t.n_elements for t in reader.tensors]
    assert (header.data_offset, header.alignment) == (reader.data_offset, alignment or 32)
    assert header.big_endian is (endianess == oracle.GGUFEndian.BIG)
    assert (header.version, header.file_bytes) == (3, path.stat().st_size)
    sizes = {t.name: int(t.n_bytes) for t in reader.tensors}
    check_tensor_extents(header, lambda t: sizes[t.name])


def test_types_of_values_are_those_of_the_file(tmp_path: Path) -> None:
    write_with_oracle(tmp_path / "tiny.gguf", oracle.GGUFEndian.LITTLE, None)
    metadata = read_gguf_header(tmp_path / "tiny.gguf").metadata
    assert metadata["t.yes"] is True
    assert metadata["t.no"] is False
    assert type(metadata["t.int8"]) is int
    assert type(metadata["t.float32"]) is float
    assert metadata["llama.attention.sliding_window_pattern"] == GGUFArray("bool", 3, (True, True, False))
    assert metadata["llama.attention.head_count_kv"] == GGUFArray("int32", 5, (8, 8, 0, 4, 8))


def test_version_2_reads_like_version_3(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_with_oracle(path, oracle.GGUFEndian.LITTLE, None)
    third = read_gguf_header(path)
    data = bytearray(path.read_bytes())
    data[4] = 2
    path.write_bytes(data)
    second = read_gguf_header(path)
    assert (second.version, third.version) == (2, 3)
    assert (second.metadata, second.tensors) == (third.metadata, third.tensors)
    assert rows(second) == tensors_by_oracle(oracle.GGUFReader(path))


keys = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(lambda key: key != "general.alignment")
values = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(max_size=20),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9),
    st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=9),
    st.lists(st.booleans(), min_size=1, max_size=9),
)


@FEW
@given(entries=st.dictionaries(keys, values, max_size=6), big=st.booleans())
def test_any_metadata_comes_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, entries: dict[str, Any], big: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    endianess = oracle.GGUFEndian.BIG if big else oracle.GGUFEndian.LITTLE
    writer = oracle.GGUFWriter(path, "any", endianess=endianess)
    entries = {key: value for key, value in entries.items() if key != "general.architecture"}
    for key, value in entries.items():
        writer.add_key_value(key, value, oracle.GGUFValueType.get_type(value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    header = read_gguf_header(path)
    found = {key: comparable(value) for key, value in header.metadata.items()}
    assert found == {"general.architecture": "any", **entries}
    assert (header.tensors, header.header_bytes) == ((), path.stat().st_size)


# ---------------------------------------------------------------------------------------------------------------------
# what is kept, and what is read


def parse(data: bytes, name: str = "test.gguf") -> GGUFHeader:
    return parse_gguf_header(RecordingSource(data), name)


SMALL = gguf(
    [
        uint32("llama.block_count", 2),
        entry("general.name", STRING, text("tiny")),
        entry("tokens", ARRAY, array(STRING, 3, text("a") + text("") + text("längre"))),
        entry("heads", ARRAY, array(INT32, 2, struct.pack("<2i", 4, 8))),
        entry("flag", BOOL, b"\1"),
    ],
    [tensor("a", [4, 2], 0, 0), tensor("b", [8], 1, 32)],
    data=bytes(48),
)
SMALL_DATA_OFFSET = len(SMALL) - 48


def test_a_small_file_is_read_whole() -> None:
    header = parse(SMALL)
    assert dict(header.metadata) == {
        "llama.block_count": 2,
        "general.name": "tiny",
        "tokens": GGUFArray("string", 3, None),
        "heads": GGUFArray("int32", 2, (4, 8)),
        "flag": True,
    }
    assert header.tensors == (GGUFTensor("a", (4, 2), 0, 0), GGUFTensor("b", (8,), 1, 32))
    assert header.data_offset == SMALL_DATA_OFFSET
    assert SMALL_DATA_OFFSET - 32 < header.header_bytes <= SMALL_DATA_OFFSET


@pytest.mark.parametrize("piece", [1, 7, None])
@pytest.mark.parametrize("size_known", [True, False])
def test_pieces_of_any_size_give_the_same_header(piece: int | None, size_known: bool) -> None:
    whole = parse(SMALL)
    pieced = parse_gguf_header(RecordingSource(SMALL, size_known=size_known, piece=piece), "test.gguf")
    assert (pieced.metadata, pieced.tensors, pieced.data_offset) == (whole.metadata, whole.tensors, whole.data_offset)
    assert pieced.file_bytes == (len(SMALL) if size_known else None)


def test_the_header_cannot_be_changed() -> None:
    header = parse(SMALL)
    with pytest.raises(TypeError):
        header.metadata["flag"] = False  # type: ignore[index]


def test_reads_stop_within_one_window_of_the_header() -> None:
    tokens = b"".join(text(f"token {i:07}") for i in range(150_000))
    data = gguf(
        [entry("tokens", ARRAY, array(STRING, 150_000, tokens)), uint32("after", 7)],
        [tensor("big", [1 << 30, 1 << 8], 0, 0)],
    )
    assert len(tokens) > 3 * WINDOW_BYTES
    source = RecordingSource(data, size_in_fact=FAR_AWAY)
    header = parse_gguf_header(source)
    assert header.metadata == {"tokens": GGUFArray("string", 150_000, None), "after": 7}
    assert header.header_bytes == len(data)
    assert source.furthest_byte <= header.data_offset + WINDOW_BYTES
    assert all(num_bytes <= WINDOW_BYTES for _, num_bytes in source.reads)


@pytest.mark.parametrize("token_bytes", [WINDOW_BYTES - 9, WINDOW_BYTES - 8, WINDOW_BYTES, 3 * WINDOW_BYTES + 1])
def test_a_string_may_end_anywhere_against_the_window(token_bytes: int) -> None:
    tokens = text("first") + text(b"x" * token_bytes) + text("last")
    header = parse(gguf([entry("tokens", ARRAY, array(STRING, 3, tokens)), uint32("after", 7)]))
    assert header.metadata == {"tokens": GGUFArray("string", 3, None), "after": 7}


def test_a_long_array_of_numbers_is_stepped_over_without_reading_it() -> None:
    count = 8 * WINDOW_BYTES
    data = gguf([entry("scores", ARRAY, array(FLOAT32, count, bytes(4 * count))), uint32("after", 7)])
    source = RecordingSource(data)
    assert parse_gguf_header(source).metadata == {"scores": GGUFArray("float32", count, None), "after": 7}
    assert source.num_bytes_read <= 2 * WINDOW_BYTES


@pytest.mark.parametrize(("count", "kept"), [(0, True), (4096, True), (4097, False)])
def test_numbers_are_kept_up_to_4096(count: int, kept: bool) -> None:
    data = gguf([entry("heads", ARRAY, array(UINT8, count, bytes(count)))])
    assert parse(data).metadata["heads"] == GGUFArray("uint8", count, (0,) * count if kept else None)


@pytest.mark.parametrize(("num_bytes", "kept"), [(1 << 20, True), ((1 << 20) + 1, False)])
def test_text_is_kept_up_to_one_mebibyte(num_bytes: int, kept: bool) -> None:
    data = gguf([entry("template", STRING, text(b"x" * num_bytes)), uint32("after", 7)])
    metadata = parse(data).metadata
    assert metadata == {"template": "x" * num_bytes if kept else GGUFLongText(num_bytes), "after": 7}


def test_a_value_that_is_not_utf8_is_no_reason_to_refuse_the_model() -> None:
    assert parse(gguf([entry("author", STRING, text(b"Jos\xe9"))])).metadata["author"] == "Jos\ufffd"


def test_a_file_without_tensors_may_end_with_its_header() -> None:
    data = gguf([uint32("vocab", 1)])
    assert len(data) % 32
    header = parse(data)
    assert (header.tensors, header.header_bytes) == ((), len(data))


def test_a_tensor_without_dimensions_holds_one_value() -> None:
    (scalar,) = parse(gguf(tensors=[tensor("logit_scale", [])], data=bytes(4))).tensors
    assert (scalar.shape, scalar.num_values) == ((), 1)


def test_an_unknown_tensor_type_is_not_this_readers_business() -> None:
    assert parse(gguf(tensors=[tensor("new", [8], 9_999)], data=bytes(4))).tensors[0].ggml_type == 9_999


def nested(depth: int) -> bytes:
    inner = array(UINT8, 1, b"\5")
    for _ in range(depth - 1):
        inner = array(ARRAY, 1, inner)
    return gguf([entry("deep", ARRAY, inner), uint32("after", 7)])


def test_arrays_in_arrays_are_stepped_over_up_to_four_levels() -> None:
    assert parse(nested(4)).metadata == {"deep": GGUFArray("array", 1, None), "after": 7}
    with pytest.raises(ModelFileError, match="'deep' nests arrays 5 deep; allowed: up to 4"):
        parse(nested(5))


# ---------------------------------------------------------------------------------------------------------------------
# lies

HUGE = 1 << 60
OTHER_KEYS = 24  # bytes before the first key
LIES: dict[str, tuple[bytes, str]] = {
    "empty file": (b"", "it is empty"),
    "two bytes": (b"GG", "begins with b'GG'"),
    "magic only": (b"GGUF", "truncated or lying: the version would reach byte 8, the file ends at byte 4"),
    "no counts": (gguf()[:20], "the number of keys would reach byte 24, the file ends at byte 20"),
    "web page": (b"\n<!DOCTYPE html><html>", "looks like a web page"),
    "other magic": (b"PK\3\4" + bytes(60), r"begins with b'PK\x03\x04\x00\x00\x00\x00'"),
    "version 0": (gguf(version=0), "version 0; allowed: 2 and 3"),
    "version 1": (gguf(version=1), "version 1; allowed: 2 and 3"),
    "version 99": (gguf(version=99), "version 99; allowed: 2 and 3"),
    "big-endian version 2": (gguf(version=2 << 24), "version 2; allowed: 2 and 3, big-endian only 3"),
    "huge number of keys": (gguf(num_entries=HUGE), f"at byte 16: {HUGE} keys; allowed: up to 65536"),
    "negative number of keys": (gguf(num_entries=2**64 - 1), f"{2**64 - 1} keys; allowed: up to 65536"),
    "huge number of tensors": (gguf(num_tensors=HUGE), f"at byte 8: {HUGE} tensors; allowed: up to 65536"),
    "one key too many": (gguf([uint32("a", 1)], num_entries=2), "truncated or lying: key 1 would reach"),
    "one tensor too many": (gguf(num_tensors=1), "truncated or lying: the name of tensor 0 would reach byte 32"),
    "huge key": (gguf([struct.pack("<Q", HUGE)]), f"at byte 24: key 0 is {HUGE} bytes long; allowed: 1 to 65535"),
    "empty key": (gguf([uint32("", 1)]), "key 0 is 0 bytes long; allowed: 1 to 65535"),
    "key of 65536 bytes": (gguf([uint32("k" * 65536, 1)]), "key 0 is 65536 bytes long; allowed: 1 to 65535"),
    "key not UTF-8": (gguf([entry(b"\xff\xfe", UINT8, b"\0")]), r"key 0 is b'\xff\xfe'; allowed: UTF-8"),
    "key twice": (gguf([uint32("a", 1), uint32("a", 1)]), "at byte 41: key 1 is 'a' again"),
    "unknown value type": (gguf([entry("a", 13, bytes(8))]), "at byte 33: key 'a' has the value type 13; allowed: 0"),
    "unknown element type": (gguf([entry("a", ARRAY, array(77, 1, bytes(8)))]), "key 'a' has the value type 77"),
    "bool of 2": (gguf([entry("a", BOOL, b"\2")]), "key 'a' holds the bool 2; allowed: 0 and 1"),
    "bool of 255 in an array": (gguf([entry("a", ARRAY, array(BOOL, 3, b"\0\1\xff"))]), "holds the bool 255"),
    "huge text": (gguf([entry("a", STRING, struct.pack("<Q", HUGE))]), f"key 'a' would reach byte {HUGE + 45}"),
    "huge array of numbers": (
        gguf([entry("a", ARRAY, array(UINT64, HUGE, b""))]),
        f"key 'a' would reach byte {8 * HUGE + 49}, the file ends at byte 49",
    ),
    "huge array of strings": (
        gguf([entry("a", ARRAY, array(STRING, HUGE, b""))]),
        f"key 'a' would reach byte {8 * HUGE + 49}, the file ends at byte 49",
    ),
    "huge array of arrays": (gguf([entry("a", ARRAY, array(ARRAY, HUGE, b""))]), "truncated or lying: key 'a'"),
    "huge string in an array": (
        gguf([entry("a", ARRAY, array(STRING, 2, text("x") + struct.pack("<Q", HUGE)))]),
        f"key 'a' would reach byte {HUGE + 66}, the file ends at byte 66",
    ),
    "huge first string in an array": (
        gguf([entry("a", ARRAY, array(STRING, 2, struct.pack("<Q", HUGE) + text("")))]),
        "truncated or lying: key 'a'",
    ),
    "alignment 0": (gguf([uint32("general.alignment", 0)]), "'general.alignment' holds int 0; allowed: a power of two"),
    "alignment 33": (gguf([uint32("general.alignment", 33)]), "holds int 33; allowed: a power of two"),
    "alignment in words": (gguf([entry("general.alignment", STRING, text("32"))]), "holds str '32'"),
    "alignment true": (gguf([entry("general.alignment", BOOL, b"\1")]), "holds bool True"),
    "five dimensions": (gguf(tensors=[tensor("t", [1] * 5)]), "tensor 't' has 5 dimensions; allowed: 0 to 4"),
    "dimension of zero": (gguf(tensors=[tensor("t", [4, 0])]), "tensor 't' has the shape (4, 0); allowed: 1 to 2^63"),
    "too many values": (gguf(tensors=[tensor("t", [2**31, 2**32])]), "(2147483648, 4294967296); allowed: 1 to 2^63"),
    "tensor twice": (gguf(tensors=[tensor("t", [1]), tensor("t", [1])]), "the name of tensor 1 is 't' again"),
    "tensor not UTF-8": (gguf(tensors=[tensor(b"\xff", [1])]), "the name of tensor 0 is b'\\xff'; allowed: UTF-8"),
    "tensor without a name": (gguf(tensors=[tensor("", [1])]), "the name of tensor 0 is 0 bytes long"),
    "long tensor name": (gguf(tensors=[tensor("t" * 1025, [1])]), "is 1025 bytes long; allowed: 1 to 1024"),
    "offset not aligned": (
        gguf(tensors=[tensor("t", [1], 0, 8)], data=bytes(64)),
        "tensor 't' has the offset 8; allowed: multiples of 32",
    ),
    "no data": (gguf(tensors=[tensor("t", [1])]), "tensor 't' would reach byte 65, the file ends at byte 57"),
    "offset past the end": (
        gguf(tensors=[tensor("t", [1], 0, HUGE)], data=bytes(64)),
        f"truncated or lying: tensor 't' would reach byte {HUGE + 65}, the file ends at byte 128",
    ),
}


@pytest.mark.parametrize(("data", "expected"), LIES.values(), ids=list(LIES))
def test_a_lie_is_refused_in_one_line_that_names_it(data: bytes, expected: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        parse(data, "models/liar.gguf")
    message = str(caught.value)
    assert message.startswith("cannot read the GGUF header of 'models/liar.gguf': ")
    assert expected in message
    assert "\n" not in message
    assert len(message) < 400


UNKNOWN_SIZE_LIES = [name for name in LIES if name not in ("no data", "offset past the end")]


@pytest.mark.parametrize("name", UNKNOWN_SIZE_LIES)
def test_a_lie_is_refused_where_the_size_is_not_known(name: str) -> None:
    with pytest.raises(ModelFileError):
        parse_gguf_header(RecordingSource(LIES[name][0], size_known=False))


def test_line_breaks_and_length_of_names_stay_out_of_messages() -> None:
    data = gguf([entry("a\n" * 1000, BOOL, b"\2")])
    with pytest.raises(ModelFileError) as caught:
        parse(data, "two\nlines.gguf")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_source_that_ends_before_its_size_is_truncated() -> None:
    class Short(RecordingSource):
        def read(self, offset: int, num_bytes: int) -> bytes:
            return super().read(offset, num_bytes)[: max(0, 40 - offset)]

    with pytest.raises(ModelFileError, match="truncated or lying: key 0 would reach byte 49, the file ends at byte 40"):
        parse_gguf_header(Short(SMALL))


def test_a_source_that_hands_out_too_much_is_not_trusted_with_it() -> None:
    class Generous(RecordingSource):
        def read(self, offset: int, num_bytes: int) -> bytes:
            return super().read(offset, num_bytes) + bytes(1000)

    tokens = b"".join(text(f"token {i:07}") for i in range(100_000))
    data = gguf([entry("tokens", ARRAY, array(STRING, 100_000, tokens)), uint32("after", 7)])
    assert len(data) > 2 * WINDOW_BYTES
    assert parse_gguf_header(Generous(data), "test.gguf") == parse(data)


STEPPED_OVER = {
    "long array": entry("a", ARRAY, array(UINT8, 5000, bytes(5000))),
    "strings": entry("a", ARRAY, array(STRING, 2, text("x") + text("yz"))),
    "long text": entry("a", STRING, text(b"x" * (1 << 21))),
}


@pytest.mark.parametrize("last", STEPPED_OVER.values(), ids=list(STEPPED_OVER))
def test_what_is_stepped_over_must_be_there_to_its_last_byte(last: bytes) -> None:
    data = gguf([last])
    assert parse(data).header_bytes == len(data)
    size = len(data) - 1
    with pytest.raises(ModelFileError, match=f"key 'a' would reach byte {size + 1}, the file ends at byte {size}"):
        parse(data[:-1])


@pytest.mark.parametrize(
    "payload",
    [
        entry("a", ARRAY, array(STRING, 1 << 40, b"")),
        entry("a", ARRAY, array(ARRAY, 1 << 40, b"")),
        entry("a", ARRAY, array(FLOAT32, 1 << 40, b"")),
        entry("a", STRING, struct.pack("<Q", 1 << 40)),
    ],
    ids=["strings", "arrays", "numbers", "text"],
)
@pytest.mark.parametrize("size_known", [True, False])
def test_a_header_longer_than_any_is_refused_at_once(payload: bytes, size_known: bool) -> None:
    source = RecordingSource(gguf([payload]), size_in_fact=FAR_AWAY, size_known=size_known)
    with pytest.raises(ModelFileError, match=f"allowed: a header of up to {MAX_HEADER_BYTES} bytes"):
        parse_gguf_header(source)
    assert source.num_bytes_read <= WINDOW_BYTES


@pytest.mark.parametrize(("element_type", "allowed"), [(STRING, 1 << 24), (ARRAY, 1 << 20)])
def test_more_elements_than_can_be_walked_are_refused_at_once(element_type: int, allowed: int) -> None:
    data = gguf([entry("a", ARRAY, array(element_type, allowed + 1, b""))])
    source = RecordingSource(data, size_in_fact=FAR_AWAY)
    with pytest.raises(ModelFileError, match=f"to step over to {allowed + 1}; allowed: up to {allowed}"):
        parse_gguf_header(source)
    assert source.num_bytes_read <= WINDOW_BYTES


def test_walked_elements_are_counted_over_the_whole_header() -> None:
    inner = array(ARRAY, 1 << 19, array(UINT8, 0, b"") * (1 << 19))
    data = gguf([entry("a", ARRAY, inner), entry("b", ARRAY, inner), entry("c", ARRAY, array(ARRAY, 1, bytes(12)))])
    with pytest.raises(ModelFileError, match="key 'c' brings the elements to step over to 1048577"):
        parse(data)


def test_numbers_in_inner_arrays_are_not_kept() -> None:
    inner = array(UINT64, 4096, bytes(4096 * 8))
    data = gguf([entry("a", ARRAY, array(ARRAY, 1000, inner * 1000)), uint32("after", 7)])
    assert parse(data).metadata == {"a": GGUFArray("array", 1000, None), "after": 7}


def many_tensors() -> bytes:
    return gguf(tensors=[tensor(f"{i:0660}", [2**15] * 4, 0, 0) for i in range(65536)])


def many_numbers() -> bytes:
    numbers = array(UINT64, 4096, struct.pack("<4096Q", *range(2**63, 2**63 + 4096)))
    return gguf([entry(f"key {i}", ARRAY, numbers) for i in range(500)])


def many_texts() -> bytes:
    wide = text("x" * ((1 << 20) - 4) + "\U0001f600")  # one emoji makes every character of the text four bytes wide
    return gguf([entry(f"key {i}", STRING, wide) for i in range(30)])


def many_keys() -> bytes:
    return gguf([entry(f"{i:0660}", UINT64, struct.pack("<Q", 2**63 + i)) for i in range(65536)])


def huge_claim() -> bytes:
    return gguf([entry("a", ARRAY, array(UINT64, 1 << 40, b""))])


@pytest.mark.parametrize("build", [many_tensors, many_numbers, many_texts, many_keys, huge_claim])
def test_memory_stays_bounded_whatever_the_header_holds(build: Callable[[], bytes]) -> None:
    source = RecordingSource(build(), size_in_fact=FAR_AWAY)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError, match=r"fills the memory; allowed: up to 50331648|would reach byte"):
            parse_gguf_header(source)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MAX_MEMORY_BYTES


def test_the_largest_header_accepted_keeps_within_the_memory_bound() -> None:
    source = RecordingSource(gguf(tensors=[tensor(f"{i:0256}", [2**15] * 4) for i in range(65536)], data=b"x"))
    tracemalloc.start()
    try:
        header = parse_gguf_header(source)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(header.tensors) == 65536
    assert peak_bytes < MAX_MEMORY_BYTES


# ---------------------------------------------------------------------------------------------------------------------
# fuzz


@pytest.mark.parametrize("size_known", [True, False])
def test_a_file_cut_anywhere_is_refused_until_the_last_tensor_has_begun(size_known: bool) -> None:
    last_begins = SMALL_DATA_OFFSET + 32
    needed = last_begins + 1 if size_known else parse(SMALL).header_bytes
    for length in range(len(SMALL) + 1):
        source = RecordingSource(SMALL[:length], size_known=size_known)
        if length >= needed:
            assert len(parse_gguf_header(source).tensors) == 2
        else:
            with pytest.raises(ModelFileError, match=r"truncated|empty|begins with"):
                parse_gguf_header(source)


def parses_or_is_refused(source: RecordingSource) -> None:
    try:
        header = parse_gguf_header(source)
    except ModelFileError as error:
        message = str(error)
    else:
        message = ""
        assert source.furthest_byte <= header.data_offset + WINDOW_BYTES
    assert "\n" not in message


@FEW
@given(data=st.binary(max_size=300), size_known=st.booleans())
def test_random_bytes_give_no_other_error(data: bytes, size_known: bool) -> None:
    parses_or_is_refused(RecordingSource(data, size_known=size_known))
    parses_or_is_refused(RecordingSource(b"GGUF\3\0\0\0" + data, size_known=size_known))
    counts = struct.pack("<QQ", 2, 2)
    parses_or_is_refused(RecordingSource(b"GGUF\3\0\0\0" + counts + data, size_known=size_known))


flips = st.lists(st.tuples(st.integers(0, SMALL_DATA_OFFSET - 1), st.integers(0, 255)), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(flips=flips, size_known=st.booleans(), far=st.booleans())
def test_changed_bytes_give_no_other_error(flips: list[tuple[int, int]], size_known: bool, far: bool) -> None:
    data = bytearray(SMALL)
    for where, value in flips:
        data[where] = value
    source = RecordingSource(bytes(data), size_in_fact=FAR_AWAY if far else None, size_known=size_known)
    parses_or_is_refused(source)


# ---------------------------------------------------------------------------------------------------------------------
# files that cannot be read


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    path = tmp_path / "small.gguf"
    path.write_bytes(SMALL)
    return path


def test_a_path_may_be_text_or_a_path(small_file: Path) -> None:
    assert read_gguf_header(str(small_file)) == read_gguf_header(small_file)
    assert read_gguf_header(small_file).name == str(small_file)


def refusal(path: str | Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        read_gguf_header(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.gguf"
    assert refusal(path) == f"cannot read the GGUF file {str(path)!r}: No such file or directory"


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    assert f"{str(tmp_path)!r}: it is a folder; give the path of one .gguf file" in refusal(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    assert "it is a pipe" in refusal(tmp_path / "pipe.gguf")


def test_a_path_no_file_can_have_is_refused() -> None:
    assert "null byte" in refusal("a\0b.gguf")


def test_a_file_without_permission_is_named(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise PermissionError(13, "Permission denied", str(small_file))

    monkeypatch.setattr("builtins.open", refuse)
    message = refusal(small_file)
    monkeypatch.undo()
    assert message == f"cannot read the GGUF file {str(small_file)!r}: Permission denied"


def test_a_disk_that_fails_while_reading_is_named(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __enter__(self) -> Broken:
            return self

        def __exit__(self, *args: object) -> None: ...

        def seek(self, offset: int) -> None: ...

        def read(self, num_bytes: int) -> bytes:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.open", lambda *args, **kwargs: Broken())
    message = refusal(small_file)
    monkeypatch.undo()
    assert message == f"cannot read the GGUF file {str(small_file)!r}: Input/output error"


def test_a_web_page_on_disk_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_text("<html><body>404</body></html>")
    assert "looks like a web page, so fetch it again" in refusal(path)


def test_what_a_source_raises_is_passed_on() -> None:
    class Lost(RecordingSource):
        def read(self, offset: int, num_bytes: int) -> bytes:
            raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        parse_gguf_header(Lost(SMALL))


# ---------------------------------------------------------------------------------------------------------------------
# typed access


@pytest.fixture
def typed() -> GGUFHeader:
    entries = [
        uint32("int", 3),
        entry("float", FLOAT32, struct.pack("<f", 0.5)),
        entry("bool", BOOL, b"\0"),
        entry("str", STRING, text("llama")),
        entry("ints", ARRAY, array(UINT32, 3, struct.pack("<3I", 8, 0, 8))),
        entry("bools", ARRAY, array(BOOL, 2, b"\1\0")),
        entry("many", ARRAY, array(UINT8, 5000, bytes(5000))),
        entry("strs", ARRAY, array(STRING, 1, text("a"))),
        entry("long", STRING, text(b"x" * (1 << 21))),
    ]
    return parse(gguf(entries))


def test_a_value_is_got_by_its_type(typed: GGUFHeader) -> None:
    assert typed.get_int("int") == typed.require_int("int") == 3
    assert typed.get_float("float") == 0.5
    assert typed.get_bool("bool") is False
    assert typed.get_str("str") == "llama"


def test_one_value_or_one_a_layer_come_as_a_tuple(typed: GGUFHeader) -> None:
    assert typed.get_ints("ints") == (8, 0, 8)
    assert typed.get_ints("int") == (3,)
    assert typed.get_bools("bools") == (True, False)
    assert typed.get_bools("bool") == (False,)


@pytest.mark.parametrize("getter", ["get_int", "get_float", "get_bool", "get_str", "get_ints", "get_bools"])
def test_an_absent_key_has_no_value(typed: GGUFHeader, getter: str) -> None:
    assert getattr(typed, getter)("absent") is None


def test_a_required_key_that_is_absent_is_named(typed: GGUFHeader) -> None:
    with pytest.raises(ModelFileError, match=r"'test.gguf' has no key 'absent'; it must hold a whole number"):
        typed.require_int("absent")


@pytest.mark.parametrize(
    ("getter", "key", "expected"),
    [
        ("get_int", "bool", "key 'bool' holds bool False; allowed: int"),
        ("get_int", "float", "key 'float' holds float 0.5; allowed: int"),
        ("get_int", "ints", "key 'ints' holds an array of 3 uint32; allowed: int"),
        ("get_float", "int", "key 'int' holds int 3; allowed: float"),
        ("get_bool", "int", "key 'int' holds int 3; allowed: bool"),
        ("get_str", "long", "key 'long' holds a text of 2097152 bytes; allowed: str"),
        ("require_int", "str", "key 'str' holds str 'llama'; allowed: int"),
        ("get_ints", "bools", "key 'bools' holds an array of 2 bool; allowed: int or an array of up to 4096 of it"),
        ("get_ints", "many", "key 'many' holds an array of 5000 uint8; allowed: int or an array of up to 4096 of it"),
        ("get_bools", "strs", "key 'strs' holds an array of 1 string; allowed: bool or an array of up to 4096 of it"),
    ],
)
def test_another_type_is_refused_by_name(typed: GGUFHeader, getter: str, key: str, expected: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        getattr(typed, getter)(key)
    assert str(caught.value) == f"GGUF file 'test.gguf': {expected}"


# ---------------------------------------------------------------------------------------------------------------------
# where tensors end


def extents(offsets: dict[str, int], data_bytes: int) -> GGUFHeader:
    return parse(gguf(tensors=[tensor(name, [1], 0, at) for name, at in offsets.items()], data=bytes(data_bytes)))


def test_tensors_may_fill_the_file_to_its_last_byte_in_any_order() -> None:
    check_tensor_extents(extents({"b": 32, "a": 0, "c": 64}, 96), lambda _: 32)


def test_a_tensor_that_ends_past_the_file_is_refused() -> None:
    header = extents({"a": 0, "b": 32}, 63)
    end = header.data_offset + 64
    expected = f"truncated or lying: tensor 'b' would reach byte {end}, the file ends at byte {end - 1}"
    with pytest.raises(ModelFileError, match=expected):
        check_tensor_extents(header, lambda _: 32)


def test_tensors_that_overlap_are_refused() -> None:
    header = extents({"b": 32, "a": 0}, 96)
    with pytest.raises(ModelFileError, match="'a' takes data bytes up to 33, tensor 'b' begins at 32"):
        check_tensor_extents(header, lambda t: 33 if t.name == "a" else 1)


def test_two_tensors_in_one_place_are_refused() -> None:
    with pytest.raises(ModelFileError, match="allowed: no overlap"):
        check_tensor_extents(extents({"a": 0, "b": 0}, 32), lambda _: 32)


def test_without_a_known_size_only_overlap_can_be_checked() -> None:
    header = parse_gguf_header(RecordingSource(SMALL, size_known=False))
    check_tensor_extents(header, lambda t: 32 if t.name == "a" else 1 << 40)
    with pytest.raises(ModelFileError, match="allowed: no overlap"):
        check_tensor_extents(header, lambda _: 33)
