"""Objects that are put on one node of a real Ray cluster, and got on others."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import holdfast
import holdfast.train as train
from holdfast import tune
from holdfast.errors import ObjectLostError
from support.ray_clusters import cluster_objects
from support.ray_clusters.ray_machines import Machines, wait_until

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
TRIALS = 4


def run_config(home: Path) -> train.RunConfig:
    (home / "notes").touch()
    return train.RunConfig(name="run", storage_path=str(home), engine="ray", verbose=0)


def test_references_reach_trials_on_other_nodes_once_for_each_node(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(2)
    trainable = tune.with_parameters(cluster_objects.add_up, shared=np.full(100, 2.0))
    space = {
        "reference": tune.grid_search([holdfast.put(np.ones(1000))] * TRIALS),
        "notes": str(tmp_path / "notes"),
        "trials": TRIALS,
    }
    tuner = tune.Tuner(tune.with_resources(trainable, {"cpu": 0.5}), param_space=space, run_config=run_config(tmp_path))
    grid = tuner.fit()
    assert not grid.errors
    found = [result.metrics for result in grid]
    assert [(metrics["sum"], metrics["shared"], metrics["writable"]) for metrics in found] == [(1000, 200, False)] * 4
    assert len({metrics["node"] for metrics in found}) == 2
    for metrics in found:
        assert len(metrics["files"]) == 2, "each object was brought once"
    shelves = {metrics["shelf"] for metrics in found}
    assert len(shelves) == 2
    wait_until(lambda: not any(map(os.path.exists, shelves)), "the end of what the nodes had fetched")


def test_what_a_worker_puts_is_got_on_another_node(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(2)
    trainer = train.DataParallelTrainer(
        cluster_objects.hand_over,
        train_loop_config={"notes": str(tmp_path / "notes")},
        scaling_config=train.ScalingConfig(num_workers=2, placement_strategy="STRICT_SPREAD"),
        run_config=run_config(tmp_path),
    )
    trainer.fit()
    notes = [json.loads(line)[1:] for line in (tmp_path / "notes").read_text().splitlines()]
    assert sorted(note[:2] for note in notes) == [[0, 499500], [1, 499500]]
    assert len({node for _, _, node in notes}) == 2


def test_a_reference_of_an_earlier_driver_is_refused(machines: Machines, tmp_path: Path) -> None:
    machines.top_up(1)
    env = {**os.environ, "RAY_ADDRESS": machines.address}
    command = [sys.executable, cluster_objects.__file__, str(tmp_path / "reference")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    stale = pickle.loads((tmp_path / "reference").read_bytes())
    assert stale.handle is not None
    tuner = tune.Tuner(cluster_objects.add_up_alone, param_space={"reference": stale}, run_config=run_config(tmp_path))
    with pytest.raises(ObjectLostError, match="param_space refers to objects that are lost"):
        tuner.fit()
    with pytest.raises(ObjectLostError, match="Put the object again"):
        holdfast.get(stale)
