"""What an export is made from: a run's records, and what its folder says beside them.

In:   a run folder
Out:  ExportedRun
Read next by: exports and its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from inference_bench.errors import TooFewSamplesError
from inference_bench.loadtest.workload_memory import Asked, asked_in
from inference_bench.measure.store import RunFolder, read_records
from inference_bench.records import RequestRecord, Stage


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """A run as its folder holds it.

    Where:    asked is what each group of it was to be, where that is remembered; created is when the folder was made
    """

    path: Path
    records: Sequence[RequestRecord]
    model: str | None = None
    target: str = ""
    created: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    asked: Mapping[str, Asked] = field(default_factory=dict)

    def parts(self) -> dict[str, list[RequestRecord]]:
        """The measured requests by the part of the run they belong to, in the order they were sent.

        Raises:   TooFewSamplesError when none was measured
        """
        found: dict[str, list[RequestRecord]] = {}
        for record in sorted(self.records, key=lambda record: record.sent_s):
            if record.stage is Stage.MEASURE:
                found.setdefault(record.group, []).append(record)
        if not found:
            raise TooFewSamplesError("there is no measured request to export")
        return found


def exported_run(path: Path) -> ExportedRun:
    """The run in this folder.

    Raises:   RunFolderError
    """
    meta = RunFolder.open(path).read_meta()
    model, target = meta.get("served_model"), meta.get("target")
    return ExportedRun(
        path,
        read_records(path).records,
        model if isinstance(model, str) else None,
        target if isinstance(target, str) else "",
        _time(meta.get("created")),
        asked_in(meta),
    )


def _time(text: object) -> datetime:
    try:
        found = datetime.fromisoformat(text if isinstance(text, str) else "")
    except ValueError:
        return datetime(1970, 1, 1, tzinfo=UTC)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
