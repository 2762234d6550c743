"""What the soak trains: no torch, but the order, the cuts and the cursor that torch's loaders use.

The state is a chain of digests over all samples so far, the same on all ranks, and one of a rank's own samples in a
file of its own. Each rank notes what it is about to consume in a file outside of the run, so that what was really
trained on can be counted without believing the run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import holdfast.train as train
from holdfast.train.torch.cursor import Cursor
from holdfast.train.torch.order import Order
from holdfast.train.torch.shares import Cut
from holdfast.worker import session


def link(chain: str, samples: list[int]) -> str:
    return hashlib.sha256(f"{chain} {samples}".encode()).hexdigest()


def note(config: dict[str, Any], kind: str, *values: Any) -> None:
    """One write, so that lines of several processes do not mix, and a killed one leaves a whole line or none."""
    here = session.current()
    line = json.dumps([kind, time.monotonic(), here.attempt_number, here.rank, here.world_size, *values]) + "\n"
    file = os.open(config["notes"], os.O_WRONLY | os.O_APPEND)
    os.write(file, line.encode())
    os.close(file)


def hang_if_told(config: dict[str, Any]) -> None:
    """Who gets hold of the mark does."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(config["hangs"])
        time.sleep(3600)


def wait_if_told(config: dict[str, Any], step: int) -> None:
    """Until all faults have struck: what is to be seen of them must not depend on how long they took to come."""
    while step == config.get("waits_at") and not os.path.exists(config["all_struck"]):
        time.sleep(0.01)


def train_fn(config: dict[str, Any]) -> str:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    state: dict[str, Any] = {"chain": "", "epoch": 0, "consumed": 0, "step": 0}
    own = ""
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = json.loads(Path(directory, "state.json").read_text())
            mine = Path(directory, f"rank-{rank}-of-{world}.json")
            own = json.loads(mine.read_text()) if mine.exists() else state["chain"]
    note(config, "start", state["step"], os.getpid(), session.current().node_id)
    chain, step = state["chain"], state["step"]
    cut = Cut(config["batch"], False, world)
    last = config["epochs"] * cut.count_parts(config["samples"])
    cursor = Cursor(state["epoch"], state["consumed"])
    while cursor.epoch < config["epochs"]:
        cursor.begin()
        order = Order(config["samples"], 0, cursor.epoch)
        for part in cut.parts(config["samples"], cursor.consumed):
            hang_if_told(config)
            wait_if_told(config, step)
            if config["in_step"]:
                train.collective.barrier()
            mine = order.at(part.positions(rank, world)).tolist() if part.weight(rank, world) else []
            chain, own = link(chain, order.at(range(part.start, part.end)).tolist()), link(own, mine)
            cursor.consumed = part.end
            step += 1
            note(config, "step", step, cursor.epoch, mine)
            state = {"chain": chain, "epoch": cursor.epoch, "consumed": cursor.consumed, "step": step}
            due = step == last or step % config["every"] == 0 or (config["asks"] and train.checkpoint_requested())
            report(rank, world, state, own, due)
            time.sleep(config["pause_s"])
        cursor.finish()
    return chain


def report(rank: int, world: int, state: dict[str, Any], own: str, saves: bool) -> None:
    metrics = {"step": state["step"], "world": world}
    if not saves:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, f"rank-{rank}-of-{world}.json").write_text(json.dumps(own))
        if rank == 0:
            Path(directory, "state.json").write_text(json.dumps(state))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
