"""What Ray's own tests expect of ``tune.run`` and ``run_experiments``: names, stopping, results, output and mistakes.

``support.compat.ray_tune_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import datetime
import logging
import math
import os
import sys
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune import Experiment, TuneError, register_env, register_trainable
from holdfast.tune.experiment import Trial
from holdfast.tune.logger import LoggerCallback
from holdfast.tune.result import EPISODES_TOTAL, TIMESTEPS_THIS_ITER, TIMESTEPS_TOTAL
from holdfast.tune.schedulers import AsyncHyperBandScheduler, FIFOScheduler
from holdfast.tune.search import BasicVariantGenerator, ConcurrencyLimiter, Searcher
from holdfast.tune.stopper import (
    ExperimentPlateauStopper,
    MaximumIterationStopper,
    Stopper,
    TimeoutStopper,
    TrialPlateauStopper,
    as_stopper,
)


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where searches without a place are stored."""
    monkeypatch.setenv("HOLDFAST_STORAGE_PATH", str(tmp_path / "results"))
    return tmp_path / "results"


def run(trainable: Any, **options: Any) -> Any:
    return tune.run(trainable, **{"verbose": 0, **options})


def counts(_config: dict[str, Any]) -> None:
    for step in range(10):
        tune.report({"step": step, "nested": {"1": {"2": step}}})


class OneStep(tune.Trainable):
    def step(self) -> dict[str, Any]:
        return {"timesteps_this_iter": 1, "done": True}


# Names


