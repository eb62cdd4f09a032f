"""A machine with a memory behind the block account: what a block holds is written and read back, token by token."""

from __future__ import annotations

from random import Random

from inference_bench.simulate.kv_blocks import BlockAccount
from inference_bench.simulate.scheduler import Grant
from inference_bench.simulate.sequence import Sequence
from inference_bench.simulate.settings import KvMemory
from inference_bench.workload import Segment
from simulate.block_oracle import Token, check_account, tokens_of


class BlockMachine:
    """An account with the memory behind it: what every position of every block holds."""

    def __init__(self, num_blocks: int, block_size: int, draws: Random) -> None:
        self.account = BlockAccount(KvMemory.of_blocks(num_blocks, block_size, 1))
        self.budget = num_blocks * block_size
        self.running: list[Sequence] = []
        self._size = block_size
        self._draws = draws
        self._held: dict[tuple[int, int], Token] = {}
        self._swapped: list[Sequence] = []
        self._gave_way: list[Sequence] = []
        self._next = 0

    def act(self) -> None:
        """Something happens: a start, a sample, a return, an end, a step; then every sequence reads back all it has."""
        match self._draws.randrange(12):
            case 0 | 1:
                self._start(self._new_sequence())
            case 2 if self._swapped:
                self._start(self._swapped[-1])
            case 3 | 4 if any(each.content for each in self.running):
                self._start(self._new_sample(self._draws.choice([each for each in self.running if each.content])))
            case 5 if self._gave_way:
                self._start(self._gave_way[-1])
            case 6 if self.running:
                self._end(self._draws.choice(self.running))
            case _:
                self._step()
        check_account(self.account, self.running)
        for each in self.running:
            assert [self._held[place] for place in self._places(each, 0, each.filled)] == self._tokens(each)[
                : each.filled
            ]

    def finish(self) -> None:
        """All end; nothing is held any more."""
        for each in self.running:
            self.account.release(each)
        assert self.account.pool.num_used == 0
        assert self.account.pool.num_idle + self.account.pool.num_free == self.account.pool.num_blocks

    def _new_sequence(self) -> Sequence:
        draws, index = self._draws, self._next
        self._next += 1
        salt = (draws.randrange(2), 0)
        content = tuple(Segment(draws.randrange(3), draws.randint(1, 6)) for _ in range(draws.randint(0, 3)))
        talks = [each for each in (*self.running, *self._gave_way) if each.answer_content is not None and each.content]
        if talks and draws.random() < 0.3:
            before = draws.choice(talks)
            content = (*before.content, Segment(before.answer_content or 0, before.generated + 1))
            salt = before.salt
        length = sum(each.num_tokens for each in content) or draws.randint(1, 9)
        answer = draws.choice([None, 0, 1, 50 + index])
        first = index if content else None
        return Sequence(index, 0.0, length, content=content, answer_content=answer, salt=salt, sample_of=first)

    def _new_sample(self, of: Sequence) -> Sequence:
        index, self._next = self._next, self._next + 1
        answer = self._draws.choice([None, 0, 60 + index])
        return Sequence(
            index,
            0.0,
            of.prompt_tokens,
            content=of.content,
            answer_content=answer,
            salt=of.salt,
            sample_of=of.sample_of,
        )

    def _tokens(self, each: Sequence) -> list[Token]:
        return tokens_of(each, each.generated)

    def _places(self, each: Sequence, start: int, stop: int) -> list[tuple[int, int]]:
        blocks = self.account.blocks_of(each)
        return [(blocks[at // self._size], at % self._size) for at in range(start, stop)]

    def _write(self, each: Sequence, start: int, stop: int) -> None:
        tokens = self._tokens(each)
        tokens += [("guess", each.index, at) for at in range(len(tokens), stop)]
        for place, token in zip(self._places(each, start, stop), tokens[start:stop], strict=True):
            if self.account.pool.num_references(place[0]) > 1:
                assert self._held[place] == token
            self._held[place] = token

    def _copy(self, blocks: tuple[int, ...], now: tuple[int, ...]) -> None:
        """What an engine does before a step that writes into a block which others read."""
        for source, target in zip(blocks, now, strict=True):
            for at in range(self._size):
                if source != target and (source, at) in self._held:
                    self._held[target, at] = self._held[source, at]

    def _start(self, each: Sequence) -> None:
        if self.account.should_wait(each) and self._draws.random() < 0.5:
            return
        needed = self.account.bytes_to_hold(each, each.known_tokens)
        if self.account.held_bytes(self.running) + needed > self.budget:
            return
        before, positions = self.account.held_bytes(self.running), self.account.cached_positions(each)
        if each.is_swapped:
            self._swapped.remove(each)
            self.account.swap_in(each)
            each.is_swapped = False
            self._write(each, 0, each.filled)
        else:
            if each in self._gave_way:
                self._gave_way.remove(each)
            self.account.admit(each)
            assert each.filled < each.known_tokens
        self.running.append(each)
        assert each.filled == positions
        assert self.account.held_bytes(self.running) <= before + needed

    def _end(self, each: Sequence) -> None:
        self.running.remove(each)
        if each.generated and each.owed == 1 and self._draws.random() < 0.5:
            self.account.swap_out(each)
            each.is_swapped = True
            self._swapped.append(each)
            return
        self.account.release(each)
        if self._draws.random() < 0.5:
            each.filled = 0
            self._gave_way.append(each)

    def _step(self) -> None:
        grants = [Grant(each, self._draws.randint(0, each.owed + 2 * (each.owed == 1))) for each in self.running]
        expected = self.account.bytes_after(grants)
        if expected > self.budget:
            return
        before = [self.account.blocks_of(each) for each in self.running]
        self.account.commit(grants)
        assert self.account.held_bytes(self.running) == expected == self.account.bytes_after(grants)
        for each, blocks in zip(self.running, before, strict=True):
            self._copy(blocks, self.account.blocks_of(each)[: len(blocks)])
        for each, new in grants:
            self._write(each, each.filled, each.filled + new)
            each.filled += min(new, each.owed)  # no guess is right
            each.generated += each.owed == 0
