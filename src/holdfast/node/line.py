"""The agent's end of the line to its driver: orders come in, news go out.

Across a network the line is also a lease. The driver takes an agent for gone when it has not heard from it for the
node's time-out; the agent, which knows by each ping what the driver has heard, must have ended its workers by then.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack

_BACKLOG = 16 << 20  # unsent bytes to the driver above which workers are not listened to
_ORDERS_WITHIN_S = 120.0  # the first order may be large
_LOOK_EVERY_S = 1.0  # at the lease: a machine that was suspended slept through the end of its time-outs


def _now() -> float:
    """Seconds that go on while the machine is suspended, where the system counts them."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Line:
    def __init__(
        self, driver: socket.socket, selector: selectors.BaseSelector, obey: Callable[[Any], None], *, leased: bool
    ) -> None:
        self._driver, self._selector, self._obey = driver, selector, obey
        self._lease_s = _ORDERS_WITHIN_S if leased else None
        self._held_since = _now()
        self._answers: dict[int, float] = {0: self._held_since}  # when each ping was answered
        self._orders: Unpacker[Any] = Unpacker(wire.TO_AGENT)
        self._unsent = bytearray()
        self.over = False
        self.listening = True  # the driver takes in what it is told
        self.on_listening: Callable[[], None] = lambda: None
        driver.setblocking(False)
        selector.register(driver, selectors.EVENT_READ, self._serve)
        self._watched_for = selectors.EVENT_READ

    def lease(self, timeout_s: float) -> None:
        """Across a network: hold it for so long after the last answer that the driver has heard."""
        if self._lease_s is not None:
            self._lease_s = timeout_s

    @property
    def is_cut(self) -> bool:
        """Whether the driver must be taken to have given this agent up."""
        return self._lease_s is not None and _now() > self._held_since + self._lease_s

    def due(self) -> float | None:
        """When to look at the lease again."""
        if self._lease_s is None:
            return None
        left = self._held_since + self._lease_s - _now()
        return time.monotonic() + max(0.0, min(left, _LOOK_EVERY_S))

    def say(self, message: wire.Message) -> None:
        self._unsent += pack(message)
        self._flush()

    def close(self) -> None:
        self._driver.close()

    def _serve(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        try:
            data = self._driver.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.over = True
            return
        for order in self._orders.feed(data):
            if isinstance(order, wire.Ping):
                self._answer(order)
            else:
                self._obey(order)

    def _answer(self, ping: wire.Ping) -> None:
        self._answers[ping.number] = _now()
        if ping.heard in self._answers:
            self._held_since = self._answers[ping.heard]
            for number in [number for number in self._answers if number < ping.heard]:
                del self._answers[number]
        self.say(wire.Pong(ping.number))

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._driver.send(memoryview(self._unsent)[: 1 << 20])]
        except BlockingIOError:
            pass
        except OSError:
            self.over = True
        if self.listening != (len(self._unsent) < _BACKLOG):
            self.listening = not self.listening
            self.on_listening()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if wanted != self._watched_for:
            self._selector.modify(self._driver, wanted, self._serve)
            self._watched_for = wanted


class RunLine:
    """A run's share of the line: what it says bears its number, unless it is the agent's own run."""

    def __init__(self, line: Line, run: int | None) -> None:
        self._line, self._run = line, run

    @property
    def listening(self) -> bool:
        return self._line.listening

    def say(self, message: wire.RunNews) -> None:
        self._line.say(self.envelope(message))

    def envelope(self, message: wire.RunNews) -> wire.Message:
        return message if self._run is None else wire.OfRun(self._run, message)
