"""The agent: one process a machine, light, that starts, watches and ends training processes for the driver.

One thread runs the loop; a few others hash and move files. The agent decides nothing: it does what the driver says and
tells what it sees. It ends when the driver is gone or must be taken for gone, and everything below it ends first.
"""

from __future__ import annotations

import os
import queue
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from holdfast.wire import messages as wire

from . import probe, stacks
from .crew import Crew
from .launch import Launcher, LauncherLostError
from .line import Line
from .storage_orders import StorageOrders


class Agent:
    """``alone``: the process is the agent's own, and ends with it. ``leased``: there is a network between it and its
    driver, so that each must know by itself when the other has given it up."""

    def __init__(
        self, driver: socket.socket, launcher: Launcher | None = None, *, alone: bool = False, leased: bool = False
    ) -> None:
        self._alone = alone
        self._launcher = launcher
        self._selector = selectors.DefaultSelector()
        self._line = Line(driver, self._selector, self._obey, leased=leased)
        self._results: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._hear_threads)
        self._session: wire.Configure | None = None  # until the first order
        self._closing = self._run_over = False
        self._notices = 0  # that the machine goes away
        self._drained_at: float | None = None

    def run(self) -> None:
        """Serve until the driver is gone or says so."""
        try:
            while not self._closing and not self._line.over:
                for key, mask in self._selector.select(self._timeout()):
                    now = self._selector.get_map().get(key.fd)
                    if now is not None and now.fileobj is key.fileobj:  # else an event before it let go of it
                        key.data(mask)
                self._on_time()
        except LauncherLostError:
            pass  # the driver sees this agent end, and starts another
        finally:
            self._end()

    def _end(self) -> None:
        if self._session is not None:
            self._crew.kill()
            self._storage.close(self._run_over, wait=not self._alone)
            self._crew.close()
        elif self._launcher is not None:
            self._launcher.close()
        self._selector.close()
        for fd in (self._wake, self._waker):
            os.close(fd)
        self._line.close()

    def close_soon(self) -> None:
        """End the loop; may be called from a signal handler."""
        self._closing = True
        self._nudge()

    def drain(self) -> None:
        """The machine will go away; may be called from a signal handler. The second time, it goes at once."""
        self._notices += 1
        self._nudge()

    # What the driver says

    def _obey(self, order: Any) -> None:
        match order:
            case wire.Configure():
                self._configure(order)
            case wire.StartWorkers():
                self._crew.start_group(order, self._storage.resume_from(order.checkpoint))
            case wire.StopWorkers():
                self._crew.stop_group(order)
            case wire.Seal() | wire.Gather() | wire.Upload() | wire.Fetch() | wire.Forget() | wire.Sweep():
                self._storage.serve(order)
            case wire.RunTask():
                self._crew.run_task(order)
            case wire.Reply():
                self._crew.tell(order, order.generation, order.rank)
            case wire.Durable(generation, id):
                self._storage.is_durable(id)
                self._crew.tell(wire.Durable(generation, id, self._storage.offer(id)), generation)
            case wire.Pressure():
                self._crew.press(order)
            case wire.Notice() | wire.HandoverAt():
                self._crew.tell(order, order.generation)
            case wire.DumpStacks(generation):
                subjects = self._crew.subjects(generation)
                self._beside(lambda: wire.Stacks(generation, stacks.collect(subjects)))
            case wire.Probe():
                self._beside(self._probe)
            case wire.Shutdown():
                self._closing = self._run_over = True

    def _configure(self, order: wire.Configure) -> None:
        self._storage = StorageOrders(order, self._answer)
        where = (self._selector, self._line, self._storage.submit)
        self._crew = Crew(order, self._storage.layout, self._launcher, *where)
        self._session = order
        self._line.lease(order.node_timeout_s)
        unsaved = self._storage.unsaved()
        self._line.say(wire.NodeReady(order.node_id, os.getpid(), os.cpu_count() or 1, unsaved))

    def _probe(self) -> wire.Message:
        findings = probe.findings(self._storage.layout.root)
        return wire.Probed(not findings, findings)

    # What other threads say

    def _beside(self, work: Callable[[], wire.Message]) -> None:
        """In a thread of its own: the others may have much to do."""
        threading.Thread(target=lambda: self._answer(work()), name="holdfast-aside", daemon=True).start()

    def _answer(self, message: wire.Message) -> None:
        self._results.put(message)
        self._nudge()

    def _nudge(self) -> None:
        try:
            os.write(self._waker, b"x")
        except OSError:
            pass  # full: the loop is awake anyway

    def _hear_threads(self, _mask: int) -> None:
        os.read(self._wake, 4096)
        while not self._results.empty():
            self._line.say(self._results.get())

    # Time

    def _timeout(self) -> float | None:
        deadlines = [self._line.due(), self._drained_at]
        if self._session is not None:
            deadlines += [self._crew.due(), self._storage.due()]
        due = min((deadline for deadline in deadlines if deadline is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._session is None:
            self._closing = self._closing or self._notices > 0
            return
        self._crew.on_time(now)
        self._storage.on_time(now)
        if self._line.is_cut:
            node, silence = self._session.node_id, self._session.node_timeout_s
            print(
                f"holdfast: {node} is cut off from its driver for {silence:g} s: it ends its workers", file=sys.stderr
            )
            self._closing = True
        if self._notices and self._drained_at is None:
            self._drained_at = now + self._session.preemption_grace_s
            self._line.say(wire.NodeDraining(self._session.node_id, self._session.preemption_grace_s))
        if self._notices > 1 or (self._drained_at is not None and self._drained_at <= now):
            self._closing = True
