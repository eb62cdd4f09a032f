"""How does the engine's own library round a matrix? Its quantiser, called where it lies.

In:   rows of numbers, a format of GGUF, how much each column matters
Out:  the blocks as the engine reads them
Leaves out: files (gguf_files); formats of 256 values a block, which this lab's model has no rows for
Read next by: gguf_files.

The embedded engine is one shared library that exports ggml's C functions. They are looked up by name and called through ctypes. Before
any call the sizes that the library states are held against the table of formats, since a wrong one would write past the end.

Source: ggml, ggml.h: ggml_quantize_chunk, ggml_type_size, ggml_blck_size
"""

from __future__ import annotations

import ctypes
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from inference_bench.errors import MeasurementError, MissingExtraError, RequestError, UnknownNameError
from inference_bench.facts.formats import NumberFormat

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ENGINE_FORMATS: Final = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4")
"""Formats in blocks of 32 that are asked of it."""

_PACKAGE: Final = "xllamacpp"
_FUNCTIONS: Final = ("ggml_quantize_init", "ggml_quantize_chunk", "ggml_type_size", "ggml_blck_size")


@dataclass(frozen=True, slots=True)
class EngineQuantiser:
    """The library's functions, ready to be called.

    Where:  path is the file they were found in
    """

    path: Path
    library: Any

    def require_format(self, fmt: NumberFormat) -> int:
        """Ggml's number of a format whose blocks the library and the table agree on.

        Raises:  UnknownNameError for a format that is not asked of it; MeasurementError for other sizes than the table's
        """
        if fmt.name not in ENGINE_FORMATS or fmt.ggml_type is None:
            raise UnknownNameError(
                f"the engine's quantiser is not asked for {fmt.name[:40]!r}; formats: {', '.join(ENGINE_FORMATS)}"
            )
        found = (int(self.library.ggml_blck_size(fmt.ggml_type)), int(self.library.ggml_type_size(fmt.ggml_type)))
        if found != (fmt.block_values, fmt.block_bytes):
            raise MeasurementError(
                f"{self.path.name} stores {fmt.name} in blocks of {found[0]} values and {found[1]} bytes, and the table of formats "
                f"says {fmt.block_values} and {fmt.block_bytes}; this version of the engine cannot be used for it"
            )
        return fmt.ggml_type

    def quantised(
        self,
        values: NDArray[np.float32],
        fmt: NumberFormat,
        importance: NDArray[np.float32] | None = None,
        num_threads: int = 1,
    ) -> NDArray[np.uint8]:
        """A matrix as blocks, row after row; rows are shared out among threads, which changes none of them.

        Shape:   values [rows, columns]; importance [columns], not negative; the result [rows, bytes of a row]
        Raises:  RequestError for rows that the format cannot store, or an importance that does not fit
        """
        import numpy as np

        number = self.require_format(fmt)
        rows, columns = values.shape
        _check(values, fmt, importance)
        source = np.ascontiguousarray(values, np.float32)
        weight = None if importance is None else np.ascontiguousarray(importance, np.float32)
        blocks = np.empty((rows, fmt.count_bytes(columns)), np.uint8)
        step = max(1, -(-rows // num_threads))

        def write(first: int) -> int:
            part, out = source[first : first + step], blocks[first : first + step]
            pointer = None if weight is None else _floats(weight)
            return int(
                self.library.ggml_quantize_chunk(number, _floats(part), out.ctypes.data, 0, len(part), columns, pointer)
            )

        with ThreadPoolExecutor(num_threads) as pool:  # the library is called without the interpreter's lock
            written = sum(pool.map(write, range(0, rows, step)))
        if written != blocks.nbytes:
            raise MeasurementError(
                f"{self.path.name} wrote {written} bytes of {fmt.name} for {blocks.nbytes} bytes of space"
            )
        return blocks


def _check(values: NDArray[np.float32], fmt: NumberFormat, importance: NDArray[np.float32] | None) -> None:
    import numpy as np

    columns = values.shape[1]
    if columns % fmt.block_values:
        raise RequestError(
            f"rows of {columns} values cannot be stored as {fmt.name}; it needs multiples of {fmt.block_values}"
        )
    if not np.isfinite(values).all():
        raise RequestError(f"a matrix with values that are not finite cannot be stored as {fmt.name}")
    if importance is not None and (
        importance.shape != (columns,) or not np.isfinite(importance).all() or importance.min() < 0
    ):
        raise RequestError(
            f"the importance of {columns} columns is that many finite numbers of 0 or more, not {importance.shape}"
        )


def _floats(values: NDArray[np.float32]) -> Any:
    return values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))


@cache
def engine_quantiser(package: str = _PACKAGE) -> EngineQuantiser:
    """The functions of the installed engine.

    Raises:  MissingExtraError where there is no engine, or its library lacks one of them, by name
    """
    path = _library_path(package)
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise MissingExtraError(
            f"the engine's library {path.name} cannot be opened ({error}); install it with: pip install 'inference-bench[bench]'"
        ) from None
    for name in _FUNCTIONS:
        if not hasattr(library, name):
            raise MissingExtraError(
                f"the installed {package} exports no {name}, so its quantiser cannot be called; another version of {package} may"
            )
    _declare(library)
    for number in (8, 2):  # builds what tables it keeps; blocks of 32 need none, and a version may change that
        library.ggml_quantize_init(number)
    return EngineQuantiser(path, library)


def _library_path(package: str) -> Path:
    """Where the package's shared library lies; the package itself is not imported.

    Raises:  MissingExtraError
    """
    found = importlib.util.find_spec(package)
    for folder in (found.submodule_search_locations or ()) if found else ():
        for path in sorted(Path(folder).iterdir()):
            if path.name.startswith(f"{package}.") and path.suffix in (".so", ".pyd", ".dylib"):
                return path
    raise MissingExtraError(
        f"the engine's quantiser needs the package {package}; install it with: pip install 'inference-bench[bench]'"
    )


def _declare(library: Any) -> None:
    """The functions' types, as ggml.h has them."""
    floats = ctypes.POINTER(ctypes.c_float)
    number, size = ctypes.c_int, ctypes.c_size_t
    library.ggml_quantize_init.argtypes, library.ggml_quantize_init.restype = [number], None
    library.ggml_type_size.argtypes, library.ggml_type_size.restype = [number], size
    library.ggml_blck_size.argtypes, library.ggml_blck_size.restype = [number], ctypes.c_int64
    library.ggml_quantize_chunk.restype = size
    library.ggml_quantize_chunk.argtypes = [
        number,
        floats,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        floats,
    ]
