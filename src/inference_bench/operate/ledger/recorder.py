"""How does a service write down what it was asked, without writing down what was said?

In:   Answers as they end; the lists of applications and teams that the service knows
Out:  files of one JSON line a request, only ever added to, one file a process, a new one at a size
Leaves out: text, keys and addresses: sizes, times and controlled names are all that a line can hold (names); reading (lines)
Read next by: lines, and the services that use it.

A line is handed to the system in one write when its request ends: a killed process loses nothing, and at most its last line is torn. A
power cut loses what the system had not written yet: `fsync_s` bounds that, and by default the disk is waited for only when a file
ends, since waiting holds up the caller. On a full disk the caller hears of it once, or never (`on_error`), and the lines that were lost
are counted in the file as soon as there is room.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self

from inference_bench.errors import RequestError, StorageError
from inference_bench.files import shown_name
from inference_bench.operate.answers import Answer, Attempt
from inference_bench.operate.ledger import names
from inference_bench.operate.ledger.content_log import Content, ContentLog
from inference_bench.operate.ledger.fork_lock import ForkLock
from inference_bench.operate.ledger.record_file import MOST_COUNT, MOST_S, VERSION, RecordFile, storage_error
from inference_bench.records import RequestStatus
from inference_bench.units import KIBI, MEBI

ROTATE_BYTES: Final = 64 * MEBI
_DECIMALS: Final = 6  # of a time: microseconds
_LEAST_ROTATE_BYTES: Final = 4 * KIBI


class Recorder:
    """Writes Answers to a folder; call it with each, from any task or thread.

    Where:    unlisted says what becomes of a name or an id that is not allowed: "other" puts that word in its place, "refuse" loses
              the record, with a RequestError; on_error is "raise", for a StorageError once an outage, or "drop", which never raises,
              whatever an Answer holds or is refused for. What is not written counts in num_dropped. fsync_s is how often the disk is
              waited for, None for the end of a file alone. Content is written only where log_content is true and content is a
              ContentLog in another folder
    """

    def __init__(
        self,
        folder: Path,
        *,
        applications: Iterable[str] = (),
        teams: Iterable[str] = (),
        request_id_pattern: str = names.REQUEST_ID,
        unlisted: Literal["other", "refuse"] = "other",
        on_error: Literal["raise", "drop"] = "raise",
        rotate_bytes: int = ROTATE_BYTES,
        fsync_s: float | None = None,
        log_content: bool = False,
        content: ContentLog | None = None,
    ) -> None:
        _require(unlisted, ("other", "refuse"), "rule for names that are not listed")
        _require(on_error, ("raise", "drop"), "rule for failures")
        if rotate_bytes < _LEAST_ROTATE_BYTES:
            raise RequestError(
                f"a file of {rotate_bytes} bytes holds no records; give {_LEAST_ROTATE_BYTES} bytes or more"
            )
        if fsync_s is not None and not (math.isfinite(fsync_s) and fsync_s >= 0):
            raise RequestError(f"the disk cannot be waited for every {fsync_s:g} s; give 0 or more seconds, or None")
        self.folder = folder
        self.num_written = self.num_dropped = self.num_unlisted = 0
        self.last_error: str | None = None
        self._applications = names.known_names(applications, "application")
        self._teams = names.known_names(teams, "team")
        self._id_pattern = _pattern(request_id_pattern)
        self._refuses, self._drops = unlisted == "refuse", on_error == "drop"
        self._content = _content_log(folder, log_content, content)
        self._file = RecordFile(folder, rotate_bytes, fsync_s)
        self._guard = ForkLock()
        self._is_out = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(folder, error) from None

    def __call__(self, answer: Answer, content: Content | None = None) -> None:
        """Write one request that has ended; its content only where this recorder was told to log it.

        Raises:   unless failures are dropped, StorageError, and RequestError for an Answer that no line can hold or a name that is
                  refused
        """
        with self._guard.lock:
            request_id = self._write(answer)
            if request_id is None:
                return
            try:
                self._file.sync_when_due()
                if content is not None and self._content is not None:
                    self._content.write(request_id, content)
            except Exception as error:
                self._note(_failure(self.folder, error))
            else:
                self._is_out = False

    def _write(self, answer: Answer) -> str | None:
        """Write a line; the id it is written under, None where it is lost."""
        try:
            values, request_id = self._values(answer)
            self._file.write(values)
        except RequestError as error:  # a name that is refused, and is counted
            self.last_error = str(error)
            if self._drops:
                return None
            raise
        except OSError as error:
            self._count_lost()
            self._note(storage_error(self.folder, error))
            return None
        except Exception as error:  # a service may put anything into an Answer
            self._count_lost()
            self.last_error = f"an answer holds what no record can: {type(error).__name__}"
            if self._drops:
                return None
            raise RequestError(f"{self.last_error}; give the fields the types that Answer says") from None
        self.num_written += 1
        return request_id

    def flush(self) -> None:
        """Wait until the disk has all that was written.

        Raises:   StorageError
        """
        with self._guard.lock:
            try:
                self._file.sync()
            except OSError as error:
                raise storage_error(self.folder, error) from None

    def close(self) -> None:
        """End the file and wait for the disk; a call after it begins another file."""
        with self._guard.lock:
            self._file.end()
            if self._content is not None:
                self._content.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ── one line ───────────────────────────────────────────────────────────────────────────────────

    def _values(self, answer: Answer) -> tuple[dict[str, Any], str]:
        """What is written of an Answer, and the id it is written under."""
        sequence, began_s = self._file.next_sequence(answer.e2e_s)
        process = self._file.process
        request_id = answer.request_id
        if not self._id_pattern.fullmatch(request_id):
            self._count_unlisted("request id")
            request_id = f"{names.OTHER}-{process}-{sequence}"
        by = answer.answered_by
        application = self._listed(answer.application, self._applications, "application")
        values = {
            "v": VERSION,
            "process": process,
            "seq": sequence,
            "request_id": request_id,
            "at": _wall_text(answer.at),
            "began_s": began_s,
            "status": str(answer.status),
            "e2e_s": answer.e2e_s,
            "ttft_s": answer.ttft_s,
            "budget_s": answer.budget_s,
            "finish_reason": names.finish_reason(answer.finish_reason),
            "prompt_tokens": answer.prompt_tokens,
            "cached_prompt_tokens": answer.cached_prompt_tokens,
            "output_tokens": answer.output_tokens,
            "reasoning_tokens": answer.reasoning_tokens,
            "application": application,
            "team": self._listed(answer.team, self._teams, "team"),
            "endpoint": None if by is None else names.endpoint_name(by.name),
            "model": None if by is None else names.model_name(by.model),
            "manifest_sha256": None if by is None else names.digest(by.manifest_sha256),
            "is_fallback": answer.is_fallback or None,
            "user_success": answer.user_success,
            "is_lower_bound": answer.is_lower_bound or None,
            "error": _error_kind(answer),
            "attempts": [_attempt_values(attempt) for attempt in answer.attempts],
        }
        return _without_none(values), request_id

    def _listed(self, name: str | None, known: frozenset[str], what: str) -> str | None:
        found = names.listed(name, known)
        if found != name:
            self._count_unlisted(what)
        return found

    def _count_unlisted(self, what: str) -> None:
        """A word that may not be written; it is not repeated in the message, since it may be what was said."""
        self.num_unlisted += 1
        if self._refuses:
            self._count_lost()
            raise RequestError(
                f"the {what} of a request is not one that this recorder was told of; add it where the recorder is made, or let it "
                f"be recorded as {names.OTHER!r}"
            )

    def _count_lost(self) -> None:
        """A record that will not be written; the file says so before the next that is."""
        self.num_dropped += 1
        self._file.num_unsaid += 1

    def _note(self, failure: StorageError) -> None:
        """Remember a failure, and say the first of an outage unless failures are dropped."""
        self.last_error = str(failure)
        was_out, self._is_out = self._is_out, True
        if not (was_out or self._drops):
            raise failure from None


def _error_kind(answer: Answer) -> str | None:
    """A known word for why an answer is not complete: how its last attempt ended, where the error itself is a sentence."""
    kind = names.error_kind(answer.error)
    if kind == names.OTHER and answer.status is not RequestStatus.COMPLETED and answer.attempts:
        return str(answer.attempts[-1].end)
    return kind


def _attempt_values(attempt: Attempt) -> dict[str, Any]:
    return _without_none(
        {
            "endpoint": names.endpoint_name(attempt.endpoint.name),
            "model": names.model_name(attempt.endpoint.model),
            "manifest_sha256": names.digest(attempt.endpoint.manifest_sha256),
            "end": str(attempt.end),
            "started_s": attempt.started_s,
            "ended_s": attempt.ended_s,
            "http_status": attempt.http_status,
            "prompt_tokens": attempt.prompt_tokens,
            "output_tokens": attempt.output_tokens,
            "is_hedge": attempt.is_hedge or None,
            "is_lower_bound": attempt.is_lower_bound or None,
        }
    )


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    """Without what is not known; a number that is none, such as NaN, is not known.

    Raises:   ValueError for one beyond what is read
    """
    found = {}
    for name, value in values.items():
        if value is None or (type(value) is float and not math.isfinite(value)):
            continue
        if (type(value) is int and value >= MOST_COUNT) or (type(value) is float and value > MOST_S):
            raise ValueError(name)  # nor would it be read
        found[name] = round(value, _DECIMALS) if type(value) is float else value
    return found


def _failure(folder: Path, error: Exception) -> StorageError:
    """What went wrong behind a record that is written."""
    if isinstance(error, StorageError):
        return error
    if isinstance(error, OSError):
        return storage_error(folder, error)
    return StorageError(f"could not record the content of a request: {type(error).__name__}")


def _wall_text(at: str) -> str | None:
    """A time as the record writes it; None for a text that is none."""
    try:
        return datetime.fromisoformat(at).astimezone(UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError):  # also one that in UTC is before the first year
        return None


def _content_log(folder: Path, log_content: bool, content: ContentLog | None) -> ContentLog | None:
    """The log, where the flag, the place and the retention time were all given.

    Raises:   RequestError where one of them is missing, or the place is that of the records
    """
    if log_content is not (content is not None):
        raise RequestError(
            "content is logged only where it is asked for and a ContentLog says for how long and where; give both or neither"
        )
    if content is not None and content.folder.resolve() == folder.resolve():
        raise RequestError(
            f"content and records would both lie in {shown_name(folder)}; give content a folder of its own"
        )
    return content


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise RequestError(f"{text[:80]!r} is no pattern for request ids: {error}; give a regular expression") from None


def _require(value: str, allowed: tuple[str, ...], what: str) -> None:
    if value not in allowed:
        raise RequestError(f"the {what} is {value!r}; it is one of {', '.join(allowed)}")
