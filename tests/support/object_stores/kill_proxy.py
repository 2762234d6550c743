"""A proxy before an S3 server that calls a function at one chosen request: before the server sees it, or after.

``before``: the server never gets the request. ``after``: the server has carried it out, and its reply gets nowhere.
``late``: the server gets it when many others have been served since: of a sender that is long dead.
Requests are numbered in the order in which they come, and are taken as a whole: they are small here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from support.object_stores.proxy import FaultProxy, RequestClass, classify
from support.object_stores.proxy_wire import Broken, Head, Wire

Moment = Literal["before", "after", "late"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)
LATEST_S = 20.0


class Aim(NamedTuple):
    """The request of that number, among all or among those of one class."""

    number: int
    requests: RequestClass | None = None
    moment: Moment = "before"
    late_by: int = 20  # how many others go first


@dataclass
class Blow:
    """``strike`` returns whether there was anybody to be struck."""

    aim: Aim
    strike: Callable[[], bool]
    seen: int = 0  # requests of its class
    request: str = ""  # that it met
    struck: bool = False


class KillProxy(FaultProxy):
    def __init__(self, upstream_port: int) -> None:
        super().__init__(upstream_port)
        self.served = 0
        self.blow: Blow | None = None
        self.late: list[str] = []  # what the server said to requests that it got late
        self._progress = asyncio.Condition()

    async def _converse(self, client: Wire, connections: contextlib.AsyncExitStack) -> None:
        server: Wire | None = None
        while (request := await client.head()) is not None:
            body = b"".join([piece async for piece in client.body(request.length or 0, request.chunked)])
            blow = await self._count(request)
            moment = blow.aim.moment if blow is not None else None
            if blow is not None and moment == "before":
                await self._strike(blow)
                raise Broken
            if blow is not None and moment == "late":
                await self._strike(blow)
                client.reset()
                await self._until(self.served + blow.aim.late_by)
            if server is None or server.reader.at_eof():
                server = await self._connect(connections)
            reply, content = await carry(server, request, body)
            if moment == "late":
                self.late.append(f"{request.start[0]} {request.start[1]}: {reply.start[1]}")
                return
            if blow is not None:
                await self._strike(blow)
                raise Broken
            await client.send(reply.raw + content)
            if request.closes or reply.closes:
                return

    async def _count(self, request: Head) -> Blow | None:
        async with self._progress:
            self.served += 1
            self._progress.notify_all()
        blow = self.blow
        if blow is None or blow.aim.requests not in (None, classify(request.start[0], request.start[1])):
            return None
        blow.seen += 1
        if blow.aim.number != blow.seen:
            return None
        blow.request = f"{request.start[0]} {request.start[1]}"
        return blow

    async def _strike(self, blow: Blow) -> None:
        blow.struck = await asyncio.to_thread(blow.strike)

    async def _until(self, number: int) -> None:
        """At the latest when nothing follows any more."""
        with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
            async with self._progress:
                await asyncio.wait_for(self._progress.wait_for(lambda: self.served >= number), LATEST_S)


async def carry(server: Wire, request: Head, body: bytes) -> tuple[Head, bytes]:
    await server.send(request.raw + body)
    while (reply := await server.head()) is not None and reply.start[1].startswith("1"):
        pass
    if reply is None:
        raise Broken
    bodiless = request.start[0] == "HEAD" or reply.start[1] in ("204", "304")
    length = 0 if bodiless else reply.length
    content = b"".join([piece async for piece in server.body(length, reply.chunked and not bodiless)])
    return reply, content
