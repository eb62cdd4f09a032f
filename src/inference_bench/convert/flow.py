"""`convert`: the same model in another number format, or as a folder, in one call.

In:   ConversionRequest
Out:  Conversion: what was written, its hashes, its bytes beside those that were counted before
Leaves out: keeping conversions for another time (see cached)
Read next by: cached, cli.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_bench.accounting.weight_plan import weight_plan
from inference_bench.accounting.weights import count_weights
from inference_bench.convert.gguf_file import write_gguf
from inference_bench.convert.hugging_face import FILES, plan_folder, write_folder
from inference_bench.convert.hugging_face_config import DTYPES
from inference_bench.convert.numbers import require_libraries
from inference_bench.convert.outputs import WrittenFile, require_free_target
from inference_bench.convert.plan import (
    HUGGING_FACE,
    plan_tensors,
    read_source,
    require_target,
    weights_name,
)
from inference_bench.errors import ModelFileError, RequestError, UnknownNameError
from inference_bench.facts.formats import number_format
from inference_bench.measure.files import sha256_of_file

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ConversionRequest:
    """What to make of which file, and where.

    Where:  to is a format of GGUF, or hf for a folder, whose weights are of dtype; may_replace lets an earlier result go, and
            to_replace is how whoever asks says that
    """

    source: Path
    target: Path
    to: str
    dtype: str = "float32"
    may_replace: bool = False
    to_replace: str = "ask for it to be replaced"


@dataclass(frozen=True, slots=True)
class Conversion:
    """A finished conversion.

    Where:  weights is the name under which `fit` counts the same bytes; target_sha256 is that of the file, or of a folder the
            hash of its files' names and hashes, a line each, as sha256sum prints them
    Unit:   bytes, seconds
    """

    source: Path
    source_sha256: str
    source_tensor_bytes: int
    target: Path
    target_sha256: str
    to: str
    weights: str
    architecture: str
    num_tensors: int
    counted_bytes: int
    tensor_bytes: int
    files: tuple[WrittenFile, ...]
    elapsed_s: float


def convert_model(request: ConversionRequest, progress: Progress | None = None) -> Conversion:
    """Write the model anew.

    Raises:  RequestError and its kinds for what cannot be converted, or written there; StorageError
    """
    say, started_s = progress or (lambda _text: None), time.monotonic()
    require_libraries()
    _check(request)
    source = read_source(request.source)
    say(f"hashing {source.path.name}")
    source_sha256 = _hash(request.source)
    if request.to == HUGGING_FACE:
        plan = plan_folder(source, request.dtype)
        tensor_bytes, num_tensors, weights = plan.tensor_bytes, len(plan.moves), number_format(request.dtype).name
        files: Sequence[WrittenFile] = write_folder(source, plan, request.target, say)
    else:
        plans, weights = plan_tensors(source, request.to), weights_name(source, request.to)
        tensor_bytes, num_tensors = sum(each.target_bytes for each in plans), len(plans)
        files = [write_gguf(source, plans, request.to, request.target, say)]
    return Conversion(
        source=request.source,
        source_sha256=source_sha256,
        source_tensor_bytes=sum(stored.num_bytes for _, stored in source.tensors),
        target=request.target,
        target_sha256=files[0].sha256 if request.to != HUGGING_FACE else _folder_hash(files),
        to=request.to,
        weights=weights,
        architecture=source.architecture,
        num_tensors=num_tensors,
        counted_bytes=count_weights(source.model.spec, weight_plan(weights)).total,
        tensor_bytes=tensor_bytes,
        files=tuple(files),
        elapsed_s=time.monotonic() - started_s,
    )


def _check(request: ConversionRequest) -> None:
    """Refuse what could not end well before anything slow begins."""
    require_target(request.to)
    is_folder = request.to == HUGGING_FACE
    if request.dtype not in DTYPES:
        raise UnknownNameError(f"dtype {request.dtype[:40]!r} is not known; known: {', '.join(DTYPES)}")
    if not is_folder and request.dtype != DTYPES[0]:
        raise RequestError(
            f"a dtype is for a folder; the format of a GGUF file is the target itself, here {request.to}"
        )
    if not is_folder and request.target.suffix != ".gguf":
        raise RequestError(f"a GGUF file is named NAME.gguf, not {request.target.name[:80]!r}")
    to_replace = None if request.may_replace else request.to_replace
    require_free_target(request.target, request.source, is_folder=is_folder, to_replace=to_replace, own_files=FILES)


def _hash(path: Path) -> str:
    try:
        return sha256_of_file(path)
    except OSError as error:
        raise ModelFileError(f"cannot read {path.name}: {error.strerror or error}") from error


def _folder_hash(files: Sequence[WrittenFile]) -> str:
    lines = "".join(f"{file.sha256}  {file.name}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()


def conversion_json(found: Conversion) -> dict[str, Any]:
    """The conversion as plain values."""
    return {
        "schema": "inference-bench/convert/1",
        "source": {"path": str(found.source), "sha256": found.source_sha256, "tensor_bytes": found.source_tensor_bytes},
        "target": {
            "path": str(found.target),
            "sha256": found.target_sha256,
            "format": found.to,
            "weights": found.weights,
            "tensor_bytes": found.tensor_bytes,
            "counted_bytes": found.counted_bytes,
            "files": [{"name": file.name, "bytes": file.num_bytes, "sha256": file.sha256} for file in found.files],
        },
        "architecture": found.architecture,
        "tensors": found.num_tensors,
        "elapsed_s": found.elapsed_s,
    }
