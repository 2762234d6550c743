"""What a train function can say and ask, in real workers, without a framework."""

from __future__ import annotations

import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast.train as train


def fit(storage: Path, fn: Callable[..., Any], workers: int = 2, **options: Any) -> train.Result:
    names = ("train_loop_config", "validation_config", "datasets", "metadata", "resume_from_checkpoint")
    trainer_options = {name: options.pop(name) for name in names if name in options}
    run_config = train.RunConfig(
        **{"name": "run", "storage_path": str(storage), "verbose": 0, **options},
    )
    scaling = train.ScalingConfig(num_workers=workers)
    return train.DataParallelTrainer(fn, scaling_config=scaling, run_config=run_config, **trainer_options).fit()


def save(step: int, name: str = "step", **options: Any) -> None:
    metrics = options.pop("metrics", {"step": step})
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, name).write_text(str(step))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory), **options)


def ids(result: train.Result) -> list[str]:
    return [Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints]


def test_a_report_does_not_wait_for_other_ranks(tmp_path: Path) -> None:
    def fn() -> None:
        if train.get_context().get_world_rank() == 0:
            for step in range(20):
                save(step)
            train.collective.barrier()
        else:
            train.collective.barrier()
            for step in range(20):
                train.report({"step": step})

    result = fit(tmp_path, fn)
    assert len(result.best_checkpoints) == 20


def test_a_rank_that_returned_counts_as_having_reported(tmp_path: Path) -> None:
    def fn() -> None:
        if train.get_context().get_world_rank() == 0:
            save(1)
            save(2)

    assert ids(fit(tmp_path, fn)) == ["checkpoint_000001", "checkpoint_000002"]


def test_a_rank_that_does_not_report_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_MISSING_REPORT_WARNING_S", "0.2")

    def fn() -> None:
        if train.get_context().get_world_rank() != 1:
            save(1)
        train.collective.barrier()
        time.sleep(0.6)
        if train.get_context().get_world_rank() == 1:
            train.report({})

    fit(tmp_path, fn, workers=3, verbose=1)
    said = "checkpoint_000001 is not saved yet: rank 1 has not called train.report(). Call"
    assert said in capfd.readouterr().err


def test_shards_of_all_ranks_are_merged_and_the_lowest_rank_wins(tmp_path: Path) -> None:
    def fn() -> None:
        rank = train.get_context().get_world_rank()
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "deep").mkdir()
            Path(directory, "deep", f"rank-{rank}").write_text(str(rank))
            Path(directory, "same").write_text(str(rank))
            train.report({"rank": rank}, checkpoint=train.Checkpoint.from_directory(directory))

    result = fit(tmp_path, fn, workers=3)
    root = Path(result.checkpoint.path)
    assert sorted(str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()) == [
        "deep/rank-0",
        "deep/rank-1",
        "deep/rank-2",
        "same",
    ]
    assert (root / "same").read_text() == "0"
    assert result.metrics == {"rank": 0}


def test_a_run_of_metrics_alone(tmp_path: Path) -> None:
    def fn() -> None:
        for step in range(3):
            train.report({"f": np.float32(0.5), "i": np.int64(step), "nan": float("nan"), "n": {1: {"x": None}}})

    result = fit(tmp_path, fn)
    assert result.checkpoint is None
    assert result.metrics["f"] == 0.5
    assert result.metrics["i"] == 2
    assert math.isnan(result.metrics["nan"])
    assert result.metrics["n"] == {1: {"x": None}}
    assert result.metrics_dataframe["i"].tolist() == [0, 1, 2]
    assert train.Result.from_path(result.path).metrics["i"] == 2


def test_a_metric_that_cannot_be_stored_is_kept_as_text(tmp_path: Path) -> None:
    def fn() -> None:
        train.report({"good": 1, "bad": object()})

    assert fit(tmp_path, fn).metrics == {"good": 1, "bad": "<builtins.object>"}


