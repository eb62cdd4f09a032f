"""ServeGen's clients as a workload: each client asks at its own rate and with its own lengths, which change by the hour.

In:   a folder of chunk-N-trace.csv and chunk-N-dataset.json, or one such CSV file with its JSON file beside it
Out:  Workload drawn from them with a seed: they hold distributions and no requests
Leaves out: images, audio and video, whose clients are refused; sharing between requests, which the source does not say
Read next by: traces.

A line of a client's CSV file is a window of time: its start in seconds, the rate, the coefficient of variation, and the
distribution of the gaps (Gamma or Weibull) with its shape and scale; without a distribution the client is silent. The
JSON file maps a start to the distributions of input_tokens and output_tokens, each written as text: {length:
probability, ...}.
Source: alibaba/ServeGen, README.md and servegen/clientpool.py; Xiang et al., ServeGen, NSDI 2026
"""

from __future__ import annotations

import json
import math
import random
import re
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Final

from inference_bench.errors import TraceError
from inference_bench.workload.arrivals import OpenLoop
from inference_bench.workload.checks import MOST_TOKENS
from inference_bench.workload.generate import Workload
from inference_bench.workload.requests import Requests
from inference_bench.workload.trace_values import shown

WINDOW_S: Final = 600.0  # of a client with a single window

_CLIENT: Final = re.compile(r"chunk-(\d{1,9})-trace\.csv")
_PAIR: Final = re.compile(r"(\d{1,12}):\s*([0-9.eE+-]{1,40})")
_PATTERNS: Final = ("Gamma", "Weibull")
_MOST_LINE: Final = 400
_MOST_DRAWN: Final = 1_000_000  # when no number is given
_MOST_DATASET_BYTES: Final = 1 << 30
_NO_LENGTHS: Final = "requests of windows without lengths"
_EMPTY: Final = "requests drawn without prompt or output tokens"


@dataclass(frozen=True, slots=True)
class _Window:
    start_s: float
    end_s: float
    rate: float
    pattern: str
    shape: float
    scale_s: float

    def times_s(self, rng: random.Random) -> Iterator[float]:
        """Arrivals of the window; the gaps are drawn as the client's distribution says."""
        now_s = self.start_s
        while True:
            if self.pattern == "Gamma":
                now_s += rng.gammavariate(self.shape, self.scale_s)
            else:
                now_s += rng.weibullvariate(self.scale_s, self.shape)
            if now_s >= self.end_s:
                return
            yield now_s


def is_client_file(path: Path) -> bool:
    """Whether the name is that of a client's CSV file."""
    return _CLIENT.fullmatch(path.name) is not None


def read_servegen(path: Path, limit: int | None = None, seed: int = 0) -> Workload:
    """A workload drawn from clients; tenant says which client asks.

    Formula:  one random.Random(seed); window by window in time and client by client the gaps; then client by client, for
              each of its requests in time, one draw that picks both lengths at the same quantile, as ServeGen's own
              generator does
    Where:    limit keeps the first so many requests; a million without one
    Raises:   TraceError for a folder without clients, or a file that is not a client's
    """
    clients = _find_clients(path)
    rng = random.Random(seed)
    times_s: dict[int, list[float]] = {}
    for time_s, number in _draw_times([_read_windows(client) for client in clients], limit or _MOST_DRAWN, rng):
        times_s.setdefault(number, []).append(time_s)
    dropped: Counter[str] = Counter()
    rows: list[tuple[float, int, int, int]] = []
    for number in sorted(times_s):
        rows += _with_lengths(clients[number], number, times_s[number], rng, dropped)
    if not rows:
        reasons = ", ".join(f"{count} {what}" for what, count in dropped.items()) or "every client is silent"
        raise TraceError(f"{path} holds no request that can be sent: {reasons}")
    rows.sort()
    return _workload(path, rows, len(clients), seed, dropped)


def _workload(
    path: Path, rows: list[tuple[float, int, int, int]], num_clients: int, seed: int, dropped: Counter[str]
) -> Workload:
    first_s = rows[0][0]
    requests = Requests(
        array("q", [row[2] for row in rows]),
        array("q", [row[3] for row in rows]),
        tenant=array("q", [row[1] for row in rows]),
    )
    notes = (
        f"{len(rows)} requests drawn with seed {seed} from the rates and lengths of {num_clients} ServeGen clients",
        *(f"dropped {count} {what}" for what, count in sorted(dropped.items())),
    )
    times_s = array("d", [row[0] - first_s for row in rows])
    return Workload(path.name, requests, OpenLoop(times_s, "replay"), seed, notes=notes)


def _find_clients(path: Path) -> list[Path]:
    if is_client_file(path):
        return [path]
    if not path.is_dir():
        raise TraceError(f"{path} is not a folder of ServeGen clients; give one with chunk-N-trace.csv files")
    found = {int(match[1]): item for item in path.iterdir() if (match := _CLIENT.fullmatch(item.name))}
    if not found:
        raise TraceError(f"the folder {path} has no chunk-N-trace.csv file; give a ServeGen folder, or a trace file")
    return [found[number] for number in sorted(found)]


def _draw_times(clients: list[list[_Window]], most: int, rng: random.Random) -> list[tuple[float, int]]:
    """(time, client) of the first requests, in time; windows that begin after the last of them are not drawn."""
    windows = sorted(
        ((window.start_s, number, window) for number, mine in enumerate(clients) for window in mine),
        key=lambda item: item[:2],
    )
    sent: list[tuple[float, int]] = []
    for start_s, number, window in windows:
        if len(sent) >= most:
            sent.sort()
            if sent[most - 1][0] < start_s:
                break
        sent += ((time_s, number) for time_s in window.times_s(rng))
    sent.sort()
    return sent[:most]


