"""Datasets of Ray Data, and ordinary ones, in training on a real Ray cluster whose nodes may be lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

import holdfast.data
import holdfast.train as train
from holdfast import tune
from holdfast.engine.ray.data_splits import Splits
from support.ray_clusters import cluster_objects
from support.ray_clusters.ray_machines import Machines, RayScene, wait_until
from support.repository import SUPPORT

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings(
        "ignore::ResourceWarning",
        "ignore::DeprecationWarning",  # Ray Data warns of its own defaults
        "ignore::pytest.PytestUnraisableExceptionWarning",
    ),
]
ROWS = 101


def table() -> Any:
    """Its blocks are where the driver is."""
    return ray.data.from_items([{"id": row} for row in range(ROWS)], override_num_blocks=7)


def coordinators() -> list[str]:
    """Actors of Ray Data's that split for us."""
    actors = ray._private.state.actors().values()
    return [actor["ActorID"] for actor in actors if "Split" in actor["ActorClassName"] and actor["State"] != "DEAD"]


def test_a_trainer_as_a_trial_reads_tensors(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(2)  # one for the trial, and one for Ray Data
    trainer = train.DataParallelTrainer(
        cluster_objects.read_tensors, datasets={"train": ray.data.range(10).map(lambda row: {"id": row["id"] + 1})}
    )
    grid = tune.Tuner(
        trainer,
        param_space={"train_loop_config": {"dtype": torch.float32}},
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), engine="ray", verbose=0),
    ).fit()
    assert not grid.errors
    metrics = grid[0].metrics
    assert [batch[:2] for batch in metrics["seen"]] == [[[4], "torch.float32"]] * 2
    assert len({row for batch in metrics["seen"] for row in batch[2]}) == 8
    assert metrics["frame"] == metrics["names"] == ["id"]
    assert "nonsense" in metrics["broken"]
    assert metrics["whole"] == list(range(1, 11))
    assert metrics["context"] == "DataContext"
    wait_until(lambda: not coordinators(), "the end of what splits the dataset")


def test_datasets_in_the_config_of_a_function(machines: Machines, tmp_path: Path) -> None:
    """Nested, in a grid, and as an argument: lazy ones, and one in Ray's memory."""
    machines.top_up(3)  # two for the trials, and one for Ray Data
    lazy = ray.data.range(8, override_num_blocks=1)
    lazy.context.target_max_block_size = 54321
    held = ray.data.from_items([{"id": number} for number in range(8)], override_num_blocks=1)
    grid = tune.Tuner(
        tune.with_parameters(cluster_objects.read_from_config, other=ray.data.range(5, override_num_blocks=1)),
        param_space={"nested": [{"data": tune.grid_search([lazy, held])}]},
        run_config=tune.RunConfig(name="run", storage_path=str(tmp_path), engine="ray", verbose=0),
    ).fit()
    assert not grid.errors, grid.errors
    for result in grid:
        found = result.metrics
        assert [len(batch) for batch in found["tensors"]] == [6, 2]
        assert sorted(number for batch in found["tensors"] for number in batch) == list(range(8))
        assert sorted(found["rows"]) == [0, 2, 4, 6, 8]
        assert found["parts"] == [6, 2]
        assert found["take"] == [{"id": 0}, {"id": 1}]
        assert found["frame"] == list(range(8))
        assert found["names"] == ["id"]
        assert found["other"] == 5
        assert "KeyError" in found["broken"]
        assert "nonsense" in found["broken"]
    assert grid[0].metrics["context"] == 54321


