"""Files in the engine's formats hold the bytes that are counted, and read back as the network's own matrices."""

from __future__ import annotations

from pathlib import Path

import pytest

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("xllamacpp")

from gguf import quants  # noqa: E402

from convert import tiny  # noqa: E402
from inference_bench.convert.flow import ConversionRequest, convert_model  # noqa: E402
from inference_bench.convert.plan import ConversionSource, read_source  # noqa: E402
from inference_bench.errors import ModelFileError, StorageError  # noqa: E402
from inference_bench.facts.formats import number_format  # noqa: E402
from inference_bench.labs.quantise.gguf_files import (  # noqa: E402
    stored_format,
    weights_in_file,
    write_engine_file,
)

BLOCKS = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4")


def quiet(_line: str) -> None:
    return


@pytest.fixture
def source(tmp_path: Path) -> ConversionSource:
    return read_source(tiny.write(tmp_path / "in.gguf", tiny.tensors()))


@pytest.mark.parametrize("fmt", [*BLOCKS, "f16"])
def test_a_file_is_sound_and_takes_the_bytes_that_fit_counts(
    source: ConversionSource, tmp_path: Path, fmt: str
) -> None:
    file = write_engine_file(source, fmt, tmp_path, quiet)
    assert file.tensor_bytes == file.counted.total
    assert file.num_bytes == file.path.stat().st_size
    read = gguf.GGUFReader(file.path)  # an independent reader
    kinds = {tensor.name: tensor.tensor_type for tensor in read.tensors}
    assert kinds["blk.1.ffn_down.weight"] == number_format(fmt).ggml_type
    assert kinds["token_embd.weight"] == number_format("q8_0" if fmt in BLOCKS else fmt).ggml_type
    assert sum(int(tensor.n_bytes) for tensor in read.tensors) == file.tensor_bytes


def test_a_model_that_was_rounded_before_is_known_by_its_file(source: ConversionSource, tmp_path: Path) -> None:
    assert stored_format(source) is None
    assert stored_format(read_source(write_engine_file(source, "q4_1", tmp_path, quiet).path)) == "q4_1"


def test_columns_that_are_weighed_by_their_importance_change_the_blocks(
    source: ConversionSource, tmp_path: Path
) -> None:
    importance = {"blk.0.attn_q.weight": np.linspace(1, 100, tiny.HIDDEN).astype(np.float32)}
    plain = tiny.stored(write_engine_file(source, "q4_0", tmp_path, quiet).path)
    weighed = tiny.stored(write_engine_file(source, "q4_0", tmp_path, quiet, importance).path)
    changed = [name for name in plain if not np.array_equal(plain[name][1], weighed[name][1])]
    assert changed == ["blk.0.attn_q.weight"]


def test_matrices_read_back_are_those_of_the_network_made_from_the_same_file(
    source: ConversionSource, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    from inference_bench.labs.quantise.linears import linear_layers

    convert_model(ConversionRequest(source.path, tmp_path / "folder", "hf"))
    network = AutoModelForCausalLM.from_pretrained(tmp_path / "folder", local_files_only=True)
    own = {name: layer.weight.data for name, layer in linear_layers(network).items()}
    file = write_engine_file(source, "f32", tmp_path, quiet)
    found = weights_in_file(file.path, own, quiet)
    assert set(found) == set(own)
    assert all(torch.equal(found[name], own[name]) for name in own)


def test_rounded_matrices_read_back_are_what_their_blocks_say(source: ConversionSource, tmp_path: Path) -> None:
    file = write_engine_file(source, "q4_0", tmp_path, quiet)
    expected = tiny.tensors()["blk.1.ffn_up.weight"]
    blocks = quants.quantize(expected, gguf.GGMLQuantizationType.Q4_0)
    shape = torch.empty(tiny.INNER, tiny.HIDDEN)
    found = weights_in_file(file.path, {"model.layers.1.mlp.up_proj": shape}, quiet)["model.layers.1.mlp.up_proj"]
    assert np.array_equal(found.numpy(), quants.dequantize(blocks, gguf.GGMLQuantizationType.Q4_0))


@pytest.mark.parametrize("name", ["lm_head", "model.layers.x.mlp.up_proj", "model.layers.0.mlp.router", "up_proj"])
def test_a_layer_that_a_file_has_no_matrix_for_has_none(source: ConversionSource, name: str) -> None:
    there = "model.layers.0.mlp.up_proj"
    shape = torch.empty(tiny.INNER, tiny.HIDDEN)
    assert set(weights_in_file(source.path, {name: shape, there: shape}, quiet)) == {there}


def test_a_format_of_larger_blocks_than_the_rows_is_refused(source: ConversionSource, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="q4_k cannot store"):
        write_engine_file(source, "q4_k", tmp_path, quiet)


def test_a_full_disk_is_said_and_leaves_nothing(
    source: ConversionSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 10})())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(StorageError, match="free some space"):
        write_engine_file(source, "q4_0", tmp_path, quiet)
    assert sorted(tmp_path.iterdir()) == before
