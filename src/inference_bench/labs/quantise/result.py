"""What came out of the quantise lab.

Out:  QuantiseResult: number formats, methods with their perplexity and task scores, real files, outliers, known answers
Read next by: flow, charts, report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead

KV_FAMILY: Final = "KV cache"
SENSITIVITY: Final = "One kind of layer at 4 bits"
W8A8_FAMILY, SMOOTHQUANT_FAMILY, LLM_INT8_FAMILY = "8-bit activations", "SmoothQuant", "LLM.int8()"
ACTIVATIONS: Final = (W8A8_FAMILY, SMOOTHQUANT_FAMILY, LLM_INT8_FAMILY)
"""Families that round activations too."""

OUTLIER_RATIO: Final = 10.0  # times the median channel: from there on a channel is called an outlier


@dataclass(frozen=True, slots=True)
class FormatRow:
    """One number format.

    Where:  element is the format of one value; bits_per_value counts the scales of blocks; largest and
            smallest are the greatest finite and the least positive value of an element before its scale, step_at_one the gap from 1
            to the next one up
    """

    name: str
    element: str
    block_values: int
    bits_per_value: float
    largest: float
    smallest: float
    step_at_one: float
    note: str


@dataclass(frozen=True, slots=True)
class LossInterval:
    """A 95 % interval for the change of the mean loss, from the windows' own differences to float32.

    Unit:  nats a token
    """

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MethodRow:
    """One way to quantise, and what it did.

    Where:  weight_bytes are those of the whole model, bits_per_weight of its linear layers alone; weight_error is |W - W'| / |W|;
            loss_change is the mean loss less float32's; is_restored says that the network came back bit for bit; the task fractions are
            None where that was left out; cache_bytes_per_token are of a rounded KV cache with its scales, None where it stays
    Unit:   bytes; bits; nats a token; fractions
    """

    name: str
    family: str
    detail: str
    weight_bytes: int | None
    bits_per_weight: float | None
    cache_bytes_per_token: float | None
    weight_error: float | None
    perplexity: float
    loss_change: float
    loss_change_interval: LossInterval | None
    exact_copy_fraction: float | None
    json_valid_fraction: float | None
    is_restored: bool


@dataclass(frozen=True, slots=True)
class GgufRow:
    """A real file of the same model, served by a real engine.

    Where:  perplexity is by the engine's own kernels, weights_perplexity by PyTorch with the file's weights, and
            float32_perplexity_same_tokens by PyTorch with the unquantised ones, all over the same tokens; the gains are decode tokens/s
            over that of the file of 16-bit floats, predicted from the bytes read
    Unit:   bytes; tokens/s
    """

    format: str
    file_bytes: int | None = None
    tensor_bytes: int | None = None
    perplexity: float | None = None
    weights_perplexity: float | None = None
    float32_perplexity_same_tokens: float | None = None
    scored_tokens: int | None = None
    decode_tokens_per_s: float | None = None
    predicted_gain: float | None = None
    measured_gain: float | None = None


@dataclass(frozen=True, slots=True)
class OutlierRow:
    """What one input looks like, channel by channel, on the calibration windows; layers that read the same input are one row.

    Where:  kind names those layers, block is the number of their block, None where names have none; median_channel_max is the median
            over channels of each one's greatest |x|, ratio the greatest of all over it (None where that median is 0);
            outlier channels have more than OUTLIER_RATIO times the median
    """

    layer: str
    block: int | None
    kind: str
    num_channels: int
    largest: float
    largest_channel: int
    median_channel_max: float
    ratio: float | None
    num_outlier_channels: int


@dataclass(frozen=True, slots=True)
class ReferenceRow:
    """A published perplexity beside ours, at the same settings; ours is None where it could not be run."""

    name: str
    published: float
    ours: float | None
    difference_fraction: float | None
    tolerance_fraction: float


@dataclass(frozen=True, slots=True)
class QuantiseResult:
    """The figures of one run.

    Where:  float32_perplexity is that of the network as it is, over the same windows; stored_format is the number format in which the
            model's own file keeps its matrices, where float32 is those blocks read back, None where those are plain floats;
            references is empty unless asked for
    """

    head: LabHead
    checks: tuple[Check, ...]
    text_name: str
    text_source: str
    text_sha256: str
    calibration_start_token: int
    calibration_tokens: int
    evaluation_start_token: int
    num_windows: int
    window_tokens: int
    scored_tokens: int
    stored_format: str | None
    float32_perplexity: float
    formats: tuple[FormatRow, ...]
    methods: tuple[MethodRow, ...]
    gguf: tuple[GgufRow, ...]
    outliers: tuple[OutlierRow, ...]
    references: tuple[ReferenceRow, ...]
    reference_note: str | None
