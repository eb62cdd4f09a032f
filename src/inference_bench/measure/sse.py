"""Which payloads does an event stream hold: bytes, cut anywhere, to what their data fields say.

In:   the bytes of a reply's body
Out:  one payload for each event that is complete
Leaves out: what a payload means (openai_stream), and the fields event, id and retry
Read next by: openai_stream.

An event stream is what the WHATWG standard says it is: lines end in CRLF, LF or CR, comments and unknown fields are
skipped, several data lines make one payload, one leading byte-order mark is skipped, and an event whose closing blank
line never came is not an event.
"""

from __future__ import annotations

import re
from typing import Final

from inference_bench.errors import StreamError
from inference_bench.units import MEBI

MAX_EVENT_BYTES: Final = MEBI

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LF: Final = 10  # to look for a number takes a twentieth of the time that it takes to look for bytes
_CR: Final = 13
_EVENT_END: Final = b"\n\n"
_PLAIN_DATA: Final = b"data: "
_LINE_END: Final = re.compile(rb"\r\n|\n|\r")


class SseDecoder:
    """Bytes of an event stream, cut anywhere, to the payloads of its events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._num_data_bytes = 0
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes) -> list[str]:
        """The payloads that these bytes complete; undecodable bytes become U+FFFD, as the standard says.

        Raises:   StreamError when one line or one event is larger than the cap
        """
        return [payload.decode("utf-8", "replace") for payload in self.feed_bytes(data)]

    def feed_bytes(self, data: bytes) -> list[bytes]:
        """The same payloads as they came.

        Raises:   StreamError when one line or one event is larger than the cap
        """
        if self._data or self._after_cr:
            return self._feed_lines(data)
        end = data.rfind(_EVENT_END) + len(_EVENT_END)
        if end < len(_EVENT_END):
            return self._feed_lines(data)
        is_one = end == len(data) and data.find(_LF) == end - 2 and not self._line
        if is_one and data.startswith(_PLAIN_DATA) and _CR not in data and end <= self._max_event_bytes:
            self._at_start = False
            return [data[6:-2]]
        payloads = self._split_plain(bytes(self._line) + data[:end])
        if payloads is None:
            return self._feed_lines(data)
        self._line.clear()
        self._at_start = False
        return payloads if end == len(data) else payloads + self._feed_lines(data[end:])

    def only(self, data: bytes) -> bytes | None:
        """The payload of bytes that are one event and nothing else; None, and nothing happened, for all others."""
        end = len(data) - len(_EVENT_END)
        if self._line or self._data or self._after_cr or self._at_start or end > self._max_event_bytes:
            return None
        if not data.startswith(_PLAIN_DATA) or data.find(_LF) != end or _CR in data or not data.endswith(_EVENT_END):
            return None
        return data[6:-2]

    def _split_plain(self, data: bytes) -> list[bytes] | None:
        """Whole events of one data line each, as nearly all are; None for anything else."""
        if _CR in data or len(data) > self._max_event_bytes:
            return None
        payloads = []
        for event in data[:-2].split(_EVENT_END):
            if not event.startswith(_PLAIN_DATA) or _LF in event:
                return None
            payloads.append(event[6:])
        return payloads

    def _feed_lines(self, data: bytes) -> list[bytes]:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        payloads: list[bytes] = []
        start = 0
        for end in _LINE_END.finditer(data):
            self._extend(data[start : end.start()])
            self._end_line(payloads)
            start = end.end()
        self._extend(data[start:])
        self._after_cr = self._after_cr or data.endswith(b"\r")
        return payloads

    def _extend(self, part: bytes) -> None:
        if len(self._line) + self._num_data_bytes + len(part) > self._max_event_bytes:
            raise StreamError(f"one event of the stream is larger than {self._max_event_bytes} bytes; gave up reading")
        self._line += part

    def _end_line(self, payloads: list[bytes]) -> None:
        line = bytes(self._line)
        self._line.clear()
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if line:
            self._add_field(line)
        elif self._data:
            payloads.append(b"\n".join(self._data))
            self._data.clear()
            self._num_data_bytes = 0

    def _add_field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._num_data_bytes += len(line)
