"""Options without effect on trials are said to have none, once, and those that have one are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import checks
from holdfast.tune.unused_options import warn_unused_in_tuning


class OfTraining(train.UserCallback): ...


class OfTuning(tune.Callback): ...


class Steps(tune.Trainable): ...


def nothing(config: dict[str, Any]) -> None: ...


@pytest.fixture(autouse=True)
def nothing_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_warned", set())


def said(trainable: Any, config: tune.TuneConfig, run: train.RunConfig, on_ray: bool = False) -> set[str]:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warn_unused_in_tuning(trainable, config, run, on_ray)
        warn_unused_in_tuning(trainable, config, run, on_ray)
    texts = [str(warning.message) for warning in seen]
    assert all(" has no effect on trials: " in text for text in texts)
    assert len(set(texts)) == len(texts)
    return {text.split(" has no effect")[0] for text in texts}


def test_what_trials_make_no_use_of() -> None:
    run = train.RunConfig(
        sync_config=train.SyncConfig(60, sync_timeout=5, sync_artifacts=True, sync_artifacts_on_checkpoint=False),
        callbacks=[OfTraining(), OfTuning()],  # type: ignore[list-item]
        worker_runtime_env={"pip": ["x"], "env_vars": {"A": "1"}},
        failure_config=train.FailureConfig(
            controller_failure_limit=2, relax_collectives_on_preemption=True, preemption_grace_s=5
        ),
    )
    expected = {
        "TuneConfig(reuse_actors)",
        "RunConfig(callbacks=[OfTraining])",
        "RunConfig(worker_runtime_env=['pip'])",
        "SyncConfig(sync_timeout)",
        "SyncConfig(sync_artifacts)",
        "SyncConfig(sync_artifacts_on_checkpoint)",
        "FailureConfig(controller_failure_limit)",
        "FailureConfig(relax_collectives_on_preemption)",
        "FailureConfig(preemption_grace_s)",
    }
    assert said(nothing, tune.TuneConfig(reuse_actors=True), run) == expected
    checks._warned.clear()
    on_ray = said(nothing, tune.TuneConfig(reuse_actors=True), run, on_ray=True)
    assert on_ray == expected - {"RunConfig(worker_runtime_env=['pip'])"}


def test_files_of_output_are_for_disks() -> None:
    """In a bucket, the logs have the output."""
    remote = train.RunConfig(name="a", storage_path="memory://x", log_to_file=True)
    assert said(nothing, tune.TuneConfig(), remote) == {"RunConfig(log_to_file)"}


def test_tuners_of_the_same_trainer_have_names_of_their_own() -> None:
    """Else the second one continues the experiment of the first."""
    trainer = train.DataParallelTrainer(nothing)
    names = {tune.Tuner(trainer)._definition.run_config.name for _ in range(3)}
    assert len(names) == 3
    own = train.DataParallelTrainer(nothing, run_config=train.RunConfig(storage_path="elsewhere"))
    assert said(own, tune.TuneConfig(), tune.Tuner(own)._definition.run_config) == set()
    named = train.DataParallelTrainer(nothing, run_config=train.RunConfig(name="mine"))
    assert tune.Tuner(named)._definition.run_config.name == "mine"


@pytest.mark.parametrize("trainable", [nothing, Steps])
def test_what_trials_make_use_of(trainable: Any) -> None:
    run = train.RunConfig(
        name="a",
        stop={"epoch": 3},
        progress_reporter=tune.CLIReporter(),
        verbose=1,
        log_to_file="out",
        callbacks=[OfTuning()],  # type: ignore[list-item]
        checkpoint_config=train.CheckpointConfig(2, "loss", "min", checkpoint_frequency=2, checkpoint_at_end=True),
        failure_config=train.FailureConfig(fail_fast=True, hang_timeout_s=9, max_same_errors=2),
        sync_config=train.SyncConfig(60),
        worker_runtime_env={"env_vars": {"A": "1"}},
        preload=["json"],
    )
    config = tune.TuneConfig(metric="loss", mode="min", num_samples=3, max_concurrent_trials=2, time_budget_s=5)
    assert said(trainable, config, run) == set()


def test_of_a_trainer() -> None:
    scaling = train.ScalingConfig(trainer_resources={"CPU": 1}, label_selector={"zone": "a"})
    own = train.RunConfig(checkpoint_config=train.CheckpointConfig(checkpoint_frequency=2))
    trainer = train.DataParallelTrainer(nothing, scaling_config=scaling, run_config=own)
    of_it = {"ScalingConfig(trainer_resources)", "ScalingConfig(label_selector)"}
    assert said(trainer, tune.TuneConfig(), own) == of_it | {"CheckpointConfig(checkpoint_frequency)"}
    checks._warned.clear()
    assert said(trainer, tune.TuneConfig(), train.RunConfig()) == of_it | {"The trainer's own run_config"}


@pytest.mark.parametrize(
    ("own", "given"), [(train.RunConfig(name="a"), True), (train.RunConfig(), False), (None, False)]
)
def test_a_trainers_own_run_config_is_missed_if_it_says_anything(own: train.RunConfig | None, given: bool) -> None:
    trainer = train.DataParallelTrainer(nothing, run_config=own)
    assert bool(said(trainer, tune.TuneConfig(), train.RunConfig(name="b"))) is given


def test_fit_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.tune.tuner.choose", stop)
    run = tune.RunConfig(storage_path=tmp_path, sync_config=train.SyncConfig(sync_timeout=5))
    with pytest.warns(UserWarning, match="sync_timeout") as seen, pytest.raises(KeyboardInterrupt):
        tune.Tuner(nothing, run_config=run).fit()
    assert seen[0].filename == __file__
