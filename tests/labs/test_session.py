from __future__ import annotations

import re

import pytest

from inference_bench.errors import RequestError
from inference_bench.labs.head import SubjectIdentity
from inference_bench.labs.session import LabSession, computing_threads, counted
from inference_bench.labs.settings import LabSettings
from inference_bench.measure.machine_identity import identify_machine


def test_a_head_says_what_was_asked_where_when_and_what_was_left_out() -> None:
    session = LabSession("cache", "what for", LabSettings(num_threads=1, seed=7, is_quick=True))
    session.left_out.append("the long run")
    session.assumptions[:] = ["one user"]
    session.subject = SubjectIdentity("m", "s", None, "0" * 64, 5, "float32")
    head = session.head()
    assert (head.lab, head.question, head.num_threads, head.seed, head.is_quick) == ("cache", "what for", 1, 7, True)
    assert (head.left_out, head.assumptions, head.subject) == (("the long run",), ("one user",), session.subject)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", head.started_at)
    assert 0 <= head.elapsed_s < 10
    assert "inference-bench" in head.software


def test_memory_is_the_process_s_own_and_not_nothing() -> None:
    peak = LabSession("cache", "", LabSettings()).head().peak_memory_bytes
    assert peak is None or 5e6 < peak < 1e12  # a Python process alone takes some ten million bytes


def test_every_core_computes_unless_fewer_are_asked_for() -> None:
    session = LabSession("cache", "", LabSettings())
    assert session.num_threads == session.machine.num_usable_cores


def test_more_threads_than_cores_are_refused_before_a_library_is_asked_for_them() -> None:
    cores = identify_machine().num_usable_cores
    assert LabSession("cache", "", LabSettings(num_threads=cores)).num_threads == cores
    with pytest.raises(RequestError, match=f"{cores + 1} threads are asked for"):
        LabSession("cache", "", LabSettings(num_threads=cores + 1))


def test_progress_names_the_lab() -> None:
    said: list[str] = []
    LabSession("cache", "", LabSettings(), said.append).say("halfway")
    LabSession("cache", "", LabSettings()).say("to nobody")
    assert said == ["cache: halfway"]


def test_threads_are_put_back_after_a_lab_that_failed() -> None:
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()

    def fail() -> None:
        with computing_threads(before + 1):
            assert torch.get_num_threads() == before + 1
            raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        fail()
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"dtype": "int3"}, "'int3' here; formats: float32, bfloat16"),
        ({"num_threads": 0}, "0 threads cannot compute"),
        ({"num_threads": -2}, "-2 threads"),
        ({"seed": 2**63}, "9223372036854775808 cannot be a seed"),
        ({"seed": -1}, "-1 cannot be a seed"),
        ({"revision": "main"}, "name that model too"),
    ],
)
def test_settings_that_cannot_be_are_refused(asked: dict[str, object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        LabSettings(**asked)  # type: ignore[arg-type]


def test_things_are_counted_in_words() -> None:
    assert [counted([0] * num, "window") for num in (0, 1, 2)] == ["0 windows", "1 window", "2 windows"]
