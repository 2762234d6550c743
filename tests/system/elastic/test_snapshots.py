"""State in memory: killed workers and lost nodes cost at most the step that they were in, and damage is noticed."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo

from holdfast import train
from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from holdfast.worker import session
from holdfast.worker.snapshot_buffers import DATA_AT
from support.elastic.elastic_job import Scene, wait_until
from support.train import snapshot_job
from support.train.snapshot_job import STEPS_PER_EPOCH, steps_of, train_fn

assert torch._dynamo  # imported before holdfast's seed is forked from
pytestmark = pytest.mark.timeout(300)
EPOCHS = 5


def run(tmp_path: Path, name: str, kill: dict[str, int] | None = None, **options: Any) -> tuple[train.Result, Path]:
    marks = tmp_path / f"{name}-marks"
    marks.mkdir()
    result = TorchTrainer(
        train_fn,
        train_loop_config={"epochs": EPOCHS, "marks": str(marks), "kill": kill or {}},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name=name,
            storage_path=str(tmp_path),
            failure_config=train.FailureConfig(max_failures=20, backoff_s=0.01),
            verbose=0,
            **options,
        ),
    ).fit()
    return result, marks


def done_again(marks: Path, rank: int) -> list[int]:
    """How many steps each restart of the rank went back."""
    return [before - after + 1 for before, after in pairwise(steps_of(marks, rank)) if after <= before]


def test_killed_workers_cost_at_most_a_step_and_change_no_bit(tmp_path: Path) -> None:
    kills = {"3": 1, "8": 0, "17": 1, "18": 0, "30": 1}
    undisturbed, _ = run(tmp_path, "undisturbed")
    killed, marks = run(tmp_path, "killed", kills)
    assert killed.return_value == undisturbed.return_value
    assert killed.metrics_dataframe["loss"].tolist() == undisturbed.metrics_dataframe["loss"].tolist()
    assert sorted(set(steps_of(marks, 0))) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    # Without a checkpoint all of it comes from memory; a kill may come before the agent has heard of the step.
    assert all(again <= 2 for rank in (0, 1) for again in done_again(marks, rank))
    entries = load(tmp_path / "killed").ledger.failures
    assert [entry.tier for entry in entries] == ["memory"] * len(kills)
    assert sum(entry.redone for entry in entries) <= 2 * len(kills)
    assert "from memory" in str(entries[0])


def test_a_lost_node_costs_a_step_or_two_and_comes_from_its_peers_memory(scene: Scene, tmp_path: Path) -> None:
    undisturbed, _ = run(tmp_path, "undisturbed")
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)
    marks = tmp_path / "marks"
    marks.mkdir(exist_ok=True)

    def replace() -> None:
        wait_until(lambda: (marks / "steps-1").exists() and len(steps_of(marks, 1)) > 10, "some steps")
        cluster.remove_node(second)
        cluster.add_node(cpus=1)

    config = {"epochs": EPOCHS, "marks": str(marks), "pause_s": 0.05}
    with scene.meanwhile(replace):
        result = scene.trainer(2, train_fn, TorchTrainer, config=config, max_failures=3).fit()
    assert result.return_value == undisturbed.return_value
    (entry,) = load(tmp_path / "run").ledger.failures
    assert entry.kind == "node lost"
    assert entry.tier == "peer memory"
    assert all(again <= 3 for again in done_again(marks, 0))


def test_a_flipped_bit_is_noticed_and_the_checkpoint_is_used(tmp_path: Path) -> None:
    """On one node, where there is no other copy."""
    undisturbed, _ = run(tmp_path, "undisturbed")
    marks = tmp_path / "flip-marks"
    marks.mkdir()
    result = TorchTrainer(
        flips_a_bit,
        train_loop_config={"epochs": EPOCHS, "marks": str(marks)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(
            name="flipped",
            storage_path=str(tmp_path),
            failure_config=train.FailureConfig(max_failures=3, backoff_s=0.01),
            verbose=0,
        ),
    ).fit()
    assert result.return_value == undisturbed.return_value
    (entry,) = load(tmp_path / "flipped").ledger.failures
    assert entry.tier == "", "there was no checkpoint: from the beginning"
    assert steps_of(marks, 0).count(1) == 2


def flips_a_bit(config: dict[str, Any]) -> str:
    """Rank 1 is killed after rank 0's pieces were damaged behind its back, both buffers."""

    def strike(_config: dict[str, Any], rank: int, step: int) -> None:
        mark = Path(config["marks"], "flipped")
        if step == 12 and rank == 1 and not mark.exists():
            memory = session.current().memory
            assert memory is not None
            assert session.current().await_kept(11, 60)
            for path in Path(memory.directory).glob("shared-*"):
                with path.open("r+b") as file:
                    file.seek(DATA_AT + 8)
                    (byte,) = file.read(1)
                    file.seek(DATA_AT + 8)
                    file.write(bytes([byte ^ 1]))
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    snapshot_job.strike = strike  # in the worker alone
    return train_fn(config)