def test_what_is_registered() -> None:
    register_env("foo", lambda: None)
    with pytest.raises(TypeError):
        register_env("foo", 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        register_trainable("foo", OneStep())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        register_trainable("foo", dict)
    with pytest.raises(TuneError):
        Experiment("foo", OneStep())
    with pytest.raises(TypeError):
        Experiment("foo", dict)
    for trainable in (counts, counts, OneStep):
        register_trainable("foo", trainable)
        assert Experiment("test", trainable).name == "test"

    def steps(_config: dict[str, Any], amount: int) -> None:
        tune.report({"timesteps_total": amount, "done": True})

    register_trainable("foo", counts)
    register_trainable("foo", partial(steps, amount=500))
    for trial in (*tune.run_experiments({"foo": {"run": "foo"}}, verbose=0), *run(partial(steps, amount=500)).trials):
        assert (trial.status, trial.last_result[TIMESTEPS_TOTAL]) == (Trial.TERMINATED, 500)


@pytest.mark.soak
def test_several_experiments() -> None:
    register_trainable("f1", counts)
    first = Experiment(name="foo", run="f1")
    for given in ({"a": {"run": "f1"}, "b": {"run": OneStep}}, first, [Experiment(name="c", run=counts), {"d": first}]):
        trials = tune.run_experiments(given, verbose=0)
        assert {trial.status for trial in trials} == {Trial.TERMINATED}
    (trial,) = tune.run_experiments({"env": {"run": "f1", "env": "CartPole-v0", "config": {"a": "b"}}}, verbose=0)
    assert trial.config == {"a": "b", "env": "CartPole-v0"}


MISTAKES: list[Any] = [
    {"foo": {}},
    {"foo": {"run": "f1", "bah": "not allowed"}},
    {"foo": {"run": tune.grid_search(["no trainable"])}},
    {"foo": {"run": "unknown"}},
    {"foo": {"run": "f1", "resources_per_trial": {"asdf": 1}}},
    "hi",
]


@pytest.mark.parametrize("given", MISTAKES, ids=str)
def test_mistakes_in_experiments(given: Any) -> None:
    register_trainable("f1", counts)
    with pytest.raises(TuneError):
        tune.run_experiments(given, verbose=0)


def test_directories_of_experiments_and_trials(results: Path, tmp_path: Path) -> None:
    run(counts)
    (dated,) = results.iterdir()
    assert dated.name.startswith("counts_"), "a search without a name has one with its time"
    place = str(tmp_path / "logdir")
    long = {"a" * 50: tune.sample_from(lambda _spec: 5.0 / 7), "b" * 50: tune.sample_from(lambda _spec: "long" * 40)}
    for trial in tune.run_experiments({"foo": {"run": counts, "local_dir": place, "config": long}}, verbose=0):
        assert trial.local_path.startswith(f"{place}/foo/counts_")
        assert len(os.path.basename(trial.local_path)) < 200
    space = {"t1": tune.grid_search([1, 2, 3])}
    names = [os.path.basename(t.logdir) for t in run(counts, config=space, name="my_test_exp").trials]
    assert all(f"t1={number}" in name and "counts" in name for number, name in enumerate(names, start=1))
    assert {path.name for path in results.iterdir()} == {dated.name, "my_test_exp"}
    found = run(
        counts, config=space, name="own", trial_dirname_creator=lambda _trial: "TRIAL", trial_name_creator=_own_name
    ).trials
    assert len({trial.logdir for trial in found}) == 3
    assert all("TRIAL" in os.path.basename(trial.logdir) for trial in found)
    assert [str(trial) for trial in found] == [f"counts_{trial.trial_id}_321" for trial in found]


def _own_name(trial: Any) -> str:
    return f"{trial.trainable_name}_{trial.trial_id}_321"


def knows_itself(_config: dict[str, Any]) -> None:
    context = tune.get_context()
    cpus = context.get_trial_resources().required_resources["CPU"]
    tune.report({"name": context.get_trial_name(), "id": context.get_trial_id(), "cpus": cpus})


class KnowsItself(tune.Trainable):
    def step(self) -> dict[str, Any]:
        cpus = self.trial_resources.required_resources["CPU"]
        return {"name": self.trial_name, "id": self.trial_id, "cpus": cpus, "done": True}

    def cleanup(self) -> None:
        Path(self.logdir, "marker").touch()


@pytest.mark.parametrize("trainable", [knows_itself, KnowsItself])
def test_a_trial_knows_itself_and_cleans_up(trainable: Any) -> None:
    request = tune.PlacementGroupFactory([{"CPU": 0.25}])
    for trial in run(trainable, resources_per_trial=request, num_samples=3).trials:
        found = trial.last_result
        assert (found["name"], found["id"], found["cpus"]) == (str(trial), trial.trial_id, 0.25)
        assert trial.placement_group_factory == request
        assert isinstance(trainable, type) == Path(trial.local_path, "marker").exists()


# Stopping


class Above(Stopper):
    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        return bool(result["step"] > 6)

    def stop_all(self) -> bool:
        return False

    def stop(self, trial_id: str, result: dict[str, Any]) -> bool:
        return self(trial_id, result)

    def wrong(self, result: dict[str, Any]) -> bool:
        return self("", result)


STOPS: list[tuple[Any, int]] = [
    (lambda _trial_id, result: result["step"] > 6, 8),
    (Above().stop, 8),
    (Above(), 8),
    (MaximumIterationStopper(max_iter=6), 6),
    ({"nested/1/2": 6}, 7),
    ({"training_iteration": 4}, 4),
]


def test_what_stops_a_trial() -> None:
    """Each way of writing it stops the trials of its own."""
    stoppers = [as_stopper(stop) for stop, _ in STOPS]
    space = {"case": tune.grid_search(list(range(len(STOPS))))}

    def stop(trial_id: str, result: dict[str, Any]) -> bool:
        return stoppers[result["config"]["case"]](trial_id, result)

    trials = run(counts, config=space, stop=stop).trials
    assert [trial.last_result["training_iteration"] for trial in trials] == [expected for _, expected in STOPS]
    assert {trial.status for trial in trials} == {Trial.TERMINATED}


@pytest.mark.soak
def test_a_function_that_cannot_stop() -> None:
    with pytest.raises(TuneError):
        run(counts, stop=Above().wrong)


class StopsAll(Above):
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        self.count += 1
        return super().__call__(trial_id, result)

    def stop_all(self) -> bool:
        return self.count > 5


@pytest.mark.soak
def test_an_experiment_that_is_stopped() -> None:
    trials = run(counts, num_samples=5, stop=StopsAll(), max_concurrent_trials=1).trials
    assert {trial.status for trial in trials} == {Trial.TERMINATED}
    assert len(trials) < 5, "Ray creates all five, and ends those that never ran"


def zero(_config: dict[str, Any]) -> None:
    tune.report({"test": 0})


@pytest.mark.soak
def test_a_plateau_of_the_experiment() -> None:
    for wrong in ({"top": 0}, {"top": "0"}, {"std": 0}, {"patience": -1}, {"std": "0"}, {"mode": "0"}):
        with pytest.raises(ValueError):
            ExperimentPlateauStopper("test", **wrong)  # type: ignore[arg-type]
    for settings, most in (({"top": 3}, 3), ({"top": 3, "patience": 5}, 8)):
        stopper = ExperimentPlateauStopper("test", mode="min", **settings)  # type: ignore[arg-type]
        found = run(zero, num_samples=20, stop=stopper, max_concurrent_trials=1)
        assert {trial.status for trial in found.trials} == {Trial.TERMINATED}
        assert len(found.dataframe(metric="test", mode="max")) <= most


def levels_off(_config: dict[str, Any]) -> None:
    for value in (10.0, 11.0, 12.0, *[20.0] * 10):
        tune.report({"_metric": value})


PLATEAUS: list[tuple[dict[str, Any], int]] = [
    ({"num_results": 4}, 7),
    ({"num_results": 4, "grace_period": 9}, 9),
    ({"num_results": 4, "metric_threshold": 22.0, "mode": "max"}, 13),
]


@pytest.mark.soak
def test_a_plateau_of_a_trial() -> None:
    stoppers = [TrialPlateauStopper(metric="_metric", **settings) for settings, _ in PLATEAUS]
    space = {"case": tune.grid_search(list(range(len(PLATEAUS))))}
    trials = run(levels_off, config=space, stop=lambda id, r: stoppers[r["config"]["case"]](id, r)).trials
    assert [trial.last_result["training_iteration"] for trial in trials] == [expected for _, expected in PLATEAUS]


def slow(_config: dict[str, Any]) -> None:
    for step in range(2000):
        time.sleep(0.05)
        tune.report({"step": step})


@pytest.mark.soak
def test_budgets_of_time() -> None:
    half = datetime.timedelta(seconds=0.5)
    for limit in ({"time_budget_s": 0.5}, {"stop": TimeoutStopper(1000), "time_budget_s": half}):
        (trial,) = run(slow, **limit).trials
        assert trial.last_result.get("step", 0) < 1999
    (trial,) = run(slow, stop={"step": 3}, time_budget_s=1000).trials
    assert trial.last_result["step"] == 3
    endless = run(zero, num_samples=-1, time_budget_s=3)
    assert {trial.status for trial in endless.trials} <= {"TERMINATED"}


# Results


def ends_with_sleep(_config: dict[str, Any]) -> None:
    tune.report({"timesteps_total": 100, "done": True})
    time.sleep(99999)


@pytest.mark.soak
def test_a_result_may_say_that_it_is_the_last() -> None:
    (trial,) = run(ends_with_sleep).trials
    assert (trial.status, trial.last_result[TIMESTEPS_TOTAL]) == (Trial.TERMINATED, 100)


class Hears(FIFOScheduler):
    def __init__(self) -> None:
        self.results: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []

    def on_trial_result(self, experiment: Any, trial: Any, result: Any) -> Any:
        self.results.append(dict(result))
        return self.CONTINUE

    def on_trial_complete(self, experiment: Any, trial: Any, result: Any) -> Any:
        self.ends.append(dict(result))
        return ()


class HearsToo(Searcher):
    def __init__(self) -> None:
        super().__init__("step", "max")
        self.results: list[dict[str, Any]] = []

    def suggest(self, trial_id: str) -> dict[str, Any]:
        return {}

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.results.append(dict(result))

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None: ...


@pytest.mark.soak
def test_who_hears_of_nested_results() -> None:
    scheduler, searcher = Hears(), HearsToo()
    (trial,) = run(counts, scheduler=scheduler, search_alg=searcher, stop={"nested/1/2": 5}).trials
    assert trial.last_result["nested"]["1"]["2"] == 5
    assert trial.last_result["training_iteration"] == 6
    assert [result["nested"]["1"]["2"] for result in scheduler.results] == list(range(5)), "not of the last"
    assert scheduler.ends[0]["nested"]["1"]["2"] == 5
    assert [result["step"] for result in searcher.results][:5] == list(range(5))


REPORTS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([{"accuracy": 5}] * 5, {}),
    ([{"timesteps_total": 5}] * 5, {TIMESTEPS_TOTAL: 5}),
    ([{"timesteps_this_iter": 0, "episodes_this_iter": 0}] * 5, {TIMESTEPS_TOTAL: 0, EPISODES_TOTAL: 0}),
    (
        [{"timesteps_this_iter": 3, "episodes_this_iter": i} for i in range(5)],
        {TIMESTEPS_TOTAL: 15, EPISODES_TOTAL: 10},
    ),
    ([{"timesteps_total": i + 1, "score": i**2} for i in range(5)], {TIMESTEPS_TOTAL: 5}),
    ([{"accuracy": math.inf}] * 2, {"accuracy": math.inf}),
]


