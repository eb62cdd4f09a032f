"""The work of one step in the mixers that few models have.

In:   a mixer of facts/mixers.py, the cache format, what one sequence brings to the step
Out:  MixerWork: FLOPs and bytes beyond the projections, which are counted as parameters
Leaves out: what a kernel recomputes or spills; the least work that gives the answer is counted, so that times derived
      from it are bounds
Read next by: work; loaded only for models that have such a mixer.
"""

from __future__ import annotations

from inference_bench.accounting.cache import LOGICAL_STATE, CacheFormat
from inference_bench.accounting.rare_mixers import state, state_flops
from inference_bench.accounting.work import MixerWork, attention_work, count_attended_pairs, count_read_positions
from inference_bench.facts import mixers as m


def mixer_work(
    mixer: m.RareMixer, fmt: CacheFormat, num_cached: int, num_new: int, state_bits: int | None
) -> tuple[MixerWork, bool]:
    """Work of one layer's mixer for one sequence, and whether it is a recurrent state's.

    Unit:  FLOPs and bytes
    """
    if isinstance(mixer, m.LatentAttention):
        return _latent(mixer, fmt, num_cached, num_new), False
    if isinstance(mixer, m.IndexedAttention):
        return _indexed(mixer, fmt, num_cached, num_new), False
    if isinstance(mixer, m.CompressedAttention):
        return _compressed(mixer, fmt, num_cached, num_new), False
    if isinstance(mixer, m.CrossAttention):
        return _cross(mixer, fmt, num_new), False
    return _recurrent(mixer, num_new, state_bits), True


def _recurrent(mixer: m.RareMixer, num_new: int, state_bits: int | None) -> MixerWork:
    """A state is read and written once a step, whatever the number of new positions."""
    kept = state(mixer)
    num_bytes = LOGICAL_STATE.count_bytes(kept, state_bits) if kept else 0
    return MixerWork(state_flops(mixer) * num_new, num_bytes, num_bytes)


def _latent(mixer: m.LatentAttention, fmt: CacheFormat, num_cached: int, num_new: int) -> MixerWork:
    """Latent attention, in whichever of its two forms takes fewer FLOPs.

    Formula:  absorbed 2·N·(2·rank + rope)·pairs; expanded 2·N·(nope + rope + v)·pairs, and the keys and values of the
              cached positions made again
    """
    n, rank = mixer.num_attention_heads, mixer.kv_lora_rank
    pairs = count_attended_pairs(num_cached, num_new, mixer.top_k)
    absorbed = 2 * n * (2 * rank + mixer.qk_rope_head_dim) * pairs
    width = mixer.qk_nope_head_dim + mixer.v_head_dim
    expanded = 2 * n * (width + mixer.qk_rope_head_dim) * pairs + 2 * rank * n * width * num_cached
    row = fmt.keys.count_bytes(rank + mixer.qk_rope_head_dim)
    own = MixerWork(min(absorbed, expanded), row * _picked(num_cached, num_new, mixer.top_k), row * num_new)
    return own.plus(_index(mixer.indexer, fmt, num_cached, num_new), 1)


def _picked(num_cached: int, num_new: int, top_k: int | None) -> int:
    """Positions read at least: all, or as many as one query picks and the new ones."""
    everything = num_cached + num_new
    return everything if top_k is None else min(everything, max(top_k, num_new))


def _index(indexer: m.Indexer | None, fmt: CacheFormat, num_cached: int, num_new: int) -> MixerWork:
    """Scoring every position with the index keys.

    Formula:  2·heads·dim·pairs FLOPs; every index key read, the new ones written
    """
    if indexer is None:
        return MixerWork(0, 0, 0)
    row = fmt.keys.count_bytes(indexer.head_dim)
    pairs = count_attended_pairs(num_cached, num_new)
    return MixerWork(2 * indexer.num_heads * indexer.head_dim * pairs, row * (num_cached + num_new), row * num_new)


def _indexed(mixer: m.IndexedAttention, fmt: CacheFormat, num_cached: int, num_new: int) -> MixerWork:
    attention, reach = mixer.attention, mixer.indexer.top_k * mixer.indexer.block_size
    pairs = count_attended_pairs(num_cached, num_new, reach)
    whole = attention_work(attention, fmt, num_cached, num_new)
    per_position = whole.written_bytes // num_new
    flops = 2 * attention.num_attention_heads * (attention.head_dim + attention.value_width) * pairs
    own = MixerWork(flops, per_position * _picked(num_cached, num_new, reach), whole.written_bytes)
    return own.plus(_index(mixer.indexer, fmt, num_cached, num_new), 1)


def _compressed(mixer: m.CompressedAttention, fmt: CacheFormat, num_cached: int, num_new: int) -> MixerWork:
    """A window of recent positions, and one row for each `compress_ratio` older ones.

    Formula:  4·N·H·(window pairs + compressed pairs), and 2·heads·dim·compressed pairs for an indexer
    """
    row, end, ratio = fmt.keys.count_bytes(mixer.head_dim), num_cached + num_new, mixer.compress_ratio
    per_pair = 4 * mixer.num_attention_heads * mixer.head_dim
    window = MixerWork(
        per_pair * count_attended_pairs(num_cached, num_new, mixer.sliding_window),
        row * count_read_positions(num_cached, num_new, mixer.sliding_window),
        row * num_new,
    )
    if not ratio:
        return window
    indexer, rows, added = mixer.indexer, end // ratio, end // ratio - num_cached // ratio
    cap = indexer.top_k if indexer else None
    pairs = _sum_of_rows(end, ratio, cap) - _sum_of_rows(num_cached, ratio, cap)
    older = MixerWork(per_pair * pairs, row * (rows if cap is None else min(rows, cap)), row * added)
    both = window.plus(older, 1)
    if indexer is None:
        return both
    scored, key = (
        _sum_of_rows(end, ratio, None) - _sum_of_rows(num_cached, ratio, None),
        fmt.keys.count_bytes(indexer.head_dim),
    )
    return both.plus(MixerWork(2 * indexer.num_heads * indexer.head_dim * scored, key * rows, key * added), 1)


def _sum_of_rows(num_positions: int, ratio: int, cap: int | None) -> int:
    """Σ_{p=1..n} min(floor(p / ratio), cap)."""
    below = num_positions if cap is None else min(num_positions, cap * ratio - 1)
    whole, rest = divmod(below, ratio)
    growing = ratio * (whole * (whole - 1) // 2) + whole * (rest + 1)
    return growing + (0 if cap is None else cap * (num_positions - below))


def _cross(mixer: m.CrossAttention, fmt: CacheFormat, num_new: int) -> MixerWork:
    """Every new position attends all of the encoder's."""
    attention, tokens = mixer.attention, mixer.encoder_tokens or 0
    row = attention.num_key_value_heads * attention.head_dim
    num_bytes = tokens * (fmt.keys.count_bytes(row) + fmt.values.count_bytes(row))
    return MixerWork(4 * attention.num_attention_heads * attention.head_dim * tokens * num_new, num_bytes, 0)
