"""What is kept of trials as they end, and the look at those that have not."""

from __future__ import annotations

import math
import random

import pytest

from holdfast.tune.experiment.trial_tally import KEPT, BestResult, TrialTally
from support.ui.toy_trials import trial


@pytest.mark.parametrize(("mode", "best"), [("min", sorted), ("max", lambda v: sorted(v, reverse=True))])
def test_the_best_that_ended_are_kept_in_order(mode: str, best: object) -> None:
    values = [random.Random(3).random() * 100 for _ in range(300)]
    random.Random(4).shuffle(values)
    tally = TrialTally(BestResult("loss", mode))
    for number, value in enumerate(values):
        tally.add(trial(number, "TERMINATED", loss=value))
    assert [row.metrics["loss"] for row in tally.kept()] == best(values)[:KEPT]  # type: ignore[operator]
    assert tally.count == 300


def test_of_equals_the_first_is_the_best_and_what_is_no_number_is_none() -> None:
    tally = TrialTally(BestResult("loss", "min"))
    for number, value in enumerate([math.nan, 2.0, 1.0, 1.0, -math.inf, "low"]):
        tally.add(trial(number, "TERMINATED", loss=value))
    assert [row.name for row in tally.kept()] == ["train_00002", "train_00003", "train_00001"]


def test_without_a_metric_the_last_that_ended_are_kept() -> None:
    tally = TrialTally(BestResult(None, None))
    for number in range(KEPT + 5):
        tally.add(trial(number, "TERMINATED", loss=1.0))
    assert [row.name for row in tally.kept()] == [f"train_{number:05d}" for number in range(5, KEPT + 5)]
    tally.best.note(trial(1), {"loss": 0.0})
    assert tally.look([trial(1, loss=0.0)], 5).best is None


def test_the_best_so_far_is_of_all_results_and_never_falls() -> None:
    best = BestResult("loss", "min")
    tally, running = TrialTally(best), trial(1, loss=0.4)
    for loss in (0.6, 0.2, 0.9, math.nan):  # between two looks
        best.note(running, {"loss": loss})
        running.last_result = {"loss": loss}
    seen = tally.look([running, trial(2)], 5).best
    assert seen is not None
    assert (seen.name, seen.metrics["loss"]) == ("train_00001", 0.2)
    tally.add(trial(3, "TERMINATED", loss=0.3))
    assert tally.look([running], 5).best == seen
    best.note(trial(4), {"loss": 0.1})
    assert tally.look([running], 5).best.name == "train_00004"  # type: ignore[union-attr]


def test_a_look_counts_all_and_shows_some_that_run() -> None:
    tally = TrialTally(BestResult("loss", "min"))
    tally.add(trial(0, "ERROR", "it broke"))
    live = [trial(n, status) for n, status in enumerate(["RUNNING", "PAUSED", "PENDING", "RUNNING", "RUNNING"], 1)]
    look = tally.look(live, 2)
    assert look.counts == {"ERROR": 1, "RUNNING": 3, "PAUSED": 1, "PENDING": 1}
    assert [row.name for row in look.rows] == ["train_00001", "train_00004"]
    assert look.rows[0].parameters == {"lr": 0.1}
    assert [row.error for row in tally.failed] == ["it broke"]
