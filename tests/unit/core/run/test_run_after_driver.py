"""A driver follows a dead one: workers on nodes that cannot be reached may not have heard of it."""

from __future__ import annotations

from msgspec import structs

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import CheckpointRecord, Outcome, Phase, RunSpec
from support.core.machine import Machine, every, only

A, B = "a@machine", "b@machine"
SPEC = RunSpec(num_workers=2, lease_s=12.0)


def after(*events: ev.Event, spec: RunSpec = SPEC) -> Machine:
    """Before it begins. An attempt was on two nodes across a network when its driver died."""
    began = (ev.DriverStarted(1, spec), ev.AttemptStarted(1, 2, None, 0, leased=(A, B)))
    return Machine([*began, *events])


def begin(
    machine: Machine, *clear: str, epoch: int = 2, waited_s: float = 0.0, spec: RunSpec = SPEC
) -> list[do.Command]:
    return machine.feed(ev.DriverStarted(epoch, spec, clear, waited_s))


def test_when_all_nodes_are_back_nothing_is_waited_for() -> None:
    asked = begin(after(), B, A)
    assert only(do.StartAttempt, asked).attempt_number == 2
    assert not every(do.Warn, asked)
    assert [each.timer for each in every(do.SetTimer, asked)] == [timers.START]


def test_a_node_that_is_not_back_is_waited_for_until_its_lease_is_over() -> None:
    machine = after()
    asked = begin(machine, A, waited_s=4.0)
    assert not every(do.StartAttempt, asked)
    assert only(do.SetTimer, asked) == do.SetTimer(timers.DOUBT, 8.0)
    assert "left on b," in only(do.Warn, asked).text
    assert machine.state.phase is Phase.WAITING
    assert not machine.feed(ev.Capacity(2))
    assert every(do.StartAttempt, machine.feed(ev.TimerFired(timers.DOUBT)))


def test_it_is_waited_for_no_longer_when_it_comes_back() -> None:
    machine = after()
    begin(machine)
    assert not machine.feed(ev.NodeClear(A), ev.NodeClear("c@machine"))
    asked = machine.feed(ev.NodeClear(B))
    assert every(do.StartAttempt, asked)
    assert do.CancelTimer(timers.DOUBT) in asked


def test_the_same_name_on_another_machine_is_another_node() -> None:
    assert not every(do.StartAttempt, begin(after(), A, "b@another"))


def test_the_lease_is_that_of_the_driver_that_gave_it() -> None:
    shorter = structs.replace(SPEC, lease_s=1.0)
    machine = after(ev.DriverStarted(2, shorter))
    assert only(do.SetTimer, begin(machine, A, epoch=3, spec=shorter)).after_s == 12.0


def test_when_the_lease_was_over_before_it_began_nothing_is_waited_for() -> None:
    assert every(do.StartAttempt, begin(after(), waited_s=12.0))


def test_what_is_restored_meanwhile_is_not_started_before() -> None:
    machine = after(ev.Committed(CheckpointRecord("one", 1), 1, 0))
    asked = begin(machine, A)
    assert only(do.Verify, asked).id == "one"
    assert not every(do.StartAttempt, machine.feed(ev.Verified("one")))
    assert only(do.StartAttempt, machine.feed(ev.NodeClear(B))).resume == "one"


def test_a_stop_is_not_waited_for() -> None:
    machine = after()
    begin(machine)
    asked = machine.feed(ev.StopAsked())
    assert only(do.Finish, asked).outcome is Outcome.STOPPED
    assert machine.state.durable.leases, "the next driver has to wait all the same"
    assert not every(do.StartAttempt, machine.feed(ev.TimerFired(timers.DOUBT)))


def test_an_attempt_that_was_known_to_be_gone_is_not_waited_for() -> None:
    lacked = after(ev.CapacityLacking(2, 1))
    assert every(do.StartAttempt, begin(lacked))
    ended = after(ev.RunEnded(Outcome.STOPPED, "it was asked to stop", attempt_gone=True))
    assert every(do.StartAttempt, begin(ended))
    at_once = after(ev.RunEnded(Outcome.STOPPED, "it was asked to stop immediately"))
    assert not every(do.StartAttempt, begin(at_once))


def test_the_end_of_a_run_says_whether_its_attempt_was_gone() -> None:
    machine = Machine().training()
    machine.feed(ev.StopAsked(at_once=True))
    assert machine.journal[-1] == ev.RunEnded(Outcome.STOPPED, "it was asked to stop immediately", attempt_gone=False)
    machine = Machine().training()
    machine.all_return()
    machine.gone()
    assert machine.journal[-1] == ev.RunEnded(Outcome.FINISHED, "every rank returned", attempt_gone=True)
