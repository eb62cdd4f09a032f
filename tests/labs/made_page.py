"""A lab's page made of plain values, with everything on it that a page can have."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inference_bench.charts import Spec
from inference_bench.labs.checks import Check
from inference_bench.labs.head import LabHead, SubjectIdentity
from inference_bench.report.html_pieces import Drawing
from inference_bench.report.key_figure import KeyFigure
from inference_bench.report.lab_page import LabPage
from inference_bench.report.table import Column, Table

HEAD = LabHead(
    lab="cache",
    question="What does a KV cache save, cost and break?",
    started_at="2026-11-30T12:00:00+00:00",
    elapsed_s=41.5,
    peak_memory_bytes=2_000_000_000,
    machine="AMD EPYC 7B13, 2 cores",
    num_threads=2,
    load_average_1min=0.25,
    subject=SubjectIdentity("SmolLM2-135M-Instruct", "made", None, "ab" * 32, 134_515_008, "float32"),
    software={"torch": "2.13.0"},
    seed=7,
    is_quick=True,
    left_out=("contexts above 512",),
    assumptions=("one sequence at a time",),
)
MET = Check("the cache's bytes are those of the formula", True, "46,080 B", "46,080 B")
MISSED = Check("cached logits are those of a full forward", False, "0.5", "at most 2e-4")


SPEC: Spec = {
    "width": 300,
    "height": 100,
    "padding": {"left": 40, "right": 10, "top": 10, "bottom": 30},
    "data": {"values": [{"context": 128, "seconds": 0.1}, {"context": 512, "seconds": 0.4}]},
    "mark": "line",
    "encoding": {"x": {"field": "context", "type": "quantitative"}, "y": {"field": "seconds", "type": "quantitative"}},
}


@dataclass(frozen=True, slots=True)
class MadeResult:
    """What every lab's result has."""

    head: LabHead
    checks: tuple[Check, ...]


def made(name: str = "SmolLM2-135M-Instruct", *, is_missed: bool = False) -> LabPage:
    """The page; every text that comes from outside holds the model's name."""
    assert HEAD.subject is not None
    head = replace(HEAD, subject=replace(HEAD.subject, name=name))
    table = Table(
        f"Bytes of {name}",
        (Column("context", "r"), Column("bytes", "r", "measured", note="of keys and values"), Column("of | what", "l")),
        (
            ("128", "5,898,240", f"{name} | both"),
            ("512", "23,592,960", "every layer and a long remark that has to be cut " * 2),
        ),
        note="One sequence.",
    )
    return LabPage(
        head,
        (MET, MISSED) if is_missed else (MET,),
        (KeyFigure("saved", "31", "×", "measured", "at 512 tokens", f"of {name}"),),
        (f"the cache of {name} saves 31 times the work at 512 tokens.", "it costs 46,080 bytes a token."),
        (table,),
        (Drawing("Growth", f"Step time of {name}", lambda _width: SPEC),),
        (Table("Every length", (Column("context"),), (("1",),)),),
    )
