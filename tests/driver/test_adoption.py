"""What an earlier driver left on a node is committed once, also when the node is lost on the way and comes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core import events as ev
from holdfast.core.state import CheckpointRecord, RunState
from holdfast.driver.adoption import Adoption
from holdfast.driver.recovery import Past
from holdfast.store.checkpoints import FORMAT, Manifest, manifest_line
from holdfast.store.staging import FileEntry

MANIFEST = Manifest(FORMAT, "a", 1, 0, 1, 1, 0.0, {}, [FileEntry("weights", 1, "00")])


class Told:
    """A fleet and a storage that only note what they are asked for."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.commits: list[Callable[[], None]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: self.calls.append(name)

    def adopt(self, manifest: Manifest, then: Callable[[ev.Committed, Manifest], None]) -> None:
        record = CheckpointRecord(manifest.id, manifest.report)
        self.commits.append(lambda: then(ev.Committed(record, manifest.generation, -1), manifest))


def adoption(told: Told) -> tuple[Adoption, list[Any], Callable[[], None]]:
    ended: list[Any] = []
    fleet: Any = told
    found = Adoption(fleet, fleet, ended.append)
    past = Past(state=RunState(generation=1))
    return found, ended, lambda: found.begin("node", [manifest_line(MANIFEST)], past, stored=())


def test_a_node_that_comes_back_while_its_checkpoint_is_committed() -> None:
    told = Told()
    adopting, ended, begin = adoption(told)
    begin()
    assert adopting.uploaded(1, 0, "")
    begin()
    assert adopting.uploaded(1, 0, "")
    assert len(told.commits) == 1
    assert not ended
    told.commits[0]()
    assert [[event.record.id for event in events] for events in ended] == [["a"]]


def test_a_node_that_comes_back_after_that_is_told_that_it_is_stored() -> None:
    told = Told()
    adopting, _, begin = adoption(told)
    begin()
    adopting.uploaded(1, 0, "")
    told.commits[0]()
    told.calls.clear()
    begin()
    assert told.calls == ["tell", "is_durable"]
    assert not adopting.uploaded(1, 0, "")
    assert len(told.commits) == 1
