"""Nodes that go, hand-overs, hangs and repeated errors, in the cases that the simulator once found wrong."""

from __future__ import annotations

import pytest

from holdfast.core.failures import Evidence, FailureKind
from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import step, timers
from holdfast.core.run.state import Durable, HandoverReason, Outcome, Phase
from support.core.machine import CRASH, Machine, every, only

ERROR = Evidence(exception="KeyError", message="step")


def drain(machine: Machine, *ranks: int, deadline_s: float = 30.0) -> list[do.Command]:
    return machine.feed(ev.NodeDrains("node-1", deadline_s, ranks))


def stepped(machine: Machine, event: ev.Event, now: float) -> list[do.Command]:
    """Without the stacks, which the machine under test would take at once."""
    machine.state, commands, _ = step.step(machine.state, event, now)
    return commands


def replayed(machine: Machine) -> Durable:
    return machine.restart().state.durable


def test_a_rank_that_returned_before_its_node_went_leaves_its_checkpoint_whole() -> None:
    machine = Machine(nodes_hold_files=True).training()
    machine.stage(0, 1)
    machine.feed(ev.WorkerReturned(machine.attempt_number, 0))
    machine.seal(0, 1)
    machine.fail(0, Evidence(node_lost=True))
    asked = machine.gone()
    assert not every(do.Discard, asked)
    assert [p.index for p in machine.state.carried] == [0]


def test_an_attempt_that_starts_late_is_not_ended_for_what_was_suspected_before() -> None:
    machine = Machine(start_timeout_s=20.0)
    machine.start()
    machine.feed(ev.WorkerReady(1, 0))
    assert every(do.DumpStacks, stepped(machine, ev.TimerFired(timers.START), 20.0))
    machine.feed(ev.WorkerReady(1, 1))
    assert not machine.feed(ev.StacksTaken(1, rank=1), ev.TimerFired(timers.STACKS))
    assert machine.state.phase is Phase.RUNNING


def test_long_first_steps_are_looked_at_from_time_to_time_and_not_all_the_time() -> None:
    machine = Machine(learns_hangs=True).training()
    machine.now = 500.0
    assert only(do.SetTimer, machine.feed(ev.TimerFired(timers.HANG))).after_s == 60.0


def test_who_has_moved_on_is_not_blamed_for_a_hang() -> None:
    machine = Machine(hang_timeout_s=30.0).training()
    machine.now = 10.0
    machine.feed(ev.Progressed(1, 1, 1))
    assert every(do.DumpStacks, stepped(machine, ev.TimerFired(timers.HANG), 30.0))
    machine.now = 41.0
    machine.feed(ev.Progressed(1, 0, 1))
    machine.feed(ev.TimerFired(timers.STACKS))
    assert machine.state.failure is not None
    assert (machine.state.failure.rank, machine.state.failure.kind) == (1, FailureKind.HANG)


def test_to_wait_at_a_hand_over_is_no_hang() -> None:
    machine = Machine(hang_timeout_s=30.0).training()
    drain(machine, 0, deadline_s=300.0)
    machine.feed(ev.HandoverSet(1, 1))
    machine.feed(ev.Progressed(1, 0, 1), ev.Progressed(1, 1, 1))
    machine.stage(1, 0)
    machine.now = 29.0
    machine.feed(ev.Progressed(1, 1, 1))
    machine.now = 40.0
    assert not every(do.DumpStacks, machine.feed(ev.TimerFired(timers.HANG)))


def test_the_timer_of_a_rank_that_the_next_attempt_does_not_have_is_nobodys() -> None:
    machine = Machine(num_workers=3, min_workers=1)
    machine.feed(ev.Capacity(3))
    machine.training()
    machine.feed(ev.WorkerStopped(1, 2, stopped=True))
    assert do.CancelTimer(timers.stopped(2)) in machine.fail(0)
    machine.feed(ev.Capacity(1))
    assert only(do.StartAttempt, machine.gone()).world_size == 1
    machine.feed(ev.TimerFired(timers.stopped(2)))
    assert machine.state.phase is Phase.STARTING


