"""What trials and workers do with shared objects, and with datasets; and a script that leaves a reference behind.

``python cluster_objects.py`` puts an object, and prints the pickled reference.
"""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import ray

import holdfast
import holdfast.train as train
from holdfast import tune
from holdfast.objects import actor_client
from support.elastic.elastic_job import node_id, note


def shelf() -> Path:
    """Where the actor of this node has what it has fetched."""
    found = actor_client.find()
    assert found is not None
    return found.parent


def add_up(config: dict[str, Any], shared: Any) -> None:
    """All trials at the same time, so that those of a node share what it has."""
    array = holdfast.get(config["reference"])
    note(config, "begun", node_id())
    deadline = time.monotonic() + 240
    while len(Path(config["notes"]).read_text().splitlines()) < config["trials"] and time.monotonic() < deadline:
        time.sleep(0.01)
    files = sorted(path.name for path in shelf().iterdir() if path.name != actor_client.NAME)
    own = {"node": node_id(), "shelf": str(shelf()), "files": files, "writable": bool(array.flags.writeable)}
    tune.report({"sum": float(array.sum()), "shared": float(shared.sum()), **own})


def add_up_alone(config: dict[str, Any]) -> None:
    tune.report({"sum": sum(holdfast.get(config["reference"]))})


def hand_over(config: dict[str, Any]) -> None:
    """Rank 0 puts something, and rank 1, on another node, gets it."""
    mine = holdfast.put(np.arange(1000)) if train.get_context().get_world_rank() == 0 else None
    reference = train.collective.broadcast_from_rank_zero(mine)
    note(config, "got", train.get_context().get_world_rank(), int(holdfast.get(reference).sum()), node_id())
    train.collective.barrier()
    train.report({})


def read_all(config: dict[str, Any]) -> None:
    """Passes over all datasets, until there is a file that says it is enough. A group may begin with one rank, before
    there is room for another, and is larger after the checkpoint that it is asked for."""
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    note(config, "node", rank, node_id())
    shards = {name: train.get_dataset_shard(name) for name in ("train", "whole", "plain")}
    epoch = 0
    while not train.collective.broadcast_from_rank_zero(epoch > 0 and Path(config["enough"]).exists()):
        rows = [int(row) for batch in shards["train"].iter_batches(batch_size=8) for row in batch["id"]]
        whole = sum(1 for _ in shards["whole"].iter_rows())
        note(config, "epoch", world, rank, epoch, rows, whole, list(shards["plain"]))
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, f"epoch-of-{rank}").write_text(str(epoch))
            asked = train.Checkpoint.from_directory(directory) if train.checkpoint_requested() else None
            train.report({"epoch": epoch}, checkpoint=asked)
        epoch += 1


def read_tensors(config: dict[str, Any]) -> None:
    shard = train.get_dataset_shard("train")
    seen = [
        [list(batch["id"].shape), str(batch["id"].dtype), batch["id"].tolist()]
        for batch in shard.iter_torch_batches(batch_size=4, dtypes={"id": config["dtype"]}, drop_last=True)
    ]
    first = next(iter(shard.iter_batches(batch_size=3, batch_format="pandas")))
    broken = ""
    try:
        list(shard.iter_batches(batch_format="nonsense"))
    except holdfast.errors.HoldfastError as error:
        broken = str(error)
    whole = [row["id"] for row in shard.materialize().iter_rows()]
    told = {"whole": sorted(whole), "context": type(shard.get_context()).__name__}
    tune.report({"seen": seen, "frame": list(first.columns), "names": shard.schema().names, "broken": broken, **told})


def write_down_rows(config: dict[str, Any]) -> None:
    rows = [int(row["id"]) for row in train.get_dataset_shard("train").iter_rows()]
    Path(config["out"], f"rows-{train.get_context().get_world_rank()}.json").write_text(json.dumps(rows))
    train.report({})


def add_up_ours(config: dict[str, Any]) -> None:
    tune.report({"sum": config["nested"][0]["data"].sum("id")})


def read_from_config(config: dict[str, Any], other: Any) -> None:
    """What guides call on a dataset, in a trial that is not a process of Ray's."""
    data = config["nested"][0]["data"]
    assert not ray.is_initialized()
    shown = data.map_batches(lambda batch: {"id": batch["id"] * 2}).filter(lambda row: row["id"] < 10)
    parts = data.train_test_split(test_size=0.25)
    whole = data.materialize()
    broken = ""
    try:
        data.map_batches(lambda batch: {"id": batch["nonsense"]}).count()
    except holdfast.errors.HoldfastError as error:
        broken = str(error)
    told = {
        "tensors": [batch["id"].tolist() for batch in data.iter_torch_batches(batch_size=6)],
        "rows": [row["id"] for row in shown.iter_rows()],
        "parts": [part.count() for part in parts],
        "take": whole.take(2),
        "frame": whole.to_pandas()["id"].tolist(),
        "names": data.schema().names,
        "other": other.count(),
        "context": data.get_context().target_max_block_size,
        "broken": broken,
    }
    tune.report(told)


if __name__ == "__main__":
    holdfast.init(engine="ray")
    pickled = pickle.dumps(holdfast.put([1, 2, 3]))
    ray.shutdown()  # without a word to Holdfast
    assert holdfast.get(pickle.loads(pickle.dumps(holdfast.put("here")))) == "here"
    assert not ray.is_initialized(), "Ray was started again, for nobody"
    Path(sys.argv[1]).write_bytes(pickled)
