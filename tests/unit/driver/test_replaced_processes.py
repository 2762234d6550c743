"""What a process says whose rank another one has by now: it is no failure, no answer, and no reason to wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from holdfast.core.run import events as ev
from holdfast.core.run.state import Phase, RankStatus, RunSpec
from holdfast.driver import effects as fx
from holdfast.driver.kernel import Kernel
from holdfast.driver.plan import Plan
from holdfast.driver.site import Site
from holdfast.runs.past import Past
from holdfast.store.location import Location
from holdfast.store.metrics import line
from holdfast.wire import messages as wire
from holdfast.wire.worker_messages import Raised, Reply, Report, WorkerRequest


class LiveScene:
    """A kernel whose two ranks can do their steps again, on two nodes of three. ``hold``: the journal is slow."""

    def __init__(self) -> None:
        spec = RunSpec(num_workers=2, max_failures=-1, regroup_timeout_s=10.0)
        plan = Plan("run", Location.parse("path", Path("run")), spec, b"", {})
        site = Site(True, False, Path("run"), lambda *_: "", lambda _, rank, *__: Path(f"log of {rank}"))
        self.kernel, self.now = Kernel(plan, site, Past(), epoch=1), 0.0
        self.hear(fx.Begin(), *((node, wire.NodeJoining(node)) for node in ("a", "b", "c")), fx.NodesAnnounced())
        self.hear(*((node, wire.NodeReady(node, 1, 1.0)) for node in ("a", "b", "c")))
        for rank in (0, 1):
            self.say(rank, wire.WorkerIsReady(1, rank), wire.WorkerIsArmed(1, rank))

    def hear(self, *inputs: Any, hold: bool = False) -> list[fx.Effect]:
        done: list[fx.Effect] = []
        for effect in self.kernel.handle(inputs, fx.Now(self.now, 0.0)):
            is_held = hold or not isinstance(effect, fx.Journal)
            done += [effect] if is_held else self.hear(fx.Journalled(effect.number))
        return done

    def say(self, rank: int, *messages: wire.Message, hold: bool = False) -> list[fx.Effect]:
        return self.hear(*((self.node_of(rank), message) for message in messages), hold=hold)

    def node_of(self, rank: int) -> str:
        return self.kernel.known.attempts.node_of(1, rank)

    def spent(self) -> int:
        return self.kernel.state.durable.spent.get("failures", 0)


def killed(rank: int, process: int = 0) -> wire.WorkerHasFailed:
    return wire.WorkerHasFailed(1, rank, None, None, 9, True, False, [], process)


def asks(rank: int, steps: int, process: int = 0, reports: int = 0) -> wire.Asked:
    body = {"steps": steps, "joins": process > 0, "endpoint": ("127.0.0.1", 1) if process else None}
    return wire.Asked(1, rank, WorkerRequest(1, "regroup", cloudpickle.dumps(body), reports), process)


def sent(effects: list[fx.Effect], kind: type[wire.Message]) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, fx.Send) and isinstance(effect.message, kind)]


def moved_scene() -> LiveScene:
    """Rank 1 has moved from its node to another one."""
    scene = LiveScene()
    before = scene.node_of(1)
    assert sent(scene.hear((before, wire.NodeDraining(before, 60.0))), wire.StartStandby)
    spare = ({"a", "b", "c"} - {scene.node_of(0), before}).pop()
    effects = scene.hear((spare, wire.StandbyIsReady(1, 1)))
    assert sent(effects, wire.PromoteStandby)
    assert sent(effects, wire.EndRank)
    assert scene.node_of(1) == spare
    return scene


def test_what_it_had_reported_is_read_from_its_log_when_its_node_is_lost() -> None:
    scene = moved_scene()
    spare, (before,) = scene.node_of(1), {"a", "b", "c"} - {scene.node_of(0), scene.node_of(1)}
    scene.now = 11.0  # the ranks have not regrouped in time
    assert sent(scene.hear(), wire.StopWorkers)
    scene.hear((scene.node_of(0), wire.WorkersGone(1)), (spare, wire.WorkersGone(1)))
    effects = scene.hear((before, wire.NodeLost(before)))
    assert [effect.paths for effect in effects if isinstance(effect, fx.ReadLogs)] == [{1: Path("log of 1")}]
    assert scene.kernel.state.attempt_number == 1, "the next attempt starts after that"


@pytest.mark.parametrize("process", [0, 1], ids=["the old one", "the new one"])
def test_a_process_that_dies_of_its_node_when_its_rank_has_moved_is_no_failure(process: int) -> None:
    scene = moved_scene()
    effects = scene.say(0, killed(1, process))
    assert scene.spent() == process
    assert len(sent(effects, wire.StartWorkers)) == process, "a second process beside the one that has the rank"
    assert scene.kernel.state.durable.node_failures == {}


@pytest.mark.parametrize(
    "late",
    [
        wire.WorkerIsArmed(1, 1),
        wire.WorkerHasReturned(1, 1, cloudpickle.dumps(None)),
        wire.WorkerIsReady(1, 1),
        wire.WorkerIsStopped(1, 1, True),
        asks(1, 3),
        wire.WorkerHasFailed(1, 1, Raised(0.0, "ValueError", "x", "", b"", True), None, None, True, False, []),
    ],
    ids=lambda message: type(message).__name__,
)
def test_nothing_that_it_says_changes_the_run(late: wire.Message) -> None:
    scene = moved_scene()
    before = scene.kernel.state
    assert not [effect for effect in scene.hear(("a", late)) if isinstance(effect, fx.Journal | fx.Send)]
    assert scene.kernel.state == before
    assert scene.kernel.known.value is None


def test_the_value_of_a_rank_is_that_of_the_process_that_has_it() -> None:
    scene = LiveScene()
    before = scene.node_of(0)
    scene.say(0, killed(0))
    scene.hear((before, wire.WorkerHasReturned(1, 0, cloudpickle.dumps("of the lost one"))))
    assert scene.kernel.state.ranks[0].status is RankStatus.STARTING
    assert scene.kernel.known.value is None


def test_while_a_rank_is_replaced_each_return_ends_that_only_once() -> None:
    scene = LiveScene()
    scene.say(1, killed(1))
    effects = scene.hear(
        (scene.node_of(0), wire.WorkerHasReturned(1, 0, cloudpickle.dumps("of rank 0"))),
        (scene.node_of(1), wire.WorkerHasReturned(1, 1, cloudpickle.dumps("of rank 1"), 1)),
        hold=True,
    )
    entries = [kind for effect in effects if isinstance(effect, fx.Journal) for kind, _ in effect.entries]
    assert entries == ["RegroupFailed"]
    assert scene.kernel.state.phase is Phase.STOPPING


def test_one_that_was_given_up_and_dies_then_is_counted_once_and_its_successor_stays() -> None:
    """Its peers could not reach it, so it was replaced; that it had died was heard later. With a slow journal the
    first replacement waited for its peers when the second one was decided, and they were told to go on without it."""
    scene = LiveScene()
    scene.say(0, asks(0, 5))
    scene.now = 9.9
    scene.hear()
    scene.now = 10.0  # nobody knows yet what has become of rank 1
    assert [order.joins for order in sent(scene.hear(), wire.StartWorkers)] == [1]
    assert scene.spent() == 1
    late = scene.say(1, killed(1), hold=True)
    assert not [effect for effect in late if isinstance(effect, fx.Journal)]
    assert scene.spent() == 1
    effects = scene.say(1, wire.WorkerIsReady(1, 1, 1), asks(1, -1, 1))
    assert [(reply.rank, reply.process) for reply in sent(effects, Reply) if reply.rank == 1] == [(1, 1)] * 3
    assert {reply.process for reply in sent(effects, Reply) if reply.rank == 0} == {0}


def test_a_request_of_one_that_was_replaced_is_not_answered_to_its_successor() -> None:
    """Each process counts its requests for itself: the answer to the first would be taken for another's."""
    scene = LiveScene()
    scene.say(1, wire.Asked(1, 1, WorkerRequest(1, "barrier", b"", 0)))
    scene.say(1, killed(1))
    effects = scene.say(0, wire.Asked(1, 0, WorkerRequest(1, "barrier", b"", 0)))
    assert not sent(effects, Reply), "rank 1 has not come to it"
    process = scene.kernel.state.ranks[1].process
    effects = scene.say(
        1, wire.WorkerIsReady(1, 1, process), wire.Asked(1, 1, WorkerRequest(1, "barrier", b"", 0), process)
    )
    assert {(reply.rank, reply.process) for reply in sent(effects, Reply)} == {(0, 0), (1, process)}


