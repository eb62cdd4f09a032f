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

from inference_bench.arrival_proof import ArrivalProof, Verdict
from inference_bench.definitions import recompute
from inference_bench.loadtest.workload_memory import Asked, asked_in, prove_asked
from inference_bench.measure.prompt_checks import judge_documents
from inference_bench.measure.server_metrics import ServerMetrics, read_server_metrics
from inference_bench.measure.server_metrics_checks import check_server
from inference_bench.measure.store import RunFolder, StoredRecords, read_records
from inference_bench.metrics import Metrics, summarise
from inference_bench.records import RequestRecord
from inference_bench.report.load_report import metrics_json, metrics_text, server_json, server_lines
from inference_bench.report.proof_report import VERDICTS, definitions_json, definitions_text, proof_json, proof_text
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
    """A load run as its folder holds it; one without a result did not come to its end.

    Where:    server is what the server said about itself meanwhile, None where it was not asked
    """

    path: Path
    stored: StoredRecords
    parts: tuple[SavedPart, ...]
    has_result: bool
    server: ServerMetrics | None = None


def saved_load(path: Path) -> SavedLoad:
    """Read a run folder again.

    Raises:   RunFolderError; TooFewSamplesError where nothing was measured
    """
    asked = asked_in(RunFolder.open(path).read_meta())
    stored = read_records(path)
    parts = [_part(group, records, asked.get(group)) for group, records in stored.parts.items()]
    if not (parts and asked):  # nothing says that the parts are questions of their own
        parts = [_part("", list(stored.records), None)]
    return SavedLoad(path, stored, tuple(parts), (path / RESULT_FILE).is_file(), read_server_metrics(path))


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
        "server": server_json(saved.server),
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
        "documents": None if (found := judge_documents(part.records)) is None else asdict(found),
        "arrivals_proof": None if part.arrivals is None else proof_json(part.arrivals),
        "definitions": definitions_json(recompute(part.records)),
    }


def saved_text(saved: SavedLoad, with_definitions: bool = False) -> str:
    """The same for a terminal: first, where it applies, that the run was cut short."""
    blocks = [wrap(line) for line in (*_state_lines(saved), *_findings(saved))]
    for part in saved.parts:
        if len(saved.parts) > 1:
            blocks.append(wrap(printable(f"part {part.group or 'without a name'}")))
        blocks.append(metrics_text(part.metrics))
        if part.arrivals is not None:
            blocks.append(proof_text(part.arrivals, with_reasons=part.arrivals.verdict is Verdict.UNDECIDED))
        if (documents := judge_documents(part.records)) is not None:
            blocks.append(wrap(documents.remark))
        if with_definitions:
            blocks.append(definitions_text(recompute(part.records)))
    blocks += map(wrap, server_lines(saved.server))
    blocks += map(wrap, check_server(saved.server, saved.stored.records).findings)
    return "\n\n".join([*blocks, str(saved.path)])


def saved_definitions(saved: SavedLoad) -> str:
    """What other tools would have printed of each part."""
    blocks: list[str] = []
    for part in saved.parts:
        if len(saved.parts) > 1:
            blocks.append(wrap(printable(f"part {part.group or 'without a name'}")))
        blocks.append(definitions_text(recompute(part.records)))
    return "\n\n".join(blocks)


def _findings(saved: SavedLoad) -> list[str]:
    """What must not be missed, before any figure."""
    return [
        f"{VERDICTS[part.arrivals.verdict]}{f' in part {part.group}' if len(saved.parts) > 1 else ''}: {reason}"
        for part in saved.parts
        if part.arrivals is not None and part.arrivals.verdict is not Verdict.UNDECIDED
        for reason in part.arrivals.reasons
    ]


def _state_lines(saved: SavedLoad) -> list[str]:
    stored, lines = saved.stored, []
    if not saved.has_result:
        num_ended, num_open = len(stored.records) - stored.num_unfinished, stored.num_unfinished
        ended = f"{num_ended} request{'' if num_ended == 1 else 's'} had ended and {num_open} {'was' if num_open == 1 else 'were'}"
        lines.append(
            f"this run did not come to its end: {ended} in flight when it was cut short; what was in flight counts as "
            "cancelled, and what had come of it by then is kept"
        )
    if stored.num_dropped_bytes:
        lines.append(f"the last {stored.num_dropped_bytes} bytes were cut short and are left out")
    if stored.num_resumed:
        times = "once" if stored.num_resumed == 1 else f"{stored.num_resumed} times"
        again = "1 request was" if stored.num_voided == 1 else f"{stored.num_voided} requests were"
        lines.append(f"resumed {times}; {again} measured again")
    return lines
