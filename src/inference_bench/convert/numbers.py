"""One tensor read from a file and stored anew, a bounded number of rows at a time.

In:   a ConversionSource, a tensor of it, a target format
Out:  the tensor's bytes in that format; or its rows as float32
Leaves out: which format a tensor gets (see plan), and where the bytes go
Read next by: gguf_file, hugging_face_tensors.

A tensor that has its format already is copied as it stands. Blocks are those of the gguf package, which are ggml's own, unless
another encoder is given: ggml's own library, say (labs.quantise.engine_quants), which knows more formats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from inference_bench.convert.plan import ConversionSource, TensorPlan
from inference_bench.errors import MissingExtraError, ModelFileError
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.gguf_header import GGUFTensor
from inference_bench.facts.models import StoredTensor
from inference_bench.units import MEBI

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Encoder = Callable[[NDArray[np.float32], NumberFormat, str], NDArray[Any]]

_CHUNK_VALUES: Final = 8 * MEBI  # numbers held as float32 at once
_LARGEST_HALF: Final = 65504.0
_LARGEST: Final = {"fp16": 1, "q8_0": 127, "q4_0": 8, "q4_1": 1}  # times the largest half-precision number
_LARGEST_BF16: Final = float.fromhex("0x1.fep127")
_VANISHING: Final = 1e-30  # below this a block's half-precision scale is 0, and its inverse overflows


def require_libraries() -> None:
    """Say at once what is missing.

    Raises:  MissingExtraError
    """
    try:
        import gguf.quants  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"converting a model needs {error.name}; install it with: pip install 'inference-bench[convert]'"
        ) from None


class TensorReader:
    """The tensors of one open file; encoder makes the bytes of those that are stored anew."""

    def __init__(self, source: ConversionSource, encoder: Encoder | None = None) -> None:
        self._source = source
        self._encode = encoder or encode
        self._file: BinaryIO = _opened(source.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def stored_anew(self, plan: TensorPlan) -> Iterator[bytes | memoryview]:
        """The tensor in its new format, in pieces.

        Raises:   ModelFileError if it cannot be read, or holds what the format cannot
        """
        same = plan.source.number_format is plan.target
        for raw in self._pieces(plan.stored, plan.source):
            if same:
                yield raw
            else:
                yield self._encode(self._decode(raw, plan.stored, plan.source), plan.target, plan.stored.name).data

    def rows(self, stored: GGUFTensor, source: StoredTensor, whole: bool = False) -> Iterator[NDArray[np.float32]]:
        """The tensor as float32, in pieces of whole rows, or in one.

        Shape:    [rows, row values]
        Raises:   ModelFileError if it cannot be read
        """
        for raw in self._pieces(stored, source, source.num_values if whole else _CHUNK_VALUES):
            yield self._decode(raw, stored, source)

    def _pieces(self, stored: GGUFTensor, source: StoredTensor, max_values: int = _CHUNK_VALUES) -> Iterator[bytes]:
        row_bytes = source.number_format.count_bytes(source.row_values)
        num_rows = source.num_values // source.row_values
        step = max(1, max_values // source.row_values)
        start = self._source.header.data_offset + stored.offset
        for row in range(0, num_rows, step):
            yield self._read(start + row * row_bytes, min(step, num_rows - row) * row_bytes, stored.name)

    def _read(self, start: int, num_bytes: int, name: str) -> bytes:
        try:
            self._file.seek(start)
            raw = self._file.read(num_bytes)
        except OSError as error:
            raise ModelFileError(f"cannot read {self._source.path.name}: {error.strerror or error}") from error
        if len(raw) < num_bytes:
            raise ModelFileError(f"{self._source.path.name} ends within tensor {name[:80]!r}; fetch it again")
        return raw

    def _decode(self, raw: bytes, stored: GGUFTensor, source: StoredTensor) -> NDArray[np.float32]:
        import numpy as np
        from gguf import GGMLQuantizationType, quants

        row_bytes = source.number_format.count_bytes(source.row_values)
        blocks = np.frombuffer(raw, np.uint8).reshape(-1, row_bytes)
        try:
            values = quants.dequantize(blocks, GGMLQuantizationType(stored.ggml_type))
        except (NotImplementedError, ValueError):
            raise ModelFileError(
                f"{self._source.path.name}: tensor {stored.name[:80]!r} is stored as {source.number_format.name}, which cannot "
                "be read back into numbers"
            ) from None
        if not np.isfinite(values).all():
            raise ModelFileError(
                f"{self._source.path.name}: tensor {stored.name[:80]!r} holds infinities or values that are no numbers"
            )
        return np.asarray(values, np.float32)


def encode(values: NDArray[np.float32], target: NumberFormat, name: str) -> NDArray[Any]:
    """Numbers in a format, as ggml rounds them; plain formats are rounded to nearest, ties to even.

    Where:    name is what an error calls the tensor

    Raises:   ModelFileError for a number that the format cannot hold
    """
    import numpy as np
    from gguf import GGMLQuantizationType, quants

    largest = _LARGEST_HALF * _LARGEST[target.name] if target.name in _LARGEST else _LARGEST_BF16
    found = float(np.abs(values).max(initial=0.0))
    if target.name != "fp32" and found > largest:
        raise ModelFileError(
            f"tensor {name[:80]!r} holds the value {found:.3g}, and {target.name} goes up to {largest:.3g}; bf16 and f32 go further"
        )
    if not target.is_plain:
        values = np.where(np.abs(values) < _VANISHING, np.float32(0), values)
    blocks = quants.quantize(np.ascontiguousarray(values), GGMLQuantizationType(target.ggml_type or 0))
    return np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise ModelFileError(f"cannot read {path.name}: {error.strerror or error}") from error
