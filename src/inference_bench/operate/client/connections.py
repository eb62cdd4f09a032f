"""A new connection, or one that was kept? Those of one endpoint, between two replies.

In:   a way to dial, for how long an idle connection is kept, wires whose reply has ended in order
Out:  a Wire for the next attempt
Leaves out: which replies are worth it (opening), what a closed one means for its request (attempts)
Read next by: opening, attempts.

Without a time to keep them there is a new one for every attempt. A connection is kept once the reply has an end of its own and nothing
after it; where the end is still to come (its last chunk, after [DONE]) it is waited for here, and nobody else waits. The last one kept is
the first one taken. One on which anything happens while it is idle is dropped: an end, or bytes that nobody asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final

from inference_bench.measure.http1 import Dialer, Exchange
from inference_bench.measure.target import Address
from inference_bench.measure.wire import Timeouts, Wire

Dial = Callable[[Address], Dialer]

MOST_IDLE: Final = 256

_SLACK_S: Final = 0.001  # the shortest sleep of an event loop


class Connections:
    """Those of one endpoint.

    Where:    idle connections, and those whose end is still to come, stand in the order in which their time is over; keep_alive_s of 0
              is for keeping none
    """

    def __init__(self, address: Address, dial: Dial, clock: Callable[[], float], keep_alive_s: float) -> None:
        self._address, self._dial, self._dialer = address, dial, dial(address)
        self._clock, self.keep_alive_s = clock, keep_alive_s
        self._idle: dict[Wire, float] = {}  # until when
        self._ending: dict[Wire, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def connect(self, timeouts: Timeouts, max_bytes: int) -> Wire:
        """One that was kept, else a new one.

        Raises:   ExchangeError
        """
        while self._idle:
            wire, until_s = self._idle.popitem()
            if self._clock() < until_s and wire.renew(timeouts, max_bytes):
                return wire
            wire.drop()
        return await self._dialer.connect(self._clock, timeouts, max_bytes)

    def give_back(self, wire: Wire, exchange: Exchange) -> None:
        """The reply has said all that is wanted of it."""
        may_follow = exchange.finish()
        if may_follow:
            self._keep(wire)
        elif may_follow is None and len(self._ending) < MOST_IDLE:
            self._add(self._ending, wire, lambda wire: self._go_on(wire, exchange))
        else:
            wire.drop()

    def look_up_again(self) -> None:
        """It was not reached: its name may stand for another machine by now."""
        self.drop_all()
        try:
            ip_address(self._address.host)
        except ValueError:
            self._dialer = self._dial(self._address)

    def drop_all(self) -> list[Wire]:
        """Trust none of those that are kept; which they were."""
        wires = [*self._idle, *self._ending]
        self._idle.clear()
        self._ending.clear()
        for wire in wires:
            wire.drop()
        return wires

    async def aclose(self) -> None:
        """Drop them, wait until they are gone, and keep none from now on."""
        self.keep_alive_s = 0.0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for wire in self.drop_all():
            await wire.closed.wait()

    def _keep(self, wire: Wire) -> None:
        if len(self._idle) >= MOST_IDLE:
            _drop_first(self._idle)
        self._add(self._idle, wire, self._lose)

    def _add(self, to: dict[Wire, float], wire: Wire, on_news: Callable[[Wire], None]) -> None:
        to[wire] = self._clock() + self.keep_alive_s
        wire.rest(on_news)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self.keep_alive_s, self._sweep)

    def _go_on(self, wire: Wire, exchange: Exchange) -> None:
        """More of a reply that is to end, or the end of its connection."""
        may_follow = exchange.finish()
        if may_follow is None:
            return
        del self._ending[wire]
        if may_follow:
            self._keep(wire)
        else:
            wire.drop()

    def _lose(self, wire: Wire) -> None:
        """An idle one has ended, or says what nobody asked for."""
        del self._idle[wire]
        wire.drop()

    def _sweep(self) -> None:
        """Drop those whose time is over, and come again for the next."""
        self._timer, now_s = None, self._clock()
        for kept in (self._idle, self._ending):
            while kept and next(iter(kept.values())) <= now_s + _SLACK_S:
                _drop_first(kept)
        if until_s := [next(iter(kept.values())) for kept in (self._idle, self._ending) if kept]:
            self._timer = asyncio.get_running_loop().call_later(min(until_s) - now_s, self._sweep)


def _drop_first(kept: dict[Wire, float]) -> None:
    wire = next(iter(kept))
    del kept[wire]
    wire.drop()
