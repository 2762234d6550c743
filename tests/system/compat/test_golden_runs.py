"""Run directories that earlier versions wrote are read, replayed and resumed. Never edit those directories."""

from __future__ import annotations

import math
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

import holdfast.train as train
from holdfast.runs.past import read_past
from holdfast.runs.stored_experiment import load
from holdfast.store import journal
from holdfast.store.layout import RunLayout

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def run_0_1(tmp_path: Path) -> Path:
    """A run whose driver was killed after it had validated its fifth checkpoint; one worker failure before that."""
    shutil.copytree(GOLDEN / "run-0.1", tmp_path / "run-0.1")
    return tmp_path / "run-0.1"


def test_the_history_of_0_1(run_0_1: Path) -> None:
    history = load(run_0_1)
    assert [row["step"] for row in history.rows] == [1, 2, 3, 4, 5]
    assert math.isnan(history.rows[0]["nan"])
    assert history.rows[0]["n"] == {1: "one"}
    assert [id for id, _, _ in history.checkpoints] == ["checkpoint_000003", "checkpoint_000004", "checkpoint_000005"]
    assert [metrics["good"] for _, _, metrics in history.checkpoints] == [3, 4, 5]
    assert history.config == {"lr": 0.1}
    assert history.error is None


def test_the_replay_of_0_1(run_0_1: Path) -> None:
    records, damage = journal.read(RunLayout(run_0_1))
    state = read_past(records).state
    assert not damage
    assert (state.attempt_number, state.spent, state.streak, state.outcome) == (2, {"failures": 1}, 0, None)
    assert [c.id for c in state.checkpoints] == ["checkpoint_000003", "checkpoint_000004", "checkpoint_000005"]


def test_0_1_goes_on(run_0_1: Path) -> None:
    def fn(config: dict[str, Any]) -> tuple[str, float]:
        checkpoint = train.get_checkpoint()
        assert checkpoint is not None
        step = Path(checkpoint.path, "step").read_text()
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "step").write_text("6")
            train.report({"step": 6}, checkpoint=train.Checkpoint.from_directory(directory))
        return step, config["lr"]

    trainer = train.DataParallelTrainer.restore(run_0_1, fn)
    trainer.run_config.verbose = 0
    result = trainer.fit()
    assert result.return_value == ("5", 0.1)
    assert [row["step"] for row in load(run_0_1).rows] == [1, 2, 3, 4, 5, 6]
    assert [Path(c.path).name for c, _ in result.best_checkpoints] == ["checkpoint_000005", "checkpoint_000006"]
