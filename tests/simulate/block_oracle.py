"""What tokens a sequence is made of, one by one: an oracle of block identity that knows no keys."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Values

from inference_bench.simulate.answers import Answers, sequence_of
from inference_bench.simulate.kv_blocks import BlockAccount, BlockPool
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.server import ArrivalQueue, Server
from inference_bench.simulate.settings import KvMemory, SchedulerSettings, ServerSetup
from inference_bench.simulate.step_time import Coefficients, StepTime
from inference_bench.workload import Requests, Segment, Workload, open_loop

Token = tuple[object, ...]

# a step takes one second a position
SECOND_A_POSITION = StepTime(Coefficients(0.0, 0.0, 1.0, 0.0, 1.0, 1.0))


def tokens_of(sequence: Sequence, num_answer_tokens: int) -> list[Token]:
    """Two tokens are equal exactly where the same content says the same, for the same tenant and adapter."""
    tokens: list[Token] = [
        (sequence.salt, content, at) for content, length in sequence.content for at in range(length)
    ] or [(sequence.salt, "prompt", sequence.index, at) for at in range(sequence.prompt_tokens)]
    for at in range(num_answer_tokens):
        own = ("answer", sequence.index) if sequence.answer_content is None else (sequence.answer_content,)
        tokens.append((sequence.salt, *own, at))
    return tokens


def workload_of(
    prompts: Values[tuple[tuple[int, int], ...]],
    outputs: Values[int] | None = None,
    answers: Values[int] | None = None,
    tenant: Values[int] | None = None,
    adapter: Values[int] | None = None,
    gap_s: float = 0.0,
) -> Workload:
    """Requests of segments (content, length), so many seconds apart."""
    segments = tuple(tuple(Segment(*pair) for pair in prompt) for prompt in prompts)
    requests = Requests(
        array("q", [sum(length for _, length in prompt) for prompt in prompts]),
        array("q", outputs or [1] * len(prompts)),
        segments,
        *(None if column is None else array("q", column) for column in (answers, None, tenant, adapter)),
    )
    return Workload("made", requests, open_loop([gap_s * index for index in range(len(prompts))]))


def setup_of(num_blocks: int, block_size: int, scheduler: SchedulerSettings | None = None) -> ServerSetup:
    """A server whose positions take one byte each, with a prefix cache."""
    return ServerSetup(
        scheduler or SchedulerSettings(admission_share=1.0, prefix_cache=True),
        KvMemory.of_blocks(num_blocks, block_size, 1),
    )


def serve(workload: Workload, setup: ServerSetup, step_time: StepTime = SECOND_A_POSITION) -> Server:
    """Serve all of a workload; the blocks add up after every step."""
    server, arrivals, left = Server(setup, step_time, Answers(workload)), ArrivalQueue(workload), len(workload)
    while left:
        if not server.num_present:
            server.now_s = max(server.now_s, arrivals.next_s)
        for index in arrivals.take(server.now_s):
            server.submit(sequence_of(workload, index, arrivals.times_s[index]))
        left -= len(server.step())
        if isinstance(server.account, BlockAccount):
            check_account(server.account, server.scheduler.running)
    return server


def pool_of(server: Server) -> BlockPool:
    """The blocks of a server that has a prefix cache."""
    assert isinstance(server.account, BlockAccount)
    return server.account.pool


def check_account(account: BlockAccount, running: Values[Sequence]) -> None:
    """Used, idle and free blocks are all blocks, and a block has as many references as readers."""
    pool = account.pool
    assert pool.num_used + pool.num_idle + pool.num_free == pool.num_blocks
    readers: dict[int, int] = {}
    for sequence in running:
        blocks = account.blocks_of(sequence)
        assert len(set(blocks)) == len(blocks)
        assert len(blocks) * pool.block_size >= sequence.filled
        for block in blocks:
            readers[block] = readers.get(block, 0) + 1
    assert len(readers) == pool.num_used
    assert all(pool.num_references(block) == count for block, count in readers.items())
    assert account.held_bytes(running) == pool.num_used * pool.block_size  # at one byte a position
