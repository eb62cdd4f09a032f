"""What does each tensor of a GGUF file become, and how many bytes is that?

In:   a path; a target format
Out:  ConversionSource (header and model); a TensorPlan for each tensor; the
      same as a name by which `fit` counts the bytes from the model's shape alone
Leaves out: the numbers themselves (see numbers)
Read next by: gguf_file, hugging_face, flow.

The matrices of the layers get the format that was asked for. The input table and the head get it too, or q8_0 where it is coarser
than that, as quantisers do. Norms, biases and routers stay in 32 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from inference_bench.errors import ModelFileError, UnknownNameError
from inference_bench.facts.formats import NumberFormat, number_format
from inference_bench.facts.gguf import read_gguf_header
from inference_bench.facts.gguf_header import GGUFHeader, GGUFTensor
from inference_bench.facts.gguf_model import model_from_gguf
from inference_bench.facts.models import LoadedModel, StoredTensor, TensorRole

ARCHITECTURES: Final = ("llama", "qwen2")
GGUF_FORMATS: Final = ("q4_0", "q4_1", "q8_0", "f16", "bf16", "f32")
HUGGING_FACE: Final = "hf"
TARGETS: Final = (*GGUF_FORMATS, HUGGING_FACE)

_TABLE_FORMAT: Final = "q8_0"  # of the input table and the head, where the format asked for is coarser
_COARSE: Final = ("q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "mxfp4")
_IN_32_BITS: Final = "fp32"


@dataclass(frozen=True, slots=True)
class ConversionSource:
    """A GGUF file that can be converted: its header, and the model it describes."""

    path: Path
    header: GGUFHeader
    model: LoadedModel

    @property
    def architecture(self) -> str:
        """The file's own name of its design."""
        return self.model.spec.model_type

    @property
    def tensors(self) -> tuple[tuple[GGUFTensor, StoredTensor], ...]:
        """Each tensor as the file stores it and as it is counted, in the order of the file."""
        return tuple(zip(self.header.tensors, self.model.tensors or (), strict=True))


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """One tensor as it is stored, and the format it gets.

    Unit:  bytes, exact
    """

    stored: GGUFTensor
    source: StoredTensor
    target: NumberFormat

    @property
    def target_bytes(self) -> int:
        """Bytes of the tensor in its new format."""
        return self.target.count_bytes(self.source.num_values, self.source.row_values)


def read_source(path: Path) -> ConversionSource:
    """A GGUF file whose header is sound and whose design can be converted.

    Raises:  ModelFileError, naming what is broken, or the designs that are converted
    """
    header = read_gguf_header(path)
    architecture = header.metadata.get("general.architecture")
    if architecture not in ARCHITECTURES:
        raise ModelFileError(
            f"{path.name}: general.architecture {str(architecture)[:40]!r} is not converted; converted: {', '.join(ARCHITECTURES)}"
        )
    if header.big_endian:
        raise ModelFileError(f"{path.name} is big-endian; only little-endian GGUF files are converted")
    return ConversionSource(path, header, model_from_gguf(header, path.name, path))


def require_target(name: str) -> str:
    """A target that can be written.

    Raises:  UnknownNameError
    """
    if name not in TARGETS:
        raise UnknownNameError(f"cannot convert to {name[:40]!r}; known: {', '.join(TARGETS)}")
    return name


def plan_tensors(source: ConversionSource, target: str) -> tuple[TensorPlan, ...]:
    """What each tensor becomes in a GGUF file of that format, in the order of the source.

    Raises:  ModelFileError for rows that the format cannot store
    """
    plans = tuple(TensorPlan(tensor, stored, _format_of(tensor, stored, target)) for tensor, stored in source.tensors)
    for plan in plans:
        if plan.source.row_values % plan.target.block_values:
            raise ModelFileError(
                f"{source.path.name}: tensor {plan.stored.name[:80]!r} has rows of {plan.source.row_values} values, which "
                f"{plan.target.name} cannot store; it needs multiples of {plan.target.block_values}"
            )
    return plans


def _format_of(tensor: GGUFTensor, stored: StoredTensor, target: str) -> NumberFormat:
    if len(tensor.shape) < 2 or stored.role in (TensorRole.NORM, TensorRole.ROUTER):
        return number_format(_IN_32_BITS)
    is_table = stored.role in (TensorRole.EMBEDDING, TensorRole.HEAD)
    return number_format(_TABLE_FORMAT if is_table and target in _COARSE else target)


def weights_name(source: ConversionSource, target: str) -> str:
    """The formats of the new file as the name that `fit` and every count take: "linear=q4_1,embedding=q8_0,norm=fp32".

    Where:   "linear=" says the format itself, and not the mix that llama.cpp calls by the same name
    Raises:  UnknownNameError
    """
    table = number_format(_TABLE_FORMAT if target in _COARSE else target).name
    tables = ["embedding"] if source.model.spec.tie_word_embeddings else ["embedding", "head"]
    has_router = any(stored.role is TensorRole.ROUTER for _, stored in source.tensors)
    others = {**dict.fromkeys(tables, table), **({"router": _IN_32_BITS} if has_router else {}), "norm": _IN_32_BITS}
    linear = number_format(target)
    spared = linear.name if linear.is_plain else None  # a plain format is that of every part
    return ",".join([f"linear={linear.name}", *(f"{part}={name}" for part, name in others.items() if name != spared)])
