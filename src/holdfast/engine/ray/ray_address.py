"""Whether anybody answers at the address of a Ray cluster. Ray itself would ask for minutes, deaf to signals."""

from __future__ import annotations

import socket

_CONNECT_WITHIN_S = 3.0


def why_unreachable(address: str) -> str:
    """Empty if a server answers there."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        return f"{address!r} is not an address. Use host:port, as in 10.0.0.1:6379."
    try:
        socket.create_connection((host, int(port)), _CONNECT_WITHIN_S).close()
    except OSError as error:
        return str(error)
    return ""
