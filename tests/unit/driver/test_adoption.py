"""What an earlier driver left on its nodes is committed once and whole, whichever of them come, go, or have lost it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, Durable, RunSpec
from holdfast.driver.adoption import Adoption
from holdfast.driver.effects import Adopt, Begin, Effect, Journal, Lacking, NodesAnnounced, Now, Send
from holdfast.driver.kernel import Kernel
from holdfast.driver.plan import Plan
from holdfast.driver.site import Site
from holdfast.runs.past import Past
from holdfast.store.location import Location
from holdfast.store.manifests import FORMAT, Manifest, manifest_line
from holdfast.store.remote.remote_checkpoints import RemoteCheckpoints
from holdfast.store.staging import FileEntry
from holdfast.testing.fake_objects import FakeObjects
from holdfast.wire import messages as wire

MANIFEST = Manifest(FORMAT, "a", 1, 0, 1, 2, 0.0, {}, [FileEntry("n1", 1, "00"), FileEntry("n2", 1, "00")])


class Told:
    """A registry that only notes what it is asked for, and a storage whose looks are taken when the test says so."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.looks: deque[tuple[Manifest, list[str]]] = deque()  # with what is missing
        self.stored: set[str] = set()
        self.warnings: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)

    def emit(self, effect: Effect) -> None:
        if isinstance(effect, Adopt):
            missing = [entry.path for entry in effect.manifest.files if entry.path not in self.stored]
            self.looks.append((effect.manifest, missing))


class Nodes:
    """That say what an earlier driver left on them."""

    def __init__(self) -> None:
        self.told = Told()
        self.ended: list[list[str]] = []
        shards: Any = self.told
        state = Durable(attempt_number=1)
        past = Past(state=state, last_attempt=ev.AttemptStarted(1, 2, None, 0), valid_until={1: math.inf})
        self.adoption = Adoption(shards, self.told.emit, past, state, 0.0, self._end, self.told.warnings.append)

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
        manifest, missing = self.told.looks.popleft()
        if missing:
            self.adoption.take_lacking(manifest, missing)
        else:
            record = CheckpointRecord(manifest.id, manifest.report)
            self.adoption.take_committed(ev.Committed(record, manifest.attempt_number, -1), manifest)


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
    assert nodes.told.calls.count("note_durable") == 1


def test_a_node_that_comes_late_completes_it(nodes: Nodes) -> None:
    nodes.come("n1")
    nodes.upload("n1")
    nodes.look()
    assert nodes.ended == [[]], "the run may begin without, if nobody else is on the way"
    assert "note_durable" not in nodes.told.calls
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
    assert not {"note_durable", "forget"} & {*nodes.told.calls}


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
    assert nodes.told.calls == ["note_durable"]
    assert not nodes.upload("n2")
    assert not nodes.told.looks


class Start:
    """A driver's start by the real kernel, with two nodes on their way that only listen."""

    def __init__(self) -> None:
        location = Location.parse("path", Path("run"))
        plan = Plan("run", location, RunSpec(num_workers=1, nodes_hold_files=True), b"", {})
        state = Durable(attempt_number=1)
        past = Past(state=state, last_attempt=ev.AttemptStarted(1, 2, None, 0), valid_until={1: math.inf})
        site = Site(True, False, Path("run"), lambda *_: "", lambda *_: None)
        self.kernel = Kernel(plan, site, past, epoch=2)
        self.now = 0.0
        self.hear(Begin(), *((node, wire.NodeJoining(node)) for node in ("n1", "n2")), NodesAnnounced())

    def hear(self, *inputs: Any) -> list[Effect]:
        return self.kernel.handle(inputs, Now(self.now, 0.0))

    def ready(self, node: str, *unsaved: bytes) -> list[Effect]:
        return self.hear((node, wire.NodeReady(node, 1, 4.0, list(unsaved))))


def begins(effects: list[Effect]) -> bool:
    entries = [entry for effect in effects if isinstance(effect, Journal) for entry in effect.entries]
    return "DriverStarted" in dict(entries)


def test_a_run_does_not_begin_while_the_node_that_came_last_brings_what_it_has() -> None:
    start = Start()
    assert not begins(start.ready("n2"))
    effects = start.ready("n1", manifest_line(MANIFEST))
    assert not begins(effects)
    assert Send("n1", wire.Upload("a", 1, 0, [])) in effects
    assert [effect.manifest.id for effect in start.hear(("n1", wire.Uploaded(1, 0, []))) if isinstance(effect, Adopt)]


def test_a_run_begins_without_a_node_that_is_lost_while_it_brings_what_it_has() -> None:
    start = Start()
    start.ready("n1", manifest_line(MANIFEST))
    start.ready("n2")
    effects = start.hear(("n1", wire.NodeLost("n1")))
    assert any(isinstance(effect, Adopt) for effect in effects)
    start.now = 60.0
    assert not begins(start.hear()), "storage is being looked at"
    assert begins(start.hear(Lacking(MANIFEST, ["n1"])))
    assert start.kernel.left_on_nodes


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
