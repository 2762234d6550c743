"""Where a script from Ray catches an error, ours is of that type too. The words are ours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.tune import TuneError
from holdfast.tune.schedulers import ASHAScheduler, PopulationBasedTraining
from holdfast.tune.search import ConcurrencyLimiter
from holdfast.tune.stopper import ExperimentPlateauStopper, TimeoutStopper, TrialPlateauStopper


class NoStep(tune.Trainable):
    pass


def fn(config: dict[str, Any]) -> None:
    tune.report({"x": config})


def of(**run: Any) -> tune.Tuner:
    return tune.Tuner(fn, run_config=tune.RunConfig(storage_path="runs", verbose=0, **run))


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# What Ray 2.60 raises for the same call, by running it there or, where that needs a cluster, by its source
AS_IN_RAY: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "no trainable": (TuneError, lambda: tune.Tuner().fit()),
    "unknown trainable": (TuneError, lambda: tune.Tuner("unknown").fit()),
    "unknown trainable of run": (TuneError, lambda: tune.run("unknown")),
    "a trainable that is none": (TuneError, lambda: tune.Tuner(5).fit()),
    "PBT without mutations": (TuneError, lambda: PopulationBasedTraining()),
    "registered that is none": (TypeError, lambda: tune.register_trainable("a", 5)),  # type: ignore[arg-type]
    "space that is none": (ValueError, lambda: tune.Tuner(fn, param_space=[1])),  # type: ignore[arg-type]
    "run_config in the space": (ValueError, lambda: tune.Tuner(fn, param_space={"run_config": tune.RunConfig()})),
    "results before fit": (RuntimeError, lambda: of().get_results()),
    "frequency for a function": (
        ValueError,
        lambda: of(checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=2)).fit(),
    ),
    "stop that is none": (ValueError, lambda: of(stop=5).fit()),
    "stops that are none": (ValueError, lambda: of(stop=[5]).fit()),
    "log_to_file": (ValueError, lambda: of(log_to_file=5)),
    "log_to_file of three": (ValueError, lambda: of(log_to_file=("a", "b", "c"))),
    "mode": (ValueError, lambda: tune.TuneConfig(mode="best")),
    "with_parameters": (ValueError, lambda: tune.with_parameters(5, a=1)),
    "with_resources": (ValueError, lambda: tune.with_resources(5, {"cpu": 1})),
    "resources": (ValueError, lambda: tune.with_resources(fn, 5)),  # type: ignore[arg-type]
    "a class without step": (NotImplementedError, lambda: NoStep().train()),
    "time-out": (ValueError, lambda: TimeoutStopper("soon")),  # type: ignore[arg-type]
    "plateau": (ValueError, lambda: ExperimentPlateauStopper("a", mode="best")),
    "plateau of a trial": (ValueError, lambda: TrialPlateauStopper("a", mode="best", metric_threshold=1)),
    "workers": (ValueError, lambda: train.ScalingConfig(num_workers=(1, 2, 3))),  # type: ignore[arg-type]
    "fewer than none": (ValueError, lambda: train.ScalingConfig(num_workers=-1)),
    "GPUs that are not used": (ValueError, lambda: train.ScalingConfig(resources_per_worker={"GPU": 1})),
    "callbacks": (ValueError, lambda: train.RunConfig(callbacks=[5])),
    "order": (ValueError, lambda: train.CheckpointConfig(checkpoint_score_order="best")),
    "a result of nothing": (RuntimeError, lambda: train.Result.from_path("nowhere")),
    "an experiment of nothing": (FileNotFoundError, lambda: tune.Tuner.restore("nowhere", fn)),
    "an analysis of nothing": (ValueError, lambda: tune.ExperimentAnalysis("nowhere")),
    "training outside": (RuntimeError, lambda: train.report({})),
}

# What Ray raises there is an assertion, or no error, and a script does not catch it
DIFFERENT: dict[str, tuple[type[Exception], Callable[[], Any]]] = {
    "max_t": (ValueError, lambda: ASHAScheduler(max_t=0)),
    "grace period": (ValueError, lambda: ASHAScheduler(max_t=1, grace_period=5)),
    "mode of a scheduler": (ValueError, lambda: ASHAScheduler(mode="best")),
    "limit of what is no searcher": (TypeError, lambda: ConcurrencyLimiter(5, 1)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", AS_IN_RAY)
def test_the_type_is_rays(case: str) -> None:
    kind, call = AS_IN_RAY[case]
    with pytest.raises(kind):
        call()


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_type_is_another_on_purpose(case: str) -> None:
    kind, call = DIFFERENT[case]
    with pytest.raises(kind) as met:
        call()
    assert not isinstance(met.value, AssertionError)


def test_a_script_may_call_its_trainable_by_hand() -> None:
    with pytest.warns(UserWarning, match=r"tune\.report\(\) outside a trial does nothing"):
        fn({"x": 1})
    with pytest.warns(UserWarning, match=r"tune\.get_checkpoint\(\) outside a trial"):
        assert tune.get_checkpoint() is None
    with pytest.warns(UserWarning, match="get_trial_id"):
        assert tune.get_context().get_trial_id() is None


def test_stop_takes_a_list_of_stoppers(tmp_path: Path) -> None:
    def endless(config: dict[str, Any]) -> None:
        for step in range(config["most"]):
            tune.report({"step": step})

    stop = [tune.stopper.MaximumIterationStopper(3), tune.stopper.FunctionStopper(lambda _, result: result["step"] > 5)]
    run = tune.RunConfig(storage_path=tmp_path, name="stoppers", verbose=0, stop=stop)
    assert tune.Tuner(endless, param_space={"most": 100}, run_config=run).fit()[0].metrics["training_iteration"] == 3
