"""Why a prediction is most likely far off: what was seen to explain such rows in the published tables.

In:   ScoredRow
Out:  one line
Read next by: summary.
"""

from __future__ import annotations

from typing import Final

from inference_bench.predict.efficiency.parameters import Familiarity
from inference_bench.predict.efficiency.question import Phase
from inference_bench.predict.efficiency.setting import DeviceSplit
from inference_bench.score.scoring import ScoredRow

_BELOW_BOUND: Final = 0.9  # of the bound: what rounding and nominal rates can explain ends here
_WAITS: Final = 4.0
_LARGEST_NODE: Final = 8
_FEW_THREADS: Final = 0.3


def likely_reason(row: ScoredRow) -> str:
    """The first of these that holds; they go from what the row itself contradicts to what it leaves open."""
    setting = row.form.question.setting
    rules: tuple[tuple[bool, str], ...] = (
        (row.measured_s < _BELOW_BOUND * row.bound_s, "faster than the bound: lengths, formats or devices differ"),
        (row.form.waves > 1, "more sequences than the cache holds: how long they wait is a guess"),
        (_waits(row), "far above the prompt's own time: the server admitted fewer than were offered"),
        (setting.devices > _LARGEST_NODE, "several nodes: the link between them is not in the row"),
        (row.familiarity is Familiarity.NEW, f"{setting.engine} was never measured on machines like this"),
        (setting.threads_fraction < _FEW_THREADS, "few threads: one core's bandwidth is not in the fit"),
        (setting.split is not DeviceSplit.TENSOR, "devices run in turn: what they hand on is not counted"),
        (setting.served.weights.experts > 0, "experts: how unevenly tokens choose them is not in the row"),
    )
    return next((reason for holds, reason in rules if holds), "version, host or clock of this run")


def _waits(row: ScoredRow) -> bool:
    return row.form.question.phase is Phase.SERVING_TTFT and row.measured_s > _WAITS * row.predicted_s
