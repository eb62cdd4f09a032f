"""Where does a reply begin and end: HTTP/1.1 responses, cut anywhere, taken out of their framing.

In:   bytes of one response as they come, and that no more will come
Out:  Head, then the bytes of the body, and whether it is complete
Leaves out: sockets and times (wire), requests (http1), what the body says (openai_stream), the response after this one

The rules are those of RFC 9112 for a client that asks once at a time: interim responses are passed over, chunk extensions
and trailers are read and dropped, a length is believed only where it is one number. What a server may make us keep is a
head of bounded size and one line of a chunk; the body passes through.
Read next by: http1.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from inference_bench.measure.wire import ExchangeError, FailureKind
from inference_bench.units import KIBI

MAX_HEADER_BYTES: Final = 64 * KIBI
MAX_LINE_BYTES: Final = 4 * KIBI  # of a chunk's size with its extensions
MAX_SIZE_DIGITS: Final = 16

_LINE_END: Final = b"\r\n"
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n\x00]*)?")
_VERSION: Final = b"HTTP/1."
_FIELD: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\x00]*)")
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,%d})[ \t]*(?:;[^\r\n\x00]*)?" % MAX_SIZE_DIGITS)
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_MEDIA_TYPE: Final = re.compile(r"[a-z]{1,20}/[a-z.+-]{1,40}")  # any other might repeat a key, and is not kept
_WITHOUT_BODY: Final = frozenset({204, 304})
_MAX_SIZES: Final = 1024
_MOST_USUAL_BYTES: Final = 32  # of a size line


@dataclass(frozen=True, slots=True)
class Head:
    """The part of a reply before its body. The content type is in lower case, without parameters; "" is for what was not sent."""

    status: int
    content_type: str
    content_encoding: str
    location: str
    retry_after: str = ""
    date: str = ""


class ReplyReader:
    """One response: bytes in, bytes of its body out.

    Where:    head is None until the whole of it has come; is_complete says that nothing of the response is missing;
              failure is what broke its rules, after which nothing more is read; keeps_connection says, once there is a head,
              that another response may follow a complete one: it has an end of its own, and nothing came after that
    """

    def __init__(self, max_header_bytes: int = MAX_HEADER_BYTES) -> None:
        self.head: Head | None = None
        self.is_complete = self.keeps_connection = False
        self.failure: ExchangeError | None = None
        self._max_header_bytes = max_header_bytes
        self._num_head_bytes = 0
        self._held = b""  # of a line that is not whole
        self._left = 0  # of the body, or of the chunk
        self._is_after_chunk = False  # its line end is still to come
        self._ends_with_connection = False
        self._sizes: dict[bytes, int] = {}  # by size lines seen before; none before the first chunk
        self._feed: Callable[[bytes], bytes] = self._feed_head

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that these bytes bring; what follows a complete response is dropped."""
        if not (self._left or self._held or self._is_after_chunk):  # a read is one whole chunk, more often than not
            size_end = data.find(_LINE_END, 0, _MOST_USUAL_BYTES)
            size = self._sizes.get(data[:size_end])
            if size and size_end + size + 4 == len(data) and data.endswith(_LINE_END):
                return data[size_end + 2 : -2]
        try:
            return self._feed(data)
        except ExchangeError as failure:
            self._fail(failure)
            return b""

    def end(self) -> None:
        """The server has closed in order: no more will come.

        Raises:   ExchangeError for a response that is not whole
        """
        if self._ends_with_connection:
            self.is_complete = True
        if not self.is_complete:
            raise ExchangeError(FailureKind.LOST, "the server closed the connection")

    def _fail(self, failure: ExchangeError) -> None:
        self.failure, self.keeps_connection = failure, False
        self._feed = _drop
        self._sizes.clear()

    def _feed_head(self, data: bytes) -> bytes:
        seen, data = max(0, len(self._held) - 3), self._held + data
        while True:
            if not data.startswith(_VERSION[: len(data)]):
                _refuse("it does not begin with a status line")
            found = _HEAD_END.search(data, seen)
            end = len(data) if found is None else found.end()
            if self._num_head_bytes + end > self._max_header_bytes:
                _refuse(f"its headers are larger than {self._max_header_bytes} bytes")
            if found is None:
                self._held = data
                return b""
            self._num_head_bytes += end
            status, is_old, fields = _parse_head(data[: found.start()])
            data, seen = data[end:], 0
            if status >= 200:
                self._held = b""
                self.keeps_connection = _keeps_connection(fields, is_old)
                return self._begin_body(status, fields, data)
            if not data:
                self._held = b""
                return b""

    def _begin_body(self, status: int, fields: dict[str, str], data: bytes) -> bytes:
        content_type = fields.get("content-type", "").partition(";")[0].strip().lower()
        content_type = content_type if _MEDIA_TYPE.fullmatch(content_type) else ""
        encoding = fields.get("content-encoding", "identity").strip().lower()
        coding = fields.get("transfer-encoding")
        if coding is not None and coding.strip().lower() != "chunked":
            _refuse("its transfer coding is not chunked")
        length = None if coding is not None else _parse_length(fields.get("content-length"))
        location, retry_after = fields.get("location", ""), fields.get("retry-after", "")
        self.head = Head(status, content_type, encoding, location, retry_after, fields.get("date", ""))
        if status in _WITHOUT_BODY or length == 0:
            self.is_complete, self._feed = True, self._feed_surplus
        elif coding is not None:
            self._feed = self._feed_chunks
        elif length is None:
            self._ends_with_connection, self.keeps_connection = True, False
            self._feed = _pass_on
        else:
            self._left = length
            self._feed = self._feed_length
        return self._feed(data)

    def _feed_length(self, data: bytes) -> bytes:
        part = data[: self._left]
        self._left -= len(part)
        if not self._left:
            self.is_complete, self._feed = True, self._feed_surplus
            self._feed_surplus(data[len(part) :])
        return part

    def _feed_chunks(self, data: bytes) -> bytes:
        if self._held:
            data, self._held = self._held + data, b""
        parts: list[bytes] = []
        at = 0
        try:
            while at < len(data):
                if self._left:
                    parts.append(part := data[at : at + self._left])
                    at += len(part)
                    self._left -= len(part)
                    self._is_after_chunk = not self._left
                elif self._is_after_chunk:
                    at = self._pass_line_end(data, at)
                else:
                    at = self._begin_chunk(data, at, parts)
        except ExchangeError as failure:
            self._fail(failure)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _begin_chunk(self, data: bytes, at: int, parts: list[bytes]) -> int:
        """Over the size line, and over the chunk where it is all here; where to go on."""
        line_end = data.find(_LINE_END, at, at + MAX_LINE_BYTES)
        if line_end < 0:
            self._hold_line(data[at:])
            return len(data)
        line, at = data[at:line_end], line_end + 2
        size = self._sizes.get(line) or self._parse_size(line)
        if not size:
            self._feed, self._held = self._feed_trailer, _LINE_END
            self._sizes.clear()
            self._feed(data[at:])
            return len(data)
        end = at + size
        if data.startswith(_LINE_END, end):
            parts.append(data[at:end])
            return end + 2
        self._left = size
        return at

    def _pass_line_end(self, data: bytes, at: int) -> int:
        """Over the line end that closes a chunk; it may be cut in two."""
        if data.startswith(_LINE_END, at):
            self._is_after_chunk = False
            return at + 2
        if data[at:] != b"\r":
            _refuse("a chunk is not as long as it says")
        self._held = b"\r"
        return at + 1

    def _hold_line(self, line: bytes) -> None:
        if len(line) >= MAX_LINE_BYTES:
            _refuse("a chunk has no size")
        self._held = line

    def _parse_size(self, line: bytes) -> int:
        found = _SIZE.fullmatch(line)
        if found is None:
            _refuse("a chunk has no size")
        size = int(found[1], 16)
        if len(self._sizes) < _MAX_SIZES and len(line) <= MAX_SIZE_DIGITS:
            self._sizes[line] = size
        return size

    def _feed_trailer(self, data: bytes) -> bytes:
        """Up to the blank line; the fields before it say nothing that is needed here."""
        data = self._held + data
        end = data.find(_LINE_END + _LINE_END)
        if end >= 0:
            self._held, self.is_complete, self._feed = b"", True, self._feed_surplus
            self._feed_surplus(data[end + 2 * len(_LINE_END) :])
        elif len(data) > self._max_header_bytes:
            _refuse(f"its trailers are larger than {self._max_header_bytes} bytes")
        else:
            self._held = data
        return b""

    def _feed_surplus(self, data: bytes) -> bytes:
        """Nobody asked for it: whatever would come next could not be told from it."""
        self.keeps_connection = self.keeps_connection and not data
        return b""


