"""What does a refusal or a failure mean for the requests that would follow?

In:   a Target and the record of a request to it
Out:  the optional body fields it was refused for; whether it leaves any hope
Leaves out: what is done about it (dispatch)
Read next by: dispatch, load.
"""

from __future__ import annotations

import re
from typing import Final

from inference_bench.measure.target import Target
from inference_bench.records import RequestRecord, RequestStatus

_FIELD_REFUSED: Final = re.compile(
    r"unknown|unsupported|unrecogni[sz]ed|unexpected|not (permitted|supported|allowed)|extra", re.IGNORECASE
)
_BUSY_STATUS: Final = frozenset({429, 503})
_BAD_BODY_STATUS: Final = frozenset({400, 422})


def find_refused_fields(target: Target, record: RequestRecord) -> tuple[str, ...]:
    """The optional body fields that a server's refusal is about: those it names, or the first to give up when it names none.

    Where:    () when the refusal is about something else, or nothing optional was sent
    """
    if record.status is not RequestStatus.REJECTED or record.http_status not in _BAD_BODY_STATUS:
        return ()
    said = record.error or ""
    named = tuple(name for name in target.optional_fields if re.search(rf"\b{re.escape(name)}\b", said))
    return named or (target.first_given_up if _FIELD_REFUSED.search(said) else ())


def is_hopeless(record: RequestRecord) -> bool:
    """No token came, and the reason is not that the server is slow or busy."""
    if record.chunk_times_s:
        return False
    if record.status is RequestStatus.REJECTED:
        return record.http_status not in _BUSY_STATUS
    never_answered = record.status is RequestStatus.TIMED_OUT and record.http_status is None
    return never_answered or record.status is RequestStatus.FAILED
