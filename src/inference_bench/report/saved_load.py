"""What the folder of a load run still says: also of a run that was cut short.

In:   a run folder
Out:  a dict ready for JSON, or a text of at most 100 columns
Leaves out: the client's own health, which is known once a run has ended (load_report); what a verification found (verify.saved)
Read next by: cli.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from inference_bench.arrival_proof import ArrivalProof
from inference_bench.definitions import recompute
from inference_bench.loadtest.workload_memory import Asked, asked_in, prove_asked
from inference_bench.measure.store import RunFolder, StoredRecords, read_records
from inference_bench.metrics import Metrics, summarise
from inference_bench.records import RequestRecord, Stage
from inference_bench.report.load_report import metrics_json, metrics_text
from inference_bench.report.proof_report import definitions_json, definitions_text, proof_json, proof_text
from inference_bench.report.text import printable, wrap
from inference_bench.verify.saved import RESULT_FILE


@dataclass(frozen=True, slots=True)
class SavedPart:
    """One part of a run, such as a point of a sweep.

    Where:    asked and arrivals are None where the folder does not remember what was asked
    """

    group: str
    records: tuple[RequestRecord, ...]
    metrics: Metrics
    asked: Asked | None
    arrivals: ArrivalProof | None


@dataclass(frozen=True, slots=True)
class SavedLoad:
    """A load run as its folder holds it; one without a result did not come to its end."""

    path: Path
    stored: StoredRecords
    parts: tuple[SavedPart, ...]
    has_result: bool


def saved_load(path: Path) -> SavedLoad:
    """Read a run folder again.

    Raises:   RunFolderError; TooFewSamplesError where nothing was measured
    """
    asked = asked_in(RunFolder.open(path).read_meta())
    stored = read_records(path)
    groups: dict[str, list[RequestRecord]] = {}
    for record in stored.records:
        if record.stage is Stage.MEASURE:
            groups.setdefault(record.group, []).append(record)
    parts = [_part(group, records, asked.get(group)) for group, records in groups.items()]
    if not (parts and asked):  # nothing says that the parts are questions of their own
        parts = [_part("", list(stored.records), None)]
    return SavedLoad(path, stored, tuple(parts), (path / RESULT_FILE).is_file())


def _part(group: str, records: Sequence[RequestRecord], asked: Asked | None) -> SavedPart:
    proof = None if asked is None else prove_asked(records, asked)
    return SavedPart(group, tuple(records), summarise(records), asked, proof)


def saved_json(saved: SavedLoad) -> dict[str, Any]:
    """The stable keys of `report RUN --json`; of several parts, the first's figures stand in `parts` alone."""
    stored = saved.stored
    found = {
        "schema": "inference-bench/load/1",
        "run_dir": str(saved.path),
        "finished": saved.has_result,
        "dropped_lines": stored.num_dropped_lines,
        "dropped_bytes": stored.num_dropped_bytes,
        "in_flight_at_the_end": stored.num_unfinished,
        "measured_again": stored.num_voided,
        "resumed": stored.num_resumed,
    }
    parts = [_part_json(part) for part in saved.parts]
    return found | (parts[0] if len(parts) == 1 else {"parts": parts})


def _part_json(part: SavedPart) -> dict[str, Any]:
    asked = part.asked
    return {
        "group": part.group,
        **metrics_json(part.metrics),
        "workload": None if asked is None else asked.name,
        "seed": None if asked is None else asked.seed,
        "lengths": None
        if asked is None
        else {"prompt": asdict(asked.prompt_tokens), "output": asdict(asked.output_tokens)},
        "arrivals_proof": None if part.arrivals is None else proof_json(part.arrivals),
        "definitions": definitions_json(recompute(part.records)),
    }


def saved_text(saved: SavedLoad, with_definitions: bool = False) -> str:
    """The same for a terminal: first, where it applies, that the run was cut short."""
    blocks = [wrap(line) for line in _state_lines(saved)]
    for part in saved.parts:
        if len(saved.parts) > 1:
            blocks.append(wrap(printable(f"part {part.group or 'without a name'}")))
        blocks.append(metrics_text(part.metrics))
        if part.arrivals is not None:
            blocks.append(proof_text(part.arrivals))
        if with_definitions:
            blocks.append(definitions_text(recompute(part.records)))
    return "\n\n".join([*blocks, str(saved.path)])


def _state_lines(saved: SavedLoad) -> list[str]:
    stored, lines = saved.stored, []
    if not saved.has_result:
        num_ended = len(stored.records) - stored.num_unfinished
        lines.append(
            f"this run did not come to its end: {num_ended} requests had ended and {stored.num_unfinished} were in flight when "
            "it was cut short; those count as cancelled, and what they had received by then is kept"
        )
    if stored.num_dropped_bytes:
        lines.append(f"the last {stored.num_dropped_bytes} bytes were cut short and are left out")
    if stored.num_resumed:
        lines.append(f"resumed {stored.num_resumed} time(s); {stored.num_voided} requests were measured again")
    return lines