def test_retention_by_score_keeps_the_best_and_the_latest(tmp_path: Path) -> None:
    scores = [3.0, float("nan"), 9.0, 1.0, 5.0]

    def fn() -> None:
        for step, score in enumerate(scores):
            save(step, metrics={"score": score})

    config = train.CheckpointConfig(num_to_keep=2, checkpoint_score_attribute="score")
    result = fit(tmp_path, fn, workers=1, checkpoint_config=config)
    assert ids(result) == ["checkpoint_000005", "checkpoint_000003"], "the best is last"
    assert result.get_best_checkpoint("score", "max").path.endswith("checkpoint_000003")
    assert {p.name for p in (tmp_path / "run" / "checkpoints").iterdir() if p.is_dir()} == set(ids(result))


def test_names_of_checkpoints(tmp_path: Path) -> None:
    def fn() -> None:
        save(1, checkpoint_dir_name="mine")
        save(2, checkpoint_dir_name="mine")
        save(3)

    assert ids(fit(tmp_path, fn, workers=1)) == ["mine", "mine-g1", "checkpoint_000003"]


def test_the_user_s_own_directory_is_left_alone(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()

    def fn() -> None:
        for step in range(2):
            (kept / "file").write_text(str(step))
            train.report({}, checkpoint=train.Checkpoint.from_directory(kept))
        assert (kept / "file").read_text() == "1"

    result = fit(tmp_path, fn, workers=1)
    assert [Path(c.path, "file").read_text() for c, _ in result.best_checkpoints] == ["0", "1"]


def test_callbacks_see_every_report_of_all_ranks_in_order(tmp_path: Path) -> None:
    seen: list[tuple[list[Any], str | None]] = []

    class Callback(train.UserCallback):
        def after_report(self, run_context: Any, metrics: list[dict[str, Any]], checkpoint: Any) -> None:
            seen.append(([m["step"] for m in metrics], checkpoint and Path(checkpoint.path).name))

    def fn() -> None:
        rank = train.get_context().get_world_rank()
        for step in range(6):
            if rank == 0 and step % 2:
                save(step)
            else:
                train.report({"step": step + 10 * rank})

    fit(tmp_path, fn, callbacks=[Callback()])
    checkpoints = [None, "checkpoint_000002", None, "checkpoint_000004", None, "checkpoint_000006"]
    assert seen == [([step, step + 10], checkpoints[step]) for step in range(6)]


def test_a_callback_that_raises_ends_the_run_with_a_clear_error(tmp_path: Path) -> None:
    class Callback(train.UserCallback):
        def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
            raise KeyError("mine")

    with pytest.raises(train.ControllerError, match=r"Callback\.after_report raised KeyError: 'mine'"):
        fit(tmp_path, lambda: save(1), callbacks=[Callback()])
    assert train.Result.from_path(tmp_path / "run").error is not None


def validate(checkpoint: train.Checkpoint, how: str = "well") -> dict[str, Any]:
    if how == "badly":
        raise ValueError("no good")
    if how == "slowly":
        time.sleep(60)
    return {"validated": int(Path(checkpoint.path, "step").read_text()) * 10, "pid": os.getpid()}


def test_validation_beside_training(tmp_path: Path) -> None:
    def fn() -> list[Any]:
        save(1, validation=True)
        save(2, validation=train.ValidationTaskConfig(fn_kwargs={"how": "badly"}))
        save(3, validation=train.ValidationTaskConfig(fn_kwargs={"how": "slowly"}, timeout_s=0.5))
        save(4)
        listed = train.get_all_reported_checkpoints()
        return [(item.status.value, item.metrics.get("validated")) for item in listed]

    result = fit(tmp_path, fn, workers=1, validation_config=train.ValidationConfig(validate))
    assert result.return_value == [
        ("VALIDATED", 10),
        ("VALIDATION_FAILED", None),
        ("VALIDATION_TIMEOUT", None),
        ("COMMITTED", None),
    ]
    assert result.best_checkpoints[0][1]["pid"] != os.getpid()


def test_arguments_of_a_validation_arrive_as_they_were_given(tmp_path: Path) -> None:
    given = {"low": float("-inf"), "weights": {1: 0.5, 2: 0.25}}

    def look(_checkpoint: train.Checkpoint, **arguments: Any) -> dict[str, Any]:
        return {"as given": arguments == given}

    def fn() -> list[Any]:
        save(1, validation=train.ValidationTaskConfig(fn_kwargs=given))
        return [item.metrics.get("as given") for item in train.get_all_reported_checkpoints()]

    result = fit(tmp_path, fn, workers=1, validation_config=train.ValidationConfig(look))
    assert result.return_value == [True]


def test_a_validation_logs_no_reports(tmp_path: Path) -> None:
    def fn() -> list[str]:
        save(1, validation=True)
        assert train.get_all_reported_checkpoints()[0].status.value == "VALIDATED"
        return sorted(path.name for path in (tmp_path / "run" / ".staging").iterdir())

    result = fit(tmp_path, fn, workers=1, validation_config=train.ValidationConfig(validate))
    assert result.return_value == ["attempt-0001"]


def test_the_default_time_limit_of_validations(tmp_path: Path) -> None:
    def fn() -> list[str]:
        save(1, validation=True)
        return [c.status.value for c in train.get_all_reported_checkpoints()]

    task = train.ValidationTaskConfig(fn_kwargs={"how": "slowly"}, timeout_s=0.5)
    result = fit(tmp_path, fn, workers=1, validation_config=train.ValidationConfig(validate, task))
    assert result.return_value == ["VALIDATION_TIMEOUT"]


def test_validation_without_a_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(train.TrainingFailedError, match="pass validation_config="):
        fit(tmp_path, lambda: save(1, validation=True), workers=1)


def test_a_return_value_that_cannot_be_sent_does_not_undo_the_training(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def fn() -> Any:
        save(1)
        return threading.Lock()

    result = fit(tmp_path, fn, verbose=1)
    assert result.return_value is None
    assert ids(result) == ["checkpoint_000001"]
    assert "Result.return_value is None, because the return value cannot be sent" in capfd.readouterr().out


def test_temporary_files_of_a_killed_worker_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))

    def fn() -> None:
        Path(tempfile.mkdtemp(), "half a checkpoint").write_bytes(bytes(1000))
        Path(tempfile.gettempdir(), "a cache").touch()
        train.report({})
        train.collective.barrier()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(train.TrainingFailedError):
        fit(tmp_path, fn)
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == ["a cache"]


