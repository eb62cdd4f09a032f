"""What is asked of the quantise lab.

Out:  QuantiseRequest
Read next by: flow, cli.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from inference_bench.errors import RequestError
from inference_bench.labs.settings import FLOAT32, LabSettings
from inference_bench.labs.windows import WINDOW_TOKENS

NUM_WINDOWS: Final = 4
QUICK_WINDOWS: Final = 1
CALIBRATION_WINDOWS: Final = 4
ROOM_WINDOWS: Final = 8  # from the start of the calibration to what judges: its own windows, and a gap behind them
QUICK_CALIBRATION: Final = 2
DEFAULT_GROUP: Final = 64
_LEAST_WINDOW: Final = 2


@dataclass(frozen=True, slots=True)
class QuantiseRequest:
    """One run of the lab.

    Where:   text and calibration_text are the paths of a .txt or .parquet file, None for the default text, and for the same text;
             calibration_start and evaluation_start are places in them, in tokens; evaluation_start None is a place after the
             calibration; num_windows None is what the mode takes; group is how many columns share a scale in the
             grids of groups; is_reference reruns the published settings too
    Raises:  RequestError
    """

    settings: LabSettings = field(default_factory=LabSettings)
    text: str | None = None
    calibration_text: str | None = None
    calibration_start: int = 0
    evaluation_start: int | None = None
    num_windows: int | None = None
    window_tokens: int = WINDOW_TOKENS
    group: int = DEFAULT_GROUP
    is_reference: bool = False

    def __post_init__(self) -> None:
        if self.settings.dtype != FLOAT32:
            raise RequestError(f"quantisation is judged against float32, not {self.settings.dtype}")
        if self.group < 1:
            raise RequestError(f"{self.group} columns cannot share a scale; give a group of 1 or more")
        if self.window_tokens < _LEAST_WINDOW:
            raise RequestError(f"a window of {self.window_tokens} token scores none; give {_LEAST_WINDOW} or more")
        if self.num_windows is not None and self.num_windows < 1:
            raise RequestError(f"{self.num_windows} windows cannot be scored; give 1 or more")
        if self.calibration_start < 0 or (self.evaluation_start is not None and self.evaluation_start < 0):
            raise RequestError("a text begins at token 0; calibration and evaluation cannot begin before it")

    @property
    def windows(self) -> int:
        """How many windows are judged on."""
        return self.num_windows or (QUICK_WINDOWS if self.settings.is_quick else NUM_WINDOWS)

    @property
    def calibration_windows(self) -> int:
        """How many windows are calibrated on."""
        return QUICK_CALIBRATION if self.settings.is_quick else CALIBRATION_WINDOWS

    @property
    def judged_from(self) -> int:
        """Where the evaluation begins: the same place in both modes, so that the quick mode's windows are the first of the full's."""
        if self.evaluation_start is not None:
            return self.evaluation_start
        if self.calibration_text is not None:
            return 0
        return self.calibration_start + ROOM_WINDOWS * self.window_tokens
