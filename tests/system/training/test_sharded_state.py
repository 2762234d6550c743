"""FSDP2 on gloo: a state goes from 4 workers to 3, 2 and 4 and stays the same; a killed rank costs no checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch._dynamo

import holdfast
from holdfast import train
from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from support.elastic.elastic_job import Scene
from support.train.sharded_job import elastic_train_fn, train_fn

assert torch._dynamo  # imported before holdfast's seed is forked from
pytestmark = pytest.mark.timeout(300)


def run(tmp_path: Path, name: str, workers: int, steps: int, kill: int | None = None) -> list[Any]:
    marks = tmp_path / f"{name}-marks"
    marks.mkdir(exist_ok=True)
    result = TorchTrainer(
        train_fn,
        train_loop_config={"steps": steps, "marks": str(marks), "kill": kill},
        scaling_config=train.ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=train.RunConfig(
            name=name, storage_path=str(tmp_path), failure_config=train.FailureConfig(max_failures=1), verbose=0
        ),
    ).fit()
    assert isinstance(result.return_value, list)
    return result.return_value


def test_a_sharded_state_goes_to_any_number_of_workers(tmp_path: Path) -> None:
    last: list[Any] = []
    for workers, steps in ((4, 3), (3, 6), (2, 9), (4, 12)):
        begin, at, end, reached = run(tmp_path, "run", workers, steps)
        assert reached == steps
        if last:
            assert [begin, at] == last, f"the state changed on its way to {workers} workers"
        last = [end, reached]


@pytest.mark.soak
def test_one_run_goes_from_four_workers_to_three_and_two_and_four_and_loses_no_step(tmp_path: Path) -> None:
    """Nodes are taken away with notice, and others join; what each attempt begins with is what torch alone reads from
    the files."""
    with holdfast.LocalCluster() as cluster:
        scene = Scene(tmp_path, cluster)
        nodes = [cluster.add_node(cpus=1) for _ in range(4)]

        def act() -> None:
            scene.await_steps(3, world=4)
            for world in (3, 2):
                cluster.drain_node(nodes[world], deadline_s=600)
                scene.await_steps(3, world=world)
            for _ in range(2):
                cluster.add_node(cpus=1)
            scene.await_steps(3, world=4)

        with scene.meanwhile(act):
            result = scene.trainer((2, 4), elastic_train_fn, TorchTrainer, max_failures=0).fit()
    begun = scene.notes("start")
    sizes = [world for _, world, *_ in begun]
    assert [size for size, before in zip(sizes, [0, *sizes], strict=False) if size != before][:3] == [4, 3, 2]
    assert sizes[-1] == 4
    for _, world, steps, state, files in begun[1:]:
        assert state == files, f"{world} workers, step {steps}"
    steps = [step for _, _, step in scene.notes("step")]
    assert steps == list(range(1, len(steps) + 1)), "no step is lost, and none is done again"
    assert result.return_value == steps[-1]


def test_a_killed_rank_resumes_its_shards_from_memory(tmp_path: Path) -> None:
    undisturbed = run(tmp_path, "undisturbed", 2, 8)
    killed = run(tmp_path, "killed", 2, 8, kill=5)
    assert killed[2:] == undisturbed[2:]
    assert killed[1] in (4, 5), "the step in which it was killed, or the one before"
    assert [entry.tier for entry in load(tmp_path / "killed").ledger.failures] == ["memory"]
