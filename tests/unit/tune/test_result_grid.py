"""The results of an experiment: counting them, comparing them by every scope, and as a data frame."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import TrainingFailedError
from holdfast.train.result import Result
from holdfast.tune.result_grid import ResultGrid, score

SCOPES = ("last", "avg", "last-5-avg", "last-10-avg", "all")


def trial(name: str, *losses: Any, error: Exception | None = None, **config: Any) -> Result:
    rows = [{"loss": loss, "training_iteration": number} for number, loss in enumerate(losses, 1)]
    failure = TrainingFailedError("broken") if error else None
    return Result(metrics=rows[-1] if rows else None, rows=rows, error=failure, path=name, config=config)


def best(results: Sequence[Result], scope: str = "last", mode: str = "min", **options: Any) -> str:
    found: str = ResultGrid(results).get_best_result("loss", mode, scope, **options).path
    return found


def test_a_grid_is_a_sequence_that_counts_its_ends() -> None:
    results = [trial("a", 1), trial("b", 2, error=ValueError()), trial("c")]
    grid = ResultGrid(results, experiment_path="somewhere")
    assert (len(grid), grid[1], list(grid)) == (3, results[1], results)
    assert grid.errors == [results[1].error]
    assert (grid.num_errors, grid.num_terminated) == (1, 2)
    assert grid.experiment_path == "somewhere"
    assert repr(grid).count("path=") == 3


def test_trials_that_have_not_ended_count_as_neither() -> None:
    grid = ResultGrid([trial("a"), trial("b"), trial("c")], statuses=["ERROR", "TERMINATED", "RUNNING"])
    assert (grid.num_errors, grid.num_terminated) == (1, 1)


def test_each_scope_by_hand() -> None:
    results = [
        trial("low once", 9, 0, 9, 9, 9, 9, 9, 9, 9, 9, 9, 7),
        trial("low at the end", 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 1),
        trial("low for five", 20, 20, 9, 9, 9, 9, 9, 3, 3, 3, 3, 3),
        trial("low for ten", 90, 20, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5),
        trial("low throughout", *[5.4] * 12),
    ]
    winners = {scope: best(results, scope) for scope in SCOPES}
    assert winners == {
        "last": "low at the end",
        "avg": "low throughout",
        "last-5-avg": "low for five",
        "last-10-avg": "low for ten",
        "all": "low once",
    }
    assert best(results, "all", "max") == "low for ten"
    assert best(results, "last", "max") == "low once"


def test_the_windows_are_as_wide_as_their_names_say() -> None:
    values = [float(value * value) for value in range(12)]
    wanted = {"last": 1, "last-5-avg": 5, "last-10-avg": 10, "avg": 12}
    for scope, width in wanted.items():
        assert score(values, "min", scope) == sum(values[-width:]) / width
    assert [score(values, mode, "all") for mode in ("min", "max")] == [0.0, 121.0]
    assert score([], "min", "avg") is None


def test_of_equals_the_first_is_the_best() -> None:
    assert best([trial("a", 1), trial("b", 1)]) == "a"
    assert best([trial("a", 1), trial("b", 1)], mode="max") == "a"


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("scope", SCOPES)
def test_a_trial_that_ends_in_nan_or_infinity_is_not_the_best(bad: float, mode: str, scope: str) -> None:
    results = [trial("bad", bad), trial("good", 5.0), trial("other", bad)]
    assert best(results, scope, mode) == "good"


def test_nan_and_infinities_are_taken_if_asked_for_but_nan_is_the_worst() -> None:
    assert best([trial("a", math.nan), trial("b", -math.inf)], filter_nan_and_inf=False) == "b"
    assert best([trial("a", math.nan), trial("b", 3)], mode="max", filter_nan_and_inf=False) == "b"
    assert best([trial("a", math.nan), trial("b", math.nan)], filter_nan_and_inf=False) == "a"
    with pytest.raises(RuntimeError, match="filter_nan_and_inf=False"):
        best([trial("a", math.nan), trial("b", math.inf)])


def test_a_nan_on_the_way_spoils_an_average_but_not_the_best_ever() -> None:
    results = [trial("a", 1, math.nan, 1), trial("b", 5, 5, 5)]
    assert best(results, "avg") == "b"
    assert best(results, "all") == "a"


def test_reports_without_the_metric_are_passed_over() -> None:
    sparse = [{"loss": 1.0}, {"other": 2}, {"eval": {"loss": 4}}]
    dense = [{"loss": 3.0}, {"loss": 3.0}, {"eval": {"loss": 5}}]
    results = [Result(metrics=rows[-1], rows=rows, path=str(place)) for place, rows in enumerate((sparse, dense))]
    rows_of = {id(result): rows for result, rows in zip(results, (sparse, dense), strict=True)}
    grid = ResultGrid(results, reports=lambda result: rows_of[id(result)])
    assert grid.get_best_result("loss", "min", "avg").path == "0"
    assert grid.get_best_result("loss", "min", "last").path == "0"  # the last that there was
    assert grid.get_best_result("eval/loss", "max").path == "1"


def test_a_single_trial_is_the_best_of_all() -> None:
    assert ResultGrid([trial("only")]).get_best_result().path == "only"


def test_metric_and_mode_default_to_the_experiments() -> None:
    results = [trial("a", 1), trial("b", 2)]
    assert ResultGrid(results, metric="loss", mode="max").get_best_result().path == "b"
    assert ResultGrid(results, metric="loss", mode="max").get_best_result(mode="min").path == "a"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, ValueError, "metric=None.: pass it here or to TuneConfig"),
        ({"metric": "loss"}, ValueError, "mode=None"),
        ({"metric": "loss", "mode": "best"}, ValueError, "mode='best'"),
        ({"metric": "loss", "mode": "min", "scope": "first"}, ValueError, "scope='first'.: use one of last, avg"),
        ({"metric": "los", "mode": "min"}, RuntimeError, "as 'los'. Reported metrics: loss, training_iteration"),
    ],
)
def test_what_is_missing_is_named(arguments: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        ResultGrid([trial("a", 1), trial("b", 2)]).get_best_result(**arguments)


def test_the_data_frame_has_a_row_for_each_trial_that_reported() -> None:
    grid = ResultGrid([trial("a", 3, 1, 2, lr=0.1, net={"depth": 2}), trial("none"), trial("b", 5, lr=0.2)])
    frame = grid.get_dataframe()
    assert list(frame["loss"]) == [2, 5]
    assert list(frame["logdir"]) == ["a", "b"]
    assert list(frame["config/lr"]) == [0.1, 0.2]
    assert frame["config/net/depth"][0] == 2


@pytest.mark.parametrize(("mode", "losses"), [("min", [1, 4]), ("max", [3, 5])])
def test_the_data_frame_may_have_the_best_report_of_each(mode: str, losses: list[int]) -> None:
    grid = ResultGrid([trial("a", 3, 1, math.nan, 2), trial("b", 5, 4)])
    assert list(grid.get_dataframe("loss", mode)["loss"]) == losses
    assert list(grid.get_dataframe("other", mode)["training_iteration"]) == [4, 2]  # none has it: the last ones


def test_a_data_frame_says_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ResultGrid([trial("a", 1)])
    with pytest.raises(ValueError, match="pass filter_metric too"):
        grid.get_dataframe(filter_mode="min")
    with pytest.raises(ValueError, match="filter_mode='low'"):
        grid.get_dataframe("loss", "low")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast\[dataframe\]'"):
        grid.get_dataframe()


def test_a_long_grid_is_shown_in_part() -> None:
    shown = repr(ResultGrid([trial(str(number)) for number in range(30)]))
    assert shown.count("path=") == 20
    assert "... and 10 more" in shown


@given(
    st.lists(st.lists(st.floats(allow_nan=True) | st.none(), max_size=12), min_size=2, max_size=6),
    st.sampled_from(SCOPES),
    st.sampled_from(["min", "max"]),
)
def test_the_best_is_at_least_as_good_as_every_other(trials: list[list[Any]], scope: str, mode: str) -> None:
    def counts(values: list[Any]) -> float:
        numbers = [value for value in values if value is not None]
        if not numbers:
            return math.nan
        if scope == "all":
            real = [value for value in numbers if not math.isnan(value)]
            return (max(real) if mode == "max" else min(real)) if real else math.nan
        width = {"last": 1, "avg": len(numbers), "last-5-avg": 5, "last-10-avg": 10}[scope]
        return sum(numbers[-width:]) / len(numbers[-width:])

    results = [trial(str(place), *values) for place, values in enumerate(trials)]
    grid = ResultGrid(results, reports=lambda result: [{"loss": value} for value in trials[int(result.path)]])
    usable = [counts(values) for values in trials if math.isfinite(counts(values))]
    if not usable:
        with pytest.raises(RuntimeError):
            grid.get_best_result("loss", mode, scope)
    else:
        winner = grid.get_best_result("loss", mode, scope)
        assert counts(trials[int(winner.path)]) == (max(usable) if mode == "max" else min(usable))