def _drop(_data: bytes) -> bytes:
    return b""


def _pass_on(data: bytes) -> bytes:
    return data


def _parse_head(head: bytes) -> tuple[int, bool, dict[str, str]]:
    """The status, whether this is HTTP/1.0, and the fields by their names in lower case; a repeated one is joined with commas."""
    first, *lines = head.replace(b"\r\n", b"\n").split(b"\n")
    found = _STATUS_LINE.fullmatch(first)
    if found is None:
        _refuse("it does not begin with a status line")
    status, is_old, fields, last = int(found[2]), found[1] == b"0", dict[str, str](), ""
    if status == 101:
        _refuse("it changes the protocol")
    for line in lines:
        if line[:1] in (b" ", b"\t") and last:  # a field folded over several lines, as old servers write it
            fields[last] += " " + line.strip().decode("latin-1")
            continue
        if (field := _FIELD.fullmatch(line)) is None:
            _refuse("a header is none")
        last, value = field[1].decode("ascii").lower(), field[2].strip(b" \t").decode("latin-1")
        fields[last] = f"{fields[last]}, {value}" if last in fields else value
    return status, is_old, fields


def _keeps_connection(fields: dict[str, str], is_old: bool) -> bool:
    """Whether the server means to keep the connection; where two say how long the body is, it is not to be trusted."""
    if "transfer-encoding" in fields and (is_old or "content-length" in fields):
        return False
    options = {option.strip().lower() for option in fields.get("connection", "").split(",")}
    return "close" not in options and (not is_old or "keep-alive" in options)


def _parse_length(value: str | None) -> int | None:
    if value is None:
        return None
    lengths = {length.strip() for length in value.split(",")}
    length = lengths.pop()
    if lengths or not _LENGTH.fullmatch(length):
        _refuse("its length is not one number")
    return int(length)


def _refuse(why: str) -> NoReturn:
    raise ExchangeError(FailureKind.BROKEN, f"the reply breaks the rules of HTTP/1.1: {why}")
