"""HTTP/1.1 as the fault proxy sees it: heads that are parsed and kept as they are, bodies in pieces."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass

PIECE = 64 * 1024


class Broken(Exception):
    """The exchange cannot continue: both its connections are reset."""


@dataclass(frozen=True)
class Head:
    raw: bytes
    start: list[str]
    headers: dict[str, str]

    @staticmethod
    def parse(raw: bytes) -> Head:
        first, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        return Head(raw, first.split(" ", 2), headers)

    @property
    def length(self) -> int | None:
        """The promised length of the body; None if it is chunked or ends with the connection."""
        if "transfer-encoding" in self.headers or "content-length" not in self.headers:
            return None
        return int(self.headers["content-length"])

    @property
    def chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def closes(self) -> bool:
        return "close" in self.headers.get("connection", "").lower() or "HTTP/1.0" in self.start


@dataclass(frozen=True)
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> Head | None:
        """The next head; None if the other side closed the connection instead."""
        try:
            return Head.parse(await self.reader.readuntil(b"\r\n\r\n"))
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Broken from None
            return None

    async def body(self, length: int | None, chunked: bool) -> AsyncIterator[bytes]:
        """As it is on the wire, with chunk lines and trailers. Neither a length nor chunks: it ends with the wire."""
        if chunked:
            size = -1
            while size:
                line = await self.reader.readuntil(b"\n")
                yield line
                size = int(line.split(b";")[0], 16)
                async for piece in self.exactly(size + 2 if size else 0):
                    yield piece
            while (line := await self.reader.readuntil(b"\n")) != b"\r\n":
                yield line
            yield line
        elif length is not None:
            async for piece in self.exactly(length):
                yield piece
        else:
            while piece := await self.reader.read(PIECE):
                yield piece

    async def exactly(self, count: int) -> AsyncIterator[bytes]:
        while count:
            piece = await self.reader.read(min(count, PIECE))
            if not piece:
                raise Broken
            count -= len(piece)
            yield piece

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Close so that the other side reads ECONNRESET, not an orderly end."""
        sock: socket.socket | None = self.writer.get_extra_info("socket")
        if sock is not None:
            with contextlib.suppress(OSError):  # closed already
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass  # it is closed all the same
        except asyncio.CancelledError:
            self.writer.transport.abort()
            raise


def bound(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    return sock
