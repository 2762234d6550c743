"""What a search's journal says of trials that a scheduler stopped, and why."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.records import entry_of
from holdfast.core.experiment.scheduler_requests import StopTrial
from holdfast.runs.search_history import SearchHistory
from holdfast.store.journal import Record


def _history(*events: ev.DurableEvent) -> SearchHistory:
    history = SearchHistory({"metric": "loss", "mode": "min"})
    begins = [ev.Began(1, answers=True), *(ev.Added(id, {}, {}, id, id) for id in "ab")]
    starts = [ev.Started(id, 1.0) for id in "ab"]
    history.take(_records([*begins, *starts, *events]))
    return history


def _records(events: Sequence[ev.Event]) -> list[Record]:
    return [Record(seq, float(seq), *entry_of(event)) for seq, event in enumerate(events, start=1)]


def _reported(trial: str, iteration: int, answer: ev.Answer | None = None) -> ev.Reported:
    return ev.Reported(trial, iteration, {"loss": 1.0}, None, float(iteration), answer)


def test_a_trial_that_the_scheduler_was_asked_about() -> None:
    history = _history(_reported("a", 1), _reported("a", 2, ev.Answer("STOP", "below the cut-off")))
    assert history.stops == {"a": (2, "below the cut-off")}


def test_a_paused_trial_that_a_scheduler_stops_when_another_one_reports() -> None:
    stops = ev.Answer("CONTINUE", "", (StopTrial("a", "not among the best 1 at 3"),))
    history = _history(
        *(_reported("a", at) for at in (1, 2)), _reported("a", 3, ev.Answer("PAUSE")), ev.Paused("a"),
        *(_reported("b", at) for at in (1, 2)), _reported("b", 3, stops),
        ev.Ended("a", "", "not among the best 1 at 3"),
    )  # fmt: skip
    assert history.stops == {"a": (3, "not among the best 1 at 3")}


def test_a_stop_criterion_and_the_last_iteration_are_ends() -> None:
    history = _history(_reported("a", 1, ev.CRITERION_MET), _reported("b", 1, ev.Answer("STOP", "reached max_t=1")))
    assert history.stops == {}


def test_a_copy_knows_where_it_continued() -> None:
    history = _history(*(_reported("a", at) for at in range(1, 9)), ev.Exploited("a", "b", 4, {"lr": 2}))
    assert [(one.trial, one.donor, one.iteration, one.continued) for one in history.exploits] == [("a", "b", 8, 0)]
    history = _history(_reported("a", 1), ev.Exploited("a", "b", 4, {"lr": 2}), _reported("a", 5), _reported("a", 6))
    assert [(one.iteration, one.continued) for one in history.exploits] == [(1, 5)]


def test_a_trial_that_is_resumed_was_not_stopped() -> None:
    history = _history(_reported("a", 1, ev.Answer("STOP", "too slow")), ev.Ended("a", "", "too slow"), ev.Resumed("a"))
    assert history.stops == {}
