"""What Ray's own tests expect of training: validations, what a report refuses, configurations and places.

``support.compat.ray_train_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast import train, tune
from holdfast.train import CheckpointConsistencyMode, CheckpointUploadMode, ReportedCheckpointStatus
from holdfast.train.ray_variables import TRAIN_CALLBACKS, TUNE_CALLBACKS, callbacks_in


def fit(storage: Path, fn: Any, **more: Any) -> train.Result:
    run = {"name": "run", "storage_path": str(storage), "verbose": 0}
    names = ("validation_config", "train_loop_config", "scaling_config")
    trainer = {name: more.pop(name) for name in names if name in more}
    return train.DataParallelTrainer(fn, run_config=train.RunConfig(**{**run, **more}), **trainer).fit()


def save(metrics: dict[str, Any] | None = None, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "file").touch()
        train.report(metrics or {}, checkpoint=train.Checkpoint.from_directory(directory), **options)


# Validations


@pytest.mark.soak
def test_arguments_of_one_report_come_before_the_defaults(tmp_path: Path) -> None:
    def validate(_checkpoint: train.Checkpoint, score: int, other: str) -> dict[str, Any]:
        return {"score": score, "other": other}

    task = train.ValidationTaskConfig(fn_kwargs={"score": 1, "other": "default"})
    result = fit(
        tmp_path,
        lambda: save(validation=train.ValidationTaskConfig(fn_kwargs={"score": 2})),
        validation_config=train.ValidationConfig(validate, task),
    )
    assert result.best_checkpoints[0][1] == {"score": 2, "other": "default"}


def tried(marker: Path) -> int:
    with marker.open("a") as file:
        file.write("x")
    return len(marker.read_text())


OPTIONS: list[tuple[dict[str, Any] | None, str, str, int]] = [
    ({"max_retries": 1, "retry_exceptions": [ValueError]}, "raises", "VALIDATED", 2),
    (None, "is killed", "VALIDATED", 2),
    ({"max_retries": 1, "retry_exceptions": True}, "raises", "VALIDATED", 2),
    ({"retry_exceptions": [KeyError]}, "raises", "VALIDATION_FAILED", 1),
    (None, "raises", "VALIDATION_FAILED", 1),
    ({"max_retries": 0}, "is killed", "VALIDATION_FAILED", 1),
]


@pytest.mark.parametrize(
    ("options", "how", "status", "tries"),
    [*OPTIONS[:2], *(pytest.param(*each, marks=pytest.mark.soak) for each in OPTIONS[2:])],
)
def test_a_validation_is_retried_as_ray_remote_kwargs_say(
    tmp_path: Path, options: Any, how: str, status: str, tries: int
) -> None:
    def validate(_checkpoint: train.Checkpoint) -> dict[str, Any]:
        if tried(tmp_path / "tries") == 1 and how == "raises":
            raise ValueError("validation failed")
        if len((tmp_path / "tries").read_text()) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"score": 100}

    def fn() -> list[str]:
        save(validation=True)
        return [item.status.value for item in train.get_all_reported_checkpoints()]

    config = train.ValidationConfig(validate, ray_remote_kwargs=options)
    assert fit(tmp_path, fn, validation_config=config).return_value == [status]
    assert len((tmp_path / "tries").read_text()) == tries


@pytest.mark.soak
def test_a_validation_has_the_environment_of_its_runtime_env(tmp_path: Path) -> None:
    config = train.ValidationConfig(
        lambda _checkpoint: {"own": os.environ["OWN"]},
        ray_remote_kwargs={"runtime_env": {"env_vars": {"OWN": "value"}}},
    )
    result = fit(tmp_path, lambda: save(validation=True), validation_config=config)
    assert result.best_checkpoints[0][1] == {"own": "value"}


def test_options_of_a_task_that_have_no_effect_are_warned_about() -> None:
    with pytest.warns(UserWarning, match="num_cpus.*num_gpus"):
        train.ValidationConfig(lambda _checkpoint: {}, ray_remote_kwargs={"num_cpus": 2, "num_gpus": 1})


WRONG: list[Any] = [{"retries": 1}, {"max_retries": -2}, {"retry_exceptions": ["ValueError"]}, [1]]


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_options_of_validations_that_are_none(options: Any) -> None:
    with pytest.raises(ValueError, match="ray_remote_kwargs"):
        train.ValidationConfig(lambda _checkpoint: {}, ray_remote_kwargs=options)


@pytest.mark.soak
def test_what_a_validation_returns_must_be_metrics(tmp_path: Path) -> None:
    def fn() -> list[str]:
        save(validation=True)
        return [item.status.value for item in train.get_all_reported_checkpoints()]

    config = train.ValidationConfig(lambda _checkpoint: "invalid")  # type: ignore[arg-type, return-value]
    assert fit(tmp_path, fn, validation_config=config).return_value == ["VALIDATION_FAILED"]


@pytest.mark.soak
@pytest.mark.parametrize("task", [True, train.ValidationTaskConfig(fn_kwargs={"score": 2})], ids=["default", "own"])
def test_what_failed_before_its_validations_ended_knows_them_later(tmp_path: Path, task: Any) -> None:
    def validate(_checkpoint: train.Checkpoint, score: int) -> dict[str, Any]:
        return {"score": score}

    def first() -> None:
        save({"step": 1})
        save({"step": 2}, validation=task)
        raise RuntimeError("train_fn failed intentionally")

    def second() -> list[Any]:
        found = train.get_all_reported_checkpoints(consistency_mode=CheckpointConsistencyMode.VALIDATED)
        return [(item.status, item.metrics) for item in found]

    default = train.ValidationTaskConfig(fn_kwargs={"score": 1})
    config = train.ValidationConfig(validate, default)
    with pytest.raises(train.WorkerGroupError):
        fit(tmp_path, first, validation_config=config)
    result = fit(tmp_path, second, validation_config=config)
    score = 1 if task is True else 2
    assert result.return_value == [
        (ReportedCheckpointStatus.COMMITTED, {"step": 1}),
        (ReportedCheckpointStatus.VALIDATED, {"step": 2, "score": score}),
    ]
    assert result.metrics == {"step": 2, "score": score}


# What a report refuses


REFUSED: list[tuple[Any, str]] = [
    (lambda: save(validation=True), "validation_config"),
    (lambda: train.report({}, validation=True), "without a checkpoint"),
    (lambda: save(checkpoint_upload_fn=lambda _checkpoint, _name: None), "Return a Checkpoint"),
]


@pytest.mark.soak
@pytest.mark.parametrize(("fn", "words"), REFUSED, ids=["no function", "no checkpoint", "no upload"])
def test_what_a_report_refuses(tmp_path: Path, fn: Any, words: str) -> None:
    with pytest.raises(train.WorkerGroupError, match=words) as caught:
        fit(tmp_path, fn)
    assert isinstance(caught.value.worker_failures[0], ValueError)


@pytest.mark.soak
@pytest.mark.parametrize("options", [{"delete_local_checkpoint_after_upload": True}, {}], ids=["deletes", "default"])
@pytest.mark.parametrize("where", ["storage", "above"])
def test_a_checkpoint_that_the_run_is_stored_in(tmp_path: Path, options: dict[str, Any], where: str) -> None:
    place = tmp_path / "base" / "storage"
    place.mkdir(parents=True)
    (place / "precious").touch()

    def fn() -> None:
        checkpoint = train.Checkpoint(place if where == "storage" else place.parent)
        train.report({}, checkpoint, checkpoint_upload_mode=CheckpointUploadMode.ASYNC, **options)

    with pytest.raises(train.WorkerGroupError, match="is stored in") as caught:
        fit(place, fn)
    assert isinstance(caught.value.worker_failures[0], ValueError)
    assert (place / "precious").exists()


class SlowlyTold(ValueError):
    """The train function has returned long before its text is made."""

    def __str__(self) -> str:
        time.sleep(0.5)
        return "an error"


def test_an_upload_that_raises_fails_the_run(tmp_path: Path) -> None:
    def upload(_checkpoint: Any, _name: str) -> Any:
        raise SlowlyTold

    with pytest.raises(train.WorkerGroupError, match="an error") as caught:
        fit(tmp_path, lambda: save(checkpoint_upload_fn=upload))
    assert isinstance(caught.value.worker_failures[0], ValueError)


# Configurations


def test_resources_of_a_scaling_config() -> None:
    config = train.ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1})
    assert config.total_resources == {"CPU": 2, "GPU": 2}
    config = train.ScalingConfig(num_workers=2, use_gpu=True, resources_per_worker={"CPU": 1, "GPU": 1})
    assert config.total_resources == {"CPU": 2, "GPU": 2}
    assert train.ScalingConfig().total_resources == {"CPU": 1}
    assert train.ScalingConfig(use_gpu=True).total_resources == {"GPU": 1}


WRONG_SCALING: list[dict[str, Any]] = [
    {"use_gpu": False, "resources_per_worker": {"GPU": 1}},
    {"use_gpu": True, "use_tpu": True},
    {"label_selector": [{"subcluster": "mine"}]},
]


@pytest.mark.parametrize("settings", WRONG_SCALING, ids=str)
def test_scaling_configs_that_cannot_be(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        train.ScalingConfig(num_workers=2, **settings)


def test_a_config_with_a_file_system_can_be_shown() -> None:
    import pyarrow.fs

    assert "storage_filesystem" in repr(train.RunConfig(storage_filesystem=pyarrow.fs.LocalFileSystem()))


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["string", "path", "dots"])
def test_ways_to_write_a_storage_path(tmp_path: Path, kind: str) -> None:
    odd = os.path.join(tmp_path, ".", "..", tmp_path.name, ".").replace(os.path.sep, os.path.sep * 2)
    storage: Any = {"string": str(tmp_path), "path": tmp_path, "dots": odd}[kind]
    run = train.RunConfig(name="run", storage_path=storage, verbose=0)
    result = train.DataParallelTrainer(lambda: train.report({"x": 1}), run_config=run).fit()
    assert os.path.realpath(result.path) == str(tmp_path / "run")


# Callbacks


class Own(train.UserCallback, tune.Callback): ...


NAMED: list[tuple[str, int]] = [
    (f"{__name__}.Own", 1),
    (f"{__name__}.Own,{__name__}.Own", 2),
    ("", 0),
    ("   ", 0),
    (f"{__name__}.Own, ,{__name__}.Own", 2),
]
KINDS: list[Any] = [(TRAIN_CALLBACKS, train.UserCallback), (TUNE_CALLBACKS, tune.Callback)]


@pytest.mark.parametrize(("variable", "kind"), KINDS)
def test_callbacks_of_a_variable(monkeypatch: pytest.MonkeyPatch, variable: str, kind: Any) -> None:
    assert callbacks_in(variable, kind) == []
    for named, count in NAMED:
        monkeypatch.setenv(variable, named)
        assert [type(each) for each in callbacks_in(variable, kind)] == [Own] * count
    causes = [
        ("invalid_module", ValueError),
        (f"{__name__}.Path", TypeError),
        ("os.Nothing", AttributeError),
        ("no.such.Module", ImportError),
    ]
    for named, cause in causes:
        monkeypatch.setenv(variable, named)
        with pytest.raises(ValueError, match=f"names {named}, which cannot be used") as caught:
            callbacks_in(variable, kind)
        assert isinstance(caught.value.__cause__, cause)