class Keeps(LoggerCallback):
    def __init__(self) -> None:
        self.kept: list[dict[str, Any]] = []

    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        self.kept.append(dict(result))


def reports_of(config: dict[str, Any]) -> None:
    for report in REPORTS[config["case"]][0]:
        tune.report(dict(report))


class ReportsOf(tune.Trainable):
    def step(self) -> dict[str, Any]:
        reports = REPORTS[self.config["case"]][0]
        done = {"done": True} if self.iteration + 1 == len(reports) else {}
        return {**reports[self.iteration], **done}


@pytest.mark.parametrize("trainable", [reports_of, ReportsOf])
def test_functions_and_classes_report_the_same(trainable: Any) -> None:
    scheduler, logger = Hears(), Keeps()
    space = {"case": tune.grid_search(list(range(len(REPORTS))))}
    for trial in run(trainable, config=space, scheduler=scheduler, callbacks=[logger]).trials:
        reports, totals = REPORTS[trial.config["case"]]
        kept = [found for found in logger.kept if found["trial_id"] == trial.trial_id]
        assert len(kept) == len(reports), "none is lost, and none comes twice"
        for found, given in zip(kept, reports, strict=True):
            assert {name: found[name] for name in given} == given
        assert {name: trial.last_result[name] for name in totals} == totals
        for name in {TIMESTEPS_TOTAL, EPISODES_TOTAL} - set(totals):
            assert trial.last_result.get(name) is None
        if not any(TIMESTEPS_THIS_ITER in report for report in reports):
            assert not any(TIMESTEPS_THIS_ITER in found for found in kept)
        assert [end["done"] for end in scheduler.ends if end["trial_id"] == trial.trial_id] == [True]
        assert sum(bool(found.get("done")) for found in kept) <= 1


