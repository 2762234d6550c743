"""What a trial hears of the experiment's nodes, and what it is given of them."""

from __future__ import annotations

import queue
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.core.run import events as ev
from holdfast.core.run.placement import WorkerNeeds
from holdfast.core.run.state import RunSpec
from holdfast.driver.inbound import Inbound
from holdfast.driver.node_registry import NodeRegistry
from holdfast.driver.plan import Plan
from holdfast.settings import Settings
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.testing.simulated_trials import CONFIGURE
from holdfast.tune.experiment.shared_nodes import SharedNodes, TrialEngine
from holdfast.tune.experiment.trial_run import TrialRun
from holdfast.tune.experiment.trial_runtime import SharedByTrials, TrialRuntime
from holdfast.tune.experiment.trial_storage import JournalBatch, TrialHistory
from holdfast.wire import messages as wire

ONE_CPU = [{"CPU": 1.0}]


class Nodes:
    """An engine whose nodes are told things, and say nothing by themselves."""

    grows = True
    is_this_machine = False

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []
        self.nodes = SharedNodes(self)  # type: ignore[arg-type]
        self.nodes.open(CONFIGURE, queue.SimpleQueue())

    def open(self, _configure: Any, _inbox: Any) -> Any:
        send = lambda node, message: self.told.append((node, message))  # noqa: E731
        return SimpleNamespace(accept=lambda *_: None, send=send, close=lambda: None)

    def come(self, node: str, *, clear: bool = True) -> None:
        self.nodes.hear(node, wire.NodeReady(node, 1, 1.0, machine="m", clear=clear))

    def place(self) -> TrialEngine:
        shares = self.nodes.capacity.place(ONE_CPU)
        assert shares is not None
        return self.nodes.engine_for(shares, lambda: None)


def clear_in(inbox: queue.SimpleQueue[Any]) -> list[str]:
    places: list[str] = []
    while not inbox.empty():
        _, message = inbox.get()
        places += message.places if isinstance(message, wire.PlacesClear) else []
    return places


def test_a_trial_that_was_placed_elsewhere_before_hears_which_nodes_are_clear() -> None:
    nodes = Nodes()
    nodes.come("n1")
    nodes.come("n2", clear=False)
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    nodes.place().open(CONFIGURE, inbox)
    assert clear_in(inbox) == ["n1@m"]
    nodes.come("n3")
    assert clear_in(inbox) == ["n3@m"]


def test_a_node_that_was_lost_is_not_said_to_be_clear_until_it_is_back() -> None:
    nodes = Nodes()
    nodes.come("n1")
    nodes.come("n2")
    nodes.nodes.hear("n1", wire.NodeLost("n1"))
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    nodes.place().open(CONFIGURE, inbox)
    assert clear_in(inbox) == ["n2@m"]
    nodes.come("n1")
    assert clear_in(inbox) == ["n1@m"]


def test_a_driver_that_hears_so_doubts_that_node_no_longer() -> None:
    nodes, heard = NodeRegistry(WorkerNeeds(1.0, 0.0, "PACK", 1)), deque[ev.Event]()
    known: Any = SimpleNamespace(nodes=nodes, run=SimpleNamespace(doubted=frozenset({"n1@m"})), queue=heard)
    startup: Any = None
    Inbound(known, startup, lambda: None).hear("", wire.PlacesClear(["n1@m", "n2@m"]))
    assert list(heard) == [ev.NodeClear("n1@m")]
    assert nodes.clear_among(["n1@m", "n3@m"]) == ["n1@m"], "what a driver that starts only now is told"


def test_a_trial_that_closes_gets_no_more_room() -> None:
    nodes = Nodes()
    nodes.come("n1")
    nodes.come("n2")
    engine = nodes.place()
    session = engine.open(CONFIGURE, queue.SimpleQueue())
    session.close()  # its node has not said yet that nothing is left there
    shares = nodes.nodes.capacity.place(ONE_CPU)
    assert shares is not None
    nodes.nodes.give_more(engine.run, shares)
    opened = [node for node, message in nodes.told if isinstance(message, wire.OpenRun)]
    assert len(opened) == 1
    nodes.nodes.hear(opened[0], wire.RunClosed(engine.run))
    assert nodes.nodes.capacity.place([*ONE_CPU, *ONE_CPU]) is not None


def test_a_trial_of_an_earlier_driver_that_is_placed_elsewhere_now_starts_at_once(tmp_path: Path) -> None:
    """n1, where it ran, has come back clear: nothing of it can live there, and no lease has to run out first."""
    nodes = Nodes()
    shared: queue.SimpleQueue[Any] = queue.SimpleQueue()
    nodes.come("n2")
    shares = nodes.nodes.capacity.place(ONE_CPU)
    assert shares is not None
    nodes.come("n1")
    plan = Plan(name="t", location=Location.parse("path", tmp_path), spec=RunSpec(), payload=b"", identity={})
    past = [ev.DriverStarted(1, RunSpec(lease_s=100.0)), ev.AttemptStarted(1, 1, None, 0, ("n1@m",))]
    records = [Record(0, 0.0, *ev.journalled(event)) for event in past]
    at_once: Any = SimpleNamespace(write_soon=lambda _entries, then: then(), check_lease=lambda: None)
    batch = JournalBatch(at_once)
    told: list[str] = []
    history = TrialHistory("t", batch, 2, records)
    listeners: Any = SimpleNamespace(warn=told.append)
    of_all = SharedByTrials(nodes.nodes, batch, shared, Settings(), listeners)
    definition: Any = None
    runtime = TrialRuntime(None, definition, plan.location, Settings())
    run = TrialRun(Trial("t", {}, {}, "t", "t", []), plan, shares, history, of_all, runtime)
    run.start()
    nodes.nodes.hear("n2", wire.OfRun(run.engine.run, wire.NodeReady("n2", 1, 1.0, machine="m")))
    for _ in range(10):
        while not shared.empty():
            item = shared.get()
            item.run.take_in([item.item])
        batch.write()
    orders = [message.order for _, message in nodes.told if isinstance(message, wire.InRun)]
    assert not told
    assert any(isinstance(order, wire.StartWorkers) for order in orders)
    run._driver.close()
