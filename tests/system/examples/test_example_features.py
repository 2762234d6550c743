"""The examples about what a run can do with its checkpoints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast import train
from support.examples.example_shell import Shell


def kept_epochs(run: Path) -> set[int]:
    return {metrics["epoch"] for _, metrics in train.Result.from_path(str(run)).best_checkpoints}


def directories(run: Path) -> set[str]:
    return {entry.name for entry in (run / "checkpoints").iterdir() if entry.is_dir()}


@pytest.mark.timeout(300)
def test_keep_best(shell: Shell) -> None:
    output = shell.run("keep_best.py", "--storage-path", str(shell.storage), "--run-name", "best")
    run = shell.storage / "best"
    result = train.Result.from_path(str(run))
    losses = dict(zip(result.metrics_dataframe["epoch"], result.metrics_dataframe["loss"], strict=True))
    assert list(losses) == list(range(15))
    best = sorted(losses, key=lambda epoch: losses[epoch])[:2]
    assert set(best) <= kept_epochs(run) <= {*best, 14}
    assert directories(run) == {Path(checkpoint.path).name for checkpoint, _ in result.best_checkpoints}
    assert f"the best is {result.get_best_checkpoint('loss', 'min').path}" in output


@pytest.mark.timeout(300)
def test_resume_from_checkpoint(shell: Shell) -> None:
    output = shell.run("resume_from_checkpoint.py", "--storage-path", str(shell.storage))
    found = re.findall(r"^(pretrained|fine-tuned|from scratch): epoch (\d+), loss ([\d.]+)", output, re.MULTILINE)
    epochs = {what: int(epoch) for what, epoch, _ in found}
    losses = {what: float(loss) for what, _, loss in found}
    assert epochs == {"pretrained": 11, "fine-tuned": 2, "from scratch": 2}
    assert losses["fine-tuned"] < losses["from scratch"]
    assert len(list(shell.storage.iterdir())) == 3, "each is a run of its own"


@pytest.mark.timeout(300)
def test_async_validation(shell: Shell) -> None:
    output = shell.run("async_validation.py", "--storage-path", str(shell.storage), "--run-name", "validated")
    statuses = dict(re.findall(r"epoch (\d+): (\w+)$", output, re.MULTILINE))
    assert set(statuses.values()) == {"VALIDATED"}
    assert "9" in statuses
    run = shell.storage / "validated"
    result = train.Result.from_path(str(run))
    assert 3 <= len(kept_epochs(run)) <= 4
    for _, metrics in result.best_checkpoints:
        assert metrics["validation_loss"] == pytest.approx(metrics["loss"], abs=0.3)
