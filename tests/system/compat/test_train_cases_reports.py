"""What Ray's own tests expect of reports, checkpoints, callbacks and results of a run of two workers.

``support.compat.ray_train_cases`` says which of Ray's cases each test stands for.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from holdfast import train
from holdfast.train import Checkpoint, CheckpointConsistencyMode, CheckpointUploadMode, ReportedCheckpoint
from holdfast.train.torch import TorchTrainer

IN_TIME_S = 30.0
ASYNC, SYNC, NO_UPLOAD = CheckpointUploadMode.ASYNC, CheckpointUploadMode.SYNC, CheckpointUploadMode.NO_UPLOAD


def fit(storage: Path, fn: Any, workers: int = 2, **more: Any) -> train.Result:
    run = {"name": "run", "storage_path": str(storage), "verbose": 0}
    names = ("validation_config", "train_loop_config")
    options = {name: more.pop(name) for name in names if name in more}
    scaling = train.ScalingConfig(num_workers=workers)
    config = train.RunConfig(**{**run, **more})
    return train.DataParallelTrainer(fn, scaling_config=scaling, run_config=config, **options).fit()


def rank() -> int:
    return train.get_context().get_world_rank()


def save(metrics: dict[str, Any] | None = None, names: tuple[str, ...] = ("file",), **options: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        for name in names:
            Path(directory, name).write_text(name)
        train.report(metrics or {}, Checkpoint.from_directory(directory), **options)


def wait_for(*files: Path) -> None:
    deadline = time.monotonic() + IN_TIME_S
    while not all(file.exists() for file in files):
        assert time.monotonic() < deadline, f"{files} did not come"
        time.sleep(0.01)


# Places and modes of checkpoints


MODES = {  # by rank: the mode of each of the ten pairs; None: no checkpoint
    0: [ASYNC, ASYNC, ASYNC, ASYNC, SYNC, SYNC, SYNC, NO_UPLOAD, NO_UPLOAD, None],
    1: [ASYNC, SYNC, NO_UPLOAD, None, SYNC, NO_UPLOAD, None, NO_UPLOAD, None, None],
}


@pytest.mark.soak
def test_every_pair_of_upload_modes(tmp_path: Path) -> None:
    def fn() -> None:
        for number, mode in enumerate(MODES[rank()]):
            metrics, name = {"metric": f"{number} of {rank()}"}, f"checkpoint_iteration_{number}"
            if mode is None:
                train.report(metrics)
                continue
            place = tmp_path / "mine" / f"{number}-{rank()}"
            if mode is NO_UPLOAD:
                place = Path(train.get_context().get_storage().build_checkpoint_path_from_name(name))
            place.mkdir(parents=True, exist_ok=True)
            (place / f"shard_{rank()}").write_text(f"{number}")
            train.report(metrics, Checkpoint(place), checkpoint_upload_mode=mode, checkpoint_dir_name=name)
            newest = train.get_checkpoint()
            if mode is not ASYNC:
                assert newest is not None
                assert Path(newest.path).name == name

    found = fit(tmp_path / "runs", fn).best_checkpoints
    assert [Path(checkpoint.path).name for checkpoint, _ in found] == [f"checkpoint_iteration_{n}" for n in range(9)]
    assert [metrics["metric"] for _, metrics in found] == [f"{n} of 0" for n in range(9)]
    for number, (checkpoint, _) in enumerate(found):
        shards = [f"shard_{each}" for each in (0, 1) if MODES[each][number] is not None]
        assert sorted(os.listdir(checkpoint.path)) == shards


@pytest.mark.soak
@pytest.mark.parametrize("delete", [True, False], ids=["deletes", "keeps"])
@pytest.mark.parametrize("mode", [ASYNC, SYNC, NO_UPLOAD], ids=["async", "sync", "no upload"])
def test_what_becomes_of_the_directory_of_a_checkpoint(
    tmp_path: Path, mode: CheckpointUploadMode, delete: bool
) -> None:
    def fn() -> None:
        if rank() != 0:
            train.report({})
            return
        place = tmp_path / "mine"
        if mode is NO_UPLOAD:
            place = Path(train.get_context().get_storage().build_checkpoint_path_from_name("mine"))
        place.mkdir()
        (place / "shard_0").touch()
        options = {"checkpoint_upload_mode": mode, "delete_local_checkpoint_after_upload": delete}
        train.report({}, Checkpoint(place), **options)

    result = fit(tmp_path, fn)
    assert result.checkpoint is not None
    assert os.listdir(result.checkpoint.path) == ["shard_0"]
    assert (tmp_path / "mine").exists() is (mode is not NO_UPLOAD and not delete)


@pytest.mark.soak
def test_an_upload_function_copies_to_the_storage_of_the_run(tmp_path: Path) -> None:
    def upload(checkpoint: Checkpoint, name: str) -> Checkpoint:
        place = train.get_context().get_storage().build_checkpoint_path_from_name(name)
        shutil.copytree(checkpoint.path, place)
        return Checkpoint.from_directory(place)

    def fn() -> None:
        if rank() == 0:
            save(names=("key",), checkpoint_dir_name="mine", checkpoint_upload_fn=upload)
        else:
            train.report({})

    result = fit(tmp_path, fn)
    assert result.checkpoint is not None
    assert os.listdir(result.checkpoint.path) == ["key"]


@pytest.mark.soak
@pytest.mark.parametrize("ranks", [{0}, {1, 3}], ids=["the first", "some others"])
def test_only_some_ranks_have_a_checkpoint(tmp_path: Path, ranks: set[int]) -> None:
    def fn() -> None:
        if rank() in ranks:
            save({"rank": rank()}, names=(f"of {rank()}",))
        else:
            train.report({"rank": rank()}, checkpoint=None)

    result = fit(tmp_path, fn, workers=4)
    assert result.metrics == {"rank": 0}
    assert result.checkpoint is not None
    assert sorted(os.listdir(result.checkpoint.path)) == [f"of {each}" for each in sorted(ranks)]


# Checkpoints that were reported


@pytest.mark.soak
def test_checkpoints_that_were_reported_so_far(tmp_path: Path) -> None:
    def fn() -> list[int]:
        counts = [len(train.get_all_reported_checkpoints())]
        for turn in range(3):
            if rank() == 0 and turn:
                save()
            else:
                train.report({})
            counts.append(len(train.get_all_reported_checkpoints()))
        assert counts == [0, 0, 1, 2]
        return counts

    assert fit(tmp_path, fn).return_value == [0, 0, 1, 2]


@pytest.mark.soak
def test_checkpoints_before_and_after_their_validation(tmp_path: Path) -> None:
    may_end = tmp_path / "may end"

    def validate(_checkpoint: Checkpoint) -> dict[str, Any]:
        wait_for(may_end)
        return {"validation_score": 100}

    def metrics_of(mode: CheckpointConsistencyMode) -> list[Any]:
        found: list[ReportedCheckpoint] = train.get_all_reported_checkpoints(consistency_mode=mode)
        return [each.metrics for each in found]

    def fn() -> None:
        if rank() == 0:
            save({"training_score": 1}, validation=True)
        else:
            train.report({})
        assert metrics_of(CheckpointConsistencyMode.COMMITTED) == [{"training_score": 1}]
        train.collective.barrier()
        may_end.touch()
        assert metrics_of(CheckpointConsistencyMode.VALIDATED) == [{"training_score": 1, "validation_score": 100}]

    fit(tmp_path, fn, validation_config=train.ValidationConfig(validate))


@pytest.mark.soak
def test_validations_decide_which_checkpoints_are_kept(tmp_path: Path) -> None:
    def validate(_checkpoint: Checkpoint, new_score: int | None = None) -> dict[str, Any]:
        return {"score": new_score} if new_score else {}

    def fn() -> None:
        save({"score": 1}, validation=True)
        save({"score": 3}, validation=True, checkpoint_upload_mode=SYNC)
        better = train.ValidationTaskConfig(fn_kwargs={"new_score": 5})
        save({"score": 2}, validation=better, checkpoint_upload_mode=SYNC)

    keep = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(tmp_path, fn, validation_config=train.ValidationConfig(validate), checkpoint_config=keep)
    assert [metrics for _, metrics in result.best_checkpoints] == [{"score": 3}, {"score": 5}]
    assert result.checkpoint == result.best_checkpoints[1][0]


@pytest.mark.soak
def test_a_validation_that_fails_fails_no_run(tmp_path: Path) -> None:
    def validate(_checkpoint: Checkpoint, number: int) -> dict[str, Any]:
        if number == 0:
            raise ValueError("validation failed")
        return {}

    def fn() -> None:
        for number in range(2):
            save(validation=train.ValidationTaskConfig(fn_kwargs={"number": number}))

    result = fit(tmp_path, fn, validation_config=train.ValidationConfig(validate))
    assert result.error is None
    assert len(result.best_checkpoints) == 2
    assert result.checkpoint == result.best_checkpoints[1][0]


# Runs


@pytest.mark.soak
def test_all_ranks_have_reached_a_barrier(tmp_path: Path) -> None:
    def fn() -> None:
        (tmp_path / f"reached-{rank()}").touch()
        train.collective.barrier()
        assert len(list(tmp_path.glob("reached-*"))) == 2

    fit(tmp_path / "runs", fn)


@pytest.mark.soak
def test_a_trainer_needs_no_more_than_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_PATH", str(tmp_path))
    assert train.DataParallelTrainer(lambda: None).fit().error is None


@pytest.mark.soak
def test_what_a_run_returns(tmp_path: Path) -> None:
    result = fit(tmp_path, lambda config: save(config), train_loop_config={"x": 1})
    assert isinstance(result, train.Result)
    assert result.metrics == {"x": 1}
    assert result.path == str(tmp_path / "run")
    assert isinstance(result.filesystem, pyarrow.fs.FileSystem)


class Watches(train.UserCallback):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
        self.seen.append((metrics, checkpoint))

    def after_exception(self, run_context: Any, worker_exceptions: dict[int, Exception]) -> None:
        self.seen.append({rank: type(error) for rank, error in worker_exceptions.items()})


@pytest.mark.soak
def test_an_error_of_one_rank_and_a_callback_that_sees_it(tmp_path: Path) -> None:
    def fn(_config: dict[str, Any]) -> None:
        train.report({"rank": rank()})
        train.collective.barrier()
        if rank() == 0:
            raise ValueError("error")

    watches = Watches()
    with pytest.raises(train.TrainingFailedError) as caught:
        fit(tmp_path, fn, callbacks=[watches])
    assert isinstance(caught.value, train.WorkerGroupError)
    assert isinstance(caught.value.worker_failures[0], ValueError)
    assert watches.seen[0] == ([{"rank": 0}, {"rank": 1}], None)
    assert [list(each) for each in watches.seen[1:]] == [[0]]


@pytest.mark.soak
@pytest.mark.parametrize("init_method", ["env", "tcp"])
def test_torch_is_set_up_on_two_workers(tmp_path: Path, init_method: str) -> None:
    from holdfast.train.torch import TorchConfig

    def fn() -> int:
        import torch.distributed

        assert torch.distributed.is_initialized()
        return torch.distributed.get_world_size()

    trainer = TorchTrainer(
        fn,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
        torch_config=TorchConfig(backend="gloo", init_method=init_method),
    )
    assert trainer.fit().return_value == 2


@pytest.mark.soak
@pytest.mark.parametrize("when", ["before its report", "in its upload"])
def test_a_rank_that_fails_at_its_report_is_started_again(tmp_path: Path, when: str) -> None:
    def upload(_checkpoint: Checkpoint, _name: str) -> Checkpoint:
        raise ValueError("simulated failure")

    def fn() -> None:
        failed = tmp_path / "failed"
        if rank() == 1 and not failed.exists():
            failed.touch()
            if when == "before its report":
                raise ValueError("simulated failure")
            save({"iter": 1}, checkpoint_upload_fn=upload)
        for number in (1, 2):
            if rank() == 0:
                save({"iter": number})
            else:
                train.report({"iter": number})
            train.collective.barrier()

    result = fit(tmp_path / "runs", fn, failure_config=train.FailureConfig(max_failures=1))
    assert result.error is None
    assert result.metrics == {"iter": 2}
    assert result.best_checkpoints


@pytest.mark.soak
def test_a_script_stays_in_its_directory_whatever_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", "1"):
        monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", value)
        assert fit(tmp_path / value, os.getcwd).return_value == os.getcwd()


# Results


@pytest.mark.soak
def test_a_failed_run_is_read_from_its_path(tmp_path: Path) -> None:
    def fn() -> None:
        for number in range(5):
            train.report({"metric_a": -100, "metric_b": -100})
            metrics = {"metric_a": number, "metric_b": -number}
            if rank() == 0:
                save(metrics, names=(str(number),))
            else:
                train.report(metrics)
        train.collective.barrier()  # report() itself is none: a row of the moving guide
        raise RuntimeError

    keep = train.CheckpointConfig(num_to_keep=3, checkpoint_score_attribute="metric_a")
    with pytest.raises(train.WorkerGroupError):
        fit(tmp_path, fn, checkpoint_config=keep)

    path = tmp_path / "run"
    ways: list[Any] = [str(path), path, f"{path}/", Path(f"{path}/")]
    for place in ways:
        for system in (None, pyarrow.fs.LocalFileSystem()):
            result = train.Result.from_path(place, storage_filesystem=system)
            assert result.checkpoint is not None
            assert len(result.best_checkpoints) == 3
            best = [result.get_best_checkpoint(metric, "max") for metric in ("metric_a", "metric_b")]
            assert [os.listdir(each.path) for each in best if each] == [["4"], ["2"]]
            with pytest.raises(RuntimeError, match="invalid_metric"):
                result.get_best_checkpoint("invalid_metric", "max")


def test_a_result_is_shown_with_its_checkpoint() -> None:
    metrics = {"iter": 0, "metric": 1.0}
    shown = repr(train.Result(metrics=metrics, checkpoint=Checkpoint("/bucket/ckpt0"), error=None, path="/bucket"))
    assert "Checkpoint(filesystem=local, path=/bucket/ckpt0)" in shown
    assert "metrics={'iter': 0, 'metric': 1.0}" in shown


# Configurations


def test_an_accelerator_type_is_a_resource() -> None:
    config = train.ScalingConfig(num_workers=2, use_gpu=True, accelerator_type="A100")
    assert config.accelerator_type == "A100"
    assert config.total_resources == {"GPU": 2, "accelerator_type:A100": 0.002}
    assert config.additional_resources_per_worker == {"accelerator_type:A100": 0.001}


def test_configurations_need_no_argument() -> None:
    assert train.ScalingConfig().num_workers == 1
    assert train.FailureConfig() == train.FailureConfig()
    assert train.RunConfig().failure_config is not None


def test_the_names_of_train_are_those_of_its_modules() -> None:
    from holdfast.train.v2.api.config import FailureConfig, RunConfig
    from holdfast.train.v2.api.result import Result

    assert (train.FailureConfig, train.RunConfig, train.Result) == (FailureConfig, RunConfig, Result)
