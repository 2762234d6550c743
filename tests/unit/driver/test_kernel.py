"""What the simulator found in the kernel, one schedule each; and that nothing is acted on before it is journalled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import CheckpointRecord, Durable, RunSpec, RunState
from holdfast.driver import effects as fx
from holdfast.driver.display import OffDisplay
from holdfast.driver.kernel import Kernel
from holdfast.driver.plan import Plan
from holdfast.driver.showing import show
from holdfast.driver.site import Site
from holdfast.runs.past import Past
from holdfast.store.location import Location
from holdfast.store.metrics import line
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Report, WorkerRequest

NODES = ("n1", "n2")


class Scene:
    """A kernel with two nodes; the journal is written when the test says so."""

    def __init__(self, remote: bool = True, durable: Durable | None = None, begins: bool = True) -> None:
        spec = RunSpec(num_workers=2, nodes_hold_files=remote, hang_timeout_s=30.0)
        plan = Plan("run", Location.parse("path", Path("run")), spec, b"", {})
        site = Site(True, False, Path("run"), lambda *_: "", lambda *_: None)
        self.kernel = Kernel(plan, site, Past(state=durable or Durable()), epoch=1)
        self.now = 0.0
        joining = [(node, wire.NodeJoining(node)) for node in NODES]
        self.hear(fx.Begin(), *joining, fx.NodesAnnounced())
        if begins:
            self.write(self.hear(*((node, wire.NodeReady(node, 1, 1.0)) for node in NODES)))

    def hear(self, *inputs: Any) -> list[fx.Effect]:
        return self.kernel.handle(inputs, fx.Now(self.now, 0.0))

    def write(self, effects: list[fx.Effect]) -> list[fx.Effect]:
        """What comes of it when all that is to be journalled is."""
        done = [effect for effect in effects if not isinstance(effect, fx.Journal)]
        for effect in effects:
            if isinstance(effect, fx.Journal):
                done += self.write(self.hear(fx.Journalled(effect.number)))
        return done

    def node_of(self, rank: int) -> str:
        return self.kernel.known.attempts.node_of(1, rank)

    def report(self, rank: int, index: int, urgent: bool = False) -> list[fx.Effect]:
        staged = Report(index, line(index, 0.0, {}), True, urgent=urgent)
        node = self.node_of(rank)
        return self.write(self.hear((node, wire.Reports(1, rank, [staged]))))

    def seal(self, rank: int, index: int, name: str = "", digest: str = "00") -> list[fx.Effect]:
        node = self.node_of(rank)
        return self.hear((node, wire.Sealed(1, rank, index, [(name or f"rank-{rank}", 1, digest, "")])))


def sent(effects: list[fx.Effect], kind: type[wire.Message]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, fx.Send) and isinstance(effect.message, kind)]


def journalled(effects: list[fx.Effect]) -> list[str]:
    return [kind for effect in effects if isinstance(effect, fx.Journal) for kind, _ in effect.entries]


def test_nothing_is_acted_on_before_it_is_journalled() -> None:
    scene = Scene(begins=False)
    effects = scene.hear(*((node, wire.NodeReady(node, 1, 1.0)) for node in NODES))
    assert journalled(effects) == ["DriverStarted", "GroupStarted"]
    assert not sent(effects, wire.StartWorkers)
    assert len(sent(scene.write(effects), wire.StartWorkers)) == 2
    with pytest.raises(AssertionError):
        scene.hear(fx.Journalled(99))


def test_a_stop_during_the_start_starts_nothing_and_leaves_what_nodes_have() -> None:
    scene = Scene(begins=False)
    effects = scene.hear(ev.StopAsked())
    assert journalled(effects) == ["DriverStarted", "StopAsked", "RunEnded"]
    assert not sent(scene.write(effects), wire.StartWorkers)
    assert scene.kernel.finish is not None
    assert scene.kernel.left_on_nodes


def test_a_checkpoint_whose_node_was_lost_before_it_was_whole_is_not_waited_for() -> None:
    scene = Scene()
    for rank in (0, 1):
        scene.report(rank, 0)
    scene.seal(0, 0)
    lost = scene.node_of(0)
    scene.write(scene.hear((lost, wire.NodeLost(lost))))
    assert not scene.kernel.state.unsaved or not sent(scene.write(scene.seal(1, 0)), wire.Gather)
    assert not scene.kernel.state.unsaved


def test_a_rank_is_told_that_its_checkpoint_is_lost_while_an_earlier_one_is_uploaded() -> None:
    scene = Scene()
    for index in (0, 1):
        for rank in (0, 1):
            scene.report(rank, index, urgent=index == 1)
            scene.write(scene.seal(rank, index))
    asked = wire.Asked(1, 0, WorkerRequest(7, "durable", b"", 2))
    assert not sent(scene.hear((scene.node_of(0), asked)), wire.Reply)
    id = scene.kernel.state.pending[1].id
    replies = sent(scene.write(scene.hear(("n1", wire.StagedLost(id, "it is gone")))), wire.Reply)
    assert replies
    assert replies[0].error
    assert 0 in scene.kernel.state.pending


def test_what_storage_has_is_known_before_nodes_say_what_they_have() -> None:
    scene = Scene(durable=Durable(checkpoints=(CheckpointRecord("a", 1),)), begins=False)
    effects = scene.write(scene.hear(*((node, wire.NodeReady(node, 1, 1.0)) for node in NODES)))
    assert fx.Verify("a") in effects


def test_a_rank_is_told_that_its_checkpoint_is_durable_when_the_journal_has_it() -> None:
    scene = Scene(remote=False)
    for rank in (0, 1):
        scene.report(rank, 0)
        scene.write(scene.seal(rank, 0))
    asked = wire.Asked(1, 0, WorkerRequest(7, "durable", b"", 1))
    assert not sent(scene.hear((scene.node_of(0), asked)), wire.Reply)
    effects = scene.hear(ev.Committed(CheckpointRecord(scene.kernel.state.pending[0].id, 1), 1, 0))
    assert journalled(effects) == ["Committed"]
    assert not sent(effects, wire.Reply)
    messages = [type(effect.message) for effect in scene.write(effects) if isinstance(effect, fx.Send)]
    assert messages.index(wire.CheckpointCommitted) < messages.index(wire.Reply), (
        "get_checkpoint() right after it is that one"
    )


@pytest.mark.parametrize("remote", [False, True], ids=["on disk", "in a bucket"])
def test_ranks_that_overwrite_each_others_files_are_warned_about_once(remote: bool) -> None:
    scene = Scene(remote=remote)

    def save(index: int, *digests: str) -> list[str]:
        effects: list[fx.Effect] = []
        for rank, digest in enumerate(digests):
            effects += scene.report(rank, index)
            effects += scene.seal(rank, index, "model.pt", digest)
        return [effect.text for effect in effects if isinstance(effect, fx.Warn)]

    assert save(0, "aa", "aa") == []
    if not remote:  # on disk the next commit follows the one before
        scene.write(scene.hear(ev.Committed(CheckpointRecord("checkpoint_000001", 1), 1, 0)))
    (warning,) = save(1, "aa", "bb")
    assert "ranks 0, 1 saved different files under the name 'model.pt'; only rank 0's is kept" in warning
    assert save(2, "aa", "bb") == []


def test_time_in_which_the_driver_did_not_run_is_not_a_hang() -> None:
    scene = Scene()
    for rank in (0, 1):
        scene.hear((scene.kernel.known.attempts.node_of(1, rank), wire.WorkerIsReady(1, rank)))
    scene.now += 500.0  # suspended: what the ranks did meanwhile is heard later
    assert not sent(scene.hear(), wire.DumpStacks)
    assert scene.kernel.due() > scene.now
    stacks: list[Any] = []
    while not stacks and scene.now < 1000.0:  # awake, and nothing is heard of the ranks
        scene.now = scene.kernel.due()
        stacks = sent(scene.hear(), wire.DumpStacks)
    assert len(stacks) == len(NODES)
    assert scene.now == 520.0  # 10 s before the pause and 20 s after it


def test_the_returns_of_all_ranks_are_one_step() -> None:
    """Of ten thousand ranks, the driver would otherwise decide ten thousand times whether all have returned."""
    scene = Scene(remote=False)
    scene.write(scene.hear(*((scene.node_of(rank), wire.WorkerIsReady(1, rank)) for rank in (0, 1))))
    returned = [wire.WorkerHasReturned(1, rank, cloudpickle.dumps(f"of rank {rank}")) for rank in (0, 1)]
    effects = scene.hear(*((scene.node_of(message.rank), message) for message in returned))
    stepped = [effect.event for effect in effects if isinstance(effect, fx.Stepped)]
    assert stepped == [ev.Several((ev.WorkerReturned(1, 0), ev.WorkerReturned(1, 1)))]
    assert len(sent(effects, wire.StopWorkers)) == 2
    assert scene.kernel.known.value is not None
    assert cloudpickle.loads(scene.kernel.known.value) == "of rank 0"


class Notes:
    """An observer that notes what changed."""

    def __init__(self) -> None:
        self.seen: list[tuple[type[ev.Event], str, str]] = []

    def saw(self, event: ev.Event, before: RunState, after: RunState) -> None:
        self.seen.append((type(event), before.phase.value, after.phase.value))

    def warned(self, text: str) -> None: ...


def test_of_several_events_in_one_step_only_the_last_one_changes_the_phase() -> None:
    """A log of events said for each worker that was ready that the run is running now."""
    scene, notes, plan = Scene(), Notes(), Plan("run", Location.parse("path", Path("run")), RunSpec(), b"", {})
    for effect in scene.hear(*((scene.node_of(rank), wire.WorkerIsReady(1, rank)) for rank in (0, 1))):
        if isinstance(effect, fx.Stepped):
            show(effect, plan, OffDisplay(), notes)
    assert notes.seen == [(ev.WorkerReady, "starting", "starting"), (ev.WorkerReady, "starting", "running")]
