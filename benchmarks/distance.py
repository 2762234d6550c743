"""A server that is farther away: a relay on loopback that hands everything on with a delay, in both directions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

from s3_server import S3Server

PIECE = 1 << 16


@contextlib.contextmanager
def farther_away(server: S3Server, round_trip_s: float) -> Iterator[S3Server]:
    """The same server, each of whose answers takes that much longer."""
    address = urlsplit(server.endpoint)
    relay = _Relay(str(address.hostname), address.port or 80, round_trip_s / 2)
    relay.thread.start()
    assert relay.ready.wait(10), "the relay did not start"
    try:
        yield replace(server, endpoint=f"http://127.0.0.1:{relay.port}")
    finally:
        relay.loop.call_soon_threadsafe(relay.over.set)
        relay.thread.join(10)


class _Relay:
    def __init__(self, host: str, port: int, delay_s: float) -> None:
        self.port = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="relay", daemon=True)
        self._host, self._port, self._delay_s = host, port, delay_s
        self._connections: set[asyncio.Task[None]] = set()

    async def _main(self) -> None:
        self.loop, self.over = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await self.over.wait()
        server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        to_server: asyncio.StreamWriter | None = None
        try:
            from_server, to_server = await asyncio.open_connection(self._host, self._port)
            await asyncio.gather(self._carry(reader, to_server), self._carry(from_server, writer))
        except (OSError, asyncio.CancelledError):
            pass  # one of the two is gone
        finally:
            for end in (writer, to_server):
                if end is not None:
                    end.close()
            self._connections.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Later, and in order: what is on its way does not wait for what is before it."""
        while piece := await reader.read(PIECE):
            self.loop.call_later(self._delay_s, writer.write, piece)
        self.loop.call_later(self._delay_s, writer.close)
