"""That a run waits for capacity is journalled, once for each wait, and changes nothing that a later driver decides."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.state import Phase
from support.core.machine import CRASH, Machine, every, only


def waiting() -> Machine:
    """Two workers are needed, and after a failure there is room for one."""
    machine = Machine().training()
    machine.commit(0)
    machine.feed(ev.Capacity(1))
    machine.fail(evidence=CRASH)
    machine.gone()
    assert machine.state.offer is not None
    asked = machine.feed(ev.Verified(machine.state.offer.id))
    assert "waiting for nodes: 2 workers are needed, and 1 fit now" in only(do.Warn, asked).text
    assert machine.state.phase is Phase.WAITING
    return machine


def lacks(machine: Machine) -> list[ev.CapacityLacking]:
    return [event for event in machine.journal if isinstance(event, ev.CapacityLacking)]


def test_it_is_written_when_the_wait_begins_and_not_again() -> None:
    machine = waiting()
    assert not every(do.Warn, machine.feed(ev.Capacity(0), ev.Capacity(1)))
    assert lacks(machine) == [ev.CapacityLacking(2, 1)]
    start = only(do.StartAttempt, machine.feed(ev.Capacity(2)))
    assert (start.attempt_number, start.world_size) == (2, 2)
    assert not machine.state.lacking


def test_each_wait_is_written() -> None:
    machine = waiting()
    machine.feed(ev.Capacity(2))
    machine.ready()
    machine.feed(ev.Capacity(0))
    machine.fail(evidence=CRASH)
    machine.gone()
    assert machine.state.offer is not None
    machine.feed(ev.Verified(machine.state.offer.id), ev.TimerFired(timers.BACKOFF))
    assert lacks(machine) == [ev.CapacityLacking(2, 1), ev.CapacityLacking(2, 0)]


def test_the_next_driver_knows_nothing_of_it() -> None:
    """What room there was for a dead driver says nothing about now."""
    machine = waiting().restart()
    machine.start(epoch=2)
    assert not machine.state.lacking
    assert machine.state.offer is not None
    assert only(do.StartAttempt, machine.feed(ev.Verified(machine.state.offer.id))).world_size == 2
