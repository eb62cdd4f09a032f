"""One harmless question to a server, and what came of it: a reply, or the reason why there is none.

In:   a Target, a method and a path
Out:  Reply; Unanswered, in words a person can act on
Leaves out: what the replies mean together (preflight), and every measurement: nothing here is timed
Read next by: preflight.

A question has no body, or an empty one that no route accepts, so that nothing is generated. It is bounded in time, also
against a server that sends a byte now and then, and in size.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from inference_bench import __version__
from inference_bench.errors import ServerError
from inference_bench.measure.blocking_http import BoundedConnection, BrokenReplyError, body_parts, connect_within
from inference_bench.measure.target import Target
from inference_bench.units import MEBI

_MOST_BYTES: Final = 4 * MEBI
_PLAIN_TO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "PACKET_LENGTH_TOO_LONG")
_HTML: Final = ("text/html", "application/xhtml+xml")


class Unanswered(ServerError):
    """There was no reply; the message says why, and what to try; is_late that all of the time went by."""

    def __init__(self, message: str, *, is_late: bool = False) -> None:
        super().__init__(message)
        self.is_late = is_late


@dataclass(frozen=True, slots=True)
class Reply:
    """What a server answered.

    Where:    value is its JSON, None where it was none
    """

    status: int
    content_type: str
    value: object = None

    @property
    def is_html(self) -> bool:
        """Whether it is a page for people: what a proxy or a login says."""
        return self.content_type in _HTML

    @property
    def wants_key(self) -> bool:
        """Whether it was refused for want of a key, or of a right one."""
        return self.status in (401, 403)

    @property
    def has_route(self) -> bool:
        """Whether something there knows this path, even where it refuses an empty body."""
        return self.status not in (404, 405, 501) and not self.is_html and not 300 <= self.status < 400


def ask(target: Target, method: str, path: str, timeout_s: float) -> Reply:
    """The reply to an empty request at this path below the target's address.

    Raises:   Unanswered
    """
    address = target.address
    connection = BoundedConnection(
        address, timeout_s, ssl.create_default_context() if address.scheme == "https" else None
    )
    late = threading.Event()
    opened: list[socket.socket] = []
    timer = threading.Timer(timeout_s, _cut, (opened, late))
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        opened.append(connection.sock)  # the connection forgets it where the server is to close it after its reply
        if late.is_set():
            raise TimeoutError
        headers = {"User-Agent": f"inference-bench/{__version__}", "Accept": "application/json"}
        connection.request(method, address.base_path + path, headers=headers | dict(target.secret_headers))
        with connection.getresponse() as response:
            content_type = (response.headers.get_content_type() or "").lower()
            content = b"".join(body_parts(response, _MOST_BYTES))
        if late.is_set():  # what has no end of its own looks whole when it is cut
            raise TimeoutError
        return Reply(response.status, content_type, _json(content, content_type))
    except (OSError, http.client.HTTPException, ValueError) as error:  # ValueError: a name that none can have
        is_late = late.is_set() or isinstance(error, TimeoutError)
        raise Unanswered(_reason(target, error, is_late, timeout_s), is_late=is_late) from None
    finally:
        timer.cancel()
        connection.close()


def _cut(opened: list[socket.socket], late: threading.Event) -> None:
    late.set()
    for sock in opened:
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def _json(content: bytes, content_type: str) -> Any:
    if not content_type.endswith("json"):
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(content)
    return None


def _reason(target: Target, error: Exception, is_late: bool, timeout_s: float) -> str:
    """Why there is no reply, and what to try."""
    where = str(target.address)
    if is_late:
        return f"{where} did not answer within {timeout_s:g} s: the server may still be loading, or a firewall may drop what is sent"
    if isinstance(error, socket.gaierror | UnicodeError):
        return f"there is no host {target.address.host!r}; check how the address is written"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {where} is not accepted ({error.verify_message or 'no reason given'}); if it is signed by "
            "an authority of your own, name the file with that authority's certificate in the environment variable "
            "SSL_CERT_FILE"
        )
    if isinstance(error, ssl.SSLError):
        if any(reason in (error.reason or "") for reason in _PLAIN_TO_TLS):
            return f"{where} does not speak TLS; write http:// instead of https://"
        return f"no TLS connection to {where} ({(error.reason or 'no reason given').lower().replace('_', ' ')})"
    if isinstance(error, ConnectionRefusedError):
        return f"nothing listens at {where}; start the server, or check the port"
    if isinstance(error, http.client.HTTPException | ConnectionError | ValueError):
        return _of_no_reply(target, error, timeout_s)
    said = getattr(error, "strerror", None) or type(error).__name__
    return f"no connection to {where} ({str(said).lower()})"


def _of_no_reply(target: Target, error: Exception, timeout_s: float) -> str:
    """Why something that took the connection gave no reply."""
    where = target.address
    if isinstance(error, BrokenReplyError):
        return f"{where}: {error}; what listens there may not be a model server"
    if where.scheme == "http" and _speaks_tls(target, timeout_s):
        return f"{where} speaks TLS; write https:// instead of http://"
    if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead | ConnectionError):
        return f"{where} closed the connection without an answer; what listens there may not be a model server"
    return f"what listens at {where} does not speak HTTP; check the port"


def _speaks_tls(target: Target, timeout_s: float) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with connect_within(target.address, timeout_s, context):
            return True
    except OSError:
        return False
