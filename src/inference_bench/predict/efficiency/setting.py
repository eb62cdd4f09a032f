"""What runs where, in the terms the efficiency model knows: engine family, machine pool, formats, how devices share.

In:   ServedModel, HardwareSpec, an engine's name as people write it
Out:  Setting, and the labels its efficiencies are looked up by
Leaves out: times (see terms, expectation)
Read next by: terms, effects.

Machines are pooled by what their memory and software have in common: an unseen card borrows from its pool.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final

from inference_bench.accounting.params import kept_by_identity
from inference_bench.facts.formats import NumberFormat
from inference_bench.facts.hardware import HardwareSpec
from inference_bench.facts.models import LayerType, ModelSpec
from inference_bench.predict.step_cost import ServedModel

# how the names that tables and people use begin → the engine family; the first that matches
_FAMILIES: Final = (
    ("vllm (splitwise", "vllm-2023"),
    ("deepspeed-mii", "deepspeed-mii"),
    ("deepspeed", "deepspeed"),
    ("mlperf: tensorrt", "tensorrt-llm"),
    ("mlperf: vllm", "vllm"),
    ("tensorrt", "tensorrt-llm"),
    ("trt", "tensorrt-llm"),
    ("vllm", "vllm"),
    ("sglang", "sglang"),
    ("ik_llama", "ik_llama.cpp"),
    ("t-mac", "t-mac"),
    ("ollama", "llama.cpp"),
    ("llama.cpp", "llama.cpp"),
    ("lmdeploy", "turbomind"),
    ("turbomind", "turbomind"),
    ("autoawq", "autoawq"),
    ("hf ", "transformers"),
    ("transformers neuron", "neuronx"),
    ("transformers", "transformers"),
    ("tinychat", "tinychat"),
    ("exllamav2", "exllamav2"),
    ("exllama", "exllama"),
    ("gpt-fast", "torch-compile"),
    ("torchao", "torch-compile"),
    ("rkllm", "rkllm"),
    ("qualcomm", "qualcomm"),
    ("mlx", "mlx"),
    ("mlc", "mlc"),
    ("qserve", "qserve"),
    ("calm", "calm"),
    ("yalm", "calm"),
)
LLAMA_CPP_FAMILY: Final = ("llama.cpp", "ik_llama.cpp", "t-mac")
_HBM_BYTES_PER_S: Final = 1.4e12  # below it, data-centre cards have the memory of workstation cards


class DeviceSplit(StrEnum):
    """How several devices share one model."""

    TENSOR = "tensor"
    LAYER = "layer"  # devices run one after another: no speed-up of one stream
    ROW = "row"


def engine_family(name: str) -> str:
    """The family of an engine, by how its name begins; a name that is not known is a family of its own.

    >>> engine_family("TensorRT-LLM (PyTorch backend)"), engine_family("llama.cpp CUDA")
    ('tensorrt-llm', 'llama.cpp')
    """
    folded = name.strip().casefold()
    return next((family for start, family in _FAMILIES if folded.startswith(start)), folded[:40] or "unknown")


def known_families() -> tuple[str, ...]:
    """Every engine family with a name of its own."""
    return tuple(dict.fromkeys(family for _, family in _FAMILIES))


def machine_pool(machine: HardwareSpec) -> str:
    """Which machines this one borrows efficiencies from.

    >>> from inference_bench.facts.hardware import hardware
    >>> machine_pool(hardware("H100")), machine_pool(hardware("RTX 4090")), machine_pool(hardware("M2 Max"))
    ('nvidia-hbm', 'nvidia-gddr', 'apple')
    """
    kind, vendor = machine.kind or "", machine.vendor or "unknown"
    if kind == "cpu-memory":
        return "cpu"
    if kind == "npu" or vendor == "apple":
        return "npu" if kind == "npu" else "apple"
    if kind == "soc-unified":
        return f"{vendor}-soc"
    fast = (machine.bandwidth_bytes_per_s or 0) > _HBM_BYTES_PER_S
    return f"{vendor}-hbm" if kind.startswith("datacenter") and (fast or vendor != "nvidia") else f"{vendor}-gddr"


@cache
def format_group(fmt: NumberFormat) -> str:
    """Formats whose kernels are alike.

    >>> from inference_bench.facts.formats import number_format
    >>> format_group(number_format("q4_k")), format_group(number_format("fp8"))
    ('4bit', 'fp8')
    """
    bits, name = float(fmt.bits_per_value), fmt.name
    if fmt.is_plain and bits >= 16:
        return "16bit"
    if name.startswith(("fp8", "mxfp8")):
        return "fp8"
    if name in ("mxfp4", "nvfp4", "fp4"):
        return "fp4"
    if name.startswith("iq"):
        return "iq"
    return "8bit" if bits >= 7 else "4bit"


@kept_by_identity
def has_latent_attention(model: ModelSpec) -> bool:
    """Whether the cache holds latents, which every rank keeps whole and whose kernels are unlike all others."""
    return any(mixer.layer_type is LayerType.LATENT_ATTENTION for mixer, _ in model.mixer_groups())


@dataclass(frozen=True, slots=True)
class Setting:
    """A model served by an engine on devices of one machine.

    Where:  engine is a family; tensor is how many devices cut each layer, replicas how many hold the attention of
            different sequences (data-parallel attention), devices all of them; weight_scale is a published size over
            the counted one; threads_fraction the share of a CPU's cores in use; format_label the format as an engine
            names it; is_early for engines before 2025; version "engine-major.minor"; activations_8bit where both
            operands are 8-bit integers
    """

    served: ServedModel
    machine: HardwareSpec
    engine: str
    tensor: int = 1
    replicas: int = 1
    devices: int = 1
    split: DeviceSplit = DeviceSplit.TENSOR
    weight_scale: float = 1.0
    threads_fraction: float = 1.0
    is_early: bool = False
    version: str = ""
    activations_8bit: bool = False

    @property
    def pool(self) -> str:
        """The machines this one borrows from."""
        return machine_pool(self.machine)

    @property
    def format_group(self) -> str:
        """The group of the layer matrices' format."""
        return format_group(self.served.weights.linear_format)

    @property
    def format_label(self) -> str:
        """The format as engines name it."""
        return self.served.weights.format_name