def fails(_config: dict[str, Any]) -> None:
    raise RuntimeError("uh oh")


@pytest.mark.soak
def test_errors_of_trials() -> None:
    register_trainable("fails", fails)
    with pytest.raises(TuneError):
        tune.run_experiments({"foo": {"run": "fails"}}, verbose=0)
    (trial,) = tune.run_experiments({"bar": {"run": "fails"}}, raise_on_failed_trial=False, verbose=0)
    assert trial.status == Trial.ERROR
    assert "uh oh" in trial.error


def judged(_config: dict[str, Any]) -> None:
    tune.report({"val": 4, "second": 8})


def silent(_config: dict[str, Any]) -> None: ...


@pytest.mark.soak
def test_metrics_that_results_must_have(monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ({"metric": "acc"}, {"scheduler": AsyncHyperBandScheduler(metric="acc", mode="max")}):
        with pytest.raises(TuneError):
            run(judged, **missing)
    for fine in ({"metric": "val"}, {"scheduler": AsyncHyperBandScheduler(metric="val", mode="max")}):
        run(judged, **fine)
    run(silent, metric="val")
    monkeypatch.setenv("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    run(judged, metric="acc")


# Output


def prints(_config: dict[str, Any]) -> None:
    logging.basicConfig(force=True)  # what the test runner has made of logging has been inherited
    print("TO STDOUT")
    print("TO STDERR", file=sys.stderr)
    logging.getLogger("own").warning("LOGGED")
    tune.report({"x": 1})


OUTPUTS: list[tuple[Any, dict[str, list[str]]]] = [
    (("alt.stdout", "alt.stderr"), {"alt.stdout": ["TO STDOUT"], "alt.stderr": ["TO STDERR", "LOGGED"]}),
    (False, {}),
    (True, {"stdout": ["TO STDOUT"], "stderr": ["TO STDERR", "LOGGED"]}),
    ("combined", {"combined": ["TO STDOUT", "TO STDERR", "LOGGED"]}),
]


@pytest.mark.parametrize(
    ("given", "expected"), [*OUTPUTS[:1], *(pytest.param(*each, marks=pytest.mark.soak) for each in OUTPUTS[1:])]
)
def test_output_in_files(given: Any, expected: dict[str, list[str]]) -> None:
    (trial,) = run(prints, log_to_file=given).trials
    names = {"stdout", "stderr", "combined", "alt.stdout", "alt.stderr"}
    assert {path.name for path in Path(trial.local_path).iterdir()} & names == set(expected)
    for name, texts in expected.items():
        content = Path(trial.local_path, name).read_text()
        assert all(text in content for text in texts)


class Writes(LoggerCallback):
    def log_trial_result(self, iteration: int, trial: Any, result: dict[str, Any]) -> None:
        Path(trial.logdir, "test.log").write_text("hi")


@pytest.mark.soak
@pytest.mark.parametrize("is_automatic", [True, False])
def test_loggers_of_ones_own_and_automatic_ones(is_automatic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", str(int(not is_automatic)))
    for callbacks in ([Writes()], []):
        (trial,) = run(zero, callbacks=callbacks).trials
        assert Path(trial.local_path, "params.json").exists() == is_automatic
        assert Path(trial.local_path, "test.log").exists() == bool(callbacks)


# What is passed on


def test_what_cannot_be_sent_to_a_trial() -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="lock"):
        run(lambda _config: print(lock))


@pytest.mark.soak
def test_by_name() -> None:
    kwargs = {"metric": "metric_foo", "mode": "min", "extra_param": "test"}
    assert type(tune.create_scheduler("async_hyperband", **kwargs)) is AsyncHyperBandScheduler
    bounds = {"hyperparam_bounds": {"param1": [0, 1]}}
    assert type(tune.create_scheduler("pb2", **kwargs, **bounds)).__name__ == "PB2"
    assert type(tune.create_searcher("optuna", **kwargs)).__name__ == "OptunaSearch"
    assert type(tune.create_searcher("random", **kwargs)) is BasicVariantGenerator
    found = run(zero, search_alg="random", scheduler="async_hyperband", metric="test", mode="max")
    assert len(found.trials) == 1


@pytest.mark.soak
def test_how_many_trials_run_in_parallel() -> None:
    for searcher in (None, "optuna"):
        options = {"metric": "test", "mode": "max", "search_alg": searcher, "config": {"a": tune.randint(0, 2)}}
        assert len(run(zero, max_concurrent_trials=2, num_samples=3, **options).trials) == 3
    limited = ConcurrencyLimiter(BasicVariantGenerator(), max_concurrent=3)
    found = run(zero, search_alg=limited, max_concurrent_trials=2, num_samples=3, config={"a": tune.randint(0, 2)})
    assert len(found.trials) == 3, "both limits hold; Ray refuses that"


def fails_once(config: dict[str, Any]) -> None:
    marker = Path(config["place"], f"{config['id']}-{config['fails']}")
    if config["fails"] and not marker.exists():
        marker.touch()
        raise ValueError("once")
    tune.report({"hello": 123})


@pytest.mark.soak
@pytest.mark.parametrize("resume", ["AUTO+ERRORED", "AUTO+RESTART_ERRORED_ONLY"])
def test_failed_trials_are_run_again(tmp_path: Path, resume: str) -> None:
    space = {"fails": tune.grid_search([True, False]), "id": tune.grid_search([0, 1]), "place": str(tmp_path)}
    options = {"name": "again", "config": space}
    trials = run(fails_once, raise_on_failed_trial=False, **options).trials
    assert Counter(trial.status for trial in trials)["ERROR"] == 2
    trials = run(fails_once, resume=resume, **options).trials
    assert Counter(trial.status for trial in trials) == {"TERMINATED": 4}
    assert all(trial.last_result["hello"] == 123 for trial in trials)
