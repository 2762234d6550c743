"""The experiment's loop with storage that takes its time: what is on its way is neither forgotten nor acted on."""

from __future__ import annotations

import queue
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.advance import propose
from holdfast.core.experiment.resumption import Resumption
from holdfast.errors import StorageError
from holdfast.settings import Settings
from holdfast.store.journal import Record
from holdfast.store.location import Location
from holdfast.trackers.trial_callback import Callback
from holdfast.tune.experiment.experiment_driver import ExperimentDriver
from holdfast.tune.experiment.listeners import Listeners
from holdfast.tune.experiment.live_experiment import ExperimentSpec, LiveExperiment
from holdfast.tune.experiment.restore import entry_of, replay
from holdfast.tune.experiment.shared_nodes import SharedNodes
from holdfast.tune.experiment.trial_names import TrialNames
from holdfast.tune.experiment.trial_runtime import SharedByTrials
from holdfast.tune.experiment.trial_storage import JournalBatch, TrialHistory, TrialRemoteStorage
from holdfast.tune.experiment.user_policy import UserPolicy
from holdfast.tune.schedulers.trial_scheduler import FIFOScheduler
from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.stopper import NoopStopper
from holdfast.wire import messages as wire


class FarStorage:
    """Says through the inbox that something is written, some turns of the loop later."""

    def __init__(self, inbox: queue.SimpleQueue[Any], seen: Callable[[str], None]) -> None:
        self._inbox, self._seen = inbox, seen
        self.kinds: list[str] = []

    def write_soon(self, entries: Any, then: Callable[[], None]) -> bool:
        for kind, _ in entries:
            self.kinds.append(kind)
            self._seen(kind)
        self._later(then, 4)
        return False

    def _later(self, then: Callable[[], None], hops: int) -> None:
        self._inbox.put((lambda: self._later(then, hops - 1)) if hops else then)

    def check_lease(self) -> None: ...

    def close(self, all_stored: bool) -> None: ...


class OneNode:
    grows = True
    is_this_machine = False

    def open(self, _configure: Any, inbox: queue.SimpleQueue[Any]) -> Any:
        inbox.put(("n", wire.NodeReady("n", 1, 1.0)))
        return SimpleNamespace(accept=lambda *_: None, send=lambda *_: None, close=lambda: None)


class Hears(Callback):
    def __init__(self) -> None:
        self.ends: list[str] = []

    def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.ends.append(trial.trial_id)


class Loop:
    """An experiment of one trial, which cannot be started."""

    def __init__(
        self, home: Path, *, spec: ExperimentSpec | None = None, seen: Callable[[str], None] | None = None
    ) -> None:
        searcher = BasicVariantGenerator()
        searcher.set_search_properties(None, None, {}, num_samples=1, seed=1)
        names = TrialNames("t", "f")
        policy = UserPolicy(searcher, FIFOScheduler(), NoopStopper(), {}, names, lambda _config: [{"CPU": 1.0}])
        self.experiment = LiveExperiment(spec or ExperimentSpec(), Location.parse("path", home), policy)
        inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.storage, self.callback = FarStorage(inbox, seen or (lambda _kind: None)), Hears()
        self.planned: list[str] = []
        runtime: Any = SimpleNamespace(plan_of=self._plan, configure=SimpleNamespace(), has_finished=lambda _: False)
        nodes, batch = SharedNodes(OneNode()), JournalBatch(self.storage)  # type: ignore[arg-type]
        listeners = Listeners([self.callback], None, str(home), quiet=True)
        shared = SharedByTrials(nodes, batch, inbox, Settings(), listeners)
        self.driver = ExperimentDriver(self.experiment, shared, runtime, Resumption(), 1)
        self.driver.replay([])
        self.driver.begin(1)

    def _plan(self, trial: Any) -> Any:
        self.planned.append(trial.trial_id)
        raise ValueError("boom")


def test_the_loop_does_not_end_before_a_failure_that_ends_it_is_acted_on(tmp_path: Path) -> None:
    loop = Loop(tmp_path, spec=ExperimentSpec(fail_fast=True))
    assert loop.driver.run() == "stopped"
    assert loop.driver.failed_fast == "t_00000"
    assert loop.callback.ends == ["t_00000"]


