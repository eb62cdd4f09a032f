"""The tensors of a converted GGUF file are what numpy and the gguf package make of the same numbers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from convert import tiny
from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_weights
from inference_bench.convert.flow import ConversionRequest, convert_model
from inference_bench.convert.plan import GGUF_FORMATS
from inference_bench.errors import ModelFileError, RequestError, UnknownNameError
from inference_bench.facts.load import load_model

GGML = gguf.GGMLQuantizationType
TYPES = {"q4_0": GGML.Q4_0, "q4_1": GGML.Q4_1, "q8_0": GGML.Q8_0, "f16": GGML.F16, "bf16": GGML.BF16, "f32": GGML.F32}


def is_matrix(name: str) -> bool:
    return "norm" not in name and not name.endswith(".bias")


def convert(source: Path, to: str) -> Path:
    target = source.with_name(f"out-{to}.gguf")
    convert_model(ConversionRequest(source, target, to))
    return target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tiny.write(tmp_path / "in.gguf", tiny.tensors(tied=False))


def test_half_precision_is_what_numpy_rounds_to(source: Path) -> None:
    found = tiny.stored(convert(source, "f16"))
    for name, values in tiny.tensors(tied=False).items():
        kind, stored = found[name]
        assert kind == (GGML.F16 if is_matrix(name) else GGML.F32), name
        expected = values.astype(np.float16) if is_matrix(name) else values
        assert np.array_equal(stored, expected), name


def test_bfloat16_is_rounded_to_nearest_even(tmp_path: Path) -> None:
    # by hand: 1 + 2^-8 lies halfway between 1 and 1 + 2^-7 and goes to the even one, 1 + 3·2^-8 up to 1 + 2·2^-7
    weights = tiny.tensors()
    weights["token_embd.weight"][0, :4] = (1.0, 1 + 2**-8, 1 + 3 * 2**-8, -1.5)
    _, stored = tiny.stored(convert(tiny.write(tmp_path / "in.gguf", weights), "bf16"))["token_embd.weight"]
    bits = stored.view(np.uint16).reshape(len(tiny.VOCABULARY), -1)[0, :4]
    assert [hex(value) for value in bits] == ["0x3f80", "0x3f80", "0x3f82", "0xbfc0"]


@pytest.mark.parametrize("to", ["q4_0", "q4_1", "q8_0"])
def test_blocks_are_those_of_the_gguf_package(source: Path, to: str) -> None:
    found = tiny.stored(convert(source, to))
    for name, values in tiny.tensors(tied=False).items():
        is_table = name in ("token_embd.weight", "output.weight")
        kind = GGML.F32 if not is_matrix(name) else GGML.Q8_0 if is_table else TYPES[to]
        assert found[name][0] == kind, name
        expected = gguf.quants.quantize(values, kind)
        assert np.array_equal(found[name][1].reshape(expected.shape), expected), name


def test_blocks_whose_numbers_all_but_vanish_are_stored_without_a_complaint(tmp_path: Path) -> None:
    weights = tiny.tensors()
    weights["blk.0.ffn_up.weight"][0] = 1e-40
    weights["blk.0.ffn_up.weight"][1] = 0
    found = tiny.stored(convert(tiny.write(tmp_path / "in.gguf", weights), "q8_0"))["blk.0.ffn_up.weight"]
    assert not gguf.quants.dequantize(found[1], found[0])[:2].any()


@pytest.mark.parametrize("stored_as", [GGML.Q4_1, GGML.Q5_1, GGML.Q8_0, GGML.F16])
def test_numbers_are_read_back_from_the_formats_of_the_source(tmp_path: Path, stored_as: GGML) -> None:
    source = tiny.write(tmp_path / "in.gguf", matrix_type=stored_as)
    found = tiny.stored(convert(source, "f32"))
    for name, values in tiny.tensors().items():
        once = gguf.quants.dequantize(gguf.quants.quantize(values, stored_as), stored_as) if is_matrix(name) else values
        assert np.array_equal(found[name][1], once), name


def test_a_tensor_that_has_the_format_already_keeps_its_bytes(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf", matrix_type=GGML.Q4_1)
    before, after = tiny.stored(source), tiny.stored(convert(source, "q4_1"))
    linear = [name for name in before if ".ffn_" in name and "norm" not in name]
    assert len(linear) == 3 * tiny.LAYERS
    for name in linear:
        assert np.array_equal(before[name][1], after[name][1]), name


def test_key_values_and_tokenizer_are_copied_and_only_the_file_type_changes(source: Path) -> None:
    before, after = tiny.read(source).fields, tiny.read(convert(source, "q8_0")).fields
    assert list(before) == list(after)
    assert len(before) > 20
    counts = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count")
    for key, field in before.items():
        if key == "general.file_type":
            assert (field.contents(), after[key].contents()) == (
                gguf.LlamaFileType.ALL_F32,
                gguf.LlamaFileType.MOSTLY_Q8_0,
            )
        elif key not in counts:
            assert field.contents() == after[key].contents(), key


@pytest.mark.parametrize("to", GGUF_FORMATS)
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("arch", ["llama", "qwen2"])
def test_the_bytes_counted_before_are_the_bytes_of_the_file(tmp_path: Path, to: str, tied: bool, arch: str) -> None:
    source = tiny.write(tmp_path / "in.gguf", tiny.tensors(tied=tied, biased=arch == "qwen2"), arch=arch)
    target = tmp_path / "out.gguf"
    made = convert_model(ConversionRequest(source, target, to))
    in_file = sum(int(tensor.n_bytes) for tensor in tiny.read(target).tensors)
    counted = count_weights(load_model(str(source)).spec, weight_plan(made.weights)).total
    assert in_file == counted == made.counted_bytes == made.tensor_bytes > 0
    assert in_file == sum(tensor.num_bytes for tensor in load_model(str(target)).tensors or ())


def test_another_alignment_is_kept(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf", extra=lambda writer: writer.add_custom_alignment(256))
    target = convert(source, "q4_1")
    offsets = [tensor.data_offset for tensor in tiny.read(target).tensors]
    assert len(offsets) == len(tiny.tensors())
    assert all(offset % 256 == 0 for offset in offsets)


def test_large_tensors_come_out_the_same_in_pieces(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = convert(source, "q4_1").read_bytes()
    monkeypatch.setattr("inference_bench.convert.numbers._CHUNK_VALUES", 3 * tiny.HIDDEN)
    source.with_name("out-q4_1.gguf").unlink()
    assert convert(source, "q4_1").read_bytes() == whole


def test_a_design_that_is_not_converted_is_refused_by_name(tmp_path: Path) -> None:
    source = tiny.write(tmp_path / "in.gguf", arch="gemma")
    with pytest.raises(ModelFileError, match=r"'gemma' is not converted; converted: llama, qwen2"):
        convert(source, "f16")


def test_an_unknown_format_is_refused_with_those_that_are_known(source: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"'q5_k'; known: q4_0, q4_1, q8_0, f16, bf16, f32, hf"):
        convert(source, "q5_k")


@pytest.mark.parametrize(("value", "to"), [(1e6, "f16"), (np.inf, "q8_0"), (np.nan, "f32")])
def test_a_number_that_cannot_be_stored_is_refused(tmp_path: Path, value: float, to: str) -> None:
    weights = tiny.tensors()
    weights["blk.1.ffn_up.weight"][3, 5] = value
    source = tiny.write(tmp_path / "in.gguf", weights, matrix_type=GGML.BF16)
    if np.isnan(value):
        assert to == "f32"
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_up\.weight"):
        convert(source, to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.gguf"]


def test_rows_that_do_not_fill_blocks_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiny, "INNER", 40)
    with pytest.raises(ModelFileError, match=r"rows of 40 values, which q8_0 cannot store"):
        convert(tiny.write(tmp_path / "in.gguf", tiny.tensors()), "q8_0")


def test_a_dtype_is_no_word_for_a_gguf_file(source: Path) -> None:
    with pytest.raises(RequestError, match="a dtype is for a folder"):
        convert_model(ConversionRequest(source, source.with_name("o.gguf"), "f16", dtype="bfloat16"))
