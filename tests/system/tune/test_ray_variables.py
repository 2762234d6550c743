"""Ray's environment variables that have an effect here, and what a callback can ask of a trial that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from holdfast import train, tune

HERE = __name__


class Heard(tune.Callback):
    names: ClassVar[list[str]] = []

    def on_trial_complete(self, *args: Any, **info: Any) -> None:
        self.names.append(str(info["trial"]))


class Reports(train.UserCallback):
    metrics: ClassVar[list[Any]] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.metrics.append(metrics)


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    Heard.names.clear()
    Reports.metrics.clear()


def run(tmp_path: Path, **options: Any) -> tune.RunConfig:
    return tune.RunConfig(name="named", storage_path=str(tmp_path), verbose=0, **options)


def other_metric(_config: dict[str, Any]) -> None:
    tune.report({"other": 1.0})
    tune.report({"loss": 2.0})


def test_callbacks_are_named_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TUNE_CALLBACKS", f"{HERE}.Heard")
    monkeypatch.setenv("RAY_TRAIN_CALLBACKS", f" {HERE}.Reports ,")
    (result,) = tune.Tuner(other_metric, run_config=run(tmp_path)).fit()
    assert len(Heard.names) == 1
    assert result.metrics["loss"] == 2.0
    train.DataParallelTrainer(lambda: train.report({"a": 1}), run_config=train.RunConfig(storage_path=tmp_path)).fit()
    assert Reports.metrics == [[{"a": 1}]]


@pytest.mark.parametrize(
    ("named", "match"), [("no_such.Name", "cannot be used"), (f"{HERE}.Reports", "not a Callback")]
)
def test_a_callback_that_cannot_be_made_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str, match: str
) -> None:
    monkeypatch.setenv("RAY_TUNE_CALLBACKS", named)
    with pytest.raises(ValueError, match=match):
        tune.Tuner(other_metric, run_config=run(tmp_path)).fit()


@pytest.mark.parametrize("scheduler", [None, tune.schedulers.ASHAScheduler(max_t=4, grace_period=1)])
def test_a_result_without_the_metric_is_accepted_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheduler: Any
) -> None:
    config = tune.TuneConfig(metric="loss", mode="min", scheduler=scheduler)
    (refused,) = tune.Tuner(other_metric, tune_config=config, run_config=run(tmp_path / "strict")).fit()
    assert "no 'loss'" in str(refused.error)
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    (accepted,) = tune.Tuner(other_metric, tune_config=config, run_config=run(tmp_path / "lenient")).fit()
    assert accepted.error is None
    assert accepted.metrics["loss"] == 2.0


def test_the_longest_name_of_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_MAX_LEN_IDENTIFIER", "20")
    grid = tune.Tuner(other_metric, param_space={"a": tune.grid_search([1, 2])}, run_config=run(tmp_path)).fit()
    names = {Path(result.path).name for result in grid}
    assert len(names) == 2
    assert min(map(len, names)) == 20


class Looks(tune.Callback):
    def __init__(self) -> None:
        self.seen: list[tuple[str, int, Any]] = []

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        trial = info["trial"]
        self.seen.append(("result", trial.num_failures, dict(trial.metric_analysis["loss"])))

    def on_trial_error(self, *args: Any, **info: Any) -> None:
        trial = info["trial"]
        self.seen.append(("error", trial.num_failures, Path(trial.error_file).read_text()))


def fails(_config: dict[str, Any]) -> None:
    for loss in (3.0, 1.0, 2.0):
        tune.report({"loss": loss})
    raise ValueError("out of luck")


def test_what_a_callback_asks_of_a_trial_that_fails(tmp_path: Path) -> None:
    looks, failure = Looks(), tune.FailureConfig(max_failures=1)
    tune.Tuner(fails, run_config=run(tmp_path, callbacks=[looks], failure_config=failure)).fit()
    assert [(kind, failures) for kind, failures, _ in looks.seen] == [
        *[("result", 0)] * 3,
        *[("result", 1)] * 3,
        ("error", 2),
    ]
    first, last = looks.seen[2][2], looks.seen[-1][2]
    assert (first["max"], first["min"], first["avg"], first["last"], first["last-5-avg"]) == (3.0, 1.0, 2.0, 2.0, 2.0)
    assert "out of luck" in last
    assert (next(tmp_path.glob("named/fails_*")) / "error.txt").read_text() == last