@pytest.mark.parametrize("driver_dies", [False, True])
def test_the_same_error_too_often_ends_the_run_whoever_drives_it(driver_dies: bool) -> None:
    machine = Machine(max_same_errors=1, max_failures=-1).training()
    machine.feed(ev.WorkerFailed(1, 0, ERROR, at=4))
    machine.gone()
    machine.ready()
    machine.feed(ev.WorkerFailed(2, 0, ERROR, at=4))
    if driver_dies:
        machine = machine.restart()
        finish = only(do.Finish, machine.start(epoch=2))
    else:
        finish = only(do.Finish, machine.gone())
    assert finish.outcome is Outcome.FAILED
    assert "2 times at report 4 without progress" in finish.reason


def test_what_fails_after_a_stop_with_grace_is_not_counted_also_when_all_have_returned() -> None:
    machine = Machine().training()
    machine.feed(ev.StopAsked(grace_s=10.0))
    machine.stage(0, 0, 1)
    machine.all_return()
    only(do.Commit, machine.seal(0, 0, 1))
    machine.gone()
    finish = only(do.Finish, machine.feed(ev.CommitFailed(1, 0, "no space is left")))
    assert finish.outcome is Outcome.STOPPED
    assert machine.state.durable.spent == replayed(machine).spent == {}


def test_a_hand_over_ends_the_attempt_at_the_first_whole_checkpoint_from_its_point_on() -> None:
    """It costs no failure, as nothing is lost."""
    machine = Machine(max_preemption_failures=0).training()
    assert only(do.AskHandover, drain(machine, 1)).nodes == ("node-1",)
    machine.commit(0)
    machine.feed(ev.HandoverSet(1, 2))
    machine.commit(1)
    assert machine.state.phase is Phase.RUNNING
    machine.stage(2, 0, 1)
    assert only(do.StopAttempt, machine.seal(2, 0, 1)) == do.StopAttempt(1, graceful=False)
    assert ev.HandedOver(1, HandoverReason.PREEMPTION) in machine.journal
    assert machine.state.durable.spent == replayed(machine).spent == {}


def test_an_attempt_that_has_not_begun_is_placed_anew_at_no_cost() -> None:
    machine = Machine(min_workers=1, max_failures=0)
    machine.feed(ev.Capacity(2))
    machine.start()
    machine.feed(ev.Capacity(1), ev.HandedOver(1, HandoverReason.RESIZE))
    assert only(do.StartAttempt, machine.gone()) == do.StartAttempt(2, 1, None, 0)
    assert machine.state.durable.spent == {}


def test_an_attempt_that_is_placed_anew_stops_all_the_same_if_it_was_asked_to() -> None:
    machine = Machine().training()
    machine.feed(ev.StopAsked(grace_s=10.0), ev.HandedOver(1, HandoverReason.RESIZE))
    assert only(do.Finish, machine.gone()).outcome is Outcome.STOPPED


def test_a_later_notice_moves_the_point() -> None:
    machine = Machine(max_preemption_failures=1).training()
    drain(machine, 1)
    machine.feed(ev.HandoverSet(1, 0))
    drain(machine, 0)
    machine.commit(0)
    assert machine.state.phase is Phase.RUNNING
    machine.feed(ev.HandoverSet(1, 1, number=1))
    machine.commit(1)
    assert machine.state.phase is Phase.RUNNING, "who waited there has gone on"
    machine.feed(ev.HandoverSet(1, 3, number=2))
    machine.commit(2)
    assert machine.state.phase is Phase.RUNNING
    machine.stage(3, 0, 1)
    assert every(do.StopAttempt, machine.seal(3, 0, 1))


def test_a_node_that_fails_again_and_again_rests_and_comes_back() -> None:
    machine = Machine(bad_node_failures=2, bad_node_rest_s=60.0, max_failures=-1).training()
    machine.feed(ev.WorkerFailed(1, 0, CRASH, "node-1"))
    machine.gone()
    asked = machine.feed(ev.WorkerFailed(2, 0, CRASH, "node-1"))
    assert do.Rest("node-1", on=True) in asked
    assert do.SetTimer(timers.rest("node-1"), 60.0) in asked
    later = machine.restart()
    assert do.Rest("node-1", on=True) in later.start(epoch=2)
    assert do.Rest("node-1", on=False) in later.feed(ev.TimerFired(timers.rest("node-1")))
    assert replayed(later).resting == frozenset()
    assert replayed(later).node_failures == {}


