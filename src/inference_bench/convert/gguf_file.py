"""Writes a GGUF file with the tensors of another one in other formats.

In:   a ConversionSource, a plan for each tensor
Out:  the file: the key-values as they stand but for the file type, a new tensor table, the tensors in the order of the source
Leaves out: which format a tensor gets (see plan)
Read next by: flow.

Source: ggml, docs/gguf.md; file types as llama.cpp numbers them (llama_ftype)
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from inference_bench.convert.metadata import FIXED_HEAD_BYTES, read_raw_metadata, tensor_table_bytes
from inference_bench.convert.numbers import TensorReader
from inference_bench.convert.outputs import WrittenFile, whole_file
from inference_bench.convert.plan import ConversionSource, TensorPlan

if TYPE_CHECKING:
    from inference_bench.convert.numbers import Encoder

_FILE_TYPES: Final = {
    **{"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "bf16": 32},
    **{"q5_0": 8, "q5_1": 9, "iq4_nl": 25, "mxfp4": 38},
}


def write_gguf(
    source: ConversionSource,
    plans: Sequence[TensorPlan],
    fmt: str,
    target: Path,
    say: Callable[[str], None],
    encoder: Encoder | None = None,
) -> WrittenFile:
    """The file, whole or not at all.

    Where:    encoder makes the bytes of tensors that change their format; None is the gguf package
    Raises:   ModelFileError for what cannot be read or stored, StorageError for what cannot be written
    """
    header, alignment = source.header, source.header.alignment
    metadata = read_raw_metadata(header, source.path).with_file_type(_FILE_TYPES[fmt])
    table, data_bytes = _tensor_table(plans, alignment)
    head_bytes = FIXED_HEAD_BYTES + len(metadata) + tensor_table_bytes(header)
    head = struct.pack("<4sIQQ", b"GGUF", header.version, len(plans), len(header.metadata)) + metadata + table
    with (
        TensorReader(source, encoder) as reader,
        whole_file(target, _padded(head_bytes, alignment) + data_bytes) as out,
    ):
        out.write(head + bytes(_padded(head_bytes, alignment) - head_bytes))
        for number, plan in enumerate(plans, start=1):
            say(f"{plan.stored.name} as {plan.target.name}, {number} of {len(plans)}")
            for piece in reader.stored_anew(plan):
                out.write(piece)
            out.write(bytes(_padded(plan.target_bytes, alignment) - plan.target_bytes))
        return out.done()


def _tensor_table(plans: Sequence[TensorPlan], alignment: int) -> tuple[bytes, int]:
    """The table, and the bytes of all tensors with the padding between them."""
    rows, offset = [], 0
    for plan in plans:
        name, shape = plan.stored.name.encode(), plan.stored.shape
        number = plan.target.ggml_type or 0
        rows.append(struct.pack("<Q", len(name)) + name)
        rows.append(struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset))
        offset += _padded(plan.target_bytes, alignment)
    return b"".join(rows), offset


def _padded(num_bytes: int, alignment: int) -> int:
    return -(-num_bytes // alignment) * alignment
