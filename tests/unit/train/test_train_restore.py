"""What ``restore`` brings back of a run, what it asks for again, and what is no run at all."""

from __future__ import annotations

import tempfile
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy
import pytest

from holdfast import train, tune
from holdfast.errors import NotARunError
from holdfast.runs.stored_run import StoredRun
from holdfast.store import runfile
from holdfast.store.disk import Disk
from holdfast.store.layout import RunLayout
from holdfast.store.location import Location
from holdfast.train import DataConfig, RunConfig, SyncConfig, ValidationConfig, record

Trainer = train.DataParallelTrainer
HERE = train.ScalingConfig(num_workers=0)


def report_once(config: dict[str, Any]) -> None:
    tune.report({"a": config["i"]})


def train_fn() -> None:
    train.report({"y": 0})


def test_an_experiment_is_not_overwritten_by_a_run_of_its_name(tmp_path: Path) -> None:
    run = RunConfig(storage_path=tmp_path, name="same", verbose=0)
    assert len(tune.Tuner(report_once, param_space={"i": 1}, run_config=run).fit()) == 1
    path = tmp_path / "same"
    files = {file: file.read_bytes() for file in path.rglob("*.json") if file.name != "lease.json"}
    with pytest.raises(NotARunError, match=r"is an experiment, not a training run\. Choose another RunConfig\(name="):
        Trainer(train_fn, scaling_config=HERE, run_config=run).fit()
    assert {file: file.read_bytes() for file in path.rglob("*.json") if file.name != "lease.json"} == files
    path.joinpath("run.json").write_bytes(b"damaged")
    with pytest.raises(NotARunError, match="is an experiment, not a training run"):
        Trainer(train_fn, scaling_config=HERE, run_config=run).fit()
    assert not Trainer.can_restore(path)
    with pytest.raises(NotARunError, match=r"not a training run: use Tuner\.restore"):
        Trainer.restore(path, train_fn)
    assert tune.Tuner.can_restore(path)
    assert tune.Tuner.restore(path, report_once).fit()[0].metrics["a"] == 1


def report_checkpoint() -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "state").write_text("0")
        train.report({"y": 0}, checkpoint=train.Checkpoint(directory))


def what_it_starts_from() -> str | None:
    checkpoint = train.get_checkpoint()
    return None if checkpoint is None else Path(checkpoint.path).name


class Watching(train.UserCallback):
    pass


class ADataConfig(DataConfig):
    pass


class ABackend(train.BackendConfig):
    pass


def recorded(tmp_path: Path, run: dict[str, Any], fn: Any = train_fn, **options: Any) -> Path:
    """A run that has ended; what its record says is all that counts here."""
    config = RunConfig(storage_path=tmp_path, name="run", **{"verbose": 0, **run})
    Trainer(fn, scaling_config=HERE, run_config=config, **options).fit()
    return tmp_path / "run"


def test_what_is_not_passed_again_comes_from_the_record(tmp_path: Path) -> None:
    run = {"sync_config": SyncConfig(sync_period=7), "engine": "ray", "preload": ["json"]}
    split = {"datasets": {"a": [1], "b": [2]}, "dataset_config": DataConfig(["b"], enable_shard_locality=False)}
    path = recorded(tmp_path, run, metadata={"who": "me"}, **split)
    restored = Trainer.restore(path, train_fn, datasets=split["datasets"])
    assert restored.metadata == {"who": "me"}
    assert restored.run_config.sync_config == SyncConfig(sync_period=7)
    assert (restored.run_config.engine, restored.run_config.verbose) == ("ray", 0)
    assert restored.run_config.preload == ["json"]
    assert vars(restored.data_config) == vars(split["dataset_config"])
    stored = runfile.read(RunLayout(path))
    assert stored.pop("id")
    assert record.identity_of(restored) == stored
    assert Trainer.restore(path, train_fn, datasets=split["datasets"], metadata={"who": "you"}).metadata["who"] == "you"