PEER_GONE = Evidence(exception="RuntimeError", message="connection closed by peer")
ABORTED = Evidence(signal=6)
STALLED = Evidence(stalled_s=30.0)
LOST = Evidence(node_lost=True, message="node-2")
PREEMPTED = Evidence(node_lost=True, preempted=True, message="node-2")


def felt_first(machine: Machine, consequence: Evidence, cause: Evidence) -> None:
    """A rank fails of the loss of another's node, and is heard before that."""
    machine.feed(ev.WorkerFailed(machine.attempt_number, 0, consequence, "node-1", at=4))
    machine.feed(ev.WorkerFailed(machine.attempt_number, 1, cause, "node-2", at=4))


@pytest.mark.parametrize("consequence", [PEER_GONE, ABORTED, STALLED], ids=["exception", "abort", "hang"])
def test_what_the_loss_of_a_node_made_others_do_is_not_taken_for_the_cause(consequence: Evidence) -> None:
    machine = Machine(max_same_errors=1, bad_node_failures=3, max_hang_failures=0).training()
    felt_first(machine, consequence, LOST)
    for state in (machine.state.durable, replayed(machine)):
        assert state.failure is not None
        assert (state.failure.rank, state.failure.kind) == (1, FailureKind.NODE_LOST)
        assert state.spent == {"failures": 1}
        assert (state.same_error, state.node_failures) == (("", -1, 0), {"node-2": 1})
    assert every(do.StartAttempt, machine.gone()), "and nothing waited for it"


def test_a_preemption_that_others_felt_first_costs_no_failure() -> None:
    machine = Machine(max_failures=0).training()
    felt_first(machine, PEER_GONE, PREEMPTED)
    assert machine.state.durable.spent == {"preemptions": 1}
    assert every(do.StartAttempt, machine.gone())


def test_a_node_rests_for_its_own_failures_alone() -> None:
    machine = Machine(bad_node_failures=1).training()
    machine.feed(ev.WorkerFailed(1, 0, ABORTED, "node-1"))
    assert machine.state.durable.resting == {"node-1"}
    asked = machine.feed(ev.WorkerFailed(1, 1, LOST, "node-2"))
    assert do.Rest("node-1", on=False) in asked
    assert do.CancelTimer(timers.rest("node-1")) in asked
    assert machine.state.durable.resting == replayed(machine).resting == {"node-2"}


@pytest.mark.parametrize("node", ["node-1", "node-2"])
def test_a_kill_follows_from_the_loss_of_its_own_node_alone(node: str) -> None:
    machine = Machine().training()
    machine.feed(ev.WorkerFailed(1, 0, CRASH, "node-1"), ev.WorkerFailed(1, 1, LOST, node))
    assert machine.state.failure is not None
    assert machine.state.failure.kind is (FailureKind.NODE_LOST if node == "node-1" else FailureKind.CRASH)
    assert machine.state.durable.spent == {"failures": 1}


def test_the_first_node_that_is_lost_is_the_cause() -> None:
    machine = Machine(num_workers=3).training()
    felt_first(machine, PEER_GONE, LOST)
    machine.feed(ev.WorkerFailed(1, 2, PREEMPTED, "node-3"))
    assert machine.state.failure is not None
    assert machine.state.failure.rank == 1
    assert machine.state.durable.spent == {"failures": 1}


def test_a_run_that_was_asked_to_stop_does_not_go_on_for_a_cause_that_comes_later() -> None:
    machine = Machine(max_failures=0).training()
    machine.feed(ev.WorkerFailed(1, 0, PEER_GONE, "node-1"), ev.StopAsked())
    assert not machine.state.minds_lost_nodes
    machine.feed(ev.WorkerFailed(1, 1, PREEMPTED, "node-2"))
    assert only(do.Finish, machine.gone()).outcome is Outcome.FAILED


def test_an_attempt_that_has_returned_does_not_mind_a_lost_node() -> None:
    machine = Machine().training()
    machine.all_return()
    assert not machine.state.minds_lost_nodes
