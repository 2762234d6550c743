"""Experiments on a real Ray cluster of several nodes on this machine, which lose nodes and drivers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray

import holdfast.train as train
from holdfast import tune
from holdfast.tune.search import Searcher
from support.ray_clusters import cluster_trials
from support.ray_clusters.ray_machines import Machines, left_over, name_of, wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
ENDS_WITHIN_S = 240.0


class Notes:
    """What the trials have written down."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "notes").touch()

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        lines = [json.loads(line) for line in (self.home / "notes").read_text().splitlines()]
        return [tuple(values) for what, *values in lines if what == kind]

    def enough(self) -> None:
        (self.home / "enough").touch()

    def await_steps(self, number: int, more: int) -> None:
        def made() -> int:
            return sum(1 for other, _ in self.of("step") if other == number)

        before = made()
        wait_until(lambda: made() >= before + more, f"{more} steps of trial {number}")

    def starts(self, number: int) -> list[tuple[int, int, str]]:
        """Of a trial: from which step, as which process, on which node."""
        return [(step, pid, node) for other, step, pid, node in self.of("start") if other == number]

    @contextmanager
    def meanwhile(self, act: Callable[[], None]) -> Iterator[None]:
        errors: list[BaseException] = []

        def acting() -> None:
            try:
                act()
            except BaseException as error:
                errors.append(error)
            finally:
                self.enough()

        thread = threading.Thread(target=acting)
        thread.start()
        try:
            yield
        finally:
            thread.join(ENDS_WITHIN_S)
            if errors:
                raise errors[0]


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    return Notes(tmp_path)


def test_trials_that_need_half_a_cpu_share_nodes_and_spread_over_all(machines: Machines, notes: Notes) -> None:
    machines.top_up(2)
    trainable = tune.with_resources(cluster_trials.together, {"cpu": 0.5})
    space = {"number": tune.grid_search(list(range(cluster_trials.TOGETHER)))}
    grid = cluster_trials.tuner(notes.home, trainable, space).fit()
    assert [result.metrics["cpus"] for result in grid] == [0.5] * cluster_trials.TOGETHER
    assert sorted(Counter(node for _, node in notes.of("begun")).values()) == [2, 2]


class OneAfterTheRelease(Searcher):
    """Two trials at first; the third when a node has been released."""

    def __init__(self, released: str) -> None:
        super().__init__()
        self._released, self._count = released, 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._count == 2 and not Path(self._released).exists():
            return None
        self._count += 1
        return {"number": self._count - 1} if self._count <= 3 else self.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...


@pytest.mark.soak
def test_a_node_that_a_search_no_longer_uses_is_released_and_used_again_when_needed(
    machines: Machines, notes: Notes, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.top_up(2)
    monkeypatch.setenv("HOLDFAST_IDLE_NODE_S", "1")
    released = notes.home / "released"

    def agents() -> int:
        return sum(actor["name"].startswith("holdfast:") for actor in ray.util.list_named_actors(all_namespaces=True))

    def act() -> None:
        wait_until(lambda: agents() == 2, "two agents")
        wait_until(lambda: agents() == 1, "the release of the node that nobody uses")
        released.touch()

    with notes.meanwhile(act):
        search = OneAfterTheRelease(str(released))
        grid = cluster_trials.tuner(
            notes.home, cluster_trials.until_released, {}, search_alg=search, num_samples=3
        ).fit()
    assert sorted(result.metrics["number"] for result in grid) == [0, 1, 2]
    assert grid.num_errors == 0


@pytest.mark.soak
def test_a_class_has_its_trials_on_the_nodes_that_its_labels_select(machines: Machines, notes: Notes) -> None:
    machines.top_up(1)
    wanted = machines.add(1, labels={"zone": "trials"})
    request = tune.PlacementGroupFactory([{"CPU": 1}], bundle_label_selector=[{"zone": "trials"}])
    trainable = tune.with_resources(cluster_trials.Counter, request)
    grid = cluster_trials.tuner(notes.home, trainable, {"step": tune.grid_search([1, 10])}).fit()
    assert sorted(result.metrics["total"] for result in grid) == [3, 30]
    assert {result.metrics["node"] for result in grid} == {name_of(wanted)}


@pytest.mark.soak
def test_a_trainer_as_a_trial_has_its_workers_where_its_strategy_says(machines: Machines, notes: Notes) -> None:
    machines.top_up(2)
    trainer = train.DataParallelTrainer(
        cluster_trials.on_two_nodes,
        scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
    )
    grid = cluster_trials.tuner(notes.home, trainer, {"number": tune.grid_search([0, 1])}).fit()
    assert sorted(result.metrics["number"] for result in grid) == [0, 1]
    for number in (0, 1):
        ranks = {rank: node for other, rank, world, node in notes.of("rank") if (other, world) == (number, 2)}
        assert len(ranks) == len(set(ranks.values())) == 2


@pytest.mark.soak
def test_the_same_command_goes_on_with_an_experiment_whose_driver_was_killed(machines: Machines, notes: Notes) -> None:
    machines.top_up(2)
    env = {**os.environ, "HOLDFAST_ENGINE": "ray", "RAY_ADDRESS": machines.address}

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, cluster_trials.__file__, str(notes.home)]
        return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    driver = start()
    try:
        for number in (0, 1):
            notes.await_steps(number, 3)
    finally:
        driver.kill()
        driver.communicate()
    wait_until(lambda: not left_over(), "the end of all that the killed driver had")
    shelves = [shelf for (shelf,) in notes.of("shelf")]
    wait_until(lambda: not any(map(os.path.exists, shelves)), "the end of what its nodes would have fetched")
    notes.enough()
    driver = start()
    _, errors = driver.communicate(timeout=ENDS_WITHIN_S)
    assert driver.returncode == 0, errors
    for number in (0, 1):
        (first, *_), (again, *_) = notes.starts(number)
        assert first == 0
        assert again >= 2, "of what was reported, at most the last may not have been safe yet"
    grid = tune.Tuner.restore(str(notes.home / "trials"), cluster_trials.endless).get_results()
    assert grid.num_terminated == 2
    for result in grid:
        steps = list(result.metrics_dataframe["step"])
        assert steps == list(range(1, len(steps) + 1)), "a result lacks, or is there twice"


def test_the_trial_of_a_killed_node_goes_on_elsewhere_and_the_other_is_not_touched(
    machines: Machines, notes: Notes
) -> None:
    """The last one: Ray may need half a minute to notice that the node is gone."""
    machines.top_up(3)

    def act() -> None:
        for number in (0, 1):
            notes.await_steps(number, 3)
        node = notes.starts(0)[-1][2]
        assert notes.starts(1)[-1][2] != node, "each has a CPU of its own"
        machines.kill(next(id for id in machines.nodes if name_of(id) == node))
        wait_until(lambda: len(notes.starts(0)) == 2, "the trial to be started again")
        for number in (0, 1):
            notes.await_steps(number, 3)

    space = {"number": tune.grid_search([0, 1])}
    with notes.meanwhile(act):
        grid = cluster_trials.tuner(notes.home, cluster_trials.endless, space, max_failures=1).fit()
    assert not grid.num_errors
    (first, _, lost), (again, _, other) = notes.starts(0)
    assert first == 0
    assert again >= 3, "it went on from its newest checkpoint"
    assert lost != other
    assert len(notes.starts(1)) == 1, "the other one was not started again"
    for result in grid:
        steps = list(result.metrics_dataframe["step"])
        assert steps == list(range(1, len(steps) + 1)), "a result lacks, or is there twice"
