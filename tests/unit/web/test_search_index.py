"""One best value on all pages of a search, how many trials it will have, and a search that replaced another."""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

import pytest

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.records import entry_of
from holdfast.runs.experiments import trials_wanted
from holdfast.runs.stored_experiment import StoredExperiment, open_stored
from holdfast.store.location import Location
from holdfast.web.run_rows import run_row
from holdfast.web.search_view import all_trials_json, plots_json, trials_json
from holdfast.web.searches import Searches
from support.web.large_runs import write_stored


def _write(path: Path, losses: dict[str, list[float]], is_over: bool = True, **identity: Any) -> StoredExperiment:
    entries: list[Any] = [ev.Began(1)]
    for trial, values in losses.items():
        entries += [ev.Added(trial, {"lr": 1}, {"lr": 1}, trial, trial), ev.Started(trial, 1.0)]
        entries += [ev.Reported(trial, at, {"loss": value}, None, at) for at, value in enumerate(values, 1)]
        entries += [ev.Ended(trial, "", "")] if is_over else []
    entries += [ev.Over()] if is_over else []
    known = {"kind": "experiment", "name": path.name, "metric": "loss", "mode": "min", "id": uuid.uuid4().hex}
    write_stored(path, {**known, **identity}, [(time.time(), entry_of(entry)) for entry in entries])
    stored = open_stored(Location.parse("x", path), once=True)
    assert isinstance(stored, StoredExperiment)
    return stored


def test_the_best_value_is_the_best_of_all_results(tmp_path: Path) -> None:
    """Trial a had the best result and became worse; the last results of b are the best ones."""
    stored = _write(tmp_path / "search", {"a": [0.1, 9.0], "b": [0.5, 0.4], "c": [3.0, 2.0]})
    searches = Searches()
    found = searches.look(stored)
    assert found.best is not None
    assert (found.best.name, found.best.value, found.best.last) == ("a", 0.1, 9.0)
    table = trials_json(found, {"sort": "value"})
    assert [row["name"] for row in table["rows"]] == ["a", "b", "c"]
    assert [row["is_best"] for row in table["rows"]] == [True, False, False]
    assert [row["name"] for row in trials_json(found, {"sort": "last"})["rows"]] == ["b", "c", "a"]
    plots = plots_json(found)
    assert plots["best"][-1][1] == found.best.value == plots["trials"][-1][1]
    assert [row["is_best"] for row in all_trials_json(found)["rows"]] == [True, False, False]
    row = run_row("0/search", stored.location, searches)
    assert row.metrics == [("best loss", "0.1")]
    record = stored.replay()
    assert record.best is not None
    assert record.best_result is not None
    assert (record.best.id, record.best_result.value) == ("a", 0.1)


def test_without_a_mode_the_last_result_is_shown_and_none_is_best(tmp_path: Path) -> None:
    found = Searches().look(_write(tmp_path / "search", {"a": [0.1, 9.0]}, metric=None, mode=None))
    assert (found.best, found.rows[0].value) == (None, 9.0)


@pytest.mark.parametrize(
    ("identity", "wanted"),
    [
        ({"num_samples": 1, "total_trials": 100}, 100),
        ({"num_samples": 7}, 7),
        ({"num_samples": 1}, 3),
        ({"num_samples": -1, "total_trials": None}, None),
        ({}, None),
    ],
)
def test_how_many_trials_a_running_search_will_have(identity: dict[str, Any], wanted: int | None) -> None:
    assert trials_wanted(identity, 3, False) == wanted
    assert trials_wanted(identity, 3, True) == 3


def test_a_grid_counts_all_of_its_trials(tmp_path: Path) -> None:
    stored = _write(tmp_path / "search", {"a": [1.0], "b": [1.0]}, False, num_samples=1, total_trials=100)
    assert run_row("0/search", stored.location, Searches()).progress_text == "0 of 100 trials"


def test_a_search_that_was_deleted_and_begun_again_is_another_one(tmp_path: Path) -> None:
    searches = Searches()
    assert searches.look(_write(tmp_path / "search", {"a": [0.1]})).rows[0].value == 0.1
    for path in (tmp_path / "search" / "journal").iterdir():
        path.unlink()
    (tmp_path / "search" / "run.json").unlink()
    assert searches.look(_write(tmp_path / "search", {"a": [0.2]})).rows[0].value == 0.2
