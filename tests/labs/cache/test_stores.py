"""Both ways to keep keys and values give the same rows, and count what they copy."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from inference_bench.errors import RequestError  # noqa: E402
from inference_bench.labs.cache.growth import CacheShape, measure_growth  # noqa: E402
from inference_bench.labs.cache.stores import (  # noqa: E402
    ConcatenatingStore,
    PreallocatedStore,
    Store,
    concatenated_rows,
)

LAYERS, HEADS, SIZE = 2, 3, 4
ROW_BYTES = 2 * LAYERS * HEADS * SIZE * 4  # keys and values of every layer, float32


def both(capacity: int = 8) -> list[Store]:
    return [ConcatenatingStore(LAYERS), PreallocatedStore(LAYERS, HEADS, SIZE, capacity)]


def fed(store: Store, sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Each size appended to every layer; what the last append gave, layer by layer."""
    draw = torch.Generator().manual_seed(1)
    given = []
    for size in sizes:
        rows = torch.randn(2, HEADS, size, SIZE, generator=draw)
        given = [store.append(layer, rows[0] + layer, rows[1] - layer) for layer in range(LAYERS)]
    return given


@pytest.mark.parametrize("sizes", [[5], [3, 1, 1], [1, 1, 1, 1, 1]])
def test_both_stores_give_back_every_row_in_order(sizes: list[int]) -> None:
    joined, placed = (fed(store, sizes) for store in both())
    for (keys, values), (other_keys, other_values) in zip(joined, placed, strict=True):
        assert keys.shape == (HEADS, sum(sizes), SIZE)
        assert torch.equal(keys, other_keys)
        assert torch.equal(values, other_values)


def test_joining_writes_every_row_anew_and_writing_in_place_each_row_once() -> None:
    """Prompt of 3, then two steps: 3 + 4 + 5 rows against 5."""
    joined, placed = both()
    fed(joined, [3, 1, 1])
    fed(placed, [3, 1, 1])
    assert joined.copied_bytes == 12 * ROW_BYTES
    assert placed.copied_bytes == 5 * ROW_BYTES
    assert joined.filled_bytes == placed.filled_bytes == 5 * ROW_BYTES
    assert joined.num_positions == placed.num_positions == 5


def test_rows_written_by_joining_are_a_triangle() -> None:
    assert concatenated_rows(1, 100) == 100 * 101 // 2
    assert concatenated_rows(3, 5) == 3 + 4 + 5
    assert concatenated_rows(16, 271) * 2048 == 75_235_328


def test_joining_holds_one_tensor_more_than_the_cache_and_room_set_aside_all_of_it_at_once() -> None:
    """The last tensor to grow stands beside its old self: 5 rows of it new, while 4 old ones are still there."""
    joined, placed = both(capacity=8)
    fed(joined, [4, 1])
    fed(placed, [4, 1])
    one_tensor_row = ROW_BYTES // (2 * LAYERS)
    assert joined.peak_bytes == 5 * ROW_BYTES + 4 * one_tensor_row
    assert placed.peak_bytes == 8 * ROW_BYTES


@pytest.mark.parametrize("index", [0, 1])
def test_a_copy_grows_alone(index: int) -> None:
    store = both()[index]
    fed(store, [3])
    other = store.copy()
    before = store.filled_bytes
    given = fed(other, [1])
    assert (store.num_positions, other.num_positions) == (3, 4)
    assert store.filled_bytes == before
    given[0][0].zero_()
    assert bool((store.append(0, torch.ones(HEADS, 1, SIZE), torch.ones(HEADS, 1, SIZE))[0] != 0).all())


def test_more_tokens_than_there_is_room_for_are_refused() -> None:
    store = PreallocatedStore(LAYERS, HEADS, SIZE, 2)
    with pytest.raises(RequestError, match="room for 2 positions cannot hold 3"):
        fed(store, [3])


def test_one_token_is_timed_at_each_length_and_its_bytes_are_those_of_the_formula() -> None:
    shape = CacheShape(LAYERS, HEADS, SIZE)
    points = measure_growth(shape, (2, 6), repeats=1, seed=0, say=lambda line: None)
    assert [point.num_positions for point in points] == [2, 6]
    assert [point.concatenating_copied_bytes for point in points] == [2 * ROW_BYTES, 6 * ROW_BYTES]
    assert [point.preallocated_copied_bytes for point in points] == [ROW_BYTES, ROW_BYTES]
    assert all(point.concatenating_s > 0 and point.preallocated_s > 0 for point in points)
