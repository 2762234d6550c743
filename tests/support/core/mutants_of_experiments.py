"""Mistakes that somebody could make in what an experiment decides. The simulator must notice every one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from holdfast.core.experiment import advance, step, trials
from holdfast.core.experiment import commands as do
from holdfast.core.experiment import events as ev
from holdfast.core.experiment.resumption import Resumption
from holdfast.core.experiment.state import ExperimentState
from holdfast.core.experiment.trial import PAUSED, PENDING, RUNNING
from holdfast.core.experiment.turn import Turn


def _handle(monkeypatch: pytest.MonkeyPatch, kind: type[ev.Event], broken: Callable[[Any, Any, Any], str]) -> None:
    """``broken`` is called with the good handler, the turn and the event."""
    good = step._HANDLERS[kind]
    monkeypatch.setitem(step._HANDLERS, kind, lambda turn, event: broken(good, turn, event))


def forgets_that_a_trial_was_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (trials, advance):
        monkeypatch.setattr(module, "after_the_end", lambda trial: ev.Paused(trial.trial_id))


def ends_a_trial_that_was_to_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (trials, advance):
        monkeypatch.setattr(module, "after_the_end", lambda trial: ev.Ended(trial.trial_id))


def starts_more_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: ExperimentState, *rest: Any) -> Any:
        state.limits = structs.replace(state.limits, max_concurrent=0)
        return good(state, *rest)

    good = advance._next_start
    monkeypatch.setattr(advance, "_next_start", broken)


def hears_what_was_told_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Reported) -> str:
        trial = turn.state.trials[event.trial]
        trial.awaits, trial.status = "", RUNNING
        return str(good(turn, event))

    _handle(monkeypatch, ev.Reported, broken)


def does_not_journal_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    good = Turn.journal
    monkeypatch.setattr(Turn, "journal", lambda self, event, _answer=ev.CONTINUE: good(self, event))


def asks_again_in_a_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Turn, "settled", lambda _self, _event, said: said)


def keeps_an_exploit_that_was_carried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Exploited) -> str:
        donor = turn.state.trials[event.trial].donor
        text = good(turn, event)
        turn.state.trials[event.trial].donor = donor
        turn.state.trials[event.trial].exploits -= 1
        return str(text)

    _handle(monkeypatch, ev.Exploited, broken)


def counts_reports_behind_an_exploit_from_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Exploited) -> str:
        heard = turn.state.trials[event.trial].heard
        text = good(turn, event)
        turn.state.trials[event.trial].heard = heard
        return str(text)

    _handle(monkeypatch, ev.Exploited, broken)


def exploits_without_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(commands: list[do.Command]) -> list[do.Command]:
        return [command for command in commands if not isinstance(command, do.Adopt)]

    good = advance._next_start
    monkeypatch.setattr(advance, "_next_start", lambda *args: broken(good(*args)))


def restarts_with_the_old_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Resumed) -> str:
        number = turn.state.trials[event.trial].checkpoint_number
        text = good(turn, event)
        turn.state.trials[event.trial].checkpoint_number = number
        return str(text)

    _handle(monkeypatch, ev.Resumed, broken)


def takes_for_running_what_ran_under_an_earlier_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Began) -> str:
        running = [trial for trial in turn.state.live.values() if trial.status == RUNNING]
        text = good(turn, event)
        for trial in running:
            trial.status = RUNNING
        return str(text)

    _handle(monkeypatch, ev.Began, broken)


def adds_more_than_num_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: ExperimentState, policy: Any) -> Any:
        state.limits = structs.replace(state.limits, num_trials=-1)
        return good(state, policy)

    good = advance.propose
    monkeypatch.setattr(advance, "propose", broken)


def stops_only_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.StopDecided) -> str:
        waiting = [trial for trial in turn.state.live.values() if trial.status in (PENDING, PAUSED)]
        text = good(turn, event)
        for trial in waiting:
            trials._awaits_nothing(turn, trial)
        return str(text)

    _handle(monkeypatch, ev.StopDecided, broken)


def starts_after_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.StopDecided) -> str:
        text = good(turn, event)
        turn.state.stopping = ""
        return str(text)

    _handle(monkeypatch, ev.StopDecided, broken)


def keeps_the_capacity_of_what_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.RunGone) -> str:
        text = good(turn, event)
        turn.state.driver.active[event.trial] = None
        return str(text)

    _handle(monkeypatch, ev.RunGone, broken)


def runs_after_a_failure_with_fail_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.Ended) -> str:
        turn.state.limits = structs.replace(turn.state.limits, fail_fast=False)
        return str(good(turn, event))

    _handle(monkeypatch, ev.Ended, broken)


def fails_what_an_interrupt_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(good: Any, turn: Turn, event: ev.RunGone) -> str:
        why, turn.state.driver.interrupted = turn.state.driver.interrupted, ""
        text = good(turn, event)
        turn.state.driver.interrupted = why
        return str(text)

    _handle(monkeypatch, ev.RunGone, broken)


def gives_up_paused_trials_without_asking(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: ExperimentState, *rest: Any) -> Any:
        state.driver.idled = True
        return good(state, *rest)

    good = advance._next_end
    monkeypatch.setattr(advance, "_next_end", broken)


def is_over_while_trials_are_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    good = advance._next_end

    def broken(state: ExperimentState, *rest: Any) -> Any:
        paused = state.live and all(trial.status == PAUSED for trial in state.live.values())
        return [do.Decide(ev.Over())] if paused else good(state, *rest)

    monkeypatch.setattr(advance, "_next_end", broken)


def skips_what_was_decided_before_the_restore(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(state: ExperimentState, resumption: Resumption, finished: frozenset[str]) -> Any:
        for trial in state.get_trials():
            trials._awaits_nothing(Turn(state, 0.0, None, True), trial)  # type: ignore[arg-type]
        return good(state, resumption, finished)

    good = advance.begin
    monkeypatch.setattr("holdfast.tune.experiment.experiment_driver.begin", broken)


def runs_again_what_had_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    good = advance.begin
    broken = lambda state, resumption, _finished: good(state, resumption, frozenset())  # noqa: E731
    monkeypatch.setattr("holdfast.tune.experiment.experiment_driver.begin", broken)


def goes_beyond_the_time_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a restore."""
    monkeypatch.setattr("holdfast.tune.experiment.live_experiment.LiveExperiment.spent_s", 0.0)


MUTANTS = [
    value
    for name, value in list(vars().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and not name.startswith("_")
]
