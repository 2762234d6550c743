"""State in memory: killed workers and lost nodes cost at most one completed step, and damage is noticed."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo

from holdfast import train
from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from holdfast.worker import session
from holdfast.worker.snapshot_buffers import DATA_AT, header_in
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
    """How many updates that the rank had made each restart made again."""
    return [before - after + 1 for before, after in pairwise(steps_of(marks, rank, "updates")) if after <= before]


def test_killed_workers_cost_at_most_a_step_and_change_no_bit(tmp_path: Path) -> None:
    kills = {"3": 1, "8": 0, "17": 1, "18": 0, "30": 1}
    undisturbed, _ = run(tmp_path, "undisturbed")
    killed, marks = run(tmp_path, "killed", kills)
    assert killed.return_value == undisturbed.return_value
    assert killed.metrics_dataframe["loss"].tolist() == undisturbed.metrics_dataframe["loss"].tolist()
    assert sorted(set(steps_of(marks, 0))) == list(range(1, EPOCHS * STEPS_PER_EPOCH + 1))
    # Without a checkpoint all of it comes from memory; a kill may come before the agent has heard of the step.
    assert all(again <= 1 for rank in (0, 1) for again in done_again(marks, rank))
    entries = load(tmp_path / "killed").ledger.failures
    assert [entry.tier for entry in entries] == ["memory"] * len(kills)
    assert all(entry.repeated <= 1 for entry in entries)
    assert "from memory" in str(entries[0])


@pytest.mark.parametrize("own_mb", [0, 24], ids=["small", "slow to copy"])
def test_a_lost_node_costs_one_step_at_most_and_comes_from_its_peers_memory(
    scene: Scene, tmp_path: Path, own_mb: int
) -> None:
    undisturbed, _ = run(tmp_path, "undisturbed")
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)
    marks = tmp_path / "marks"
    marks.mkdir(exist_ok=True)

    def replace() -> None:
        wait_until(lambda: (marks / "steps-1").exists() and len(steps_of(marks, 1, "updates")) > 11, "some updates")
        cluster.remove_node(second)
        cluster.add_node(cpus=1)

    pause_s = 0.0 if own_mb else 0.05
    config = {"epochs": EPOCHS, "marks": str(marks), "pause_s": pause_s, "own_mb": own_mb}
    with scene.meanwhile(replace):
        result = scene.trainer(2, train_fn, TorchTrainer, config=config, max_failures=3).fit()
    assert result.return_value == undisturbed.return_value
    (entry,) = load(tmp_path / "run").ledger.failures
    assert entry.kind == "node lost"
    assert entry.tier == "peer memory"
    assert entry.repeated <= 1
    assert all(again <= 1 for again in done_again(marks, 0))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("lost", "tier"), [(2, "peer memory"), (3, "checkpoint")], ids=["two of three", "all of three"]
)
def test_nodes_lost_at_the_same_time(scene: Scene, tmp_path: Path, lost: int, tier: str) -> None:
    """With two replicas of each snapshot two nodes may go at once, here those with all workers. With all nodes only the
    checkpoint is left."""
    undisturbed, _ = run(tmp_path, "undisturbed")
    cluster = scene.cluster
    nodes = [cluster.add_node(cpus=1) for _ in range(3)]
    marks = tmp_path / "marks"

    def replace() -> None:
        wait_until(lambda: (marks / "steps-1").exists() and len(steps_of(marks, 1)) > STEPS_PER_EPOCH + 2, "some steps")
        with ThreadPoolExecutor(lost) as pool:
            list(pool.map(cluster.remove_node, nodes[:lost]))
        for _ in range(lost):
            cluster.add_node(cpus=1)

    config = {"epochs": EPOCHS, "marks": str(marks), "pause_s": 0.05, "saves": True}
    with scene.meanwhile(replace):
        trainer = scene.trainer(2, train_fn, TorchTrainer, config=config, max_failures=5, snapshot_replicas=2)
        result = trainer.fit()
    assert result.return_value == undisturbed.return_value
    entries = load(tmp_path / "run").ledger.failures
    assert {entry.kind for entry in entries} == {"node lost"}
    assert entries[0].tier == tier
    if tier == "peer memory":
        assert all(again <= 1 for again in done_again(marks, 0))


@pytest.mark.parametrize("saves", [False, True], ids=["no checkpoint", "a checkpoint"])
def test_a_flipped_bit_is_noticed_and_the_checkpoint_is_used(tmp_path: Path, saves: bool) -> None:
    """On one node, where there is no other copy. Without a checkpoint the run starts from the beginning."""
    undisturbed, _ = run(tmp_path, "undisturbed")
    marks = tmp_path / "flip-marks"
    marks.mkdir()
    result = TorchTrainer(
        flips_a_bit,
        train_loop_config={"epochs": EPOCHS, "marks": str(marks), "saves": saves, "flips": 1, "files": "shared-*"},
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
    assert entry.tier == ("checkpoint" if saves else "")
    assert steps_of(marks, 0).count(1) == (1 if saves else 2)
    assert steps_of(marks, 0).count(STEPS_PER_EPOCH + 1) == 2


def test_a_flipped_bit_in_a_copy_on_a_peer_is_noticed(scene: Scene, tmp_path: Path) -> None:
    """The node whose snapshots they are is lost, so that the copies are all that is left of them."""
    undisturbed, _ = run(tmp_path, "undisturbed")
    cluster, marks = scene.cluster, tmp_path / "marks"
    marks.mkdir(exist_ok=True)
    cluster.add_node(cpus=1)
    cluster.add_node(cpus=1)

    def replace() -> None:
        wait_until((marks / "flipped").exists, "the copies were damaged")
        cluster.remove_node((marks / "nodes-1").read_text().split()[0])
        cluster.add_node(cpus=1)

    config = {"epochs": EPOCHS, "marks": str(marks), "saves": True, "flips": 0, "files": "of-*/rank-*"}
    with scene.meanwhile(replace):
        result = scene.trainer(2, flips_a_bit, TorchTrainer, config=config, max_failures=3).fit()
    assert result.return_value == undisturbed.return_value
    (entry,) = load(tmp_path / "run").ledger.failures
    assert (entry.kind, entry.tier) == ("node lost", "checkpoint")


def flips_a_bit(config: dict[str, Any]) -> str:
    """Rank ``flips`` damages ``files`` in its node's memory, each of them, and rank 1 is killed then. All
    ranks have completed the steps in them, and they are hashed; no other rank can come further meanwhile."""

    def strike(_config: dict[str, Any], rank: int, step: int) -> None:
        mark = Path(config["marks"], "flipped")
        if step == 12 and rank == config["flips"] and not mark.exists():
            memory = session.current().memory
            assert memory is not None
            assert session.current().await_kept(step, 60), "else a later digest might be of the damaged state"
            files = [*Path(memory.directory).glob(config["files"])]
            assert len(files) == 2, files
            # A copy may come later than the word that the state is complete, and over what was damaged.
            wait_until(lambda: max(header_in(path).step for path in files) == step, "the newest state is in them")
            for path in files:
                with path.open("r+b") as file:
                    file.seek(DATA_AT + 8)
                    (byte,) = file.read(1)
                    file.seek(DATA_AT + 8)
                    file.write(bytes([byte ^ 1]))
            mark.touch()
            if rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # further steps would replace the copies
            raise AssertionError("the attempt did not end with its node")

    snapshot_job.strike = strike  # in the worker alone
    return train_fn(config)