def test_a_finished_train_function_waits_for_its_validations(tmp_path: Path) -> None:
    config = train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute="validated")

    def fn() -> None:
        save(7, validation=True)
        save(1, validation=True)

    result = fit(tmp_path, fn, workers=1, checkpoint_config=config, validation_config=train.ValidationConfig(validate))
    # The best by what validation found, which is last, and the latest, which is always kept.
    assert [metrics["validated"] for _, metrics in result.best_checkpoints] == [10, 70]
    assert result.checkpoint == result.best_checkpoints[0][0]
    assert result.metrics is not None
    assert result.metrics["validated"] == 10
    again = train.Result.from_path(result.path)
    assert (again.best_checkpoints, again.checkpoint) == (result.best_checkpoints, result.checkpoint)


def test_checkpoints_are_the_same_on_all_ranks_and_as_they_are_after_the_time(tmp_path: Path) -> None:
    def fn() -> None:
        rank = train.get_context().get_world_rank()
        for step in (1, 2):
            if rank == 0:
                save(step, validation=train.ValidationTaskConfig(fn_kwargs={"how": "slowly"}))
            else:
                train.report({})
            listed = train.get_all_reported_checkpoints(train.CheckpointConsistencyMode.COMMITTED)
            assert len(listed) == step
            if rank == 1:
                time.sleep(0.3)  # the other one is ahead
        listed = train.get_all_reported_checkpoints(timeout_s=0.1)
        assert [item.status.value for item in listed] == ["PENDING_VALIDATION"] * 2

    config = train.ValidationConfig(validate, train.ValidationTaskConfig(timeout_s=1.0))
    assert len(fit(tmp_path, fn, validation_config=config).best_checkpoints) == 2