def test_one_that_is_started_now_may_die_too() -> None:
    scene = LiveScene()
    scene.say(1, killed(1))
    effects = scene.say(1, killed(1, 1))
    assert scene.spent() == 2
    assert [order.joins for order in sent(effects, wire.StartWorkers)] == [2]
    assert scene.kernel.state.ranks[1].status is RankStatus.STARTING


def test_a_report_of_the_lost_process_counts_until_its_successor_continues_behind_it() -> None:
    """The two are told by different nodes, so the first may be heard late."""
    scene = moved_scene()
    late = wire.Reports(1, 1, [Report(0, line(0, 0.0, {}))])
    scene.hear(("a", late))
    assert scene.kernel.state.ranks[1].reports == 1
    scene.say(0, wire.Reports(1, 0, [Report(index, line(index, 0.0, {})) for index in range(3)]), asks(0, 3, 0, 3))
    scene.say(1, wire.WorkerIsReady(1, 1, 1), asks(1, -1, 1))
    assert scene.kernel.state.ranks[1].reports == 3
    before = scene.kernel.state
    scene.hear(("a", wire.Reports(1, 1, [Report(3, line(3, 0.0, {}))])))
    assert scene.kernel.state == before
    scene.say(1, wire.Reports(1, 1, [Report(3, line(3, 0.0, {}))], 1))
    assert scene.kernel.state.ranks[1].reports == 4


def test_it_counts_too_if_the_ranks_never_continue() -> None:
    """Two processes of the rank were lost, and the third one's peer has returned."""
    scene = LiveScene()
    scene.say(1, killed(1))
    scene.say(1, killed(1, 1))
    scene.say(0, wire.WorkerHasReturned(1, 0, cloudpickle.dumps(None)))
    assert scene.kernel.state.phase is Phase.STOPPING
    effects = scene.say(1, wire.Reports(1, 1, [Report(0, line(0, 0.0, {}), staged=True)]))
    assert [order.ranks for order in sent(effects, wire.Seal)] == [[1]]


def test_the_loss_of_a_node_that_had_a_standby_alone_ends_the_attempt_if_it_was_the_last() -> None:
    scene = LiveScene()
    before = scene.node_of(1)
    scene.hear((before, wire.NodeDraining(before, 60.0)))
    scene.hear(ev.StopAsked(at_once=False, grace_s=0.0))
    spare = ({"a", "b", "c"} - {scene.node_of(0), before}).pop()
    scene.hear((scene.node_of(0), wire.WorkersGone(1, 1)), (before, wire.WorkersGone(1, 1)))
    assert scene.kernel.finish is None, "the standby may live"
    scene.hear((spare, wire.NodeLost(spare)))
    assert scene.kernel.finish is not None
