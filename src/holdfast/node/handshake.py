"""How an agent on another machine and its driver authenticate each other: both know a token, and neither sends it.

The driver sends 32 random bytes. The agent answers with 32 random bytes and a keyed digest of both. The driver answers
with another digest of them. After that, the socket carries messages. A stranger without the token receives nothing
useful, and nothing that it sends is read as a message.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from holdfast.wire.channel import received

_NONCE = _DIGEST = 32
_ANSWER = _NONCE + _DIGEST
_TURN_S = 0.1
_STRANGERS = 64  # unauthenticated connections at a time
_STRANGER_S = 10.0  # how long one may take to answer


def _digest(token: bytes, who: bytes, theirs: bytes, ours: bytes) -> bytes:
    return hmac.new(token, who + theirs + ours, hashlib.sha256).digest()


@dataclass
class _Caller:
    nonce: bytes = field(default_factory=lambda: os.urandom(_NONCE))
    answer: bytes = b""
    until: float = field(default_factory=lambda: time.monotonic() + _STRANGER_S)


class AgentListener:
    """Where the driver lets one agent in."""

    def __init__(self, host: str) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=_STRANGERS)
        self._listener.setblocking(False)
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self.token = secrets.token_bytes(32)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def admit(self, wanted: Callable[[], bool]) -> socket.socket | None:
        """The agent's socket, blocking; None if it is no longer wanted before it connects."""
        while wanted():
            for key, _ in self._selector.select(_TURN_S):
                sock: socket.socket = key.fileobj  # type: ignore[assignment]
                if key.data is None:
                    self._greet()
                elif sock.fileno() >= 0 and self._hear(sock, key.data):  # otherwise it was rejected a moment ago
                    return sock
            self._send_off(lambda caller: caller.until < time.monotonic())
        return None

    def _greet(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        caller = _Caller()
        sock.setblocking(False)
        try:
            sock.send(caller.nonce)
        except OSError:
            sock.close()
            return
        callers = [key.data for key in self._selector.get_map().values() if key.data is not None]
        if len(callers) >= _STRANGERS:
            oldest = min(callers, key=lambda other: other.until)
            self._send_off(lambda other: other is oldest)
        self._selector.register(sock, selectors.EVENT_READ, caller)

    def _hear(self, sock: socket.socket, caller: _Caller) -> bool:
        """Whether it is the agent."""
        data = received(sock, _ANSWER - len(caller.answer))
        if data is None:
            return False
        caller.answer += data
        if data and len(caller.answer) < _ANSWER:
            return False
        self._selector.unregister(sock)
        theirs, proof = caller.answer[:_NONCE], caller.answer[_NONCE:]
        if not hmac.compare_digest(proof, _digest(self.token, b"agent", caller.nonce, theirs)):
            sock.close()
            return False
        sock.setblocking(True)
        try:
            sock.sendall(_digest(self.token, b"driver", caller.nonce, theirs))
        except OSError:
            sock.close()
            return False
        _be_prompt(sock)
        return True

    def _send_off(self, which: Callable[[_Caller], bool]) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None and which(key.data):
                self._selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]

    def close(self) -> None:
        if self._listener.fileno() < 0:
            return  # it is closed already
        self._send_off(lambda _: True)
        self._selector.close()
        self._listener.close()


def call(host: str, port: int, token: bytes, within_s: float) -> socket.socket:
    """In the agent: connect to its driver. ``OSError`` if the driver cannot be reached or is not the right one."""
    sock = socket.create_connection((host, port), timeout=within_s)
    try:
        theirs = receive_exactly(sock, _NONCE)
        ours = os.urandom(_NONCE)
        sock.sendall(ours + _digest(token, b"agent", theirs, ours))
        if not hmac.compare_digest(receive_exactly(sock, _DIGEST), _digest(token, b"driver", theirs, ours)):
            raise ConnectionRefusedError(f"the process at {host}:{port} is not the driver of this agent")
    except BaseException:
        sock.close()
        raise
    sock.settimeout(None)
    _be_prompt(sock)
    return sock


def receive_exactly(sock: socket.socket, size: int) -> bytes:
    """Read exactly this many bytes. ``ConnectionResetError`` if the other end closes the connection before."""
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the peer closed the connection")
        data += part
    return data


def _be_prompt(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
