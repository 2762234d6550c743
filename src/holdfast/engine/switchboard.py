"""One thread serves the connections to all agents of this process. With one thread per agent, the threads of a large
run would compete for the interpreter, and the driver's loop with them.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import selectors
import socket
import threading
import time
from typing import Protocol

from holdfast.engine.engine_interface import Inbox

_RETRY_S = 0.01  # while the driver is behind


class AgentLine(Protocol):
    socket: socket.socket
    inbox: Inbox

    def wants(self) -> int:
        """The events to watch its socket for, as a mask of selectors."""

    @property
    def is_behind(self) -> bool:
        """Whether something that it received waits until the inbox has space."""

    def serve(self, mask: int) -> float | None:
        """Handle the events of its socket, and what is due. Returns when it is due again, by the monotonic clock,
        infinity for never; None if it has ended."""

    def end(self, error: Exception | None) -> None:
        """Called when the connection is no longer served."""


class Switchboard:
    """The thread lives as long as there is a line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[
            tuple[AgentLine, bool]
        ] = []  # and whether the line is new; else it has to send, or is hung up
        self._thread: threading.Thread | None = None
        self._wake = self._waker = -1

    def call(self, line: AgentLine, new: bool = False) -> None:
        """From any thread: have a line looked at soon."""
        with self._lock:
            if self._thread is None:
                if not new:
                    return
                self._begin()
            if not self._calls:
                os.write(self._waker, b"x")
            self._calls.append((line, new))

    def _begin(self) -> None:
        service = _Service(self)
        thread = threading.Thread(target=service.run, name="holdfast-lines", daemon=True)
        try:
            self._wake, self._waker = os.pipe()
        except OSError:
            service.close()
            raise
        try:
            thread.start()
        except RuntimeError:  # the limit of threads is reached: this connection fails, and the next one tries again
            service.close()
            self._close_pipe()
            raise
        self._thread = thread

    def _close_pipe(self) -> None:
        os.close(self._wake)
        os.close(self._waker)

    @property
    def wake(self) -> int:
        """Readable after another thread has called."""
        return self._wake

    def calls(self, idle: bool) -> list[tuple[AgentLine, bool]] | None:
        """Those since the last time; None ends the thread, which was idle."""
        with self._lock:
            calls, self._calls = self._calls, []
            if idle and not calls:
                self._thread = None
                self._close_pipe()
                return None
        return calls


class _Service:
    """The state of the thread."""

    def __init__(self, board: Switchboard) -> None:
        self._board = board
        self._selector = selectors.DefaultSelector()
        self._watched: dict[AgentLine, int] = {}  # the lines, and for what their sockets are watched
        self._due: dict[AgentLine, float] = {}  # when each is to be looked at, by the monotonic clock
        self._next: list[tuple[float, int, AgentLine]] = []  # a heap; entries that are no longer in `_due` are skipped
        self._count = 0
        self._behind: dict[int, dict[AgentLine, None]] = {}  # by inbox, those that wait until it has space, in turn

    def close(self) -> None:
        self._selector.close()

    def run(self) -> None:
        board = self._board
        with self._selector:
            self._selector.register(board.wake, selectors.EVENT_READ)
            while (calls := board.calls(idle=not self._watched)) is not None:
                for line, new in calls:
                    if new:
                        self._watched[line] = 0
                    if line in self._watched:
                        self._serve(line, 0)
                for key, mask in self._selector.select(self._pause()):
                    if key.data is None:
                        os.read(board.wake, 4096)
                    elif key.data in self._watched:
                        self._serve(key.data, mask)
                self._retry()
                self._look_at_what_is_due()

    def _pause(self) -> float | None:
        if not self._watched:
            return 0.0  # the last connection has ended
        if self._behind:
            return _RETRY_S
        return max(0.0, self._next[0][0] - time.monotonic()) if self._next else None

    def _look_at_what_is_due(self) -> None:
        now = time.monotonic()
        while self._next and self._next[0][0] <= now:
            due, _, line = heapq.heappop(self._next)
            if self._due.get(line) == due:
                del self._due[line]
                self._serve(line, 0)

    def _retry(self) -> None:
        """Serve connections in turns, so that none waits longer than the others."""
        for inbox, waiting in list(self._behind.items()):
            for line in list(waiting):
                del waiting[line]
                if line in self._watched:
                    self._serve(line, 0)
                if line in waiting:
                    break
            if not waiting:
                del self._behind[inbox]

    def _serve(self, line: AgentLine, mask: int) -> None:
        try:
            due = line.serve(mask)
            if due is not None:
                self._watch(line, line.wants())
        except Exception as error:  # it ends only this connection
            self._end(line, error)
            return
        if due is None:
            self._end(line, None)
            return
        if line.is_behind:
            self._behind.setdefault(id(line.inbox), {})[line] = None
        if due < math.inf and due != self._due.get(line):
            self._due[line] = due
            self._count += 1
            heapq.heappush(self._next, (due, self._count, line))

    def _watch(self, line: AgentLine, wanted: int) -> None:
        before = self._watched[line]
        if before == wanted:
            return
        self._watched[line] = wanted
        if not before:
            self._selector.register(line.socket, wanted, line)
        elif not wanted:
            self._selector.unregister(line.socket)
        else:
            self._selector.modify(line.socket, wanted, line)

    def _end(self, line: AgentLine, error: Exception | None) -> None:
        with contextlib.suppress(KeyError, ValueError, OSError):  # its socket may be unusable, which is why it ends
            self._watch(line, 0)
        del self._watched[line]
        self._due.pop(line, None)
        line.end(error)


_board = Switchboard(), os.getpid()


def switchboard() -> Switchboard:
    """The switchboard of this process. A fork creates a new one, because it has none of the threads."""
    global _board
    if _board[1] != os.getpid():
        _board = Switchboard(), os.getpid()
    return _board[0]
