"""Experiments on nodes of this machine that come and go."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import holdfast
import holdfast.train as train
from holdfast import tune
from holdfast.tune.experiment.shared_nodes import named
from holdfast.wire.worker_messages import Place
from support.elastic.elastic_job import node_id, note, wait_until

pytestmark = pytest.mark.timeout(200)


def until_enough(config: dict[str, Any]) -> None:
    note(config, "start", train.get_context().get_world_rank(), node_id())
    while not Path(config["enough"]).exists():
        time.sleep(0.01)
    train.report({"done_here": node_id()})


def test_a_trial_that_loses_a_node_goes_on_where_it_has_room_already(tmp_path: Path) -> None:
    notes, enough = tmp_path / "notes", tmp_path / "enough"
    notes.touch()

    def starts() -> list[tuple[int, str]]:
        return [(rank, node) for _, rank, node in map(json.loads, notes.read_text().splitlines())]

    with holdfast.LocalCluster() as cluster:
        large, small = cluster.add_node(cpus=2), cluster.add_node(cpus=1)

        def act() -> None:
            try:
                wait_until(lambda: len(starts()) == 2, "both ranks")
                cluster.remove_node(small)
                wait_until(lambda: len(starts()) == 4, "both ranks again")
            finally:
                enough.touch()

        thread = threading.Thread(target=act)
        thread.start()
        try:
            grid = tune.Tuner(
                train.DataParallelTrainer(until_enough, scaling_config=train.ScalingConfig(num_workers=2)),
                param_space={"train_loop_config": {"notes": str(notes), "enough": str(enough)}},
                run_config=tune.RunConfig(
                    name="trials",
                    storage_path=str(tmp_path),
                    engine=cluster,
                    failure_config=tune.FailureConfig(max_failures=1, backoff_s=0.01),
                    verbose=0,
                ),
            ).fit()
        finally:
            enough.touch()
            thread.join()
    assert not grid.errors
    assert {node for _, node in starts()[:2]} == {large, small}
    assert sorted(starts()[2:]) == [(0, large), (1, large)]


@pytest.mark.parametrize(
    ("given", "sees"), [(None, "1,3,2"), ("4,5,6,7", "5,7,6"), ("GPU-a,GPU-b,GPU-c,GPU-d", "GPU-b,GPU-d,GPU-c")]
)
def test_a_trial_sees_its_gpus_alone(given: str | None, sees: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the names that the script's own environment has for them."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    place = named(Place(0, 0, 2, 0, 1.0, [0, 1], "1,3,2"))
    assert (place.devices, place.sees) == ([0, 1], sees)
