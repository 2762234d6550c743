"""What was staged on several nodes and never gathered is brought to storage once the logs of all ranks are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import Durable, RunSpec
from holdfast.driver.late_shards import LateShards
from holdfast.runs.past import Past
from holdfast.store.manifests import FORMAT, Manifest
from holdfast.store.metrics import line
from holdfast.store.report_log import StagedReport, _staged_line
from holdfast.store.staging import FileEntry
from holdfast.wire import messages as wire

STATE = Durable(spec=RunSpec(nodes_hold_files=True), attempt_number=2)
PAST = Past(state=STATE, last_attempt=ev.AttemptStarted(2, 2, None, 0))


class Told:
    """A registry that only notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, *arguments))


class Nodes:
    def __init__(self) -> None:
        self.told = Told()
        self.gathered: list[tuple[str, set[str]]] = []
        self.warnings: list[str] = []
        shards: Any = self.told
        self.late = LateShards(shards, PAST, STATE, 0.0, self._gathered, self.warnings.append)

    def _gathered(self, manifest: Manifest, nodes: set[str]) -> None:
        self.gathered.append((manifest.id, nodes))

    def come(self, node: str, rank: int, lost: tuple[int, ...] = (), manifests: tuple[Manifest, ...] = ()) -> None:
        staged = StagedReport(0, [FileEntry(f"rank-{rank}", 1, ""), FileEntry("shared", 1, "")])
        log = _staged_line(staged) + line(0, 1.0, {"rank": rank})
        self.late.add(node, [wire.LeftReports(2, rank, log, list(lost))], manifests)

    def seal(self, rank: int, error: str = "") -> bool:
        files = [(f"rank-{rank}", 1, "00", ""), ("shared", 1, "00", "")]
        return self.late.sealed(wire.Sealed(2, rank, 0, files, error))


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def test_nothing_is_done_before_the_logs_of_all_ranks_are_here(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    assert nodes.told.calls == []
    assert not nodes.late.is_busy


def test_every_rank_is_hashed_then_each_node_gathers_what_is_its_own(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    nodes.come("n2", 1)
    assert nodes.told.calls == [("seal", "n1", 2, [0], 0), ("seal", "n2", 2, [1], 0)]
    assert nodes.seal(1)
    assert nodes.late.is_busy
    nodes.told.calls.clear()
    assert nodes.seal(0)
    ((_, parts, manifest),) = nodes.told.calls
    assert parts == {"n1": {0: ["rank-0", "shared"]}, "n2": {1: ["rank-1"]}}, "what several have is the lowest rank's"
    assert (manifest.report, manifest.world_size, manifest.metrics) == (1, 2, {"rank": 0})
    assert nodes.gathered == [("checkpoint_000001-g2", {"n1", "n2"})]
    assert not nodes.late.is_busy


def test_it_is_not_asked_for_twice(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    nodes.come("n2", 1)
    nodes.told.calls.clear()
    nodes.come("n2", 1)
    assert nodes.told.calls == []


def test_a_node_that_had_not_gathered_what_another_had_does_so_now(nodes: Nodes) -> None:
    files = [FileEntry("rank-0", 1, "00"), FileEntry("rank-1", 1, "00"), FileEntry("shared", 1, "00")]
    manifest = Manifest(FORMAT, "a", 2, 0, 1, 2, 0.0, {}, files)
    nodes.come("n1", 0, lost=(0,))
    nodes.come("n2", 1, manifests=(manifest,))
    assert [(name, parts) for name, parts, _ in nodes.told.calls] == [("gather_on", {"n2": {1: ["rank-1"]}})]
    assert nodes.gathered == [("a", {"n2"})]


def test_files_that_are_not_what_they_were_are_not_used(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    nodes.come("n2", 1, lost=(0,))
    assert nodes.told.calls == []


def test_files_that_cannot_be_hashed_are_given_up_with_a_word(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    nodes.come("n2", 1)
    assert nodes.seal(0, error="no such file")
    assert not nodes.late.is_busy
    assert nodes.warnings == [
        "checkpoint_000001-g2, which the last driver had not committed, cannot be used: no such file"
    ]
    assert not nodes.seal(1)


def test_a_node_that_is_lost_on_the_way_and_comes_back(nodes: Nodes) -> None:
    nodes.come("n1", 0)
    nodes.come("n2", 1)
    nodes.late.node_lost("n2")
    assert not nodes.late.is_busy
    nodes.come("n2", 1)
    assert nodes.late.is_busy
    for rank in (0, 1):
        nodes.seal(rank)
    assert nodes.gathered == [("checkpoint_000001-g2", {"n1", "n2"})]


def test_what_another_attempt_left_is_not_used(nodes: Nodes) -> None:
    staged = _staged_line(StagedReport(0, [FileEntry("a", 1, "")]))
    for rank in (0, 1):
        nodes.late.add("n1", [wire.LeftReports(1, rank, staged + line(0, 1.0, {}), [])], ())
    assert nodes.told.calls == []
