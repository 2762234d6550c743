"""What an earlier driver left on its nodes is committed once and whole, whichever of them come, go, or have lost it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, Durable, RunSpec, RunState
from holdfast.driver.adoption import Adoption
from holdfast.driver.beginning import NODES_JOIN, Beginning
from holdfast.driver.ears import Ears
from holdfast.driver.fleet import Fleet
from holdfast.driver.remote_storage import RemoteStorage
from holdfast.runs.past import Past
from holdfast.store.manifests import FORMAT, Manifest, manifest_line
from holdfast.store.remote.checkpoints import RemoteCheckpoints
from holdfast.store.report_log import RankReports
from holdfast.store.staging import FileEntry
from holdfast.testing.fake_objects import FakeObjects
from holdfast.wire import messages as wire

MANIFEST = Manifest(FORMAT, "a", 1, 0, 1, 2, 0.0, {}, [FileEntry("n1", 1, "00"), FileEntry("n2", 1, "00")])


class Told:
    """A fleet that only notes what it is asked for, and a storage whose looks are taken when the test says so."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.looks: deque[Callable[[], None]] = deque()
        self.stored: set[str] = set()
        self.warnings: list[str] = []

    def note_taken_up(self, manifests: list[Manifest], state: Durable) -> None:
        """Nothing is told of it here."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)

    def adopt(
        self,
        manifest: Manifest,
        ranks: Sequence[RankReports],
        then: Callable[[ev.Committed, Manifest], None],
        lacks: Callable[[Manifest, Sequence[str]], None],
    ) -> None:
        record = CheckpointRecord(manifest.id, manifest.report)
        missing = [entry.path for entry in manifest.files if entry.path not in self.stored]
        committed = ev.Committed(record, manifest.generation, -1)
        self.looks.append(lambda: lacks(manifest, missing) if missing else then(committed, manifest))


class Nodes:
    """That say what an earlier driver left on them."""

    def __init__(self) -> None:
        self.told = Told()
        self.ended: list[list[str]] = []
        fleet: Any = self.told
        state = Durable(generation=1)
        past = Past(state=state, last_group=ev.GroupStarted(1, 2, None, 0), valid_until={1: math.inf})
        self.adoption = Adoption(fleet, fleet, past, state, self._end, self.told.warnings.append)

    def _end(self, events: list[Any]) -> None:
        self.ended.append([event.record.id for event in events])

    def come(self, *names: str, with_it: bool = True) -> None:
        for name in names:
            unsaved = [manifest_line(MANIFEST)] if with_it else []
            self.adoption.begin(name, unsaved, [])

    def upload(self, name: str) -> bool:
        self.told.stored.add(name)
        return self.adoption.uploaded(name, 1, 0, "")

    def look(self) -> None:
        self.told.looks.popleft()()


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def test_it_is_committed_when_the_last_of_its_nodes_has_uploaded(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    assert nodes.upload("n1")
    assert not nodes.told.looks
    nodes.upload("n2")
    nodes.look()
    assert nodes.ended == [["a"]]
    assert nodes.told.calls.count("is_durable") == 1


def test_a_node_that_comes_late_completes_it(nodes: Nodes) -> None:
    nodes.come("n1")
    nodes.upload("n1")
    nodes.look()
    assert nodes.ended == [[]], "the run may begin without, if nobody else is on the way"
    assert "is_durable" not in nodes.told.calls
    nodes.come("n2")
    nodes.upload("n2")
    nodes.look()
    assert nodes.ended == [[], ["a"]]
    assert not nodes.adoption.give_up_the_rest()


def test_a_node_that_uploads_while_storage_is_looked_at(nodes: Nodes) -> None:
    nodes.come("n1")
    nodes.upload("n1")
    nodes.come("n2")
    nodes.upload("n2")
    nodes.look()  # which had begun before
    assert nodes.ended == []
    nodes.look()
    assert nodes.ended == [["a"]]


def test_without_the_other_node_it_is_not_used(nodes: Nodes) -> None:
    nodes.come("n1")
    nodes.upload("n1")
    nodes.look()
    assert nodes.adoption.give_up_the_rest()
    assert nodes.told.warnings == [
        "a, which was not in storage yet when the last driver ended, is not used: a node that has n2 has not come back"
    ]
    assert not {"is_durable", "forget"} & {*nodes.told.calls}


def test_a_node_that_is_lost_on_the_way(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    nodes.upload("n1")
    nodes.adoption.node_lost("n2")
    nodes.look()
    assert nodes.ended == [[]]
    assert not nodes.adoption.is_busy


def test_files_that_are_gone_from_a_node(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    nodes.upload("n1")
    assert nodes.adoption.staged_lost("n2", "a", "n2 is gone")
    nodes.look()
    assert nodes.ended == [[]]
    assert nodes.told.warnings[0].endswith("is given up: n2 is gone")
    assert nodes.told.calls[-1] == "forget"
    assert not nodes.adoption.give_up_the_rest()


def test_files_that_are_gone_from_a_node_and_stored_already(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    nodes.told.stored.add("n2")
    nodes.adoption.staged_lost("n2", "a", "n2 is gone")
    nodes.upload("n1")
    nodes.look()
    assert nodes.ended == [["a"]]


def test_a_node_that_comes_back_while_its_checkpoint_is_committed(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    for name in ("n1", "n2"):
        nodes.upload(name)
    nodes.come("n2")
    assert nodes.upload("n2")
    assert len(nodes.told.looks) == 1
    nodes.look()
    assert nodes.ended == [["a"]]


def test_a_node_that_comes_back_after_that_is_told_that_it_is_stored(nodes: Nodes) -> None:
    nodes.come("n1", "n2")
    for name in ("n1", "n2"):
        nodes.upload(name)
    nodes.look()
    nodes.told.calls.clear()
    nodes.come("n2")
    assert nodes.told.calls == ["is_durable"]
    assert not nodes.upload("n2")
    assert not nodes.told.looks


class Start:
    """A driver's beginning with real ears and a real fleet, whose nodes only listen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        plan: Any = SimpleNamespace(
            spec=RunSpec(num_workers=1, remote=True), cpus_per_worker=1, gpus_per_worker=0, placement="PACK"
        )
        plan.on_report = None
        engine: Any = SimpleNamespace(grows=True, is_this_machine=False)
        configuration: Any = SimpleNamespace(run_dir="run", storage=b"storage", node_timeout_s=10.0)
        fleet: Any = Fleet(plan, engine, configuration)
        fleet._session = SimpleNamespace(accept=lambda *_: None, send=lambda *_: None)
        self.looks: list[Callable[[], None]] = []
        storage: Any = object.__new__(RemoteStorage)
        monkeypatch.setattr(storage, "collect", lambda **_: None, raising=False)
        monkeypatch.setattr(
            storage, "adopt", lambda m, _ranks, _then, lacks: self.looks.append(lambda: lacks(m, ["n1"]))
        )
        state = Durable(generation=1)
        self.desk: Any = SimpleNamespace(
            fleet=fleet, storage=storage, timers={}, state=RunState(state), queue=deque(), plan=plan
        )
        self.desk.past = Past(state=state, last_group=ev.GroupStarted(1, 2, None, 0), valid_until={1: math.inf})
        self.desk.epoch, self.desk.stored, self.desk.warn = 2, set, lambda _: None
        self.beginning = Beginning(self.desk, lambda: None)
        self.ears = Ears(self.desk, self.beginning, lambda: None)
        self.beginning.start(lambda: None)
        for node in ("n1", "n2"):
            self.ears.hear(node, wire.NodeJoining(node))

    def ready(self, node: str, *unsaved: bytes) -> None:
        self.ears.hear(node, wire.NodeReady(node, 1, 4.0, list(unsaved)))

    def time_passes(self) -> None:
        del self.desk.timers[NODES_JOIN]
        self.beginning.time_is_up()


