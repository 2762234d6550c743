"""Whether two nodes can reach each other: they send a few MiB in both directions, as a collective would, with checksums
and a time limit."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time

import xxhash

from holdfast.node.handshake import AgentListener, call

AMOUNT = 2 << 20
WITHIN_S = 10.0  # 0.4 MiB/s: slower than any network that one would train across
_DIGEST = 16


def open_door(address: str) -> AgentListener:
    """Let one other node connect, and serve it in a separate thread. ``OSError`` if that is impossible."""
    door = AgentListener(address)  # longer than the caller waits: the caller reports the problem
    threading.Thread(target=_serve, args=(door, 2 * WITHIN_S), name="holdfast-door", daemon=True).start()
    return door


def meet(address: str, port: int, token: bytes) -> str:
    """Connect to the node that listens there; returns the problem, or nothing."""
    deadline = time.monotonic() + WITHIN_S
    try:
        with call(address, port, token, WITHIN_S) as peer:
            return _exchange(peer, deadline)
    except TimeoutError:
        return f"no exchange of {AMOUNT >> 20} MiB within {WITHIN_S:g} s"
    except OSError as error:
        return str(error)


def _exchange(peer: socket.socket, deadline: float) -> str:
    data = os.urandom(AMOUNT)
    _send(peer, data, deadline)
    if _receive(peer, _DIGEST, deadline) != _digest(data):
        return "the other node received other data than was sent"
    theirs = _receive(peer, AMOUNT, deadline)
    if _receive(peer, _DIGEST, deadline) != _digest(theirs):
        return "other data arrived than was sent"
    return ""


def _serve(door: AgentListener, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    try:
        caller = door.admit(lambda: time.monotonic() < deadline)
    finally:
        door.close()
    if caller is None:
        return
    with caller, contextlib.suppress(OSError):  # the caller reports the problem
        theirs, ours = _receive(caller, AMOUNT, deadline), os.urandom(AMOUNT)
        _send(caller, _digest(theirs) + ours + _digest(ours), deadline)


def _digest(data: bytes) -> bytes:
    return xxhash.xxh3_128_digest(data)


def _send(peer: socket.socket, data: bytes, deadline: float) -> None:
    peer.settimeout(_left(deadline))
    peer.sendall(data)


def _receive(peer: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        peer.settimeout(_left(deadline))
        part = peer.recv(min(size - len(data), 1 << 18))
        if not part:
            raise ConnectionResetError("the other node closed the connection")
        data += part
    return bytes(data)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
