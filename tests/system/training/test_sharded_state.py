"""FSDP2 on gloo: a state goes from 4 workers to 3, 2 and 4 and stays the same; a killed rank costs no checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch._dynamo

import holdfast
from holdfast import train
from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from support.elastic.elastic_job import Scene, wait_until
from support.train.sharded_job import elastic_train_fn, moving_train_fn, train_fn

assert torch._dynamo  # imported before holdfast's seed is forked from
pytestmark = pytest.mark.timeout(300)
STAGES = ((4, 3), (3, 6), (2, 9), (4, 12))  # workers, and the step that they come to


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with holdfast.LocalCluster() as cluster:
        yield Scene(tmp_path, cluster)


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


@pytest.fixture(scope="module")
def by_files(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """The digest of the final state, and its step: each number of workers resumes from the checkpoint of the one before
    it."""
    home, last = tmp_path_factory.mktemp("files"), list[Any]()
    for workers, steps in STAGES:
        begin, at, end, reached = run(home, "run", workers, steps)
        assert reached == steps
        if last:
            assert [begin, at] == last, f"the state changed on its way to {workers} workers"
        last = [end, reached]
    return last


def test_a_sharded_state_goes_to_any_number_of_workers(by_files: list[Any]) -> None:
    assert by_files[1] == STAGES[-1][1]


def test_one_run_goes_from_four_workers_to_three_and_two_and_four_in_memory(scene: Scene, by_files: list[Any]) -> None:
    """Nodes are lost, and others join. There is no checkpoint, no step is lost, and each state and the last one are
    bit for bit those of the way over files."""
    cluster = scene.cluster
    nodes = [cluster.add_node(cpus=1) for _ in range(4)]

    def act() -> None:
        for world in (4, 3):
            scene_waits(scene, world)
            cluster.remove_node(nodes.pop())
        scene_waits(scene, 2)
        cluster.add_node(cpus=2)

    stops = {str(world): steps for world, steps in STAGES[:-1]}
    config = {"steps": STAGES[-1][1], "stops": stops, "grows": 2}
    with scene.meanwhile(act):
        result = scene.trainer((2, 4), moving_train_fn, TorchTrainer, config=config, max_failures=9).fit()
    begun = scene.notes("start")
    assert [(world, steps) for _, world, steps, _ in begun] == [(4, 0), (3, 3), (2, 6), (4, 9)]
    after = dict(scene.notes("state"))
    assert [state for *_, state in begun[1:]] == [after[steps] for _, _, steps, _ in begun[1:]]
    assert [step for _, _, step in scene.notes("step")] == list(range(1, STAGES[-1][1] + 1)), "once each"
    assert result.return_value == by_files
    entries = load(scene.home / "run").ledger.failures
    assert {entry.tier for entry in entries} <= {"memory", "peer memory"}
    assert sum(entry.repeated for entry in entries) == 0


def scene_waits(scene: Scene, world: int) -> None:
    def waiting() -> int:
        return sum(1 for _, size in scene.notes("waits") if size == world)

    wait_until(lambda: waiting() == world, f"all of {world} wait")


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
