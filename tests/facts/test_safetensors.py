from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from facts.gguf_builder import RecordingSource
from inference_bench.errors import ModelFileError
from inference_bench.facts.safetensors import (
    DTYPE_BITS,
    MAX_HEADER_BYTES,
    SafetensorsHeader,
    parse_safetensors_header,
    read_safetensors_header,
)
from inference_bench.facts.safetensors_index import parse_safetensors_index

HUNDRED_MB = 100_000_000


def entry(dtype: str, shape: Sequence[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def header_bytes(header: Any, *, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text


def parse(head: bytes, data_bytes: int | None = 0) -> SafetensorsHeader:
    size = None if data_bytes is None else len(head) + data_bytes
    return parse_safetensors_header(RecordingSource(head, size, size_known=size is not None), "m.safetensors")


def refused(head: bytes, data_bytes: int = 0) -> str:
    with pytest.raises(ModelFileError) as caught:
        parse(head, data_bytes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    return str(caught.value)


def test_the_tensor_table_is_what_the_header_says() -> None:
    head = header_bytes(
        {
            "__metadata__": {"format": "pt", "note": 'a {"brace"} and é'},
            "b": entry("I32", [2, 3], 16, 40),
            "a": entry("BF16", [4, 2], 0, 16),
            "empty": entry("F32", [0, 7], 40, 40),
            "scalar": entry("F64", [], 40, 48),
        }
    )
    header = parse(head, 48)
    assert [(t.name, t.dtype, t.shape, t.offset, t.num_bytes) for t in header.tensors] == [
        ("a", "BF16", (4, 2), 0, 16),
        ("b", "I32", (2, 3), 16, 24),
        ("empty", "F32", (0, 7), 40, 0),
        ("scalar", "F64", (), 40, 8),
    ]
    assert dict(header.metadata) == {"format": "pt", "note": 'a {"brace"} and é'}
    assert header.data_bytes == 48
    assert header.data_offset == len(head)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("BOOL", 8),
        ("U8", 8),
        ("I8", 8),
        ("F8_E4M3", 8),
        ("F8_E5M2", 8),
        ("F8_E8M0", 8),
        ("BF16", 16),
        ("F16", 16),
        ("I16", 16),
        ("U16", 16),
        ("F32", 32),
        ("I32", 32),
        ("U32", 32),
        ("F64", 64),
        ("I64", 64),
        ("U64", 64),
        ("F4", 4),
        ("F6_E2M3", 6),
        ("F6_E3M2", 6),
    ],
)
def test_each_dtype_takes_its_published_bits(dtype: str, bits: int) -> None:
    header = parse(header_bytes({"t": entry(dtype, [8, 4], 0, 4 * bits)}), 4 * bits)
    assert header.tensors[0].num_bytes == 4 * bits
    assert DTYPE_BITS[dtype] == bits


def test_blanks_escapes_and_padding_are_read_as_json_reads_them() -> None:
    text = b'{ "caf\\u00e9\\n" :\t{"shape":[1],"data_offsets":[0,4],"dtype":"F32"}\n}    '
    assert parse(header_bytes(text), 4).tensors[0].name == "café\n"


@pytest.mark.parametrize(
    ("header", "data_bytes", "message"),
    [
        ({"t": entry("F33", [1], 0, 4)}, 4, "F33.*BF16"),
        ({"t": entry("F32", [2], 0, 4)}, 4, "needs 8 bytes, its data_offsets span 4"),
        ({"t": entry("F4", [3], 0, 2)}, 2, "needs 1.5 bytes"),
        ({"t": entry("F32", [1 << 60, 4], 0, 4)}, 4, "needs"),
        ({"t": entry("F32", [1 << 60, 1 << 60], 0, 4)}, 4, "values"),
        ({"t": entry("F32", [-1], 0, 4)}, 4, "whole numbers"),
        ({"t": entry("F32", [1.0], 0, 4)}, 4, "whole numbers"),
        ({"t": entry("F32", [True], 0, 4)}, 4, "whole numbers"),
        ({"t": entry("F32", [1] * 17, 0, 4)}, 4, "up to 16"),
        ({"t": entry("F32", [1], 4, 0)}, 4, "begin and an end"),
        ({"t": entry("F32", [1], -4, 0)}, 4, "whole numbers"),
        ({"t": entry("F32", [1], 4, 8)}, 8, "leaves a gap"),
        ({"a": entry("F32", [2], 0, 8), "b": entry("F32", [1], 4, 8)}, 8, "overlaps"),
        ({"t": entry("F32", [1], 0, 4)}, 3, "truncated"),
        ({"t": entry("F32", [1], 0, 4)}, 9, "left over"),
        ({"t": {"dtype": "F32", "shape": [1]}}, 4, "data_offsets are needed"),
        ({"t": entry("F32", [1], 0, 4) | {"extra": 1}}, 4, "extra"),
        ({"t": [1, 2]}, 0, "object"),
        ({"t": None}, 0, "object"),
        ({"__metadata__": {"a": 1}}, 0, "text"),
        ({"__metadata__": {"a": {"b": "c"}}}, 0, "text"),
        ({"__metadata__": ["a"]}, 0, "__metadata__"),
        (
            b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}',
            8,
            "twice",
        ),
        (b'{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', 4, "twice"),
        (b'{"__metadata__":{},"__metadata__":{}}', 0, "twice"),
        (b'{"__metadata__":{"a":"1","a":"2"}}', 0, "twice"),
        (b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', 4, "NaN"),
        (b'{"a":{"dtype":"F32","shape":[1e400],"data_offsets":[0,4]}}', 4, "whole numbers"),
        (b"{} {}", 0, "follows"),
        (b'{"a"', 0, "expected ':'"),
        (b'{"a":{', 0, "object"),
        (b"{", 0, "to 33554432|text"),
        (b"[]", 0, "begin with"),
        (b'{"\xff":{}}', 0, "UTF-8"),
        (b'{"\\ud800":{}}', 0, "UTF-8"),
        (b'{"' + b"n" * 2000 + b'":{}}', 0, "up to 1024 bytes"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 0, "object"),
        (b'{"a":{"dtype":"F32","shape":' + b"[" * 500 + b"]" * 500 + b',"data_offsets":[0,4]}}', 4, "short object"),
    ],
)
def test_a_header_that_lies_is_refused(header: Any, data_bytes: int, message: str) -> None:
    import re

    assert re.search(message, refused(header_bytes(header), data_bytes))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"", "0 bytes"),
        (b"\x01\x02", "2 bytes"),
        (header_bytes(b"{}", length=1 << 60), "truncated or lying"),
        (header_bytes(b"{}", length=3), "truncated or lying"),
        (header_bytes(b"{}", length=0), "2 to"),
        (b"<!doctype html><html>", "another kind of file"),
        (b"GGUF\x03\0\0\0" + b"\0" * 32, "another kind of file"),
    ],
)
def test_what_is_not_safetensors_is_refused(head: bytes, message: str) -> None:
    assert message in refused(head)


