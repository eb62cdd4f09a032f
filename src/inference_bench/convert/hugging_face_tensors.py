"""model.safetensors of a Hugging Face folder, from the tensors of a GGUF file.

In:   a ConversionSource, HuggingFaceShape, a dtype
Out:  a TensorMove for each tensor, each with the bytes it will take; the file, written tensor by tensor
Leaves out: formats of blocks: a folder holds plain numbers
Read next by: hugging_face.

llama.cpp keeps the rows of a llama's queries and keys in another order, so that the two halves of a rotated pair are neighbours.
The rows are put back.

Source: safetensors, the file format; transformers, names of LlamaForCausalLM and Qwen2ForCausalLM; llama.cpp, conversion of the two
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from inference_bench.convert.hugging_face_config import HuggingFaceShape
from inference_bench.convert.numbers import TensorReader, encode
from inference_bench.convert.outputs import Writer
from inference_bench.convert.plan import ConversionSource
from inference_bench.errors import ModelFileError
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.gguf_header import GGUFTensor
from inference_bench.facts.models import StoredTensor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FILE_NAME: Final = "model.safetensors"
_DTYPE_CODES: Final = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
_ALIGNMENT: Final = 8
_BIASED: Final = {"qwen2": ("q", "k", "v")}


@dataclass(frozen=True, slots=True)
class TensorMove:
    """One tensor on its way.

    Shape:   as the folder has it, the dimension that is contiguous in memory last
    Where:   interleaved_heads is how many heads the rows belong to whose order is put back, None where it is kept
    """

    name: str
    shape: tuple[int, ...]
    stored: GGUFTensor
    source: StoredTensor
    interleaved_heads: int | None

    def num_bytes(self, fmt: NumberFormat) -> int:
        """Bytes in a plain format."""
        return fmt.count_bytes(self.source.num_values)


def plan_moves(source: ConversionSource, shape: HuggingFaceShape) -> tuple[TensorMove, ...]:
    """Every tensor of the folder and the one of the file it comes from.

    Raises:  ModelFileError for one that is missing, has another shape, or has no place in the folder
    """
    by_name = {tensor.name: (tensor, stored) for tensor, stored in source.tensors}
    moves = []
    for theirs, ours, dimensions, heads in _expected(shape):
        if ours not in by_name:
            raise ModelFileError(f"{source.path.name} has no tensor {ours}, which a {shape.architecture} needs")
        tensor, stored = by_name.pop(ours)
        if tensor.shape[::-1] != dimensions:
            raise ModelFileError(
                f"{source.path.name}: tensor {ours} has the shape {tensor.shape[::-1]}; its keys say {dimensions}"
            )
        moves.append(TensorMove(theirs, dimensions, tensor, stored, heads))
    if by_name:
        raise ModelFileError(
            f"{source.path.name}: tensor {next(iter(by_name))[:80]!r} has no place in a {shape.architecture} folder"
        )
    return tuple(moves)


_Row = tuple[str, str, tuple[int, ...], int | None]


def _expected(shape: HuggingFaceShape) -> Iterator[_Row]:
    """Name in the folder, name in the file, shape, heads whose rows are interleaved."""
    hidden = shape.hidden_size
    yield "model.embed_tokens.weight", "token_embd.weight", (shape.vocab_size, hidden), None
    for index in range(shape.num_layers):
        yield from _expected_layer(shape, f"model.layers.{index}.", f"blk.{index}.")
    yield "model.norm.weight", "output_norm.weight", (hidden,), None
    if not shape.tied:
        yield "lm_head.weight", "output.weight", (shape.vocab_size, hidden), None


def _expected_layer(shape: HuggingFaceShape, theirs: str, ours: str) -> Iterator[_Row]:
    hidden, inner = shape.hidden_size, shape.intermediate_size
    widths = {"q": shape.num_heads, "k": shape.num_kv_heads, "v": shape.num_kv_heads}
    rows: list[_Row] = []
    for letter, heads in widths.items():
        interleaved = heads if shape.architecture == "llama" and letter != "v" else None
        width = heads * shape.head_dim
        rows.append((f"self_attn.{letter}_proj.weight", f"attn_{letter}.weight", (width, hidden), interleaved))
        if letter in _BIASED.get(shape.architecture, ()):  # of a design whose rows are in order
            rows.append((f"self_attn.{letter}_proj.bias", f"attn_{letter}.bias", (width,), None))
    rows += [
        ("self_attn.o_proj.weight", "attn_output.weight", (hidden, shape.num_heads * shape.head_dim), None),
        ("mlp.gate_proj.weight", "ffn_gate.weight", (inner, hidden), None),
        ("mlp.up_proj.weight", "ffn_up.weight", (inner, hidden), None),
        ("mlp.down_proj.weight", "ffn_down.weight", (hidden, inner), None),
        ("input_layernorm.weight", "attn_norm.weight", (hidden,), None),
        ("post_attention_layernorm.weight", "ffn_norm.weight", (hidden,), None),
    ]
    yield from ((theirs + name, ours + stored, dimensions, heads) for name, stored, dimensions, heads in rows)


def write_safetensors(
    source: ConversionSource, moves: Sequence[TensorMove], dtype: str, out: Writer, say: Callable[[str], None]
) -> None:
    """The header, then one tensor after the other.

    Raises:  ModelFileError
    """
    fmt = number_format(dtype)
    out.write(_header(moves, fmt, _DTYPE_CODES[dtype]))
    with TensorReader(source) as reader:
        for number, move in enumerate(moves, start=1):
            say(f"{move.name} as {dtype}, {number} of {len(moves)}")
            heads = move.interleaved_heads
            for values in reader.rows(move.stored, move.source, whole=heads is not None):
                out.write(encode(values if heads is None else in_halves(values, heads), fmt, move.name).data)


def in_halves(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Rows of each head in the order of its two halves, from pairs that lie side by side.

    Shape:   [heads · head_dim, columns], as it comes
    """
    return values.reshape(heads, -1, 2, values.shape[-1]).swapaxes(1, 2).reshape(values.shape)


def _header(moves: Sequence[TensorMove], fmt: NumberFormat, code: str) -> bytes:
    """Eight bytes that say how long the JSON is, and the JSON, padded with spaces."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for move in moves:
        end = at + move.num_bytes(fmt)
        entries[move.name] = {"dtype": code, "shape": list(move.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return struct.pack("<Q", len(text)) + text
