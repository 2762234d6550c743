"""The agent: one light process per machine that starts, watches and ends training processes for the driver.

One thread runs the loop; a few others hash and move files. The agent decides nothing: it follows the driver's orders
and reports what it sees. It exits when the driver has exited or must be assumed lost, and everything below it exits
first. The first ``Configure`` names the agent's own run. It also serves any number of other runs, each with its own
processes, files and payload. They share the zygote, the loop and the connection to the driver.
"""

from __future__ import annotations

import os
import queue
import selectors
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from holdfast.node.driver_connection import DriverConnection, RunConnection
from holdfast.node.node_lease import NodeLease
from holdfast.node.node_run import AgentParts, NodeRun
from holdfast.node.process_pool import ProcessPool
from holdfast.wire import messages as wire

from .launch import Launcher, LauncherLostError
from .storage_orders import StorageThreads

_MOVE_IN_EVERY_S = 0.02


class Agent:
    """``alone``: the process belongs to the agent and exits with it. ``leased``: agent and driver are connected by a
    network, so each must decide on its own when the other is lost."""

    def __init__(
        self, driver: socket.socket, launcher: Launcher | None = None, *, alone: bool = False, leased: bool = False
    ) -> None:
        self._alone = alone
        self._launcher = launcher
        self._selector = selectors.DefaultSelector()
        self._lease = NodeLease() if leased else None
        self._line = DriverConnection(driver, self._selector, self._obey, self._lease)
        self._line.on_listening = self._watch_all
        self._hands = StorageThreads()
        self._results: queue.SimpleQueue[wire.Message] = queue.SimpleQueue()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._hear_threads)
        self._session: wire.Configure | None = None  # until the first order
        self._runs: dict[int, NodeRun] = {}
        self._minded: set[NodeRun] = set()  # runs that may have a deadline
        self._leaving: set[int] = set()  # runs that are to close
        self._closing = self._run_over = False
        self._notices = 0  # notice that the machine will be removed
        self._drained_at: float | None = None
        self._moves_in_by: float | None = None  # waits for the end of an earlier agent of the run on this machine
        self._clear = False  # all processes of it have exited

    def run(self) -> None:
        """Serve until the driver has exited or ends the session."""
        try:
            while not self._closing and not self._line.over:
                for key, mask in self._selector.select(self._timeout()):
                    now = self._selector.get_map().get(key.fd)
                    if now is not None and now.fileobj is key.fileobj:  # unless an earlier event released it
                        key.data(mask)
                self._on_time()
        except LauncherLostError:
            pass  # the driver sees this agent end, and starts another
        finally:
            self._end()

    def _end(self) -> None:
        if self._session is not None:
            for run in self._all_runs():
                run.workers.kill()
            self._pool.close()
            self._own.end_storage(self._run_over)
            for run in self._runs.values():
                run.end_storage(False)
            self._hands.close(wait=not self._alone)
            for run in self._all_runs():
                run.workers.close()
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
        """The machine will be removed; may be called from a signal handler. The second call exits immediately."""
        self._notices += 1
        self._nudge()

    # Messages from the driver

    def _obey(self, order: Any) -> None:
        match order:
            case wire.Configure():
                self._configure(order)
            case wire.OpenRun(number, configure):
                assert number not in self._runs, f"run {number} is open already"
                self._pool.share()
                self._runs[number] = NodeRun(configure, RunConnection(self._line, number), self._shared)
                self._runs[number].say_ready(self._lease is not None, self._clear)
            case wire.InRun(number, in_run):
                if number in self._runs and number not in self._leaving:
                    self._runs[number].obey(in_run)
            case wire.CloseRun(number, over):
                self._close_run(number, over)
            case wire.Shutdown():
                self._closing = self._run_over = True
            case _:
                self._own.obey(order)

    def _configure(self, order: wire.Configure) -> None:
        self._pool = ProcessPool(order, self._launcher, self._selector, self._lease)
        told = (self._post, self._nudge, self._minded.add)
        self._shared = AgentParts(self._pool, self._selector, self._hands, *told)
        self._own = NodeRun(order, RunConnection(self._line, None), self._shared)
        self._line.lease(order.node_timeout_s)
        self._session = order
        self._moves_in_by = time.monotonic() + (order.node_timeout_s if self._lease is not None else 0.0)
        self._move_in(order)

    def _move_in(self, session: wire.Configure) -> None:
        """Report the node as ready when no process of an earlier agent is left on it. If that takes longer than such an
        agent may live without its driver, tell the driver."""
        if self._moves_in_by is None:
            return
        found = self._lease.move_in(session.run_key, session.node_id) if self._lease is not None else True
        if found is False and time.monotonic() < self._moves_in_by:
            return
        self._moves_in_by, self._clear = None, found is True
        self._pool.leave_lease_to_zygote()
        self._own.say_ready(self._lease is not None, self._clear)

    def _close_run(self, number: int, over: bool) -> None:
        if number in self._runs:
            self._runs[number].close_soon(over)
            self._leaving.add(number)
        else:
            self._line.say(wire.RunClosed(number))

    def _let_go_of_closed(self) -> None:
        for number in [number for number in self._leaving if self._runs[number].close_further()]:
            self._say_posted()  # its earlier answers come first
            run = self._runs.pop(number)
            run.workers.close()
            self._leaving.discard(number)
            self._minded.discard(run)
            self._line.say(wire.RunClosed(number))

    def _all_runs(self) -> Iterator[NodeRun]:
        yield self._own
        yield from self._runs.values()

    def _watch_all(self) -> None:
        for run in self._all_runs():
            run.workers.watch_all()

    # Messages of other threads

    def _post(self, message: wire.Message) -> None:
        self._results.put(message)
        self._nudge()

    def _nudge(self) -> None:
        try:
            os.write(self._waker, b"x")
        except OSError:
            pass  # the pipe is full, so the loop is awake anyway

    def _hear_threads(self, _mask: int) -> None:
        os.read(self._wake, 4096)
        self._say_posted()

    def _say_posted(self) -> None:
        while not self._results.empty():
            self._line.say(self._results.get())

    # Time

    def _timeout(self) -> float | None:
        deadlines = [self._line.due(), self._drained_at]
        if self._session is not None:
            deadlines += [self._pool.due(), *(run.due() for run in self._minded)]
        if self._moves_in_by is not None:
            deadlines.append(time.monotonic() + _MOVE_IN_EVERY_S)
        due = min((deadline for deadline in deadlines if deadline is not None), default=None)
        return None if due is None else max(0.0, due - time.monotonic())

    def _on_time(self) -> None:
        now = time.monotonic()
        if self._session is None:
            self._closing = self._closing or self._notices > 0
            return
        self._move_in(self._session)
        self._pool.on_time(now)
        for run in list(self._minded):
            run.on_time(now)
            if run.due() is None:
                self._minded.discard(run)
        self._let_go_of_closed()
        if self._line.is_cut:
            node, silence = self._session.node_id, self._session.node_timeout_s
            print(
                f"holdfast: {node} has been cut off from its driver for {silence:g} s and stops its workers",
                file=sys.stderr,
            )
            self._closing = True
        if self._notices and self._drained_at is None:
            self._drained_at = now + self._session.preemption_grace_s
            self._line.say(wire.NodeDraining(self._session.node_id, self._session.preemption_grace_s))
        if self._notices > 1 or (self._drained_at is not None and self._drained_at <= now):
            self._closing = True