def test_after_a_restart_no_more_checkpoints_are_kept_in_the_end(tmp_path: Path) -> None:
    def fn() -> None:
        checkpoint = train.get_checkpoint()
        for step in range(1, 3) if checkpoint is None else range(3, 5):
            save(step, metrics={"loss": step})
        if checkpoint is None:
            train.get_all_reported_checkpoints()
            os.kill(os.getpid(), signal.SIGKILL)

    result = fit(
        tmp_path,
        fn,
        workers=1,
        checkpoint_config=train.CheckpointConfig(num_to_keep=1),
        failure_config=train.FailureConfig(max_failures=1),
    )
    assert ids(result) == ["checkpoint_000004"]


def test_a_path_without_a_run_is_a_runtime_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no run"):
        train.Result.from_path(str(tmp_path / "none"))


def test_committed_checkpoints_without_waiting_for_validation(tmp_path: Path) -> None:
    def fn() -> list[str]:
        task = train.ValidationTaskConfig(fn_kwargs={"how": "slowly"}, timeout_s=1.0)
        save(1, validation=task)
        return [c.status.value for c in train.get_all_reported_checkpoints(train.CheckpointConsistencyMode.COMMITTED)]

    result = fit(tmp_path, fn, workers=1, validation_config=train.ValidationConfig(validate))
    assert result.return_value == ["PENDING_VALIDATION"]


def test_collectives(tmp_path: Path) -> None:
    def fn() -> Any:
        rank = train.get_context().get_world_rank()
        return [train.collective.broadcast_from_rank_zero({"from": rank, "turn": turn}) for turn in range(3)]

    result = fit(tmp_path, fn, workers=3)
    assert result.return_value == [{"from": 0, "turn": turn} for turn in range(3)]


def test_a_collective_that_a_returned_rank_never_joins_is_an_error(tmp_path: Path) -> None:
    def fn() -> None:
        if train.get_context().get_world_rank() == 0:
            train.collective.barrier()

    with pytest.raises(train.TrainingFailedError, match="rank 1 returned without calling barrier"):
        fit(tmp_path, fn)


def test_the_context(tmp_path: Path) -> None:
    def fn() -> Any:
        context = train.get_context()
        return (
            context.get_world_size(),
            context.get_world_rank(),
            context.get_local_rank(),
            context.get_local_world_size(),
            context.get_node_rank(),
            context.get_experiment_name(),
            context.get_metadata(),
            threading.current_thread() is threading.main_thread(),
        )

    result = fit(tmp_path, fn, metadata={"a": 1})
    assert result.return_value == (2, 0, 0, 2, 0, "run", {"a": 1}, True)


def test_datasets_are_split_among_ranks(tmp_path: Path) -> None:
    def fn() -> Any:
        train.report({"items": list(train.get_dataset_shard("train"))})

    fit(tmp_path, fn, datasets={"train": list(range(6))})
    items = []
    for rank in range(2):
        from holdfast.store.layout import RunLayout
        from holdfast.store.metrics import read_metrics

        rows, _ = read_metrics(RunLayout(tmp_path / "run"), 1, rank)
        items += rows[0]["metrics"]["items"]
    assert sorted(items) == list(range(6))


def test_resume_from_checkpoint_begins_a_new_run(tmp_path: Path) -> None:
    def fn() -> str | None:
        checkpoint = train.get_checkpoint()
        found = Path(checkpoint.path, "step").read_text() if checkpoint else None
        save(5)
        return found

    first = fit(tmp_path, fn, name="first", workers=1)
    assert first.return_value is None
    second = fit(tmp_path, fn, name="second", workers=1, resume_from_checkpoint=first.checkpoint)
    assert second.return_value == "5"
    assert ids(second) == ["checkpoint_000001"]


