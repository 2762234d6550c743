"""A DDP training with a snapshot after each step, whose processes are killed at given steps, each once."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TrainState, prepare_data_loader, prepare_model
from holdfast.worker import session

STEPS_PER_EPOCH = 8


def train_fn(config: dict[str, Any]) -> str:
    """``kill``: by step, the rank that is killed after its snapshot. ``marks``: where that is written down.
    ``saves``: a checkpoint after each epoch."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rank = train.get_context().get_world_rank()
    x = torch.randn(64, 6)
    loader = prepare_data_loader(DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True))
    layers = (torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), torch.nn.Linear(8, 1))
    model = prepare_model(torch.nn.Sequential(*layers))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    own = {"own": Own(config["own_mb"])} if config.get("own_mb") else {}
    state = TrainState(model=model, optimizer=optimizer, loader=loader, loss=0.0, **own)
    state.resume()
    optimizer.register_step_post_hook(lambda *_: note(config, rank, state.steps + 1, "updates"))
    with open(Path(config["marks"], f"nodes-{rank}"), "a") as file:
        file.write(f"{session.current().node_id}\n")
    for epoch in state.epochs(config["epochs"]):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            state.loss = loss.item()  # an epoch may be resumed behind its last batch
            state.snapshot()
            note(config, rank, state.steps)
            strike(config, rank, state.steps)
            time.sleep(config.get("pause_s", 0.0))
        state.report({"epoch": epoch, "loss": state.loss}, checkpoint=config.get("saves", False))
    digest = hashlib.sha256()
    for name, tensor in sorted(state.capture()["parts"]["model"].items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


class Own:
    """A large state that each rank has of its own: it takes longer to copy to other nodes than a step takes."""

    def __init__(self, mb: int) -> None:
        self.content = torch.full((mb << 18,), float(train.get_context().get_world_rank()))

    def state_dict(self) -> dict[str, Any]:
        return {"content": self.content}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.content = state["content"]


def note(config: dict[str, Any], rank: int, step: int, kind: str = "steps") -> None:
    with open(Path(config["marks"], f"{kind}-{rank}"), "a") as file:
        file.write(f"{step}\n")


def strike(config: dict[str, Any], rank: int, step: int) -> None:
    if config.get("kill", {}).get(str(step)) != rank:
        return
    mark = Path(config["marks"], f"killed-{step}")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def steps_of(marks: Path, rank: int, kind: str = "steps") -> list[int]:
    """After which it took a snapshot; ``updates``: which it made, whether or not it came to the snapshot."""
    return [int(line) for line in (marks / f"{kind}-{rank}").read_text().split()]
