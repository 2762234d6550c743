"""Messages over a stream socket. Each is a four-byte length and a msgpack body."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from .message import Message

_LENGTH = struct.Struct("!I")
_LIMIT = 1 << 31
M = TypeVar("M", bound=Message)

_encoder = msgspec.msgpack.Encoder()


def pack(message: Message) -> bytes:
    body = _encoder.encode(message)
    if len(body) >= _LIMIT:
        raise ValueError(f"a {type(message).__name__} message of {len(body)} bytes is too large to send (limit 2 GiB)")
    return _LENGTH.pack(len(body)) + body


class Unpacker(Generic[M]):
    """Takes bytes as they arrive, and returns whole messages."""

    def __init__(self, kinds: Any) -> None:
        self._decoder: msgspec.msgpack.Decoder[M] = msgspec.msgpack.Decoder(kinds)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        self._buffer += data
        at = 0
        while len(self._buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, at)
            end = at + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            yield self._decoder.decode(memoryview(self._buffer)[at + _LENGTH.size : end])
            at = end
        if at:
            del self._buffer[:at]


def received(sock: socket.socket, size: int) -> bytes | None:
    """Read from a non-blocking socket: None if nothing has arrived, empty bytes if the other end is closed."""
    try:
        return sock.recv(size)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def send_some(sock: socket.socket, unsent: bytearray) -> bool:
    """Send as much as the other end takes now, and drop that from the buffer. False if the other end is closed."""
    try:
        while unsent:
            del unsent[: sock.send(memoryview(unsent)[: 1 << 20])]
    except BlockingIOError:
        pass
    except OSError:
        return False
    return True


class Channel(Generic[M]):
    """A blocking end of a stream. Any thread may call ``send``."""

    def __init__(self, sock: socket.socket, kinds: Any) -> None:
        self.socket = sock
        self._unpacker: Unpacker[M] = Unpacker(kinds)
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        data = pack(message)
        with self._lock:
            self.socket.sendall(data)

    def receive(self) -> Iterator[M]:
        """Messages until the other end closes the stream."""
        while True:
            try:
                data = self.socket.recv(1 << 18)
            except OSError:
                return
            if not data:
                return
            yield from self._unpacker.feed(data)

    def close(self) -> None:
        """Close both directions, so that a thread that waits in ``receive`` returns."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
