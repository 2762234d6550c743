"""Ranks are lost at every moment of a live recovery: it is decided for good, counted once, and the same in a replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.core.run import commands as do
from holdfast.core.run import events as ev
from holdfast.core.run import failing, regrouping, standby, timers
from holdfast.core.run.state import Outcome, RunState, Verdict
from holdfast.core.run.turn import Turn
from support.core.regroup_explorer import explore
from support.core.told_run import ToldRun


def test_thousands_of_stories() -> None:
    assert explore(range(3000)) > 1000


def test_a_replacement_that_comes_too_late_ends_a_run_that_is_asked_to_stop() -> None:
    """Without it the survivors would wait until nearly all of the grace is over, and save nothing."""
    run = ToldRun(standby_workers=0)
    run.arm()
    run.kill(1)
    run.tell(ev.StopAsked(grace_s=60.0))
    done = run.tell(ev.TimerFired(timers.REGROUP))
    assert do.StopAttempt(1, graceful=False) in done
    assert [command.text for command in done if isinstance(command, do.Warn)] == [
        "the lost rank is not replaced alone, the run stops: rank 0, 1 did not join its peers in time"
    ]
    assert run.state.verdict is Verdict.STOP
    done = run.tell(ev.AttemptGone(1))
    assert [command.event.outcome for command in done if _ends_the_run(command)] == [Outcome.STOPPED]


def _ends_the_run(command: do.Command) -> bool:
    return isinstance(command, do.Decide) and isinstance(command.event, ev.RunEnded)


def _always_replaces(state: RunState, event: ev.WorkerFailed) -> bool:
    return state.attempt is not None and state.attempt_lives and not event.evidence.exception


def _forgets_to_wait(turn: Turn) -> None:
    """The time-out does nothing."""


def _does_not_count(turn: Turn, *_: Any) -> None:
    turn.record(failure=failing.Failure(turn.state.attempt_number, 0, failing.FailureKind.CRASH, ""))


def _takes_anybody(turn: Turn) -> None:
    attempt = turn.state.attempt
    assert attempt is not None
    assert attempt.regroup is not None
    first = min(rank for rank, standing in attempt.regroup.asked.items() if not standing.joins)
    where = (turn.state.attempt_number, attempt.regroup.number, 0, first, 0, tuple(sorted(attempt.regroup.lost)))
    turn.do(regrouping.do.Decide(ev.Regrouped(*where)))


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a rank is replaced whoever survives": (regrouping, "may_replace", _always_replaces),
    "nobody ends a wait": (regrouping, "time_out", _forgets_to_wait),
    "what is replaced live is not counted": (failing, "count", _does_not_count),
    "any survivor's state is taken": (regrouping, "_regroup", _takes_anybody),
    "every failure follows from another": (regrouping, "_follows", lambda *_: True),
    "a standby is used twice": (standby, "take", lambda *_: None),
    "a standby's end is no news": (standby, "_replace_again", lambda *_: None),
    "a standby takes a rank of any kind": (standby, "chosen", lambda attempt, _: min(attempt.standbys, default=0)),
    "standbys are started at any time": (standby, "_are_useful", lambda state, _: state.spec.standby_workers > 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mistake_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(module, attribute, mutant)
    with pytest.raises((AssertionError, KeyError)):
        explore(range(3000))