def test_sync_mode_returns_when_the_checkpoint_is_durable(tmp_path: Path) -> None:
    def fn() -> list[bool]:
        found = []
        for step in range(3):
            save(step, checkpoint_upload_mode=train.CheckpointUploadMode.SYNC)
            found.append((tmp_path / "run" / "checkpoints" / f"checkpoint_{step + 1:06d}.json").exists())
        return found

    assert fit(tmp_path, fn, workers=1).return_value == [True] * 3


def test_in_the_script_s_own_process(tmp_path: Path) -> None:
    attempts: list[str | None] = []  # no copy: the function runs right here

    def fn(config: dict[str, int]) -> int:
        checkpoint = train.get_checkpoint()
        attempts.append(Path(checkpoint.path).name if checkpoint else None)
        assert threading.current_thread() is threading.main_thread()
        save(config["step"])
        if checkpoint is None:
            raise ValueError("once")
        return os.getpid()

    failure = train.FailureConfig(max_failures=1)
    result = fit(tmp_path, fn, workers=0, train_loop_config={"step": 3}, failure_config=failure)
    assert result.return_value == os.getpid()
    assert result.metrics == {"step": 3}
    assert ids(result) == ["checkpoint_000001", "checkpoint_000002"]


def test_more_gpus_than_there_are_is_refused_at_once(tmp_path: Path) -> None:
    config = train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0)
    scaling = train.ScalingConfig(num_workers=1000, use_gpu=True)
    with pytest.raises(ValueError, match="need 1000 GPUs"):
        train.DataParallelTrainer(lambda: None, scaling_config=scaling, run_config=config).fit()


def test_what_cannot_be_sent_to_workers_is_refused_at_once(tmp_path: Path) -> None:
    lock = threading.Lock()

    def fn() -> None:
        with lock:
            pass

    with pytest.raises(TypeError, match="the train function cannot be sent to workers"):
        fit(tmp_path, fn)
    with pytest.raises(TypeError, match="train_loop_config cannot be sent to workers"):
        fit(tmp_path, print, train_loop_config={"lock": lock})
    assert not (tmp_path / "run").exists()


def test_output_of_workers_is_shown_and_logged(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def fn() -> None:
        print(f"hello from {train.get_context().get_world_rank()}")
        os.write(2, b"raw \xff bytes without a newline")

    fit(tmp_path, fn, verbose=1)
    shown = capfd.readouterr().out
    assert "(rank 0) hello from 0" in shown
    assert "(rank 1) hello from 1" in shown
    log = (tmp_path / "run" / "logs" / "attempt-0001" / "rank-1.log").read_bytes()
    assert log == b"hello from 1\nraw \xff bytes without a newline"


def test_environment_and_variables_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", "from the script")

    def fn() -> Any:
        return os.environ["MINE"], os.environ["MORE"], os.getcwd()

    result = fit(tmp_path, fn, worker_runtime_env={"env_vars": {"MORE": "from the config"}})
    assert result.return_value == ("from the script", "from the config", os.getcwd())


def test_two_runs_one_after_the_other_and_random_numbers_that_differ(tmp_path: Path) -> None:
    def fn() -> float:
        import random

        return random.random()

    values = {fit(tmp_path, fn, name=f"run-{n}", workers=1).return_value for n in range(3)}
    assert len(values) == 3


def test_fit_in_a_thread(tmp_path: Path) -> None:
    results: list[train.Result] = []
    thread = threading.Thread(target=lambda: results.append(fit(tmp_path, lambda: save(1), workers=1)))
    thread.start()
    thread.join(60)
    assert ids(results[0]) == ["checkpoint_000001"]
