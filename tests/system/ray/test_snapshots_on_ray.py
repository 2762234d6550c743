"""State in memory on a real Ray cluster: a killed worker resumes from its node's memory, a lost node from a peer's."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from support.ray_clusters.ray_machines import Machines, RayScene, name_of, wait_until
from support.train.snapshot_job import steps_of, train_fn

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_a_killed_worker_and_a_killed_node_resume_from_memory(
    machines: Machines, scene: RayScene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machines.top_up(3)
    monkeypatch.setenv("HOLDFAST_STANDBY_NODES", "1")
    marks = tmp_path / "marks"

    def has_made(steps: int) -> bool:
        return (marks / "steps-1").exists() and len(steps_of(marks, 1)) > steps

    def act() -> None:
        wait_until(lambda: (marks / "killed-6").exists(), "the kill of a worker")
        wait_until(lambda: has_made(12), "steps behind it")
        name = (marks / "nodes-1").read_text().split()[-1]
        machines.kill(next(id for id in machines.nodes if name_of(id) == name))
        before = len(steps_of(marks, 1))
        wait_until(lambda: has_made(before + 5), "steps on another node")

    config = {"epochs": 12, "marks": str(marks), "pause_s": 0.1, "kill": {"6": 1}}
    with scene.meanwhile(act):
        result = scene.trainer(2, train_fn, kind=TorchTrainer, config=config, max_failures=3).fit()
    assert result.return_value
    entries = load(tmp_path / "run").ledger.failures
    assert [(entry.kind, entry.tier) for entry in entries] == [("crash", "memory"), ("node lost", "peer memory")]
    assert all(entry.repeated <= 1 for entry in entries)
    made = steps_of(marks, 0)
    assert sorted(set(made)) == list(range(1, made[-1] + 1))
