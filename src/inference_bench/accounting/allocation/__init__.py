"""What an engine allocates for the cache: its own rounding rules on top of the logical count.

In:   ModelSpec, CacheFormat, and the settings the engine was started with
Out:  EngineAllocation: cells, blocks and bytes, with the rule that explains the difference to the logical count
Leaves out: weights, compute buffers and the runtime itself
Read next by: predict.fit, verify (which compares it with the engine's own log).

One module an engine: `llama_cpp` (cells) and `vllm` (blocks out of one pool; `vllm_limits` says what its server takes on a
machine). They are loaded when their engine is asked for; here are only the values that both return.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from inference_bench.facts.models import LayerType

KEYS_AND_VALUES: Final = "keys and values"
LATENTS: Final = "latents"
INDEX_KEYS: Final = "index keys"
STATE: Final = "state"


@dataclass(frozen=True, slots=True)
class LayerAllocation:
    """What the layers of one kind get: so many cells in each of so many streams.

    Where:  a cell is one position, or the whole state of one sequence; `holds` says which; a stream is one sequence's
            own run of cells, or the one that all share
    Unit:   bytes, exact, over all these layers
    """

    layer_type: LayerType
    count: int
    cells: int
    streams: int
    num_bytes: int
    holds: str = KEYS_AND_VALUES


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Layers of vLLM that share a block table: each takes one page of every block the group draws.

    Where:  widths are how many layers each group of this kind has (unlike where layers do not divide evenly);
            page_bytes is None where the pages of the layers differ; padding_bytes are those of one page that hold
            nothing; admission_blocks are the most one request may hold while its prompt is read, steady_blocks what it
            holds afterwards
    """

    layer_type: LayerType
    widths: tuple[int, ...]
    block_tokens: int
    page_bytes: int | None
    padding_bytes: int
    admission_blocks: int
    steady_blocks: int
    holds: str = KEYS_AND_VALUES

    @property
    def num_groups(self) -> int:
        """Groups of this kind; each draws its own blocks."""
        return len(self.widths)


@dataclass(frozen=True, slots=True)
class BlockPool:
    """The one pool of blocks that all groups of vLLM draw from.

    Where:  admission_blocks of one request are what the engine checks before it starts and before it admits;
            first_token_blocks are what a request of one token holds
    Unit:   bytes, exact, on one tensor-parallel rank
    """

    bytes_per_block: int
    groups: tuple[BlockGroup, ...]
    admission_blocks: int
    steady_blocks: int
    first_token_blocks: int

    @property
    def admission_bytes(self) -> int:
        """Bytes one request may need at most."""
        return self.admission_blocks * self.bytes_per_block

    @property
    def steady_bytes(self) -> int:
        """Bytes one request holds once its prompt is read."""
        return self.steady_blocks * self.bytes_per_block

    @property
    def first_token_bytes(self) -> int:
        """Bytes a request of one token pins."""
        return self.first_token_blocks * self.bytes_per_block

    def count_blocks(self, memory_bytes: int) -> int:
        """Whole blocks that fit in the memory set aside for the cache; one of them is never handed out."""
        return max(0, memory_bytes) // self.bytes_per_block

    def max_requests(self, memory_bytes: int) -> float:
        """Requests of the full length at once, as the engine prints it: blocks over admission blocks.

        Formula:  floor(memory / bytes per block) / admission blocks
        """
        return self.count_blocks(memory_bytes) / self.admission_blocks


@dataclass(frozen=True, slots=True)
class EngineAllocation:
    """The cache as one engine lays it out, and why it is not the logical count.

    Where:  pool is how vLLM arrives at it, in_flight_tokens what it counted beside a window; None for an engine without
            blocks
    """

    engine: str
    num_bytes: int
    layers: tuple[LayerAllocation, ...]
    rule: str
    context_tokens_per_sequence: int
    pool: BlockPool | None = None
    in_flight_tokens: int | None = None

    @property
    def state_bytes(self) -> int:
        """Bytes of the rows that hold recurrent states."""
        return sum(layer.num_bytes for layer in self.layers if layer.holds == STATE)


def round_up(value: int, multiple: int) -> int:
    """The next multiple at or above a value."""
    return -(-value // multiple) * multiple
