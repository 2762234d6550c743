"""A node is lost, and the workers on others that fail of it are heard first: the node is named, and nothing waits."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.run.state import RunSpec
from holdfast.driver.plan import Plan
from holdfast.driver.runtime import Driver
from holdfast.settings import Settings
from holdfast.store.location import Location
from holdfast.wire import messages as wire

WITHIN_S = 120.0
ERROR = wire.Raised(0.0, "RuntimeError", "connection closed by peer", "", b"", True)


class TwoNodes:
    """That start workers when they are told to, and say nothing else by themselves."""

    grows = True
    is_this_machine = False

    def __init__(self) -> None:
        self.started: list[tuple[int, int]] = []  # attempt and world size

    def open(self, _configure: Any, inbox: queue.SimpleQueue[Any]) -> Any:
        def send(node: str, message: wire.Message) -> None:
            if isinstance(message, wire.StartWorkers):
                self.started.append((message.attempt_number, message.world_size))
                for place in message.places:
                    inbox.put((node, wire.WorkerIsReady(message.attempt_number, place.rank)))

        for node in ("a", "b"):
            inbox.put((node, wire.NodeReady(node, 1, 1.0)))
        return SimpleNamespace(accept=lambda *_: None, send=send, close=lambda: None)


@pytest.mark.parametrize("announced", [False, True])
def test_exceptions_that_a_lost_node_caused_are_not_the_scripts(tmp_path: Path, announced: bool) -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    engine = TwoNodes()
    failures: list[dict[int, Exception]] = []
    spec = RunSpec(num_workers=2, min_workers=1, max_failures=1, lease_s=1.0)
    location = Location.parse("path", tmp_path / "run")
    plan = Plan("run", location, spec, b"", {}, on_failure=failures.append)
    driver = Driver(plan, engine, Settings(), inbox=inbox)  # type: ignore[arg-type]
    until = time.monotonic() + WITHIN_S

    def go_on(*items: Any) -> None:
        """Take these in, and then what comes of them."""
        driver.take_in(items)
        while not inbox.empty():
            driver.take_in([inbox.get(timeout=until - time.monotonic())])

    driver.open()
    try:
        driver.start()
        go_on()
        if announced:
            go_on(("b", wire.NodeDraining("b", 60.0)))
        go_on(("a", wire.WorkerHasFailed(1, 0, ERROR, None, None, True, False, [])))
        go_on(("a", wire.WorkersGone(1)))
        assert driver.state.failure is not None
        assert driver.state.failure.kind.value == "user error"
        assert engine.started == [(1, 2), (1, 2)]
        go_on(("b", wire.NodeLost("b")))
        assert driver.state.durable.spent == ({"preemptions": 1} if announced else {"failures": 1})
        assert driver.state.durable.same_error == ("", -1, 0)
        assert engine.started[2:] == [(2, 1)], "with the room that is left, at the first attempt"
        assert [list(exceptions) for exceptions in failures] == [[0]], "callbacks are told once"
    finally:
        driver.close()
        driver.release()
