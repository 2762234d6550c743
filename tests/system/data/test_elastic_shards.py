"""Shards of Parquet on an S3 server while workers are killed and nodes come and go: every row exactly once an epoch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

import holdfast.data
import holdfast.train as train
from holdfast.store.location import Location
from support.data.data_job import rows_by_epoch, train_fn, train_fn_with_state
from support.data.sharded_run import WAIT_AFTER
from support.elastic.elastic_job import Scene, wait_until
from support.repository import SUPPORT

ROWS, EPOCHS = 700, 2


def dataset(bucket: str, kind: str) -> Any:
    table = pa.table({"id": list(range(ROWS)), "text": [f"row {number}" for number in range(ROWS)]})
    holdfast.data.from_arrow(table).write_parquet(bucket, min_rows_per_file=150, row_group_size=40)
    found = holdfast.data.read_parquet(bucket)
    if kind == "counted":
        return found.map_batches(lambda batch: {"id": batch["id"]}, batch_size=16).random_shuffle(seed=5)
    return found.filter(lambda row: row["id"] >= 0).randomize_block_order(seed=5)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "fn"), [("counted", train_fn_with_state), ("not counted", train_fn)])
def test_every_row_once_through_kills_and_resizes(
    kind: str, fn: Any, scene: Scene, bucket: str, tmp_path: Path
) -> None:
    """4 -> 2 -> 3 workers in the middle of an epoch, and a rank that is killed."""
    data = dataset(bucket, kind)
    nodes = [scene.cluster.add_node(cpus=1) for _ in range(4)]

    def act() -> None:
        scene.await_steps(4, world=4)
        for node in nodes[:2]:
            scene.cluster.remove_node(node)
        scene.await_steps(4, world=2)
        scene.cluster.add_node(cpus=1)
        scene.await_steps(4, world=3)
        seen.touch()  # the rest of the rows need no pauses

    seen = tmp_path / "seen"
    fault = {"kind": "SIGKILL", "at": 2, "rank": 1}
    config = {"epochs": EPOCHS, "shuffle": 20, "pause_s": 0.05, "all_sizes_seen": str(seen), "fault": fault}
    trainer = scene.trainer((2, 4), fn=fn, config=config, max_failures=10)
    trainer.datasets = {"train": data}
    with scene.meanwhile(act):
        trainer.fit()
    # The two nodes are lost one after the other, so an attempt with 3 workers may start in between.
    worlds = iter(scene.worlds())
    assert all(size in worlds for size in (4, 2, 3)), scene.worlds()
    found = rows_by_epoch(scene)
    assert set(found) == set(range(EPOCHS))
    for epoch, rows in found.items():
        assert rows == Counter(range(ROWS)), f"epoch {epoch}: {Counter(rows.values())}"


@pytest.mark.timeout(300)
def test_every_row_once_when_the_driver_is_killed(bucket: str, tmp_path: Path) -> None:
    """In the middle of an epoch, with the data and the run on S3. The same command resumes."""
    holdfast.data.range(200).write_parquet(f"{bucket}/data", min_rows_per_file=50, row_group_size=20)
    scene = Scene(tmp_path, cast(Any, None))  # for what the ranks write down
    committed = Location.parse("test(path", f"{bucket}/run/checkpoints").open(30.0)
    script = [sys.executable, str(SUPPORT / "data" / "sharded_run.py"), str(tmp_path), f"{bucket}/data", bucket]
    first = subprocess.Popen(script, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: any(item.key == "checkpoint_000004.json" for item in committed.list()), "a checkpoint")
    finally:
        os.kill(first.pid, signal.SIGKILL)
        first.communicate(timeout=60)
    (tmp_path / "seen").touch()
    second = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert second.returncode == 0, second.stderr
    resumed = {step for _, _, step, attempt in scene.notes("start") if attempt > 1}
    assert len(resumed) == 1, scene.notes("start")
    assert 4 <= resumed.pop() <= WAIT_AFTER, "in the middle of the first epoch"
    found = rows_by_epoch(scene)
    assert found == {epoch: Counter(range(200)) for epoch in (0, 1)}


def read_some() -> None:
    shard, words = train.get_dataset_shard("train"), train.get_dataset_shard("words")
    assert shard is train.get_dataset_shard("train"), "it counts epochs"
    rows = [value for batch in shard.iter_torch_batches(batch_size=8) for value in batch["id"].tolist()]
    train.report({"rows": rows, "words": sum(1 for _ in words.iter_rows()), "threads": shard.get_context().max_threads})


def test_a_dataset_that_is_not_split_and_options(tmp_path: Any) -> None:
    options = holdfast.data.ExecutionOptions(resource_limits=holdfast.data.ExecutionResources(cpu=1))
    result = train.DataParallelTrainer(
        read_some,
        datasets={"train": holdfast.data.range(21), "words": holdfast.data.from_items(["hold", "fast"])},
        dataset_config=train.DataConfig(datasets_to_split=["train"], execution_options=options),
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="run", storage_path=str(tmp_path), verbose=0),
    ).fit()
    assert result.metrics == {"rows": list(range(10)), "words": 2, "threads": 1}
    with pytest.raises(ValueError, match="pass the run's datasets again: train, words"):
        train.DataParallelTrainer.restore(str(tmp_path / "run"), train_loop_per_worker=read_some)
    again = train.DataParallelTrainer.restore(
        str(tmp_path / "run"),
        train_loop_per_worker=read_some,
        datasets={"train": holdfast.data.range(21), "words": holdfast.data.from_items(["hold", "fast"])},
        dataset_config=train.DataConfig(datasets_to_split=["train"]),
    )
    assert sorted(again.datasets) == ["train", "words"]
