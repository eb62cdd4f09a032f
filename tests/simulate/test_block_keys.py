"""Keys are equal exactly where the tokens of a block and of all blocks before it are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from inference_bench.simulate.block_keys import BlockChain, BlockKeys
from inference_bench.simulate.sequence import Sequence
from inference_bench.workload import Segment
from simulate.block_oracle import tokens_of

SEGMENTS = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 7)), max_size=5)


def sequence(index: int, *segments: tuple[int, int], answer: int | None = None, tenant: int = 0) -> Sequence:
    content = tuple(Segment(*pair) for pair in segments)
    length = sum(each.num_tokens for each in content) or 9
    return Sequence(index, 0.0, length, content=content, answer_content=answer, salt=(tenant, 0))


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(SEGMENTS, st.sampled_from([None, 0, 1, 9]), st.integers(0, 1), st.integers(0, 9)),
        min_size=2,
        max_size=6,
    ),
    st.integers(1, 5),
)
def test_keys_are_equal_exactly_where_all_tokens_so_far_are(
    made: list[tuple[list[tuple[int, int]], int | None, int, int]], block_size: int
) -> None:
    numbers, by_tokens, by_key = BlockKeys(), dict[object, int](), dict[int, object]()
    for index, (segments, answer, tenant, generated) in enumerate(made):
        each = sequence(index, *segments, answer=answer, tenant=tenant)
        tokens = tokens_of(each, generated)
        keys = BlockChain.of(each, numbers, block_size).upto(len(tokens))
        assert len(keys) == len(tokens) // block_size
        for at, key in enumerate(keys):
            history = tuple(tokens[: (at + 1) * block_size])
            assert by_tokens.setdefault(history, key) == key
            assert by_key.setdefault(key, history) == history
    assert set(by_key) == set(range(len(numbers)))


def test_only_full_blocks_have_keys_and_more_come_as_tokens_become_known() -> None:
    chain = BlockChain.of(sequence(0, (5, 10)), BlockKeys(), 4)
    assert chain.upto(3) == []
    first = list(chain.upto(7))
    assert len(first) == 1
    assert chain.upto(10)[:1] == first
    assert len(chain.upto(11)) == 2  # the third block would hold two tokens of the prompt and one of the answer
    assert len(chain.upto(12)) == 3


def test_keys_that_are_not_asked_for_are_not_made() -> None:
    numbers = BlockKeys()
    chain = BlockChain.of(sequence(0, (5, 100)), numbers, 4)
    assert next(chain.each(100)) == 0
    assert len(numbers) == 1
    assert list(chain.each(11)) == chain.upto(11)[:2]


def test_a_longer_run_of_the_same_content_starts_with_the_same_blocks() -> None:
    numbers = BlockKeys()
    short, long = (BlockChain.of(sequence(index, (5, length)), numbers, 4) for index, length in enumerate((8, 20)))
    assert long.upto(20)[:2] == short.upto(8)


def test_the_same_content_twice_is_not_one_long_content() -> None:
    numbers = BlockKeys()
    twice, once = (BlockChain.of(each, numbers, 4) for each in (sequence(0, (5, 4), (5, 4)), sequence(1, (5, 8))))
    assert twice.upto(8)[0] == once.upto(8)[0]
    assert twice.upto(8)[1] != once.upto(8)[1]


def test_python_hashes_that_collide_do_not_matter() -> None:
    assert hash(-1) == hash(-2)  # so are those of the pieces that hold them
    numbers = BlockKeys()
    assert numbers.number(0, ((-1, 0, 4),)) != numbers.number(0, ((-2, 0, 4),))