def test_a_dataset_whose_split_is_lost_before_it_begins_is_split_anew(
    machines: Machines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ray loses it if it asks a node for it of which it has not noticed that it is gone."""
    machines.top_up(2)
    made: list[str] = []
    plain = Splits._split

    def split(self: Splits, name: str, nodes: list[str]) -> list[Any]:
        found = plain(self, name, nodes)
        made.append(name)
        if len(made) == 1:
            ray.kill(found[0]._coord_actor)
        return found

    monkeypatch.setattr(Splits, "_split", split)
    result = train.DataParallelTrainer(
        cluster_objects.read_tensors,
        train_loop_config={"dtype": torch.float32},
        datasets={"train": ray.data.range(10)},
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), engine="ray", verbose=0),
    ).fit()
    assert made == ["train", "train"]
    assert len({row for batch in result.metrics["seen"] for row in batch[2]}) == 8
    wait_until(lambda: not coordinators(), "the end of what splits the dataset")


def test_a_dataset_of_rays_needs_the_engine(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(1)
    trainer = train.DataParallelTrainer(
        cluster_objects.read_tensors,
        datasets={"train": ray.data.range(10)},
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), engine="local", verbose=0),
    )
    with pytest.raises(ValueError, match='RunConfig\\(engine="ray"\\)'):
        trainer.fit()


def rows_by_rank(directory: Path) -> list[list[int]]:
    return [json.loads((directory / f"rows-{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.soak
def test_our_datasets_on_rays_nodes(machines: Machines, tmp_path: Path) -> None:
    """In a trainer, and in trials: nested, in a grid and in a choice, restored."""
    machines.top_up(3)
    run = {"storage_path": str(tmp_path), "engine": "ray", "verbose": 0}
    train.DataParallelTrainer(
        cluster_objects.write_down_rows,
        train_loop_config={"out": str(tmp_path)},
        datasets={"train": holdfast.data.range(21).random_shuffle(seed=3)},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="trained", **run),
    ).fit()
    first, second = rows_by_rank(tmp_path)
    assert len(first) in (10, 11)
    assert sorted(first + second) == list(range(21))
    data = [holdfast.data.range(10), holdfast.data.range(20).map(lambda row: {"id": 2 * row["id"]})]
    space = {"nested": [{"data": tune.grid_search(data)}], "other": tune.choice([holdfast.data.range(3)])}
    tuner = tune.Tuner(cluster_objects.add_up_ours, param_space=space, run_config=tune.RunConfig(name="tuned", **run))
    assert sorted(result.metrics["sum"] for result in tuner.fit()) == [45, 380]
    path = str(tmp_path / "tuned")
    with pytest.raises(ValueError, match=r"param_space=.*pass it again"):
        tune.Tuner.restore(path, trainable=cluster_objects.add_up_ours)
    with pytest.raises(ValueError, match="missing: other"):
        tune.Tuner.restore(path, trainable=cluster_objects.add_up_ours, param_space={"nested": space["nested"]})
    again = tune.Tuner.restore(path, trainable=cluster_objects.add_up_ours, param_space=space, restart_errored=True)
    assert [result.metrics["sum"] for result in again.fit()] == [45, 380]


class TheWrongWayRound(train.DataConfig):
    def configure(
        self, datasets: dict[str, Any], world_size: int, worker_handles: Any, worker_node_ids: Any, **kwargs: Any
    ) -> list[dict[str, Any]]:
        assert len(worker_node_ids) == world_size
        first, second = datasets["train"].split_at_indices([3])
        return [{"train": second.iterator()}, {"train": first.iterator()}]


@pytest.mark.soak
def test_a_data_config_of_the_users_own_for_rays(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(3)
    train.DataParallelTrainer(
        cluster_objects.write_down_rows,
        train_loop_config={"out": str(tmp_path)},
        datasets={"train": ray.data.range(10, override_num_blocks=1).materialize()},
        dataset_config=TheWrongWayRound(),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), engine="ray", verbose=0),
    ).fit()
    assert [sorted(rows) for rows in rows_by_rank(tmp_path)] == [list(range(3, 10)), [0, 1, 2]]


@pytest.mark.soak
def test_guide_002_with_datasets_of_rays_killed_and_restored(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(3)
    script = [sys.executable, "-W", "ignore", str(SUPPORT / "data" / "tuned_data.py"), str(tmp_path)]

    def started(how: str) -> subprocess.Popen[str]:
        command = [*script, how, machines.address]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    first = started("fit")
    try:
        wait_until(
            lambda: len(list(tmp_path.glob("tuned/*/checkpoints/checkpoint_000004.json"))) >= 2,
            "checkpoints of two trials",
        )
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=60)
    (tmp_path / "go").touch()
    second = started("restore")
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert json.loads(said.splitlines()[-1]) == [[2 * sum(range(128)), 8], [3 * sum(range(128)), 8]], said


@pytest.mark.soak  # with a node that was killed, Ray Data takes a minute or two
def test_each_rank_has_its_part_also_of_a_smaller_world(machines: Machines, scene: RayScene) -> None:
    machines.top_up(1)  # for what Ray Data itself has to do
    for _ in range(2):
        machines.add(1, resources={"seat": 1})

    def epochs(world: int) -> dict[int, dict[int, list[Any]]]:
        found: dict[int, dict[int, list[Any]]] = {}
        for size, rank, epoch, *seen in scene.notes("epoch"):
            if size == world:
                found.setdefault(epoch, {})[rank] = seen
        return {epoch: ranks for epoch, ranks in found.items() if len(ranks) == world}

    def act() -> None:
        wait_until(lambda: len(epochs(2)) >= 2, "two epochs of two ranks")
        machines.kill(scene.node_of(1))
        wait_until(lambda: len(epochs(1)) >= 2, "two epochs of one rank")

    trainer = scene.trainer((1, 2), cluster_objects.read_all, max_failures=1)
    trainer.scaling_config = train.ScalingConfig(
        num_workers=(1, 2), resources_per_worker={"CPU": 1, "seat": 1}, elastic_resize_monitor_interval_s=0.0
    )
    trainer.datasets = {"train": table(), "whole": table(), "plain": list(range(10))}
    trainer.data_config = train.DataConfig(datasets_to_split=["train", "plain"])
    with scene.meanwhile(act):
        trainer.fit()
    for ranks in epochs(2).values():
        first, second = ranks[0][0], ranks[1][0]
        assert len(first) == len(second) == ROWS // 2
        assert not set(first) & set(second)
        assert [ranks[rank][1] for rank in (0, 1)] == [ROWS, ROWS]
        assert [ranks[rank][2] for rank in (0, 1)] == [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]
    for ranks in epochs(1).values():
        assert sorted(ranks[0][0]) == list(range(ROWS))
        assert ranks[0][2] == list(range(10))
    wait_until(lambda: not coordinators(), "the end of what splits the dataset")