@pytest.mark.parametrize(
    ("run", "options", "asked"),
    [
        ({"worker_runtime_env": {"env_vars": {"TOKEN": "a secret"}}}, {}, r"run_config=RunConfig\(worker_runtime_env="),
        ({"engine": object()}, {}, r"run_config=RunConfig\(engine=\.\.\.\)\): code, objects"),
        ({}, {"metadata": {"x": (1, 2)}}, r"restore\(metadata="),
        ({}, {"validation_config": ValidationConfig(fn=dict)}, r"restore\(validation_config="),
        ({}, {"dataset_config": DataConfig(execution_options={"a": 1})}, r"restore\(dataset_config="),
        ({}, {"dataset_config": ADataConfig()}, r"restore\(dataset_config="),
        ({}, {"backend_config": ABackend()}, r"restore\(backend_config=\.\.\.\): the run had a ABackend"),
    ],
)
def test_what_cannot_be_stored_is_asked_for(
    tmp_path: Path, run: dict[str, Any], options: dict[str, Any], asked: str
) -> None:
    path = recorded(tmp_path, run, **options)
    assert b"secret" not in b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
    with pytest.raises(ValueError, match=asked):
        Trainer.restore(path, train_fn)
    again = {"run_config": RunConfig(**run)} if run else options
    assert Trainer.restore(path, train_fn, **again).run_config.name == "run"


def test_callbacks_that_are_not_passed_again_are_missed(tmp_path: Path) -> None:
    path = recorded(tmp_path, {"callbacks": [Watching()]})
    with pytest.warns(UserWarning, match="had the callbacks Watching, which are not stored"):
        Trainer.restore(path, train_fn)
    Trainer.restore(path, train_fn, run_config=RunConfig(callbacks=[Watching()]))


def test_the_checkpoint_that_it_was_to_start_from_comes_back(tmp_path: Path) -> None:
    source = tmp_path / "given"
    source.mkdir()
    path = recorded(tmp_path, {}, resume_from_checkpoint=train.Checkpoint(source))
    restored = Trainer.restore(path, what_it_starts_from)
    assert restored.fit().return_value == "given"
    source.rmdir()
    with pytest.raises(
        ValueError, match=r"no checkpoint of its own.* no longer at .*given\. Pass that checkpoint again"
    ):
        Trainer.restore(path, train_fn)
    source.mkdir()
    Trainer.restore(path, report_checkpoint).fit()
    source.rmdir()
    assert Trainer.restore(path, what_it_starts_from).fit().return_value == "checkpoint_000001"


def test_records_of_earlier_versions_are_restored(tmp_path: Path) -> None:
    path = recorded(tmp_path, {}, metadata={"who": "me"})
    known = runfile.read(RunLayout(path))
    old = ("name", "trainer", "scaling", "failure", "checkpoint", "datasets", "had_train_loop_config", "metadata")
    runfile.write(RunLayout(path), Disk(), {name: known[name] for name in old})
    assert Trainer.restore(path, train_fn).fit().metrics == {"y": 0}


class Kind(IntEnum):
    SMALL = 1


def config_it_got(config: dict[str, Any]) -> str:
    return repr(config)


def test_types_of_the_config_are_kept(tmp_path: Path) -> None:
    config = {"betas": (0.9, 0.99), "kind": Kind.SMALL, "by": {1: {2, 3}}, "where": Path("data"), "w": numpy.arange(2)}
    run = RunConfig(storage_path=tmp_path, name="typed", verbose=0)
    result = Trainer(config_it_got, train_loop_config=config, scaling_config=HERE, run_config=run).fit()
    assert result.config is config
    assert repr(train.Result.from_path(tmp_path / "typed").config) == repr(config)
    restored = Trainer.restore(tmp_path / "typed", config_it_got)
    assert repr(restored.train_loop_config) == repr(config)
    assert StoredRun(Location.parse("path", tmp_path / "typed")).identity()["train_loop_config"]["betas"] == [0.9, 0.99]


def test_a_config_with_an_object_is_asked_for_again_and_shown_by_fit(tmp_path: Path) -> None:
    config = {"fn": print}
    run = RunConfig(storage_path=tmp_path, name="object", verbose=0)
    assert Trainer(config_it_got, train_loop_config=config, scaling_config=HERE, run_config=run).fit().config is config
    with pytest.raises(ValueError, match="pass train_loop_config again, because it could not be stored"):
        Trainer.restore(tmp_path / "object", config_it_got)
