"""What Ray's own tests expect of loggers, reporters and stoppers that they call themselves.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import csv
import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import tune
from holdfast.tune.logger import CSVLoggerCallback, JsonLoggerCallback, TBXLoggerCallback
from holdfast.tune.progress_reporter import CLIReporter, JupyterNotebookReporter
from holdfast.tune.stopper import TimeoutStopper

CONFIG = {"a": 2, "b": 5, "c": {"c": {"D": 123}, "e": None}}


@dataclass
class Trial:
    """Only what Ray's stand-in for a trial has."""

    evaluated_params: dict[str, Any]
    logdir: str
    trial_id: str = "one"

    @property
    def config(self) -> dict[str, Any]:
        return self.evaluated_params

    @property
    def local_path(self) -> str:
        return self.logdir


def result(t: float, reward: float, **more: Any) -> dict[str, Any]:
    found = {
        "time_total_s": t,
        "episode_reward_mean": reward,
        "mean_accuracy": reward * 2,
        "training_iteration": int(t),
    }
    return {**found, **more}


RESULTS = (result(0, 4), result(1, 5), result(2, 6, score=[1, 2, 3], hello={"world": 1}))


def test_csv(tmp_path: Path) -> None:
    log(CSVLoggerCallback(), CONFIG, tmp_path)
    rows = list(csv.DictReader((tmp_path / "progress.csv").read_text().splitlines()))
    assert [int(row["episode_reward_mean"]) for row in rows] == [4, 5, 6]


def test_json(tmp_path: Path) -> None:
    log(JsonLoggerCallback(), CONFIG, tmp_path)
    lines = (tmp_path / "result.json").read_text().splitlines()
    assert [json.loads(line)["episode_reward_mean"] for line in lines] == [4, 5, 6]
    assert json.loads((tmp_path / "params.json").read_text()) == CONFIG
    assert not (tmp_path / "params.pkl").exists(), "nothing is pickled"


def test_tensorboard(tmp_path: Path) -> None:
    config = {"a": 2, "b": [1, 2], "c": {"D": 123}, "i": numpy.int32(1), "bool": numpy.bool_(True), "none": None}
    log(TBXLoggerCallback(), {**config, "bad": numpy.float128(4), "tuple": (1, 2)}, tmp_path)
    content = next(tmp_path.glob("events*")).read_bytes()
    assert b"episode_reward_mean" in content


def log(callback: Any, config: dict[str, Any], directory: Path) -> None:
    trial = Trial(config, str(directory))
    for iteration, found in enumerate(RESULTS):
        callback.on_trial_result(iteration, [], trial, found)
    callback.on_trial_complete(3, [], trial)


def test_a_trial_that_starts_twice_has_a_header(tmp_path: Path) -> None:
    callback, trial = CSVLoggerCallback(), Trial(CONFIG, str(tmp_path))
    callback.on_trial_start(0, [], trial)
    callback.on_trial_start(0, [], trial)
    callback.on_trial_result(1, [], trial, result(1, 5))
    callback.on_step_end(1, [])
    assert "training_iteration" in (tmp_path / "progress.csv").read_text().splitlines()[0]
    callback.on_experiment_end([])


# Reporters


@dataclass
class Row:
    trial_id: str
    status: str
    config: dict[str, Any]
    last_result: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    local_path: str = "/foo"

    @property
    def evaluated_params(self) -> dict[str, Any]:
        return self.config

    def __str__(self) -> str:
        return self.trial_id


def five(scores: dict[int, float]) -> list[Row]:
    statuses = ("TERMINATED", "TERMINATED", "TERMINATED", "PENDING", "RUNNING")
    return [
        Row(f"{i:05}", status, {"a": i}, {"metric_1": scores[i]} if i in scores else {})
        for i, status in enumerate(statuses)
    ]


def shown(trials: list[Row], capsys: pytest.CaptureFixture[str], **settings: Any) -> str:
    reporter = CLIReporter(**settings)
    reporter.report(trials, done=False)  # type: ignore[arg-type]
    return capsys.readouterr().out


def order(text: str) -> list[str]:
    return [word for line in text.splitlines() for word in line.split()[:1] if word.startswith("0000")]


