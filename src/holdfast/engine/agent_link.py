"""The driver's end of the connection to one agent: messages in both directions, and a heartbeat. An agent is lost when
several pings in a row are not answered. Pings are counted, not seconds, because a suspended driver sends none. Each
ping says which answer the driver received last. From that, an agent across a network knows until when its driver relies
on it.
"""

from __future__ import annotations

import contextlib
import math
import selectors
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.engine.engine_interface import Inbox
from holdfast.engine.switchboard import switchboard
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack, received, send_some

FENCE_MARGIN_S = 2.0  # how long a cut-off agent takes to end its workers after its lease has expired
_PING_EVERY_S = 1.0
_FEWEST_PINGS = 4
_START_WITHIN_S = 120.0  # until the first message: Python starts, and the payload may be large
_MOST_WAITING = 1000  # with more unread messages in the driver, the output of workers is dropped
_MOST_HELD = 64 << 20  # with more bytes waiting for the driver, the agent is not read


class Link:
    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self.socket = sock
        sock.setblocking(False)
        self._every_s = min(_PING_EVERY_S, timeout_s / _FEWEST_PINGS)
        self._most_unanswered = math.ceil(timeout_s / self._every_s)
        self._unpacker: Unpacker[Any] = Unpacker(wire.TO_DRIVER)
        self._lock = threading.Lock()  # for unsent data, and for the end
        self._unsent = bytearray()
        self._over = False
        self._waiting: deque[wire.Message] = deque()
        self._held = 0
        self._is_connected = True
        self._is_served = self._is_closed = False
        self._switchboard = switchboard()
        self._ended = threading.Event()
        self._error: Exception | None = None
        self._ping, self._answered, self._unanswered = 0, 0, 0
        self._ping_at = 0.0
        self._has_spoken = self._has_moved = False
        self.silent = False  # it was the heartbeat that ended it
        self.heard_at = time.monotonic()  # when the last answer to a ping came

    def send(self, message: wire.Message) -> None:
        """From any thread. Never waits for the agent: data that it does not accept now is sent later."""
        data = pack(message)
        with self._lock:
            if self._over:
                return
            idle = not self._unsent
            self._unsent += data
            if idle:
                self._flush()
            if self._unsent:
                self._nudge()

    def hang_up(self) -> None:
        """From any thread: ``converse`` returns, and drops what it has not delivered."""
        with self._lock:
            self._over = True
            self._nudge()

    def converse(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        """Deliver the agent's messages until it has exited, is silent, or the connection is closed; another thread does
        it.

        A driver that is far behind slows its workers down in the end; only their output is dropped instead.
        """
        self.inbox, self._deliver = inbox, deliver
        with self._lock:
            self._is_served = True
        try:
            self._switchboard.call(self, new=True)
        except (RuntimeError, OSError):  # at a limit of threads or files
            self.end(None)
            raise
        self._ended.wait()
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """From any thread. The socket's number is free for other lines only when the switchboard no longer watches
        it: otherwise it would take theirs for this one."""
        with self._lock:
            self._over = self._is_closed = True
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            if self._is_served:
                self._nudge()
            else:
                self.socket.close()

    # For the switchboard

    @property
    def is_behind(self) -> bool:
        return bool(self._waiting)

    def wants(self) -> int:
        return (selectors.EVENT_READ if self._listens else 0) | (selectors.EVENT_WRITE if self._unsent else 0)

    def serve(self, mask: int) -> float | None:
        if mask & selectors.EVENT_WRITE:
            with self._lock:
                self._flush()
        listens = self._listens
        if mask & selectors.EVENT_READ and listens:
            self._is_connected = self._receive()
        self._pass_on()
        if self._is_connected:
            self._beat(listens)
        if self._over or not (self._is_connected or self._waiting):
            return None
        return self._ping_at if self._is_connected else math.inf

    def end(self, error: Exception | None) -> None:
        with self._lock:
            self._is_served = False
            if self._is_closed:
                self.socket.close()
        self._error = None if self._over else error  # a closed connection fails in many ways
        self._ended.set()

    @property
    def _listens(self) -> bool:
        return self._is_connected and self._held < _MOST_HELD

    def _receive(self) -> bool:
        """Whether the agent has not exited."""
        data = received(self.socket, 1 << 18)
        if data is None:
            return True
        for message in self._unpacker.feed(data):
            self._has_spoken = True
            if isinstance(message, wire.Pong):
                self._answered, self._unanswered = message.number, 0
                self.heard_at = time.monotonic()
            elif not _is_output(message) or self.inbox.qsize() + len(self._waiting) <= _MOST_WAITING:
                self._waiting.append(message)  # output that does not fit is in the logs
        self._held += len(data)
        return bool(data)

    def _pass_on(self) -> None:
        while self._waiting and self.inbox.qsize() <= _MOST_WAITING:
            self._deliver(self._waiting.popleft())
        if not self._waiting:
            self._held = 0

    def _beat(self, listens: bool) -> None:
        now = time.monotonic()
        if now < self._ping_at:
            return
        most = self._most_unanswered if self._has_spoken else math.ceil(_START_WITHIN_S / self._every_s)
        if listens and self._unanswered >= most:
            self.silent = self._over = True
            return
        self._ping_at = now + self._every_s
        busy, self._has_moved = bool(self._unsent) and self._has_moved, False
        if busy:
            return  # a large message is being sent, and a ping would wait for it
        self._ping += 1
        self._unanswered += listens
        self.send(wire.Ping(self._ping, self._answered))

    def _flush(self) -> None:
        before = len(self._unsent)
        is_there = send_some(self.socket, self._unsent)
        self._has_moved = self._has_moved or len(self._unsent) < before
        if not is_there:
            self._unsent.clear()  # it has exited: the reading side sees that too

    def _nudge(self) -> None:
        if self._is_served:
            self._switchboard.call(self)


def _is_output(message: wire.Message) -> bool:
    return isinstance(message.message if isinstance(message, wire.OfRun) else message, wire.Output)


class LinkedAgent(ABC):
    """The driver's handle of an agent, which has a link when the agent has connected."""

    _link: Link | None = None

    def send(self, message: wire.Message) -> None:
        if self._link is not None:
            self._link.send(message)

    def shut_down(self) -> None:
        """End it gracefully. May be called from any thread."""
        if self._link is not None:
            self._link.send(wire.Shutdown())
        else:
            self.kill()  # it has not connected yet, and so has done nothing

    @abstractmethod
    def kill(self) -> None:
        """End it immediately. May be called from any thread."""
