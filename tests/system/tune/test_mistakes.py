"""Mistakes of scripts, and what their users are told."""

from __future__ import annotations

import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from holdfast import tune
from holdfast.tune.experiment.experiment_session import ExperimentSession
from holdfast.tune.result_metrics import reported_text
from holdfast.tune.stopper import ThresholdStopper


def once(_config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


def tuned(tmp_path: Path, trainable: Any = once, metric: str = "loss", samples: int = 3, **run: Any) -> tune.ResultGrid:
    return tune.Tuner(
        trainable,
        tune_config=tune.TuneConfig(metric=metric, mode="min", num_samples=samples),
        run_config=tune.RunConfig(storage_path=str(tmp_path), name="mistaken", verbose=0, **run),
    ).fit()


@pytest.mark.parametrize("samples", [3, -1])
def test_trials_that_ask_for_more_than_there_is_fail_and_the_experiment_ends(tmp_path: Path, samples: int) -> None:
    grid = tuned(tmp_path, tune.with_resources(once, {"cpu": 10_000}), samples=samples)
    assert grid.num_errors == len(grid) == (3 if samples == 3 else 100)
    assert all("it asks for {'CPU': 10000.0}, and there is only" in str(error) for error in grid.errors)


def test_a_misspelt_metric_is_named_with_what_was_meant(tmp_path: Path) -> None:
    (error,) = tuned(tmp_path, metric="los", samples=1).errors
    assert str(error) == ("a result has no 'los', which TuneConfig(metric) names; it has loss. Did you mean 'loss'?")


def test_what_a_result_has_is_told_without_what_is_added_to_every_result() -> None:
    result = {"eval": {"loss": 1}, "config": {"x": 1}, "time_total_s": 1.0, "training_iteration": 3}
    assert reported_text(result, "eval_loss") == "it has eval/loss. Did you mean 'eval/loss'?"
    assert reported_text(result, "training_iterations") == "it has eval/loss. Did you mean 'training_iteration'?"
    assert reported_text({}, "accuracy") == "it has nothing"


def test_a_misspelt_stop_criterion_is_warned_about_once() -> None:
    stopper = ThresholdStopper({"training_iteratio": 1})
    with pytest.warns(UserWarning, match=r"never report a number 'training_iteratio' .* 'training_iteration'\?"):
        assert not stopper("a", {"training_iteration": 5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not stopper("a", {"training_iteration": 6})


def test_a_trainable_that_cannot_be_sent_ends_it_at_once(tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(_config: dict[str, Any]) -> None:
        with lock:
            tune.report({"loss": 1.0})

    with pytest.raises(TypeError, match=r"cannot be sent to trials: cannot pickle '_thread\.lock' object"):
        tuned(tmp_path, locked)
    assert not list(tmp_path.glob("mistaken/locked*"))


class Listener(tune.Callback):
    pass


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"callbacks": [Listener]}, "pass an instance, not the class"),
        ({"progress_reporter": tune.CLIReporter}, "pass an instance of tune.CLIReporter"),
    ],
)
def test_listeners_that_are_none_are_refused(tmp_path: Path, run: dict[str, Any], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        tuned(tmp_path, **run)


def test_a_stopper_that_raises_is_its_trial_s_error(tmp_path: Path) -> None:
    class Broken(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            raise LookupError("nothing here")

        def stop_all(self) -> bool:
            return False

    (error,) = tuned(tmp_path, samples=1, stop=Broken()).errors
    assert "the stop criterion raised LookupError: nothing here" in str(error)


def test_what_is_wrong_before_the_first_trial_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_session: ExperimentSession) -> None:
        raise tune.TuneError("pass param_space again")

    with monkeypatch.context() as patched:
        patched.setattr(ExperimentSession, "_check_configs", refuse)
        with pytest.raises(tune.TuneError, match="pass param_space again"):
            tuned(tmp_path)
    assert tuned(tmp_path).num_errors == 0  # the lease is free, too


@pytest.mark.parametrize(("given", "meant"), [("cpus", "cpu"), ("num_gpus", "gpu")])
def test_names_of_resources_that_are_none_are_refused(given: str, meant: str) -> None:
    with pytest.raises(ValueError, match=f"'{given}' is not a resource; use '{meant}'"):
        tune.with_resources(once, {given: 1})
