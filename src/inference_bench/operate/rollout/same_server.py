"""Is the server that is to be shadowed to the one that serves people? Then nothing is sent.

In:   two addresses as a person or a run folder gives them
Out:  nothing, or the refusal
Leaves out: one server behind two names that lead to different machines, such as a load balancer: no address tells that
Read next by: shadow.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from ipaddress import ip_address

from inference_bench.errors import RequestError
from inference_bench.measure.target import Address, parse_address


def require_another_server(shadow_url: str, primary_url: str) -> None:
    """Refuse a shadow that is the primary: by its name, or by what the names of both lead to.

    Where:    all addresses of this machine are one
    Raises:   RequestError
    """
    shadow, primary = parse_address(shadow_url), parse_address(primary_url)
    if shadow.port != primary.port or not (_places(shadow) & _places(primary)):
        return
    raise RequestError(
        f"{shadow} is the server that the recorded requests went to ({primary}); a shadow is another one, so that replayed requests "
        "reach nobody's primary; give the address of the new version"
    )


def _places(address: Address) -> frozenset[str]:
    """The name itself and every address that it leads to."""
    found = {address.host.lower().rstrip(".")}
    with suppress(OSError):  # a name that leads nowhere: whoever sends says so
        entries = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        found |= {str(entry[4][0]) for entry in entries}
    return frozenset("this machine" if _is_loopback(place) else place for place in found)


def _is_loopback(place: str) -> bool:
    try:
        address = ip_address(place)
    except ValueError:
        return place == "localhost"
    return address.is_loopback or address.is_unspecified
