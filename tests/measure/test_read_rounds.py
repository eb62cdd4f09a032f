"""Reading in rounds: when events are let gather and when not, that sockets come and go safely, and that stamps stay right."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from inference_bench.measure import read_rounds
from inference_bench.measure.kernel_stamps import StampSource
from inference_bench.measure.read_rounds import GATHER_S, Gathering, ReadRounds, Round

from .test_kernel_wire import lateness_s, least_s, load, needs_stamps
from .truth_server import TruthServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sockets are read in rounds where Linux stamps them")

GAP_S = 0.01


def gathered_s(
    gathering: Gathering, num_rounds: int, per_round: int, num_short: int = 0, begin_s: float = 0.0
) -> float:
    """For how long events are let gather after rounds that follow each other every millisecond."""
    for number in range(num_rounds):
        gathering.note(per_round, num_short, begin_s + 0.001 * number)
    return gathering.now_s


def test_nothing_gathers_until_a_thousand_reads_were_far_apart() -> None:
    gathering = Gathering(0.0)
    assert gathered_s(gathering, 100, 6) == 0.0
    assert gathered_s(gathering, 100, 6, begin_s=0.1) == GATHER_S
    assert gathering.longest_s == GATHER_S


def test_a_stream_with_events_close_to_each_other_ends_the_gathering_within_five_of_them() -> None:
    gathering = Gathering(0.0)
    assert gathered_s(gathering, 300, 6) == GATHER_S
    assert gathered_s(gathering, 5, 6, num_short=1, begin_s=0.3) == 0.0
    assert gathered_s(gathering, 1000, 60, num_short=1, begin_s=0.4) == 0.0  # one of sixty reads is enough
    assert gathering.longest_s == GATHER_S


def test_reads_that_have_nobody_to_be_read_with_are_not_let_gather() -> None:
    gathering = Gathering(0.0)
    for number in range(3000):
        gathering.note(1, 0, GAP_S * number)
    assert gathering.now_s == 0.0


def test_the_end_of_a_reply_is_forgiven() -> None:
    gathering = Gathering(0.0)
    assert gathered_s(gathering, 300, 6) == GATHER_S
    for number in range(300):
        gathering.note(6, (1, 1, -2)[number % 3], 0.3 + 0.001 * number)
    assert gathering.now_s == GATHER_S


@contextmanager
def pairs(count: int) -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(count)]
    try:
        for pair in made:
            for end in pair:
                end.setblocking(False)
        yield made
    finally:
        for pair in made:
            for end in pair:
                end.close()


def reader(connection: socket.socket, seen: list[tuple[int, Round]], name: int) -> Callable[[Round], None]:
    def read(now: Round) -> None:
        connection.recv(100)
        seen.append((name, now))

    return read


def always(rounds: ReadRounds) -> None:
    """Let events gather whatever comes."""
    rounds.gathering.now_s = GATHER_S
    rounds.gathering.note = lambda *_: None  # type: ignore[method-assign]


def num_open() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_comes_within_a_millisecond_is_read_in_one_round_and_in_a_hurry_at_once() -> None:
    seen = list[tuple[int, Round]]()

    async def exchange() -> None:
        rounds = ReadRounds(time.perf_counter)
        with pairs(3) as made:
            for name, (near, _) in enumerate(made):
                rounds.join(near, reader(near, seen, name))
            always(rounds)
            made[0][1].send(b"a")
            while not seen:
                await asyncio.sleep(0)
            made[1][1].send(b"b")
            made[2][1].send(b"c")
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(seen) == 1  # b and c wait
            while len(seen) < 3:
                await asyncio.sleep(0.001)
            made[0][1].send(b"d")
            rounds.hurry(1)
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(seen) == 4
            rounds.hurry(-1)
            for near, _ in made:
                rounds.leave(near)

    asyncio.run(exchange())
    first, second, third, last = (now for _, now in seen)
    assert first is not second
    assert second is third
    assert second.begin_s <= second.view.read_s <= last.begin_s


@pytest.mark.parametrize("gathers", [False, True])
def test_a_socket_that_left_is_read_no_more_even_when_its_number_is_used_again(gathers: bool) -> None:
    seen = list[tuple[int, Round]]()

    async def exchange() -> None:
        rounds = ReadRounds(time.perf_counter)
        with pairs(2) as made:
            (old, far), (stays, far_stays) = made
            rounds.join(old, reader(old, seen, 1))
            rounds.join(stays, reader(stays, seen, 2))
            if gathers:
                always(rounds)
            far.send(b"never read")
            number = old.fileno()
            rounds.leave(old)
            old.close()
            with closing(socket.socket()) as unused:
                near, other = socket.socketpair()
                del unused
            with near, other:
                assert number in (near.fileno(), other.fileno()) or number not in rounds._readers
                other.send(b"nobody asked for it")
                await asyncio.sleep(0.01)
                assert seen == []
                near.setblocking(False)
                rounds.join(near, reader(near, seen, 3))
                far_stays.send(b"x")
                await asyncio.sleep(0.02)
                assert sorted(name for name, _ in seen) == [2, 3]
                rounds.leave(near)
            rounds.leave(stays)
            rounds.leave(stays)  # which has left already

    asyncio.run(exchange())


@pytest.mark.parametrize("gathers", [False, True])
def test_sockets_that_leave_while_they_are_read_leave_no_descriptor_behind(gathers: bool) -> None:
    async def exchange() -> int:
        rounds = ReadRounds(time.perf_counter)
        before = num_open()
        for _ in range(3):
            with pairs(40) as made:  # more than one round takes
                left = list[socket.socket]()

                def leave(connection: socket.socket, left: list[socket.socket] = left) -> Callable[[Round], None]:
                    return lambda _: (rounds.leave(connection), left.append(connection))[0]

                for near, far in made:
                    rounds.join(near, leave(near))
                    far.send(b"x")
                if gathers:
                    always(rounds)
                while len(left) < 40:
                    await asyncio.sleep(0.001)
                assert len(set(left)) == 40
                await asyncio.sleep(0.005)
        return num_open() - before

    assert asyncio.run(exchange()) == 0


def test_a_reader_that_fails_does_not_end_the_reading_of_others() -> None:
    seen = list[tuple[int, Round]]()

    def fail(_: Round) -> None:
        failing.recv(100)
        raise ZeroDivisionError

    async def exchange() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        rounds = ReadRounds(time.perf_counter)
        always(rounds)
        rounds.join(failing, fail)
        rounds.join(near, reader(near, seen, 1))
        for _ in range(3):
            failing_far.send(b"x")
            await asyncio.sleep(0.004)
            far.send(b"x")
            await asyncio.sleep(0.004)
        rounds.leave(failing)
        rounds.leave(near)

    with pairs(2) as ((failing, failing_far), (near, far)):
        asyncio.run(exchange())
    assert seen


@pytest.fixture
def gathering_always(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(self: Gathering, num_reads: int, num_short: int, time_s: float) -> None:
        del num_reads, num_short, time_s
        self.now_s = self.longest_s = GATHER_S

    monkeypatch.setattr(read_rounds.Gathering, "note", note)


@needs_stamps
@pytest.mark.usefixtures("gathering_always")
def test_stamps_are_as_right_and_as_many_when_events_gather() -> None:
    with TruthServer() as server:

        def shared_or_late() -> float:
            before = len(server.of("unhurried"))
            result = load(server.url("unhurried"), num_streams=8, num_tokens=15)
            late_s = sorted(lateness_s(result, server.of("unhurried")[before:]))
            assert (result.health.stamp_source, result.health.gather_s) == (StampSource.KERNEL, GATHER_S)
            assert result.health.censored_fraction is not None
            assert late_s[0] >= -1e-4
            return max(late_s[int(0.95 * len(late_s))], result.health.censored_fraction)

        assert least_s(shared_or_late, 0.008) < 0.008


@needs_stamps
@pytest.mark.usefixtures("gathering_always")
def test_tls_is_read_in_rounds_too(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    with TruthServer(wrap=lambda plain: context.wrap_socket(plain, server_side=True)) as secure:
        result = load(secure.url("unhurried", "https"), num_streams=6, num_tokens=12)
        assert min(lateness_s(result, secure.of("unhurried"))) >= 0
        assert (result.health.stamp_source, result.health.gather_s) == (StampSource.KERNEL, GATHER_S)


@needs_stamps
def test_a_server_as_fast_as_it_can_be_is_read_at_once() -> None:
    with TruthServer() as server:
        assert load(server.url("at_once"), num_streams=4, num_tokens=3000).health.gather_s == 0.0