def _read_windows(path: Path) -> list[_Window]:
    found: list[tuple[float, float, str, float, float]] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(_MOST_LINE), b""), start=1):
                if line.strip():
                    found.append(_read_window(line, f"{path} line {number}"))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    if not found:
        raise TraceError(f"{path} is empty; a client has at least one window")
    starts_s = [row[0] for row in found]
    if any(after <= before for before, after in pairwise(starts_s)):
        raise TraceError(f"{path}: the windows do not follow one another in time; sort them by their first column")
    last_s = starts_s[-1] + (starts_s[-1] - starts_s[-2] if len(starts_s) > 1 else WINDOW_S)
    ends_s = [*starts_s[1:], last_s]
    return [
        _Window(start_s, end_s, rate, pattern, shape, scale_s)
        for (start_s, rate, pattern, shape, scale_s), end_s in zip(found, ends_s, strict=True)
        if pattern and rate > 0
    ]


def _read_window(line: bytes, place: str) -> tuple[float, float, str, float, float]:
    try:
        start, rate, variation, pattern, shape, scale = line.decode().strip().split(",")
        numbers = [float(text) for text in (start, rate, variation, shape, scale)]
    except ValueError:
        raise TraceError(
            f"{place}: not a window of a ServeGen client; six fields are needed: start, rate, variation, Gamma or Weibull, "
            "shape, scale"
        ) from None
    if pattern not in (*_PATTERNS, ""):
        raise TraceError(f"{place}: the gaps are {shown(pattern)}; Gamma or Weibull is needed")
    if not pattern:
        return numbers[0], 0.0, "", 1.0, 1.0
    if not all(map(math.isfinite, numbers)) or numbers[0] < 0 or numbers[1] < 0 or min(numbers[3:]) <= 0:
        raise TraceError(f"{place}: a start or rate below 0, or a shape or scale that is not above 0")
    return numbers[0], numbers[1], pattern, numbers[3], numbers[4]


@dataclass(frozen=True, slots=True)
class _Distribution:
    """Lengths and the probability of each length or a shorter one."""

    lengths: tuple[int, ...]
    cumulative: array[float]

    def at(self, quantile: float) -> int:
        place = bisect_left(self.cumulative, quantile * self.cumulative[-1])
        return self.lengths[min(place, len(self.lengths) - 1)]


def _with_lengths(
    client: Path, number: int, times_s: list[float], rng: random.Random, dropped: Counter[str]
) -> Iterator[tuple[float, int, int, int]]:
    """(time, client, prompt tokens, output tokens) of a client's requests; lengths of a window are read when needed."""
    dataset = client.with_name(client.name.replace("-trace.csv", "-dataset.json"))
    lengths = _read_dataset(dataset)
    starts_s = sorted(lengths)
    window, known = -1, None
    for time_s in times_s:
        quantile = rng.random()
        place = bisect_right(starts_s, time_s) - 1
        if place != window:
            window = place
            known = (
                _distributions(lengths[starts_s[place]], f"{dataset} window {starts_s[place]:g}")
                if place >= 0
                else None
            )
        if known is None:
            dropped[_NO_LENGTHS] += 1
            continue
        prompt_tokens, output_tokens = known[0].at(quantile), known[1].at(quantile)
        if prompt_tokens and output_tokens:
            yield time_s, number, prompt_tokens, output_tokens
        else:
            dropped[_EMPTY] += 1


def _read_dataset(path: Path) -> dict[float, Mapping[str, Any]]:
    try:
        with path.open("rb") as file:
            values = json.loads(file.read(_MOST_DATASET_BYTES))
    except FileNotFoundError:
        raise TraceError(f"there is no file {path} beside its client's windows; fetch both") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, RecursionError):
        raise TraceError(f"{path} is not JSON (a Git LFS pointer is not); fetch the file itself") from None
    if not isinstance(values, dict):
        raise TraceError(f"{path} is not a JSON object of windows")
    try:
        found: dict[float, Mapping[str, Any]] = {
            float(start): fields for start, fields in values.items() if isinstance(fields, dict)
        }
    except ValueError:
        found = {math.nan: {}}
    if not all(map(math.isfinite, found)):
        raise TraceError(f"{path}: a window's start is not a number of seconds")
    return found


def _distributions(fields: Mapping[str, Any], place: str) -> tuple[_Distribution, _Distribution] | None:
    """Prompt and output lengths of a window; None where one of them is empty."""
    if "input_tokens" not in fields or "output_tokens" not in fields:
        names = ", ".join(sorted(fields)) or "nothing"
        raise TraceError(
            f"{place} has {names}; input_tokens and output_tokens are needed (text clients alone are read)"
        )
    prompt, output = (_distribution(fields[name], f"{place} {name}") for name in ("input_tokens", "output_tokens"))
    return None if prompt is None or output is None else (prompt, output)


def _distribution(text: object, place: str) -> _Distribution | None:
    if not isinstance(text, str):
        raise TraceError(f"{place} is {shown(text)}; text such as {{128: 0.5, 256: 0.5}} is needed")
    pairs = sorted((int(length), _probability(share, place)) for length, share in _PAIR.findall(text))
    if len(pairs) != text.count(":"):
        raise TraceError(f"{place} is {shown(text)}; text such as {{128: 0.5, 256: 0.5}} is needed")
    if not pairs:
        return None
    if pairs[-1][0] > MOST_TOKENS or sum(share for _, share in pairs) <= 0:
        raise TraceError(f"{place}: a length above {MOST_TOKENS}, or no length with a probability")
    return _Distribution(tuple(length for length, _ in pairs), array("d", accumulate(share for _, share in pairs)))


def _probability(text: str, place: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise TraceError(f"{place}: the probability {text!r} does not lie between 0 and 1")
    return share