def test_columns_of_a_reporter(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = CLIReporter(metric_columns=["foo", "bar"])
    with pytest.raises(ValueError, match="'bar' already exists"):
        reporter.add_metric_column("bar")
    reporter.add_metric_column("baz")
    reporter.add_metric_column("qux", "A heading")
    trials = [Row("1", "RUNNING", {}, {"foo": 1, "bar": "x", "baz": 3, "qux": 4})]
    reporter.report(trials, done=False)  # type: ignore[arg-type]
    text = capsys.readouterr().out
    assert all(heading in text for heading in ("foo", "baz", "A heading"))
    inferred = shown([Row("1", "RUNNING", {}, {"foo_result": 1, "baz_result": 4123, "bar_result": "testme"})], capsys)
    assert "foo_result" in inferred
    assert "baz_result" in inferred
    assert "bar_result" not in inferred, "it is not a number"


def test_a_table_of_trials(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [
        Row(f"{i:05}", s, {"a": i, "n": {"k": [i, 2 * i]}}, {"metric_1": i / 2, "nested": {"sub": i / 2}})
        for i, s in enumerate(("TERMINATED", "PENDING", "RUNNING", "RUNNING", "RUNNING"))
    ]
    text = shown(
        trials, capsys, metric_columns={"nested/sub": "NestSub"}, parameter_columns={"a": "A"}, max_progress_rows=3
    )
    assert order(text) == ["00002", "00001", "00000"], "each status has its share"
    assert "NestSub" in text
    assert "2 more not shown: 2 RUNNING" in text
    best = shown(trials, capsys, metric="metric_1", mode="max", parameter_columns=["a"])
    assert "current best: 00004 with metric_1=2" in best
    assert "by a=4" in best
    zero = shown(five({0: 7, 1: 0, 2: 2}), capsys, metric="metric_1", mode="min")
    assert "current best: 00001" in zero


def test_rows_sorted_by_a_metric(capsys: pytest.CaptureFixture[str]) -> None:
    trials = five({0: 0.3, 1: 0.2, 2: 0.4})
    by = {"max_progress_rows": 4, "metric": "metric_1", "sort_by_metric": True}
    assert order(shown(trials, capsys, mode="min", **by)) == ["00004", "00003", "00001", "00000"]
    assert order(shown(trials, capsys, mode="max", **by)) == ["00004", "00003", "00002", "00000"]
    reporter = CLIReporter(max_progress_rows=4, sort_by_metric=True)
    reporter.setup(metric="metric_1", mode="max")
    reporter.report(trials, done=False)  # type: ignore[arg-type]
    assert order(capsys.readouterr().out) == ["00004", "00003", "00002", "00000"]


def test_long_names_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    trials = [Row("1", "TERMINATED", {"verylong" * 20: 1}, {"some_metric": "evenlonger" * 100})]
    text = shown(trials, capsys, metric_columns=["some_metric"])
    assert "evenlonger" * 3 not in text


def test_how_long_it_has_run() -> None:
    start = 1454825920
    reporter = CLIReporter(clock=lambda: start + 1 * 60 * 60 + 31 * 60 + 22)
    reporter.setup(start_time=start)
    assert "running for 1 h 31 m" in reporter.text([], done=False)


class OwnReporter(tune.ProgressReporter):
    def __init__(self) -> None:
        self.ends: list[bool] = []

    def should_report(self, trials: Any, done: bool = False) -> bool:
        return True

    def report(self, trials: Any, done: bool, *sys_info: str) -> None:
        self.ends.append(done)


def test_a_reporter_of_ones_own(tmp_path: Path) -> None:
    reporter = OwnReporter()
    tune.run(lambda _config: 2, progress_reporter=reporter, storage_path=str(tmp_path), verbose=1)
    assert reporter.ends[-1]
    assert issubclass(JupyterNotebookReporter, CLIReporter)


# Stoppers


class Clock:
    """A pickled stopper takes it along, as Ray's tests patch the time."""

    now = 0.0

    def __call__(self) -> float:
        return Clock.now


def test_a_pickled_time_limit_continues_with_what_was_left() -> None:
    stopper = TimeoutStopper(timeout=60, clock=Clock())
    assert not stopper.stop_all()
    Clock.now += 40
    assert not stopper.stop_all()
    saved = pickle.dumps(stopper)
    Clock.now += 22
    assert stopper.stop_all()
    spent = pickle.dumps(stopper)
    Clock.now += 200
    again = pickle.loads(saved)
    assert not again.stop_all()
    Clock.now += 10
    assert not again.stop_all()
    Clock.now += 12
    assert again.stop_all()
    over = pickle.loads(spent)
    assert over.stop_all()
