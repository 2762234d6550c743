"""The driver's end of the line to one agent: messages both ways, and a heartbeat.

An agent is lost when several pings in a row are not answered. Pings are counted, not seconds: a driver that was
suspended has sent none meanwhile. Each ping says which answer was heard last, which is how an agent across a network
knows until when its driver counts on it.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.engine.engine_interface import Inbox
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack

FENCE_MARGIN_S = 2.0  # how long an agent that is cut off takes to end its workers when its time is over
_PING_EVERY_S = 1.0
_FEWEST_PINGS = 4
_START_WITHIN_S = 120.0  # until the first word: Python starts, and the payload may be large
_MOST_WAITING = 1000  # messages that the driver has not taken yet, above which what workers print is not passed on
_MOST_HELD = 64 << 20  # bytes that wait for the driver, above which the agent is not listened to
_RETRY_S = 0.01  # while the driver is behind, at first
_LONGEST_RETRY_S = 0.64  # with many agents the retries themselves would keep the driver behind


class Link:
    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        self._socket = sock
        sock.setblocking(False)
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._every_s = min(_PING_EVERY_S, timeout_s / _FEWEST_PINGS)
        self._most_unanswered = math.ceil(timeout_s / self._every_s)
        self._unpacker: Unpacker[Any] = Unpacker(wire.TO_DRIVER)
        self._lock = threading.Lock()  # of what is unsent, and of the end
        self._unsent = bytearray()
        self._over = False
        self._waiting: deque[wire.Message] = deque()
        self._held = 0
        self._retry_s = _RETRY_S / 2
        self._ping, self._answered, self._unanswered = 0, 0, 0
        self._ping_at = 0.0
        self._has_spoken = self._has_moved = False
        self.silent = False  # it was the heartbeat that ended it
        self.heard_at = time.monotonic()  # when the last answer to a ping came

    def send(self, message: wire.Message) -> None:
        """From any thread. Never waits for the agent: what it does not take now goes when it does."""
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
        """From any thread: ``serve`` returns, without passing on what it has not yet."""
        with self._lock:
            self._over = True
            self._nudge()

    def serve(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        """Deliver what the agent says, until it is gone or silent or the line is hung up.

        A driver that is far behind slows its workers down in the end; only what they print is not waited for.
        """
        with selectors.DefaultSelector() as selector:
            selector.register(self._wake, selectors.EVENT_READ)
            selector.register(self._socket, selectors.EVENT_READ)
            there = True
            while not self._over and (there or self._waiting):
                self._pass_on(inbox, deliver)
                listens = there and self._held < _MOST_HELD
                self._choose(selector, listens)
                for key, mask in selector.select(self._pause()):
                    if key.fileobj == self._wake:
                        os.read(self._wake, 4096)
                        continue
                    if mask & selectors.EVENT_WRITE:
                        with self._lock:
                            self._flush()
                    if mask & selectors.EVENT_READ and listens:
                        there = self._receive(inbox)
                if there:
                    self._beat(listens)

    def close(self) -> None:
        with self._lock:
            self._over = True
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            if self._waker >= 0:
                os.close(self._wake)
                os.close(self._waker)
                self._waker = -1

    def _choose(self, selector: selectors.BaseSelector, listens: bool) -> None:
        """Watch the socket for just what can be done with it now."""
        wanted = (selectors.EVENT_READ if listens else 0) | (selectors.EVENT_WRITE if self._unsent else 0)
        key = selector.get_map().get(self._socket)
        if key is None and wanted:
            selector.register(self._socket, wanted)
        elif key is not None and not wanted:
            selector.unregister(self._socket)
        elif key is not None and key.events != wanted:
            selector.modify(self._socket, wanted)

    def _pause(self) -> float:
        if self._waiting:
            self._retry_s = min(2 * self._retry_s, _LONGEST_RETRY_S)
            return self._retry_s
        return max(0.0, self._ping_at - time.monotonic())

    def _receive(self, inbox: Inbox) -> bool:
        """Whether the agent is still there."""
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        for message in self._unpacker.feed(data):
            self._has_spoken = True
            if isinstance(message, wire.Pong):
                self._answered, self._unanswered = message.number, 0
                self.heard_at = time.monotonic()
            elif not _is_output(message) or inbox.qsize() + len(self._waiting) <= _MOST_WAITING:
                self._waiting.extend(wire.parts(message))  # what was printed and has no room is in the logs
        self._held += len(data)
        return bool(data)

    def _pass_on(self, inbox: Inbox, deliver: Callable[[wire.Message], None]) -> None:
        while self._waiting and inbox.qsize() <= _MOST_WAITING:
            deliver(self._waiting.popleft())
            self._retry_s = _RETRY_S / 2
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
            return  # a large message is on its way, and a ping would wait behind it
        self._ping += 1
        self._unanswered += listens
        self.send(wire.Ping(self._ping, self._answered))

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(memoryview(self._unsent)[: 1 << 20])]
                self._has_moved = True
        except BlockingIOError:
            pass
        except OSError:
            self._unsent.clear()  # it is gone: the listening side sees that too

    def _nudge(self) -> None:
        if self._waker >= 0:
            with contextlib.suppress(BlockingIOError):
                os.write(self._waker, b"x")


def _is_output(message: wire.Message) -> bool:
    return isinstance(message.message if isinstance(message, wire.OfRun) else message, wire.Output)