def test_another_kind_of_file_of_unknown_size_is_named() -> None:
    with pytest.raises(ModelFileError, match="another kind of file"):
        parse(b"<!doctype html><html>", None)


def test_a_claimed_header_over_the_limit_is_never_read() -> None:
    source = RecordingSource(struct.pack("<Q", 99_000_000), 1 << 40)
    with pytest.raises(ModelFileError, match=str(MAX_HEADER_BYTES)):
        parse_safetensors_header(source)
    assert source.num_bytes_read == 8


def test_only_the_header_of_a_terabyte_file_is_read() -> None:
    head = header_bytes({"t": entry("F32", [1 << 38], 0, 1 << 40)})
    source = RecordingSource(head, len(head) + (1 << 40), piece=7)
    assert parse_safetensors_header(source).data_bytes == 1 << 40
    assert source.furthest_byte <= len(head)


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":"' + b"x" * (MAX_HEADER_BYTES - 10),
        b'{"__metadata__":{"a":"' + b"\\n" * (MAX_HEADER_BYTES // 2 - 20) + b'"}}',
        b"{" + b" " * (MAX_HEADER_BYTES - 2) + b"}",
        b"{" + b",".join(b'"%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}' % n for n in range(132_000)) + b"}",
    ],
    ids=["string", "escapes", "blanks", "tensors"],
)
def test_no_header_takes_more_than_a_hundred_megabytes(text: bytes) -> None:
    source = RecordingSource(header_bytes(text), 1 << 40)
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError):
            parse_safetensors_header(source)
        assert tracemalloc.get_traced_memory()[1] < HUNDRED_MB
    finally:
        tracemalloc.stop()
    assert source.num_bytes_read < HUNDRED_MB


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=120).map(lambda raw: header_bytes(b"{" + raw)))
def test_any_bytes_give_a_header_or_a_model_file_error(raw: bytes) -> None:
    try:
        parse_safetensors_header(RecordingSource(raw))
    except ModelFileError as error:
        assert "\n" not in str(error)  # noqa: PT017


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["F32", "BF16"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["dtype", "shape", "data_offsets", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["__metadata__", "a", "b", "weight_map", "metadata"]), JSON, max_size=4))
def test_any_json_gives_a_header_or_a_model_file_error(value: dict[str, Any]) -> None:
    text = json.dumps(value).encode()
    for read in (lambda: parse(header_bytes(text)), lambda: parse_safetensors_index(text, "index")):
        try:
            read()
        except ModelFileError as error:
            assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_a_writer_lays_out_is_read_back(data: st.DataObject) -> None:
    shapes = data.draw(st.lists(st.lists(st.integers(0, 5), max_size=3), max_size=5))
    at, header, expected = 0, {}, []
    for index, shape in enumerate(shapes):
        dtype = data.draw(st.sampled_from(["F32", "BF16", "U8", "I64"]))
        num_bytes = DTYPE_BITS[dtype] // 8
        for size in shape:
            num_bytes *= size
        header[f"t{index}"] = entry(dtype, shape, at, at + num_bytes)
        expected.append((dtype, tuple(shape), num_bytes))
        at += num_bytes
    read = {
        tensor.name: (tensor.dtype, tensor.shape, tensor.num_bytes)
        for tensor in parse(header_bytes(header), at).tensors
    }
    assert read == {f"t{index}": row for index, row in enumerate(expected)}


