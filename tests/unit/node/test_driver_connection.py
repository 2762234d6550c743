"""Reports of a node's workers go to the driver together, and nothing waits for a worker that makes none."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.node.driver_connection import DriverConnection, RunConnection
from holdfast.wire import messages as wire
from holdfast.wire.channel import Unpacker
from holdfast.wire.worker_messages import Report


class Ends:
    def __init__(self, run: int | None) -> None:
        self._driver, agent = socket.socketpair()
        self._driver.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._line = DriverConnection(agent, self._selector, lambda _order: None)
        self.run = RunConnection(self._line, run)

    def heard(self) -> list[Any]:
        try:
            data = self._driver.recv(1 << 16)
        except BlockingIOError:
            return []
        unpacker: Unpacker[Any] = Unpacker(wire.TO_DRIVER)
        return list(unpacker.feed(data))

    def close(self) -> None:
        self._selector.close()
        self._line.close()
        self._driver.close()


@pytest.fixture(params=[None, 7], ids=["own run", "shared agent"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    made = Ends(request.param)
    yield made
    made.close()


def said(ends: Ends) -> list[list[wire.Message]]:
    """Of each message, what it is made of, without the number of the run."""
    return [[p.message if isinstance(p, wire.OfRun) else p for p in wire.parts(m)] for m in ends.heard()]


def made(rank: int, index: int = 0) -> wire.Reports:
    return wire.Reports(1, rank, [Report(index, b"")])


def test_a_worker_alone_waits_for_nobody(ends: Ends) -> None:
    ends.run.report(made(0), workers=1)
    assert said(ends) == [[made(0)]]
    assert ends.run.due is None


def test_what_all_workers_report_is_one_message(ends: Ends) -> None:
    for rank, index in ((0, 0), (1, 0), (0, 1), (2, 0)):
        assert said(ends) == []
        ends.run.report(made(rank, index), workers=3)
    assert said(ends) == [[made(0), made(1), made(0, 1), made(2)]]
    assert ends.run.due is None


def test_one_that_makes_none_is_waited_for_for_a_moment(ends: Ends) -> None:
    before = time.monotonic()
    ends.run.report(made(0), workers=2)
    due = ends.run.due
    assert due is not None
    assert before < due < time.monotonic() + 1.0
    ends.run.report(made(0, 1), workers=2)
    assert ends.run.due == due
    ends.run.flush()
    assert said(ends) == [[made(0), made(0, 1)]]


def test_other_news_come_behind_the_reports_before_them(ends: Ends) -> None:
    ends.run.report(made(0), workers=2)
    ends.run.say(wire.Output(0, ["a line"]))
    ends.run.say(wire.WorkerHasReturned(1, 0, b""))
    assert said(ends) == [[wire.Output(0, ["a line"])], [made(0)], [wire.WorkerHasReturned(1, 0, b"")]]
