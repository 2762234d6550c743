"""FSDP2 on gloo: a state goes from 4 workers to 3, 2 and 4 and stays the same; a killed rank costs no checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch._dynamo

from holdfast import train
from holdfast.runs.stored_experiment import load
from holdfast.train.torch import TorchTrainer
from support.train.sharded_job import train_fn

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


def test_a_killed_rank_resumes_its_shards_from_memory(tmp_path: Path) -> None:
    undisturbed = run(tmp_path, "undisturbed", 2, 8)
    killed = run(tmp_path, "killed", 2, 8, kill=5)
    assert killed[2:] == undisturbed[2:]
    assert killed[1] in (4, 5), "the step in which it was killed, or the one before"
    assert [entry.tier for entry in load(tmp_path / "killed").ledger.failures] == ["memory"]
