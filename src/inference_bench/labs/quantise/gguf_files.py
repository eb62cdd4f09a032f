"""The same weights as real files: GGUF, each format rounded by the engine's own library.

In:   the GGUF file that the model came from, a format, how much each column matters
Out:  EngineFile; a file's matrices read back into floats, by the names that the network has for them
Leaves out: serving them (gguf_quality); formats of 256 values a block, which rows of 576 cannot fill
Read next by: gguf_quality.

The header, the plan of formats and the writing are those of `convert`; its encoder is exchanged for the engine's. A matrix that has the
format already is copied as it stands. Files go where they are told, and whoever asks takes them away again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import WeightCount, count_weights
from inference_bench.convert.gguf_file import write_gguf
from inference_bench.convert.hugging_face_config import read_shape
from inference_bench.convert.hugging_face_tensors import TensorMove, in_halves, plan_moves
from inference_bench.convert.numbers import TensorReader, encode
from inference_bench.convert.plan import ConversionSource, plan_tensors, read_source, weights_name
from inference_bench.facts.formats import NumberFormat
from inference_bench.labs.quantise.engine_quants import engine_quantiser

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from inference_bench.convert.numbers import Encoder

_WEIGHT: Final = ".weight"


@dataclass(frozen=True, slots=True)
class EngineFile:
    """One file.

    Where:  counted says what `fit` counts for the same formats from the model's shape alone
    Unit:   bytes
    """

    format: str
    path: Path
    num_bytes: int
    tensor_bytes: int
    sha256: str
    counted: WeightCount


def file_matrices(source: ConversionSource) -> dict[str, TensorMove]:
    """The file's weights by the names that the network made of it has for its layers.

    Raises:  ModelFileError for a file that no network is made of
    """
    moves = plan_moves(source, read_shape(source))
    return {move.name.removesuffix(_WEIGHT): move for move in moves if move.name.endswith(_WEIGHT)}


def stored_format(source: ConversionSource) -> str | None:
    """The number format of most matrices of the layers; None where they are plain floats, which nothing has rounded before."""
    kinds = Counter(stored.number_format for tensor, stored in source.tensors if tensor.name.startswith("blk."))
    coarse = [fmt.name for fmt, _ in kinds.most_common() if not fmt.is_plain]
    return coarse[0] if coarse else None


def write_engine_file(
    source: ConversionSource,
    fmt: str,
    folder: Path,
    say: Callable[[str], None],
    importance: Mapping[str, NDArray[np.float32]] | None = None,
    num_threads: int = 1,
) -> EngineFile:
    """The model in a format of GGUF.

    Where:   importance is by the file's own names of its matrices
    Raises:  ModelFileError for rows the format cannot store; MissingExtraError; StorageError where the disk is full
    """
    plans = plan_tensors(source, fmt)
    path = folder / f"{source.path.stem[:80]}.{fmt}{'.weighed' if importance else ''}.gguf"
    written = write_gguf(source, plans, fmt, path, say, _encoder(importance or {}, num_threads))
    return EngineFile(
        format=fmt,
        path=path,
        num_bytes=written.num_bytes,
        tensor_bytes=sum(plan.target_bytes for plan in plans),
        sha256=written.sha256,
        counted=count_weights(source.model.spec, weight_plan(weights_name(source, fmt))),
    )


def _encoder(importance: Mapping[str, NDArray[np.float32]], num_threads: int) -> Encoder:
    """The engine's quantiser for blocks, and plain rounding for the rest."""

    def encoder(values: NDArray[np.float32], target: NumberFormat, name: str) -> NDArray[Any]:
        if target.is_plain:
            return encode(values, target, name)
        return engine_quantiser().quantised(values, target, importance.get(name), num_threads).reshape(-1)

    return encoder


def weights_in_file(
    path: Path, names: Mapping[str, torch.Tensor], say: Callable[[str], None]
) -> dict[str, torch.Tensor]:
    """The matrices that a file holds for these linear layers, as floats in the network's order of rows.

    Where:   names gives each layer's own matrix, for its shape
    Raises:  ModelFileError for what cannot be read
    """
    import torch

    source = read_source(path)
    found: dict[str, torch.Tensor] = {}
    with TensorReader(source) as reader:
        for name, move in file_matrices(source).items():
            if name not in names:
                continue
            say(move.stored.name)
            (values,) = reader.rows(move.stored, move.source, whole=True)
            heads = move.interleaved_heads
            found[name] = torch.tensor(values if heads is None else in_halves(values, heads)).reshape(names[name].shape)
    return found
