"""Pages that follow storage. Each watched run is read by one task, however many pages watch it.

A look reads the same as the command line. The task then pauses for ten times as long as the look took (at most 15 s),
so watching costs little. It ends with the last page.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

from starlette.concurrency import run_in_threadpool

LOOKS_EVERY_S = (1.0, 5.0)  # on a disk; on an object store
_REST = 10  # times the duration of a look
_LONGEST_REST_S = 15.0  # because a person watches
_HEARTBEAT_S = 15.0

Look = Callable[[], Any]  # returns another value when something has changed


class PageWatch:
    def __init__(self, look: Look, every_s: float, watched: Any) -> None:
        self._look, self._every_s, self.watched = look, every_s, watched
        self.pages = 0
        self.state: Any = None
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            began = time.monotonic()
            try:
                state = await run_in_threadpool(self._look)
            except Exception as error:  # storage may be available again at the next look
                state = {"error": str(error)}
            if state != self.state:
                self.state = state
                self.changed.set()
                self.changed = asyncio.Event()
            rest = min(_LONGEST_REST_S, _REST * (time.monotonic() - began))
            await asyncio.sleep(max(self._every_s, rest))


class PageWatches:
    def __init__(self) -> None:
        self._watches: dict[str, PageWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def watched(self, address: str) -> Any:
        """What the first page passed to ``stream``; None if no page watches."""
        watch = self._watches.get(address)
        return None if watch is None else watch.watched

    async def stream(self, address: str, look: Look, every_s: float, watched: Any = None) -> AsyncIterator[bytes]:
        """Server-sent events: the state now, and again whenever it has changed."""
        watch = self._watches.get(address)
        if watch is None:
            watch = self._watches[address] = PageWatch(look, every_s, watched)
        watch.pages += 1
        sent: Any = None
        try:
            while True:
                changed = watch.changed
                if watch.state is not None and watch.state != sent:
                    sent = watch.state
                    yield f"event: changed\ndata: {json.dumps(sent)}\n\n".encode()
                    continue
                try:
                    await asyncio.wait_for(changed.wait(), _HEARTBEAT_S)
                except asyncio.TimeoutError:
                    yield b": still here\n\n"
        finally:
            watch.pages -= 1
            if not watch.pages:
                watch.task.cancel()
                self._watches.pop(address, None)
