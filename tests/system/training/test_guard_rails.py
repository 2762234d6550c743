"""Where users lost work without a word: an old run that takes over new work, and reports of rank 0 alone."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.cli.main import main


def trainer(storage: Path, fn: Any, workers: int = 1, config: Any = None, **options: Any) -> Any:
    run = train.RunConfig(**{"name": "run", "storage_path": str(storage), "verbose": 0, **options})
    scaling = train.ScalingConfig(num_workers=workers)
    return train.DataParallelTrainer(fn, train_loop_config=config, scaling_config=scaling, run_config=run)


def save(step: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "step").write_text(str(step))
        train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(directory))


def last_step() -> int:
    checkpoint = train.get_checkpoint()
    if checkpoint is None:
        return 0
    with checkpoint.as_directory() as directory:
        return int(Path(directory, "step").read_text())


def counts(config: dict[str, Any]) -> None:
    for step in range(last_step() + 1, config["steps"] + 1):
        save(step)


def kills_its_driver(config: dict[str, Any]) -> None:
    for step in range(last_step() + 1, config["steps"] + 1):
        save(step)
        if step == config["killed_at"]:
            os.kill(int(os.environ["DRIVER"]), signal.SIGKILL)


def rank_zero_saves(config: dict[str, Any]) -> None:
    """As under torchrun: only rank 0 reports. Rank 1 is killed once, when rank 0 has made three reports."""
    notes, rank = Path(config["notes"]), train.get_context().get_world_rank()
    resumed = train.collective.broadcast_from_rank_zero(last_step())
    with (notes / f"rank-{rank}").open("a") as file:
        file.write(f"{resumed}\n")
    for step in range(resumed + 1, 7):
        if rank == 0:
            save(step)
        train.collective.barrier()
        if rank == 1 and step == 3 and not (notes / "killed").exists():
            (notes / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_fresh_run_is_stored_beside_the_old_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trainer(tmp_path, counts, config={"steps": 2}).fit()
    other = trainer(tmp_path, counts, config={"steps": 3}, fresh=True)
    result = other.fit()
    assert (result.path, len(result.metrics_dataframe)) == (str(tmp_path / "run-2"), 3)
    assert "run 'run' already exists and is kept. fresh=True starts a new one: 'run-2'" in capfd.readouterr().err
    assert other.fit().path == str(tmp_path / "run-3")
    assert len(train.Result.from_path(tmp_path / "run").metrics_dataframe) == 2
    with pytest.raises(ValueError, match="Remove fresh=True"):
        train.DataParallelTrainer.restore(tmp_path / "run", counts, run_config=train.RunConfig(fresh=True))


def test_a_finished_run_with_other_settings_is_told_of_even_without_a_display(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer(tmp_path, counts, config={"steps": 2, "lr": 0.1}).fit()
    trainer(tmp_path, counts, config={"steps": 2, "lr": 0.2}).fit()
    (said,) = (record.getMessage() for record in caplog.records if "already finished" in record.getMessage())
    assert "Settings changed since then: lr 0.1 -> 0.2." in said
    assert main(["show", str(tmp_path / "run")]) == 0
    assert "settings changed: lr 0.1 -> 0.2" in capsys.readouterr().out


def test_an_interrupted_run_that_is_resumed_with_other_settings_names_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    driver = os.fork()
    if driver == 0:
        try:
            os.environ["DRIVER"] = str(os.getpid())
            trainer(tmp_path, kills_its_driver, config={"steps": 3, "lr": 0.1, "killed_at": 2}).fit()
        finally:
            os._exit(1)
    _, status = os.waitpid(driver, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    assert main(["show", str(tmp_path / "run")]) == 0
    assert "interrupted" in capfd.readouterr().out
    changed = {"steps": 3, "lr": 0.2, "killed_at": None}
    assert trainer(tmp_path, kills_its_driver, config=changed, verbose=1).fit().metrics == {"step": 3}
    said = capfd.readouterr().err
    assert "lr 0.1 -> 0.2" in said
    assert "killed_at 2 -> None" in said
    assert "steps 3" not in said
    assert main(["show", str(tmp_path / "run")]) == 0
    (told,) = (line for line in capfd.readouterr().out.splitlines() if "settings changed: " in line)
    assert sorted(told.partition("settings changed: ")[2].split(", ")) == ["killed_at 2 -> None", "lr 0.1 -> 0.2"]


def test_two_ranks_that_save_one_name_with_different_content_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer(tmp_path, lambda: save(train.get_context().get_world_rank()), 2).fit()
    (said,) = (record.getMessage() for record in caplog.records if "different files" in record.getMessage())
    assert "ranks 0, 1 saved different files under the name 'step'; only rank 0's is kept" in said
    assert "put the rank into the name" in said


def test_rank_0_alone_can_save_for_all(tmp_path: Path) -> None:
    options = {"checkpoint_config": train.CheckpointConfig(rank_zero_only=True)}
    failures = train.FailureConfig(max_failures=1)
    storage = tmp_path / "storage"
    run = trainer(storage, rank_zero_saves, 2, {"notes": str(tmp_path)}, failure_config=failures, **options)
    result = run.fit()
    assert result.metrics == {"step": 6}
    starts = [int(line) for line in (tmp_path / "rank-0").read_text().split()]
    assert starts in ([0, 3], [0, 4]), "a report that returned survives"
    assert [checkpoint.path[-6:] for checkpoint, _ in result.best_checkpoints] == [f"{n:06d}" for n in range(1, 7)]


def test_another_rank_that_reports_is_told_of_the_setting(tmp_path: Path) -> None:
    config = train.CheckpointConfig(rank_zero_only=True)
    with pytest.raises(train.TrainingFailedError, match="rank 1 called report") as failed:
        trainer(tmp_path, lambda: train.report({"step": 1}), 2, checkpoint_config=config).fit()
    assert "remove rank_zero_only" in str(failed.value)
