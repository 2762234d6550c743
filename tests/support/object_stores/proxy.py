"""A reverse proxy before a real S3 server that breaks chosen requests in chosen ways.

It knows what a request means to a run by its method and key, hands heads and bodies on as they are (so signatures stay
valid), and streams them: nothing is collected. A fault is armed for one class of requests, strikes the number of times
or the span of time that it was given, and is counted when it strikes, so that a test can tell that it was really met.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Literal

from support.object_stores.proxy_wire import Broken, Head, Wire, bound

RequestClass = Literal["upload", "commit", "journal", "download", "delete", "other"]
FaultKind = Literal[
    "reset",  # the connection is reset before anything is passed on
    "lost reply",  # the request is carried out, then the connection is reset
    "503",  # SlowDown, at once
    "expired",  # the credentials are refused as too old, at once
    "outage",  # nobody listens, open connections are reset: for all requests
    "hang",  # connections are taken and nothing moves, then they are reset: for all requests
    "trickle",  # the request's body and the whole reply come slowly
    "truncated",  # the reply ends half-way, its head if it has no body
    "bit flip",  # one bit in the middle of the reply's body is another
    "strike",  # half of the request's body is passed on, then a function is called: it may kill the server
]
REQUEST_CLASSES: tuple[RequestClass, ...] = ("upload", "commit", "journal", "download", "delete")
PACE_S = 0.05
REFUSALS: dict[str, tuple[str, bytes]] = {
    "503": ("503 Slow Down", b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"),
    "expired": ("400 Bad Request", b"<Error><Code>ExpiredToken</Code><Message>It has expired.</Message></Error>"),
}

FILE = re.compile(r"/checkpoints/[^/]+/.")
MANIFEST = re.compile(r"/checkpoints/[^/]+\.json$")
JOURNAL = re.compile(r"/journal/.")


def classify(method: str, target: str) -> RequestClass:
    """What an S3 request does for a run; multipart uploads are uploads, whatever method they use."""
    path, _, query = target.partition("?")
    if FILE.search(path):
        if method in ("PUT", "POST") or "uploadId=" in query:
            return "upload"
        if method == "GET":
            return "download"
    if method == "DELETE" or (method == "POST" and "delete" in re.split("[=&]", query)):
        return "delete"
    if method == "PUT" and MANIFEST.search(path):
        return "commit"
    if method == "PUT" and JOURNAL.search(path):
        return "journal"
    return "other"


@dataclass(frozen=True)
class Fault:
    """Leaves ``skip`` requests of its class alone, then strikes ``times`` of them, or, with ``seconds``, all that come
    in that span from the first one on. An outage or a hang is started by one request and lasts ``seconds``."""

    kind: FaultKind
    skip: int = 0
    times: int = 1
    seconds: float = 0.0
    bytes_per_s: int = 1000
    action: Callable[[], None] = lambda: None


@dataclass
class Armed:
    fault: Fault
    seen: int = 0
    first: float = 0.0

    def take(self, now: float) -> bool:
        self.seen += 1
        number = self.seen - self.fault.skip
        if number <= 0:
            return False
        if number == 1:
            self.first = now
        if self.fault.kind in ("outage", "hang") or not self.fault.seconds:
            return number <= self.fault.times
        return now - self.first < self.fault.seconds


class FaultProxy:
    """``with FaultProxy(port) as proxy``: listens at ``proxy.url``, before the server at that loopback port."""

    def __init__(self, upstream_port: int) -> None:
        self.requests: Counter[RequestClass] = Counter()
        self.strikes: Counter[tuple[RequestClass, FaultKind]] = Counter()
        self._upstream_port = upstream_port
        self._socket = bound(0)
        self.port: int = self._socket.getsockname()[1]
        self._armed: list[tuple[RequestClass, Armed]] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._wires: set[Wire] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._outage: asyncio.Task[None] | None = None
        self._refusing = False
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="fault-proxy", daemon=True)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the proxy did not end"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def arm(self, requests: RequestClass, fault: Fault) -> None:
        """A request that an earlier fault strikes does not count for the later ones."""
        with self._lock:
            self._armed.append((requests, Armed(fault)))

    def disarm(self) -> None:
        """Forget what is armed and what was counted; an outage that has begun continues."""
        with self._lock:
            self._armed.clear()
            self.requests.clear()
            self.strikes.clear()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._moving = asyncio.Event()
        self._moving.set()
        self._listen()
        self._ready.set()
        await self._ended.wait()
        self._loop.remove_reader(self._socket)
        self._socket.close()
        tasks = [*self._tasks, *filter(None, [self._outage])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listen(self) -> None:
        self._socket.listen(1000)
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        """Not asyncio's server: that one loses a connection that comes while it closes, and leaves it hanging."""
        with contextlib.suppress(BlockingIOError, ConnectionError):
            connection, _ = self._socket.accept()
            task = self._loop.create_task(self._serve(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda _: connection.close())  # also if it was cancelled before it began

    async def _serve(self, connection: socket.socket) -> None:
        client = Wire(*await asyncio.open_connection(sock=connection))
        self._wires.add(client)
        try:
            if self._refusing:
                raise Broken
            async with contextlib.AsyncExitStack() as connections:
                await self._converse(client, connections)
        except (Broken, OSError, asyncio.IncompleteReadError):
            client.reset()
        except asyncio.CancelledError:
            client.reset()  # the proxy ends, and waits for this task without asking for its result
        finally:
            await client.close()
            self._wires.discard(client)

    async def _converse(self, client: Wire, connections: contextlib.AsyncExitStack) -> None:
        """One request after the other, on a connection to the server that serves this client only."""
        server: Wire | None = None
        while (request := await client.head()) is not None:
            await self.gate(client)
            requests = classify(request.start[0], request.start[1])
            armed = self._due(requests)
            fault = armed.fault if armed is not None else None
            if fault is not None and fault.kind in ("reset", "outage", "hang", *REFUSALS):
                self.strike(requests, fault)
                await self._refuse(client, request, fault)
                continue
            if server is None or server.reader.at_eof():
                try:
                    server = await self._connect(connections)
                except OSError:
                    if armed is not None:
                        armed.seen -= 1  # there is no exchange to strike; the next one is its turn
                    raise
            if not await Exchange(self, client, server, request, requests, fault).carry():
                return

    async def gate(self, client: Wire) -> None:
        """Wait while everything hangs. What hung is never carried out: its connections are reset."""
        await self._moving.wait()
        if client.writer.is_closing():
            raise Broken

    def _due(self, requests: RequestClass) -> Armed | None:
        with self._lock:
            self.requests[requests] += 1
            now = time.monotonic()
            return next((armed for of, armed in self._armed if of == requests and armed.take(now)), None)

    def strike(self, requests: RequestClass, fault: Fault) -> None:
        with self._lock:
            self.strikes[requests, fault.kind] += 1

    async def _refuse(self, client: Wire, request: Head, fault: Fault) -> None:
        if fault.kind in REFUSALS:
            status, body = REFUSALS[fault.kind]
            async for _ in client.body(request.length or 0, request.chunked):
                pass
            lines = [f"HTTP/1.1 {status}", "content-type: application/xml", f"content-length: {len(body)}"]
            head = "".join(f"{line}\r\n" for line in [*lines, ""])
            await client.send(head.encode() + (body if request.start[0] != "HEAD" else b""))
            return
        if fault.kind == "hang" and self._outage is None:
            self._moving.clear()
            self._outage = asyncio.create_task(self._end_hang(fault.seconds))
            await self._moving.wait()
        elif fault.kind == "outage" and self._outage is None:
            self._refusing = True
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = bound(self.port)  # bound and not listened to: refuses, and nobody else can take it
            self._reset_all()
            self._outage = asyncio.create_task(self._end_outage(fault.seconds))
        raise Broken

    async def _end_hang(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._reset_all()
        self._moving.set()
        self._outage = None

    async def _end_outage(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self._refusing = False
        self._listen()
        self._outage = None

    def _reset_all(self) -> None:
        for wire in self._wires:
            wire.reset()

    async def _connect(self, connections: contextlib.AsyncExitStack) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self._upstream_port))
        self._wires.add(wire)
        connections.callback(self._wires.discard, wire)
        connections.push_async_callback(wire.close)
        connections.callback(wire.writer.transport.abort)
        return wire


@dataclass(frozen=True)
class Exchange:
    """One request that reaches the server, and its reply, which may come before the request's body is through."""

    proxy: FaultProxy
    client: Wire
    server: Wire
    request: Head
    requests: RequestClass
    fault: Fault | None

    async def carry(self) -> bool:
        """Whether the connection can be used again."""
        sending = asyncio.create_task(self.send_request())
        try:
            while (reply := await self.server.head()) is not None and reply.start[1].startswith("1"):
                await self.client.send(reply.raw)
            if reply is None:
                raise Broken
            whole = await self.send_reply(reply)
            await asyncio.wait({sending}, timeout=1)
            return whole and sending.done() and not (self.request.closes or reply.closes)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    async def send_request(self) -> None:
        length = self.request.length or 0
        body = self.client.body(length, self.request.chunked)
        middle = len(self.request.raw) + length // 2 if length else 0
        self.count("trickle")
        try:
            async for offset, piece in self.pieces(self.request.raw, body):
                cut = middle - offset
                if self.kind == "strike" and 0 <= cut < len(piece):
                    assert self.fault is not None
                    with contextlib.suppress(OSError):  # struck by another fault's action just now
                        await self.server.send(piece[:cut])
                    self.count("strike")
                    await asyncio.to_thread(self.fault.action)
                    piece = piece[cut:]
                await self.server.send(piece)
        except BaseException:
            self.server.reset()  # whoever waits for its reply waits in vain
            raise

    async def send_reply(self, reply: Head) -> bool:
        bodiless = self.request.start[0] == "HEAD" or reply.start[1] in ("204", "304")
        length = 0 if bodiless else reply.length
        body = self.server.body(length, reply.chunked and not bodiless)
        middle = len(reply.raw) + length // 2 if length else len(reply.raw) // 2
        self.count("lost reply", "truncated")
        if length:
            self.count("bit flip")
        async for offset, piece in self.pieces(reply.raw, body):
            cut = middle - offset
            if self.kind == "truncated" and 0 <= cut < len(piece):
                await self.client.send(piece[:cut])
                return False
            if self.kind == "bit flip" and length and 0 <= cut < len(piece):
                piece = piece[:cut] + bytes([piece[cut] ^ 1]) + piece[cut + 1 :]
            if self.kind != "lost reply":
                await self.client.send(piece)
        if self.kind == "lost reply":
            raise Broken
        return length is not None or reply.chunked

    @property
    def kind(self) -> str:
        return self.fault.kind if self.fault is not None else ""

    def count(self, *kinds: FaultKind) -> None:
        if self.fault is not None and self.fault.kind in kinds:
            self.proxy.strike(self.requests, self.fault)

    async def pieces(self, head: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
        """A head and its body as they are to be sent, each piece with where it begins."""
        offset = 0
        async for piece in chain(head, body):
            slow = self.fault.bytes_per_s if self.fault is not None and self.fault.kind == "trickle" else 0
            size = max(1, int(slow * PACE_S)) if slow else len(piece)
            for start in range(0, len(piece), size):
                part = piece[start : start + size]
                await asyncio.sleep(len(part) / slow if slow else 0)
                await self.proxy.gate(self.client)
                yield offset, part
                offset += len(part)


async def chain(head: bytes, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield head
    async for piece in body:
        yield piece
