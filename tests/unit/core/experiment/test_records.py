"""The records of an experiment's journal, as they have been written since the first version; and their fold."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.policy import Policy
from holdfast.core.experiment.records import entry_of, event_of, replayed
from holdfast.core.experiment.scheduler_requests import Exploit, Resize, Save, SetConfig, StopTrial
from holdfast.core.experiment.state import ExperimentState


class Written(NamedTuple):
    time: float
    kind: str
    body: dict[str, Any]


GOLDEN: list[tuple[ev.DurableEvent, dict[str, Any]]] = [
    (
        ev.Added("t", {"lr": 1}, {"lr": 1}, "f_t", "f_t_0", [{"CPU": 1.0}], {"lr": 1}),
        {
            "trial": "t",
            "config": {"lr": 1},
            "params": {"lr": 1},
            "name": "f_t",
            "directory": "f_t_0",
            "resources": [{"CPU": 1.0}],
            "suggested": {"lr": 1},
        },
    ),
    (ev.Started("t", 1.5), {"trial": "t", "time": 1.5}),
    (
        ev.Reported("t", 3, {"loss": 0.5}, 3, 2.5),
        {"trial": "t", "iteration": 3, "metrics": {"loss": 0.5}, "checkpoint": 3, "time": 2.5},
    ),
    (ev.Paused("t"), {"trial": "t"}),
    (
        ev.Exploited("t", "d", 7, {"lr": 2}),
        {"trial": "t", "donor": "d", "checkpoint": 7, "config": {"lr": 2}},
    ),
    (ev.Ended("t", "it broke", ""), {"trial": "t", "error": "it broke", "reason": ""}),
    (ev.Resumed("t", True), {"trial": "t", "anew": True}),
    (ev.Skipped("t"), {"trial": "t"}),
    (ev.Idled(), {}),
    (ev.StopDecided("why"), {"reason": "why"}),
    (ev.CallbackChanged(1, "Counts", {"n": 2}), {"place": 1, "name": "Counts", "state": {"n": 2}}),
    (ev.Over(), {}),
    (ev.OfTrial("t", "GroupStarted", {"base": 0}), {"trial": "t", "kind": "GroupStarted", "body": {"base": 0}}),
    (ev.CallbacksTold(4), {"count": 4}),
]


@pytest.mark.parametrize(("event", "body"), GOLDEN, ids=[type(event).__name__ for event, _ in GOLDEN])
def test_an_event_is_the_record_that_it_always_was(event: ev.DurableEvent, body: dict[str, Any]) -> None:
    assert entry_of(event) == (type(event).__name__, body)
    assert event_of(type(event).__name__, body) == event


def test_every_kind_is_among_them() -> None:
    assert {type(event).__name__ for event, _ in GOLDEN} | {"Began"} == set(ev.KINDS)


def test_a_driver_of_an_earlier_version_wrote_down_no_answers() -> None:
    old = event_of("Began", {"epoch": 2, "host": {"hostname": "h"}, "marks": True})
    assert old == ev.Began(2, {"hostname": "h"}, marks=True, answers=False, spent_s=None)
    assert event_of("Began", entry_of(ev.Began(1, answers=True, spent_s=3.0))[1]) == ev.Began(
        1, answers=True, spent_s=3.0
    )


def test_an_answer_comes_back_with_all_its_requests() -> None:
    exploit = Exploit("t", "d", None, {"lr": 2}, {"lr": 1}, 3, 4, {"lr": "* 1.2"})
    requests = (SetConfig("t", {"a": 1}), Save("t"), StopTrial("u", "why"), Resize("t", ({"CPU": 2.0},)), exploit)
    event = ev.Reported("t", 1, {"blob": b"x"}, None, 1.0, ev.Answer("PAUSE", "why", requests))
    kind, body = entry_of(event)
    assert body["metrics"] == {"blob": b"x"}, "as it is: the journal holds it"
    assert event_of(kind, body) == event


def test_a_record_of_a_later_version_is_passed_over_and_a_lost_one_costs_its_trial_alone() -> None:
    entries = [
        ("Began", {"epoch": 1}),
        ("Later", {"what": "a record of a version to come"}),
        ("Started", {"trial": "lost", "time": 1.0}),
        ("Reported", {"trial": "lost", "iteration": 1, "metrics": {}, "checkpoint": None, "time": 1.0}),
        ("Ended", {"trial": "lost", "error": "", "reason": ""}),
        ("Added", {"trial": "t", "config": {}, "params": {}, "name": "t", "directory": "t"}),
    ]
    state = ExperimentState()
    records = [Written(float(n), *entry) for n, entry in enumerate(entries)]
    assert len(list(replayed(state, records, Policy()))) == len(entries) - 1
    assert list(state.trials) == ["t"]
    assert (state.spent_s, state.changed) == (5.0, 5.0)


def test_the_time_between_two_drivers_is_not_spent() -> None:
    """Nor is that before a driver's first record, though it may write late reports before it."""
    began = {"epoch": 1, "answers": True}
    entries = [(0.0, began), (4.0, None), (100.0, None), (100.0, {**began, "epoch": 2, "spent_s": 4.0}), (103.0, None)]
    records = [Written(at, "Began" if body else "CallbacksTold", body or {"count": 1}) for at, body in entries]
    state = ExperimentState()
    list(replayed(state, records, Policy()))
    assert state.spent_s == 7.0