def test_files_of_the_safetensors_package_are_read(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy", reason="the safetensors package is not installed")
    import numpy as np

    arrays = {"a": np.zeros((3, 5), np.float16), "b": np.zeros((), np.int64), "c": np.zeros((2, 0), np.uint8)}
    numpy.save_file(arrays, tmp_path / "m.safetensors", metadata={"format": "np"})
    header = read_safetensors_header(tmp_path / "m.safetensors")
    assert {t.name: (t.shape, t.num_bytes) for t in header.tensors} == {
        k: (v.shape, v.nbytes) for k, v in arrays.items()
    }
    assert dict(header.metadata) == {"format": "np"}


@pytest.mark.parametrize("make", ["folder", "missing", "nul"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, make: str) -> None:
    path = {"folder": str(tmp_path), "missing": str(tmp_path / "no.safetensors"), "nul": "a\0b"}[make]
    with pytest.raises(ModelFileError):
        read_safetensors_header(path)


def test_an_index_names_its_shards_and_its_size() -> None:
    text = {
        "metadata": {"total_size": 12.0},
        "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"},
    }
    index = parse_safetensors_index(json.dumps(text).encode(), "index")
    assert index.shards == ("m-1.safetensors", "m-2.safetensors")
    assert index.total_size == 12
    assert index.shard_of["c"] == "m-1.safetensors"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "expected"),
        (b"{}", "weight_map"),
        (b'{"weight_map":{}}', "weight_map"),
        (b'{"weight_map":[]}', "weight_map"),
        (b'{"weight_map":{"a":"../../etc/passwd.safetensors"}}', "beside the index"),
        (b'{"weight_map":{"a":"/etc/x.safetensors"}}', "beside the index"),
        (b'{"weight_map":{"a":"sub/x.safetensors"}}', "beside the index"),
        (b'{"weight_map":{"a":"model.safetensors.index.json"}}', "beside the index"),
        (b'{"weight_map":{"a":".."}}', "beside the index"),
        (b'{"weight_map":{"a":"x\\n.safetensors"}}', "beside the index"),
        (b'{"weight_map":{"a":1}}', "text"),
        (b'{"weight_map":{"a":"x.safetensors","a":"x.safetensors"}}', "twice"),
        (b'{"weight_map":{"a":"x.safetensors"},"weight_map":{"b":"x.safetensors"}}', "twice"),
        (b'{"weight_map":{"a":"x.safetensors"}} trailing', "follows"),
        (b'{"other":{}}', "metadata and weight_map"),
        (b"<html>", "expected"),
    ],
)
def test_an_index_that_lies_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        parse_safetensors_index(text, "index")
