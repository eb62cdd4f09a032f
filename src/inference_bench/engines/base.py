"""What an engine adapter offers: a server that runs, who it is, and what it says it allocated.

In:   nothing; these are plain values, and the one interface an adapter implements
Out:  EngineIdentity and EngineFigures, with the place where each figure was read; RunningServer
Leaves out: what one engine's log looks like (that engine's own module) and what the figures should be (accounting)
Read next by: llama_cpp, vllm, sglang (fill them in), verify (compares them with what was counted).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from enum import StrEnum
from types import TracebackType
from typing import Any, Final, Self

from inference_bench.units import MEBI

Progress = Callable[[str], None]
"""Takes one line of plain text about what is happening now."""

FlagValue = str | int | bool | None

LLAMA_CPP: Final = "llama.cpp"
VLLM: Final = "vllm"
SGLANG: Final = "sglang"
"""The engines that are known, by the name that an EngineIdentity has."""

_SINGLE_PRECISION: Final = Decimal(2) ** -23


class KVCacheKind(StrEnum):
    """Which layers a cache belongs to."""

    FULL = "full"  # layers that attend to the whole context
    SLIDING = "sliding"  # layers that attend to a window
    INDEX = "index"  # the keys by which layers pick the positions they attend


@dataclass(frozen=True, slots=True)
class PrintedSize:
    """A size as an engine printed it: rounded, so an interval is known and not a number.

    Where:    `text` is the printed number in MiB, such as "47.81"
    Unit:     MiB in the text, bytes outside
    """

    text: str

    @property
    def nearest_bytes(self) -> int:
        """The whole number of bytes at the middle of the interval."""
        return round(Decimal(self.text) * MEBI)

    @property
    def resolution_bytes(self) -> int:
        """The width of the interval: one unit of the last printed digit, rounded up."""
        return math.ceil(self._step * MEBI)

    @property
    def _step(self) -> Decimal:
        return Decimal(1).scaleb(min(0, int(Decimal(self.text).as_tuple().exponent)))

    def agrees_with(self, num_bytes: int) -> bool:
        """Whether an exact count of bytes would have been printed as this text.

        Formula:  |num_bytes - printed| <= half the last digit + num_bytes · 2^-23
        Where:    the second term is the rounding of an engine that divides in single precision
        """
        exact = Decimal(num_bytes) / MEBI
        return abs(exact - Decimal(self.text)) <= self._step / 2 + exact * _SINGLE_PRECISION

    def __str__(self) -> str:
        return f"{self.text} MiB"


@dataclass(frozen=True, slots=True)
class Buffer:
    """One allocation on one device, as printed."""

    device: str
    size: PrintedSize


@dataclass(frozen=True, slots=True)
class KVBuffer:
    """One KV cache that an engine allocated.

    Where:    `cells` is the positions of one stream; a cache has `num_streams` of them, one a sequence,
              or a single one that all `num_sequences` share
    """

    kind: KVCacheKind
    cells: int
    layers: int
    num_sequences: int
    num_streams: int
    k_type: str
    v_type: str
    size: PrintedSize

    @property
    def total_cells(self) -> int:
        """Positions over all streams, in each of the layers."""
        return self.cells * self.num_streams


@dataclass(frozen=True, slots=True)
class StateBuffer:
    """The recurrent states that an engine allocated.

    Where:    `cells` is the states that each layer can hold, one for a sequence; `layers` are all the model's, those
              without a state included; `convolution` is the history of the convolutions, `recurrent` the rest
    """

    cells: int
    layers: int
    num_sequences: int
    convolution_type: str
    recurrent_type: str
    size: PrintedSize
    convolution: PrintedSize
    recurrent: PrintedSize


def _sum_bytes(sizes: Iterable[PrintedSize]) -> int | None:
    known = [size.nearest_bytes for size in sizes]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """What an engine says about itself; a figure it does not give is None, or an empty tuple of buffers.

    Where:    `context_tokens_total` is after the engine's own rounding; `num_slots` and `max_running` are how many
              sequences it computes at once, where it keeps fixed places for them and where it does not;
              `token_budget` is the most tokens of one step, `micro_batch` how many of them it computes together;
              `num_blocks` of `block_tokens` tokens each are the pool of an engine that hands the cache out in blocks,
              `kv_tokens` the tokens it says its cache holds, `cache_bytes` the bytes it set aside for it,
              or `cache_range_bytes` the least and the most that they can be where it prints them rounded;
              `memory_fraction` is the share of a device's memory that it takes in all; `cache_dtype` is in its own
              words, `speculation` names the method, or is "none"; `read_from` maps a field's name to the log line or
              the endpoint it was read from
    """

    context_tokens_total: int | None = None
    context_tokens_per_slot: int | None = None
    num_slots: int | None = None
    kv_unified: bool | None = None
    flash_attention: bool | None = None
    n_ctx_train: int | None = None
    num_params: int | None = None
    model_bytes: int | None = None
    max_model_len: int | None = None
    max_running: int | None = None
    token_budget: int | None = None
    micro_batch: int | None = None
    num_threads: int | None = None
    num_blocks: int | None = None
    block_tokens: int | None = None
    kv_tokens: int | None = None
    cache_bytes: int | None = None
    cache_range_bytes: tuple[int, int] | None = None
    memory_fraction: float | None = None
    prefix_cache: bool | None = None
    speculation: str | None = None
    dtype: str | None = None
    quantization: str | None = None
    cache_dtype: str | None = None
    attention_backend: str | None = None
    kv_buffers: tuple[KVBuffer, ...] = ()
    state_buffers: tuple[StateBuffer, ...] = ()
    model_buffers: tuple[Buffer, ...] = ()
    compute_buffers: tuple[Buffer, ...] = ()
    read_from: Mapping[str, str] = field(default_factory=dict)

    @property
    def kv_bytes(self) -> int | None:
        """Bytes of all KV caches, as near as they were printed; see `PrintedSize.agrees_with` for a comparison."""
        return _sum_bytes(buffer.size for buffer in self.kv_buffers)

    @property
    def state_bytes(self) -> int | None:
        """Bytes of all recurrent states, as near as they were printed."""
        return _sum_bytes(buffer.size for buffer in self.state_buffers)

    @property
    def kv_printed(self) -> str | None:
        """The sizes of the KV caches in the engine's own digits."""
        return " + ".join(str(buffer.size) for buffer in self.kv_buffers) or None

    @property
    def kv_cells(self) -> int | None:
        """Positions that the layers with full attention can hold, over all streams."""
        return next((buffer.total_cells for buffer in self._kv(KVCacheKind.FULL)), None)

    @property
    def kv_layers(self) -> int | None:
        """Layers that keep a cache, of either kind."""
        return sum(buffer.layers for buffer in self.kv_buffers) or None

    @property
    def sliding_kv_cells(self) -> int | None:
        """Positions that the layers with a window can hold, over all streams."""
        return next((buffer.total_cells for buffer in self._kv(KVCacheKind.SLIDING)), None)

    @property
    def cache_type_k(self) -> str | None:
        """Number format of the keys."""
        return next((buffer.k_type for buffer in self.kv_buffers), self._cache_dtype)

    @property
    def cache_type_v(self) -> str | None:
        """Number format of the values."""
        return next((buffer.v_type for buffer in self.kv_buffers), self._cache_dtype)

    @property
    def _cache_dtype(self) -> str | None:
        """The format of a cache of blocks: "auto" means the numbers the model is computed in."""
        return self.dtype if self.cache_dtype == "auto" else self.cache_dtype

    @property
    def max_sequences(self) -> int | None:
        """Sequences it computes at once, in fixed places or not."""
        return self.max_running if self.num_slots is None else self.num_slots

    @property
    def max_sequence_tokens(self) -> int | None:
        """The longest prompt and answer of one sequence together."""
        known = [count for count in (self.context_tokens_per_slot, self.max_model_len) if count is not None]
        return min(known, default=None)

    @property
    def compute_buffer_bytes(self) -> int | None:
        """Bytes of the working buffers, as near as they were printed."""
        return _sum_bytes(buffer.size for buffer in self.compute_buffers)

    def _kv(self, kind: KVCacheKind) -> list[KVBuffer]:
        return [buffer for buffer in self.kv_buffers if buffer.kind is kind]

    def filled_from(self, other: EngineFigures) -> EngineFigures:
        """These figures, with what they lack taken from another reading of the same server."""
        values: dict[str, Any] = {}
        for name in (item.name for item in fields(self) if item.name != "read_from"):
            own = getattr(self, name)
            values[name] = getattr(other, name) if own is None or own == () else own
        return EngineFigures(**values, read_from={**other.read_from, **self.read_from})


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Which engine, which build, which model file, and the settings that change its speed or its memory.

    Where:    `source` says how this is known: started by this program, or reported by the server itself;
              `model_files` maps the name of each file of the model to its SHA-256, where they are on this machine, and
              `model_sha256` is that of the one file, or one over all of them
    """

    name: str | None
    source: str
    version: str | None = None
    build: str | None = None
    model_name: str | None = None
    model_path: str | None = None
    model_sha256: str | None = None
    flags: Mapping[str, FlagValue] = field(default_factory=dict)
    model_files: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Its name in small letters: LLAMA_CPP, VLLM or SGLANG where it is one of them; empty where it does not say."""
        folded = (self.name or "").casefold()
        return LLAMA_CPP if folded == "llamacpp" else folded

    def flag_count(self, flag: str) -> int | None:
        """A flag's value where it is a count above 0."""
        value = self.flags.get(flag)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class RunningServer(ABC):
    """A server that answers now; leaving its context stops it if this program started it."""

    base_url: str
    identity: EngineIdentity
    figures: EngineFigures

    @abstractmethod
    def is_running(self) -> bool:
        """Whether it can still be expected to answer."""

    @abstractmethod
    def stop(self) -> None:
        """End it and wait until it is gone; harmless when it is gone already."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
