"""The agent's side of the connection to its driver: orders arrive, and messages are sent. Across a network the
connection is also a lease, and each ping tells the agent what the driver has received.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable
from typing import Any

from holdfast.node.node_lease import NodeLease, now
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker, pack, received, send_some

_BACKLOG = 16 << 20  # with more unsent bytes to the driver, workers are not read
_ORDERS_WITHIN_S = 120.0  # the first order may be large
_TOGETHER_WITHIN_S = 0.01  # how long a report waits for reports of other workers
_LOOK_EVERY_S = 1.0  # at the lease: a machine that was suspended slept through the end of its time-outs


class DriverConnection:
    def __init__(
        self,
        driver: socket.socket,
        selector: selectors.BaseSelector,
        obey: Callable[[Any], None],
        lease: NodeLease | None = None,
    ) -> None:
        self._driver, self._selector, self._obey = driver, selector, obey
        self._lease, self._lease_s = lease, _ORDERS_WITHIN_S
        self._answers: dict[int, float] = {0: now()}  # when each ping was answered
        self._hold(0)
        self._orders: Unpacker[Any] = Unpacker(wire.TO_AGENT)
        self._unsent = bytearray()
        self.over = False
        self.listening = True  # the driver accepts messages
        self.on_listening: Callable[[], None] = lambda: None
        driver.setblocking(False)
        selector.register(driver, selectors.EVENT_READ, self._serve)
        self._watched_for = selectors.EVENT_READ

    def lease(self, timeout_s: float) -> None:
        """Across a network: hold the lease for this long after the last answer that the driver has received."""
        self._lease_s = timeout_s
        self._hold(min(self._answers))

    @property
    def is_cut(self) -> bool:
        """Whether the lease has expired, so that the driver may have given up this agent."""
        return self._lease is not None and self._lease.is_over

    def due(self) -> float | None:
        """When to check the lease again."""
        if self._lease is None:
            return None
        return time.monotonic() + min(self._lease.left_s, _LOOK_EVERY_S)

    def say(self, message: wire.Message) -> None:
        self._unsent += pack(message)
        self._flush()

    def close(self) -> None:
        self._driver.close()

    def _serve(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._flush()
        data = received(self._driver, 1 << 20)
        if data is None:
            return
        if not data:
            self.over = True
            return
        for order in self._orders.feed(data):
            if isinstance(order, wire.Ping):
                self._answer(order)
            else:
                self._obey(order)

    def _answer(self, ping: wire.Ping) -> None:
        self._answers[ping.number] = now()
        if ping.heard in self._answers:
            self._hold(ping.heard)
            for number in [number for number in self._answers if number < ping.heard]:
                del self._answers[number]
        self.say(wire.Pong(ping.number))

    def _hold(self, heard: int) -> None:
        """The lease counts from the moment in which that ping was answered."""
        if self._lease is not None:
            self._lease.end = self._answers[heard] + self._lease_s

    def _flush(self) -> None:
        self.over = not send_some(self._driver, self._unsent) or self.over
        if self.listening != (len(self._unsent) < _BACKLOG):
            self.listening = not self.listening
            self.on_listening()
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        if wanted != self._watched_for:
            self._selector.modify(self._driver, wanted, self._serve)
            self._watched_for = wanted


class RunConnection:
    """One run's share of the connection: its messages carry its number, unless it is the agent's own run.

    The workers of a job report at about the same time. Their reports wait for each other for a moment and are sent as
    one message, so the driver gets one message per node.
    """

    def __init__(self, line: DriverConnection, run: int | None) -> None:
        self._line, self._run = line, run
        self._held: list[wire.Reports] = []
        self.due: float | None = None  # when they are sent at the latest

    @property
    def listening(self) -> bool:
        return self._line.listening

    def say(self, message: wire.RunNews) -> None:
        if not isinstance(message, wire.Output):  # messages that may overtake an earlier report
            self.flush()
        self._line.say(self.envelope(message))

    def report(self, reports: wire.Reports, workers: int) -> None:
        """``workers``: how many of the attempt may report here."""
        self._held.append(reports)
        if len({held.rank for held in self._held}) >= workers:
            self.flush()
        elif self.due is None:
            self.due = time.monotonic() + _TOGETHER_WITHIN_S

    def flush(self) -> None:
        held, self._held, self.due = self._held, [], None
        if held:
            self._line.say(self.envelope(held[0] if len(held) == 1 else wire.NodeNews([*held])))

    def envelope(self, message: wire.RunNews) -> wire.Message:
        return message if self._run is None else wire.OfRun(self._run, message)
