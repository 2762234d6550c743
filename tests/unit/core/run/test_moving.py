"""Ranks of a node that is taken away move, decided: when, in which order, and what follows when one cannot."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import regrouping, timers
from holdfast.core.run.state import HandoverReason, RankStanding
from support.core.told_run import ToldRun


def of_kind(commands: list[do.Command], kind: type[do.Command]) -> list[do.Command]:
    return [command for command in commands if isinstance(command, kind)]


def moved(commands: list[do.Command]) -> list[ev.Event]:
    return [c.event for c in commands if isinstance(c, do.Decide) and isinstance(c.event, ev.RankMoved)]


def test_a_standby_is_started_for_each_rank_and_takes_it_when_it_is_ready() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    done = run.tell(ev.NodeDrains("a", 60.0, (0, 1), free=2))
    assert of_kind(done, do.StartStandby) == [do.StartStandby(1, 1, moves=True), do.StartStandby(1, 2, moves=True)]
    assert not of_kind(done, do.AskHandover)
    assert do.SetTimer(timers.MOVE, 30.0) in done
    done = run.tell(ev.StandbyReady(1, 2, "b"))
    assert moved(done) == [ev.RankMoved(1, 1, 2, "b")]
    assert do.ReplaceRank(1, 1, 1, standby=2) in done
    assert not moved(run.tell(ev.StandbyReady(1, 1, "c"))), "one at a time: a peer with the state must be there"
    run.regroup(1)
    assert moved(run.done) == [ev.RankMoved(1, 0, 1, "c")]
    assert do.CancelTimer(timers.MOVE) in run.done
    run.regroup(0)
    assert run.state.attempt is not None
    assert run.state.attempt.move is None
    assert not run.state.durable.spent, "a planned move is no failure"


def test_the_process_on_the_old_node_does_not_speak_for_the_rank_any_more() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    run.tell(ev.StandbyReady(1, 1, "b"))
    assert [run.process_of(rank) for rank in (0, 1)] == [0, 1]
    assert [regrouping.is_of_its_rank(run.state, 1, 1, process) for process in (0, 1)] == [False, True]
    assert regrouping.is_of_its_rank(run.state, 1, 0, 0)
    before = run.state
    waits = RankStanding(3, 0)
    for late in (ev.RegroupAsked(1, 1, waits), ev.WorkerArmed(1, 1), ev.WorkerReturned(1, 1), ev.WorkerReady(1, 1)):
        assert run.tell(late) == []
    assert run.state == before


def test_no_rank_moves_once_the_attempt_is_about_to_end() -> None:
    """The process that takes the rank would not know where all of them stop."""
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    assert of_kind(run.tell(ev.NodeDrains("c", 60.0, (0,), free=0)), do.AskHandover)
    assert not moved(run.tell(ev.StandbyReady(1, 1, "b")))


def test_no_rank_moves_while_a_checkpoint_may_have_files_on_the_old_node_only() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    run.tell(ev.ShardStaged(1, 1, 0))
    assert not moved(run.tell(ev.StandbyReady(1, 1, "b")))


def test_without_room_or_time_or_a_step_that_can_be_done_again_the_attempt_is_handed_over() -> None:
    for event, arms in (
        (ev.NodeDrains("a", 60.0, (1,), free=0), True),
        (ev.NodeDrains("a", 1.0, (1,), free=1), True),
        (ev.NodeDrains("a", 60.0, (1,), free=1), False),
    ):
        run = ToldRun(standby_workers=0)
        if arms:
            run.arm()
        asked = of_kind(run.tell(event), do.AskHandover)
        assert [command.reason for command in asked if isinstance(command, do.AskHandover)] == [
            HandoverReason.PREEMPTION
        ]


def test_what_cannot_move_in_half_of_the_time_is_handed_over_in_the_rest() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    assert of_kind(run.tell(ev.TimerFired(timers.MOVE)), do.AskHandover)
    assert not moved(run.tell(ev.StandbyReady(1, 1, "b")))


def test_a_lost_standby_ends_the_move() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    assert do.SetTimer(timers.MOVE, 0.0) in run.tell(ev.StandbyLost(1, 1, "signal 9"))


def test_a_rank_that_fails_while_it_is_to_move_is_replaced_and_moves_then() -> None:
    run = ToldRun(standby_workers=0)
    run.arm()
    run.tell(ev.NodeDrains("a", 60.0, (1,), free=1))
    assert run.kill(1, "a").standby == 0
    run.tell(ev.StandbyReady(1, 1, "b"))
    run.regroup(1)
    assert moved(run.done) == [ev.RankMoved(1, 1, 1, "b")]
