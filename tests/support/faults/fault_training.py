"""A small real training job for the fault tests: two gloo workers, DDP, momentum, a checkpoint each step.

Faults have addresses: a fault is a kind, a rank and a step, and strikes once (or as often as it is told to).
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import holdfast.train as train
from holdfast.train.torch import TorchTrainer, prepare_model

STEPS = 8


def strike(kind: str) -> None:
    if kind == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    elif kind == "SIGSEGV":
        ctypes.string_at(0)
    elif kind == "SIGSTOP":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif kind == "_exit":
        os._exit(3)
    elif kind == "exception":
        raise ValueError("planned failure")
    elif kind == "hang":
        time.sleep(3600)


def train_fn(config: dict[str, Any]) -> None:
    rank = train.get_context().get_world_rank()
    torch.manual_seed(7)
    model = prepare_model(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "state.pt"))
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    note(config, f"start {rank} {step}")
    while step < config.get("steps", STEPS):
        if step == config.get("at"):
            train.collective.barrier()  # all ranks have made their reports up to here
            if due(config, rank):
                strike(config["fault"])
        data = torch.randn(16, 6, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        report(rank, step, model, optimizer, loss.item())
        note(config, f"step {rank} {step}")
        time.sleep(config.get("pause_s", 0))


def report(rank: int, step: int, model: Any, optimizer: Any, loss: float) -> None:
    if rank != 0:
        train.report({"loss": loss, "step": step})
        return
    with tempfile.TemporaryDirectory() as directory:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, os.path.join(directory, "state.pt"))
        train.report({"loss": loss, "step": step}, checkpoint=train.Checkpoint.from_directory(directory))


def due(config: dict[str, Any], rank: int) -> bool:
    """Whether the fault strikes now; each strike is marked by a file, which no restart forgets."""
    if rank != config.get("rank", 1):
        return False
    marks = Path(config["marks"])
    marks.mkdir(exist_ok=True)
    count = len(list(marks.iterdir()))
    if count >= config.get("times", 1):
        return False
    (marks / str(count)).touch()
    return True


def note(config: dict[str, Any], line: str) -> None:
    """Every step of every attempt, in order, with O_APPEND."""
    with open(config["notes"], "a") as file:
        file.write(line + "\n")


def trainer(storage: Path, config: dict[str, Any], fn: Any = train_fn, **options: Any) -> TorchTrainer:
    failure = options.pop("failure_config", train.FailureConfig(max_failures=options.pop("max_failures", 0)))
    workers = options.pop("num_workers", 2)
    trainer_options = {name: options.pop(name) for name in ("validation_config", "datasets") if name in options}
    config = {"marks": str(storage / "marks"), "notes": str(storage / "notes"), **config}
    return TorchTrainer(
        fn,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(num_workers=workers),
        run_config=train.RunConfig(
            name=options.pop("name", "run"),
            storage_path=str(storage),
            failure_config=failure,
            verbose=options.pop("verbose", 0),
            **options,
        ),
        **trainer_options,
    )


def weights(result: train.Result) -> str:
    """A digest of the model and the optimizer in the last checkpoint."""
    assert result.checkpoint is not None
    state = torch.load(os.path.join(result.checkpoint.path, "state.pt"))
    digest = hashlib.sha256()
    for name, tensor in sorted(state["model"].items()):
        digest.update(name.removeprefix("module.").encode() + tensor.numpy().tobytes())
    for _, buffers in sorted(state["optimizer"]["state"].items()):
        digest.update(buffers["momentum_buffer"].numpy().tobytes())
    return digest.hexdigest()


def notes(storage: Path, kind: str) -> list[tuple[int, int]]:
    lines = [line.split() for line in (storage / "notes").read_text().splitlines()]
    return [(int(rank), int(step)) for what, rank, step in lines if what == kind]


def losses(result: train.Result) -> list[tuple[int, float]]:
    frame = result.metrics_dataframe
    return list(zip(frame["step"].tolist(), frame["loss"].tolist(), strict=True))
