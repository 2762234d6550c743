"""A training job over a dataset on nodes that come and go. Each rank writes down which rows it was given at which step;
``rows_by_epoch`` counts them, without asking Holdfast: those of a step that was trained again count once."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast.worker import session
from support.elastic.elastic_job import Scene, note, strike, wait_until

BATCH = 4


def train_fn(config: dict[str, Any]) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    attempt, step = session.current().attempt_number, 0
    shard = train.get_dataset_shard("train")
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            saved = json.loads(Path(directory, "state.json").read_text())
        step = saved["step"]
        shard.load_state_dict(saved["shard"])
    note(config, "start", rank, world, step, attempt)
    for epoch in range(shard.epoch, config["epochs"]):
        for batch in shard.iter_batches(batch_size=BATCH, local_shuffle_buffer_size=config["shuffle"]):
            step += 1
            note(config, "rows", attempt, rank, step, epoch, batch["id"].tolist())
            strike(config, rank, step)
            with tempfile.TemporaryDirectory() as directory:
                made = None
                if rank == 0:
                    Path(directory, "state.json").write_text(json.dumps({"step": step, "shard": shard.state_dict()}))
                    made = train.Checkpoint.from_directory(directory)
                train.report({"step": step}, checkpoint=made)
            note(config, "step", rank, world, step)
            seen = Path(config["all_sizes_seen"])
            if step == config.get("wait_after"):
                wait_until(seen.exists, f"{seen.name}, after step {step},")
            elif not seen.exists():
                time.sleep(config["pause_s"])


def train_fn_with_state(config: dict[str, Any]) -> None:
    """The same, where a ``TrainState`` saves the cursor."""
    from holdfast.train.torch import TrainState

    context = train.get_context()
    rank, world, attempt = context.get_world_rank(), context.get_world_size(), session.current().attempt_number
    shard = train.get_dataset_shard("train")
    state = TrainState(shard=shard, step=0)
    state.resume()
    note(config, "start", rank, world, state.step, attempt)
    for epoch in state.epochs(config["epochs"]):
        for batch in shard.iter_batches(batch_size=BATCH, local_shuffle_buffer_size=config["shuffle"]):
            state.step += 1
            note(config, "rows", attempt, rank, state.step, epoch, batch["id"].tolist())
            strike(config, rank, state.step)
            state.report({"step": state.step})
            note(config, "step", rank, world, state.step)
            if not Path(config["all_sizes_seen"]).exists():
                time.sleep(config["pause_s"])


def rows_by_epoch(scene: Scene) -> dict[int, Counter[int]]:
    """An attempt's steps count up to where the next one resumed."""
    begins = {attempt: step for _, _, step, attempt in scene.notes("start")}
    attempts = sorted(begins)
    until = {attempt: begins[after] for attempt, after in pairwise(attempts)}
    found: dict[int, Counter[int]] = {}
    for attempt, _, step, epoch, rows in scene.notes("rows"):
        if step <= until.get(attempt, step):
            found.setdefault(epoch, Counter()).update(rows)
    return found