def test_a_run_does_not_begin_while_the_node_that_came_last_brings_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(monkeypatch)
    start.ready("n2")
    start.ready("n1", manifest_line(MANIFEST))
    assert not start.beginning.is_over
    assert start.beginning.uploaded("n1", 1, 0, "")


def test_a_run_begins_without_a_node_that_is_lost_while_it_brings_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start(monkeypatch)
    start.ready("n1", manifest_line(MANIFEST))
    start.ready("n2")
    start.ears.hear("n1", wire.NodeLost("n1"))
    start.time_passes()
    assert not start.beginning.is_over, "storage is being looked at"
    start.looks.pop()()
    assert start.beginning.is_over
    assert start.beginning.left_on_nodes


def test_what_storage_has_not_in_full_is_missing() -> None:
    objects = FakeObjects()
    stored: Any = objects
    checkpoints = RemoteCheckpoints(stored)
    elsewhere = FileEntry("shared", 7, "00", at="checkpoints/older")
    manifest = Manifest(FORMAT, "a", 1, 0, 1, 2, 0.0, {}, [*MANIFEST.files, elsewhere])
    objects.put("checkpoints/a/n1", b"1")
    objects.put("checkpoints/a/n2", b"")
    objects.put("checkpoints/ab/n2", b"2")
    assert checkpoints.missing(manifest) == ["n2"]
    objects.put("checkpoints/a/n2", b"2")
    assert checkpoints.missing(manifest) == []
