"""Which loop a load runs on, and that it says so."""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import os
import platform
import struct
import sys

import pytest

from inference_bench.measure.client_health import ProcessWatch, health_values, judge_client
from inference_bench.measure.client_loop import ASYNCIO, UVLOOP, find_loop_factory, name_of_loop, run_client
from inference_bench.measure.own_priority import own_nice, served_first
from inference_bench.measure.receipts import Receipts


async def named() -> tuple[str, object]:
    with ProcessWatch() as watch:
        await asyncio.sleep(0)
    return name_of_loop(), health_values(judge_client([], Receipts(), [], watch))["loop"]


def test_uvloop_runs_a_load_where_it_is_installed_and_the_result_says_so() -> None:
    pytest.importorskip("uvloop")
    assert run_client(named()) == (UVLOOP, UVLOOP)


def test_without_uvloop_asyncio_does(monkeypatch: pytest.MonkeyPatch) -> None:
    original = builtins.__import__

    def refuse(name: str, *rest: object, **more: object) -> object:
        if name == "uvloop":
            raise ImportError(name)
        return original(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "uvloop", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    assert find_loop_factory() is None
    assert run_client(named()) == (ASYNCIO, ASYNCIO)


def test_outside_of_a_loop_there_is_none_of_uvloops() -> None:
    assert name_of_loop() == ASYNCIO


def test_a_load_goes_ahead_of_others_where_it_may_and_no_longer_than_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(os, "setpriority"):
        pytest.skip("this platform has no priorities to set")
    nice, asked = [0], list[int]()

    def set_nice(which: int, who: int, value: int) -> None:
        assert (which, who) == (os.PRIO_PROCESS, 0)
        asked.append(value)
        nice[0] = value

    monkeypatch.setattr(os, "getpriority", lambda which, who: nice[0])
    monkeypatch.setattr(os, "setpriority", set_nice)

    async def say() -> object:
        with ProcessWatch() as watch:
            pass
        return health_values(judge_client([], Receipts(), [], watch))["nice"]

    assert run_client(say()) == -10
    assert (asked, own_nice()) == ([-10, 0], 0)


def test_where_it_may_not_it_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "setpriority", refuse, raising=False)
    before = own_nice()
    assert run_client(named())[0] in (ASYNCIO, UVLOOP)
    assert own_nice() == before


def turn_ns() -> int:
    """The length of this thread's turns, asked for by hand."""
    attributes = ctypes.create_string_buffer(48)
    call = {"x86_64": 315, "aarch64": 275}[platform.machine()]
    if ctypes.CDLL(None).syscall(ctypes.c_long(call), ctypes.c_int(0), attributes, ctypes.c_uint(48), ctypes.c_uint(0)):
        pytest.skip("the system does not say how it schedules")
    return int(struct.unpack_from("=Q", attributes.raw, 24)[0])


@pytest.mark.skipif(sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"), reason="not so there")
def test_a_load_asks_for_short_turns_and_has_the_usual_ones_afterwards() -> None:
    before_ns, before_nice = turn_ns(), own_nice()
    if not before_ns:
        pytest.skip("this kernel grants no turns of a length that is asked for")
    with served_first():
        assert turn_ns() == 100_000
        assert own_nice() in (-10, before_nice)
    assert (turn_ns(), own_nice()) == (before_ns, before_nice)


def test_what_the_load_raises_comes_through() -> None:
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_client(fail())
