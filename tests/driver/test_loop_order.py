"""Of what has come in at the same time, causes are heard before their consequences, and all else in its order."""

from __future__ import annotations

from holdfast.driver.loop import _causes_first
from holdfast.wire import messages as wire


def failed(rank: int, raised: bool) -> wire.WorkerHasFailed:
    error = wire.Raised(0.0, "RuntimeError", "Connection closed by peer", "", b"", True) if raised else None
    return wire.WorkerHasFailed(1, rank, error, None, None if raised else 9, True, False, [])


def test_a_lost_node_is_heard_before_the_exceptions_that_it_made_others_raise() -> None:
    items = [
        ("a", failed(0, raised=True)),
        ("b", wire.Reports(1, 2, [])),
        ("a", failed(1, raised=False)),
        print,
        ("b", wire.NodeLost("b")),
    ]
    assert _causes_first(items) == [*items[1:], items[0]]


def test_without_a_lost_node_nothing_is_moved() -> None:
    items = [("a", failed(0, raised=True)), ("b", wire.Reports(1, 2, []))]
    assert _causes_first(items) == items