def test_callbacks_hear_of_the_last_end_also_if_the_experiment_is_stopped_meanwhile(tmp_path: Path) -> None:
    loop = Loop(tmp_path, seen=lambda kind: kind == "Ended" and loop.driver.ask_to_stop(signal.SIGINT, False))
    assert loop.driver.run() == "stopped"
    assert loop.callback.ends == ["t_00000"]


def test_an_experiment_that_is_let_come_to_its_end(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    assert loop.driver.run() == "finished"
    assert loop.storage.kinds == ["Began", "Added", "Started", "Ended", "Over", "CallbacksTold"]


def test_a_trial_whose_start_is_on_its_way_to_storage_is_not_started_when_all_is_stopped(tmp_path: Path) -> None:
    loop = Loop(tmp_path, seen=lambda kind: kind == "Started" and loop.driver.ask_to_stop(signal.SIGINT, False))
    assert loop.driver.run() == "stopped"
    assert not loop.planned
    assert loop.storage.kinds == ["Began", "Added", "Started"], "so it is resumed by the next driver"
    assert loop.driver._nodes.capacity.place([{"CPU": 1.0}]) is not None


def test_no_room_is_found_for_a_trial_that_is_over(tmp_path: Path) -> None:
    """It has lost its node, and saves the rest before it is gone."""
    loop = Loop(tmp_path)
    engine = SimpleNamespace(wants_capacity=True, run=7)
    over: Any = SimpleNamespace(trial_id="t_00000", said=[], is_over=True, is_gone=False, engine=engine)
    driver = loop.driver
    driver._runs["t_00000"] = over
    added = propose(loop.experiment.state, loop.experiment.policy)
    assert added is not None
    driver._happen(added)
    loop.experiment.state.driver.active["t_00000"] = None
    driver._nodes.open(SimpleNamespace(), driver._inbox)  # type: ignore[arg-type]
    driver._hear(driver._heard())
    driver._settle()
    assert driver._nodes.capacity.place([{"CPU": 1.0}]) is not None


def test_the_best_result_of_earlier_drivers_is_known_after_a_restore(tmp_path: Path) -> None:
    loop = Loop(tmp_path, spec=ExperimentSpec(metric="loss", mode="min"))
    events = [
        ev.Began(1),
        ev.Added("t_00000", {}, {}, "trial", "trial", [{"CPU": 1.0}]),
        ev.Started("t_00000", 1.0),
        *(ev.Reported("t_00000", at, {"loss": loss}, None, float(at)) for at, loss in enumerate((3.0, 1.0, 2.0), 1)),
    ]
    records = [Record(seq, float(seq), *entry_of(event, {})) for seq, event in enumerate(events)]
    replay(loop.experiment, records)
    best = loop.experiment.best.row
    assert best is not None
    assert (best.name, best.metrics["loss"], best.metrics["training_iteration"]) == ("trial", 1.0, 2)


def test_what_waits_for_nothing_of_its_own_still_waits_for_what_was_written_before() -> None:
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    batch = JournalBatch(FarStorage(inbox, lambda _kind: None))  # type: ignore[arg-type]
    history, done = TrialHistory("t", batch, 1), []
    history.write([("AttemptGone", {})], lambda: done.append("first"))
    assert batch.write()
    history.write([], lambda: done.append("second"))
    assert not done
    while batch.write() or not inbox.empty():
        inbox.get(timeout=1.0)()
    assert done == ["first", "second"]
    assert not batch.has_open


def test_a_trial_whose_storage_could_not_be_opened_has_nothing_to_release(tmp_path: Path) -> None:
    def refuse(_patience_s: float) -> Any:
        raise StorageError("no such bucket")

    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    history = TrialHistory("t", JournalBatch(FarStorage(inbox, lambda _kind: None)), 1)  # type: ignore[arg-type]
    location: Any = SimpleNamespace(open=refuse)
    storage = TrialRemoteStorage(history, location, tmp_path, inbox, None, 1.0)
    with pytest.raises(StorageError, match="no such bucket"):
        storage.acquire()
    storage.close(False)
    storage.release()
