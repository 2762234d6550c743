"""Standby workers, decided: when one is started, who takes a lost rank, and what follows when one is lost."""

from __future__ import annotations

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import timers
from holdfast.core.run.placement import standby_node
from support.core.told_run import ToldRun


def test_one_is_started_when_all_ranks_can_wait_for_a_replacement() -> None:
    run = ToldRun()
    assert not [c for c in run.tell(ev.WorkerArmed(1, 0)) if isinstance(c, do.StartStandby)]
    assert do.StartStandby(1, 1) in run.tell(ev.WorkerArmed(1, 1))


def test_it_takes_the_rank_and_another_one_is_started_behind_that() -> None:
    run = ToldRun()
    run.arm()
    run.tell(ev.StandbyReady(1, 1, "a"))
    assert run.kill(0) == do.ReplaceRank(1, 0, 1, standby=1)
    assert not [c for c in run.done if isinstance(c, do.StartStandby)]
    run.regroup(0)
    assert do.StartStandby(1, 2) in run.done
    regrouped = [c.event for c in run.done if isinstance(c, do.Decide) and isinstance(c.event, ev.Regrouped)]
    assert [event.by_standby for event in regrouped] == [(0,)]


def test_one_that_is_not_ready_or_on_another_node_is_not_used() -> None:
    run = ToldRun(standby_workers=2)
    run.arm()
    run.tell(ev.StandbyReady(1, 1, "b"))
    assert run.kill(0, "a").standby == 0


def test_one_that_was_gone_when_it_was_to_take_a_rank_is_replaced_by_a_process() -> None:
    run = ToldRun()
    run.arm()
    run.tell(ev.StandbyReady(1, 1, "a"))
    run.kill(1)
    assert do.ReplaceRank(1, 1, 1, standby=0) in run.tell(ev.StandbyLost(1, 1, "signal 9"))


def test_its_successor_is_heard_also_if_another_rank_was_lost_meanwhile() -> None:
    run = ToldRun(num_workers=3)
    run.arm()
    run.tell(ev.StandbyReady(1, 1, "a"))
    assert run.kill(0).standby == 1
    run.kill(2)
    assert do.ReplaceRank(1, 0, 2, standby=0) in run.tell(ev.StandbyLost(1, 1, "signal 9"))
    assert run.state.ranks[0].process == 2


def test_lost_ones_are_started_again_three_times_at_most() -> None:
    run = ToldRun()
    run.arm()
    for number in (1, 2):
        assert timers.STANDBY in [
            c.timer for c in run.tell(ev.StandbyLost(1, number, "x")) if isinstance(c, do.SetTimer)
        ]
        assert do.StartStandby(1, number + 1) in run.tell(ev.TimerFired(timers.STANDBY))
    assert [c.text for c in run.tell(ev.StandbyLost(1, 3, "exit code 1")) if isinstance(c, do.Warn)] == [
        "no other standby worker is started: 3 in a row were lost, the last one: exit code 1"
    ]
    assert not [c for c in run.tell(ev.TimerFired(timers.STANDBY)) if isinstance(c, do.StartStandby)]


def test_one_that_is_lost_while_a_rank_is_replaced_is_started_again_when_that_is_done() -> None:
    run = ToldRun()
    run.arm()
    run.kill(0)
    run.tell(ev.StandbyLost(1, 1, "signal 9"))
    assert not [c for c in run.tell(ev.TimerFired(timers.STANDBY)) if isinstance(c, do.StartStandby)]
    run.regroup(0)
    assert do.StartStandby(1, 2) in run.done


def test_a_taken_one_that_was_lost_has_no_successor_once_the_attempt_is_about_to_end() -> None:
    """That one would not know where all ranks stop, and they would wait for it there."""
    run = ToldRun()
    run.arm()
    run.tell(ev.StandbyReady(1, 1, "a"))
    assert run.kill(1).standby == 1
    run.tell(ev.NodeDrains("c", 60.0, (0,), free=0))
    done = run.tell(ev.StandbyLost(1, 1, "signal 9"))
    assert not [command for command in done if isinstance(command, do.ReplaceRank)]
    assert do.StopAttempt(1, graceful=False) in done


def test_a_run_whose_steps_cannot_be_done_again_says_that_it_had_no_use_for_them() -> None:
    run = ToldRun()
    run.tell(ev.WorkerReturned(1, 0), ev.WorkerReturned(1, 1))
    assert [c for c in run.done if isinstance(c, do.Warn) and "standby_workers" in c.text]


def test_they_are_spread_over_the_nodes_by_ranks() -> None:
    homes = ["a", "a", "a", "b"]
    assert standby_node(homes, []) == "a"
    assert standby_node(homes, ["a"]) == "a"
    assert standby_node(homes, ["a", "a", "a"]) == "b"
    assert standby_node([], []) is None
