"""A small real training job for the data tests: DDP over gloo, dropout, random augmentation, loader workers, and a
checkpoint after every second step. The checkpoint has the samples that were trained on, so that they are those of the
surviving history: what a killed attempt did after its last checkpoint is not in it.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

import holdfast.train as train
from holdfast.train.torch import (
    SeededDataset,
    TorchTrainer,
    prepare_data_loader,
    prepare_model,
    rng_state,
    seed_rng,
    set_rng_state,
)

SAMPLES, EPOCHS, BATCH, EVERY = 52, 2, 12, 2
PATIENCE_S = 120.0


class Augmented(Dataset[Any]):
    """Each sample with noise that the dataset draws itself."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> Any:
        clean = torch.randn(4, generator=torch.Generator().manual_seed(index))
        return index, clean + 0.1 * torch.randn(4)


def train_fn(config: dict[str, Any]) -> None:
    torch.set_num_threads(1)
    context = train.get_context()
    rank, world_size = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(7)
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    model = prepare_model(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    data = SeededDataset(Augmented())
    kind = stateful_loader() if config["stateful"] else DataLoader
    loader = prepare_data_loader(
        kind(data, batch_size=BATCH // world_size, shuffle=True, num_workers=config["num_workers"])
    )
    seed_rng("dropout", rank)
    history: list[tuple[int, int, list[int]]] = []
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory, "state.pt"))
            random_state = Path(directory, f"random-{rank}.pt")
            if random_state.exists():
                set_rng_state(torch.load(random_state))
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        history = state["history"]
    for epoch in range(loader.epoch, EPOCHS):
        loader.set_epoch(epoch)
        for indices, inputs in loader:
            strike(config, rank, world_size, len(history))
            loss = model(inputs).square().mean() * loader.weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            ranks: list[Any] = [None] * world_size
            dist.all_gather_object(ranks, indices.tolist() if loader.weight else [])
            history.append((epoch, world_size, [index for part in ranks for index in part]))
            await_resize(config, world_size, len(history))
            if len(history) % EVERY == 0 or train.checkpoint_requested():
                save(rank, network, optimizer, loader, history)
    save(rank, network, optimizer, loader, history)


def stateful_loader() -> Any:
    from torchdata.stateful_dataloader import StatefulDataLoader

    warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata's own, with newer torch
    return StatefulDataLoader


def save(rank: int, network: Any, optimizer: Any, loader: Any, history: Any) -> None:
    with tempfile.TemporaryDirectory() as directory:
        torch.save(rng_state(), Path(directory, f"random-{rank}.pt"))
        if rank == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "loader": loader.state_dict(), "history": history}, Path(directory, "state.pt"))
        train.report({"step": len(history)}, checkpoint=train.Checkpoint.from_directory(directory))


def strike(config: dict[str, Any], rank: int, world_size: int, step: int) -> None:
    """Each fault is (rank, world size, step), and strikes once: a file tells it from a restart."""
    for number, fault in enumerate(config["faults"]):
        mark = Path(config["marks"], str(number))
        if tuple(fault) == (rank, world_size, step) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def await_resize(config: dict[str, Any], world_size: int, step: int) -> None:
    """At some steps only an attempt of a certain size continues: others wait until they are ended, or asked to save."""
    wanted = config["sizes"].get(step, world_size)
    if world_size == wanted:
        return
    Path(config["marks"], f"awaits-{wanted}").touch()
    deadline = time.monotonic() + PATIENCE_S
    while not train.checkpoint_requested():
        assert time.monotonic() < deadline, f"no attempt of {wanted} came"
        time.sleep(0.02)
        train.report({"step": step})  # an attempt is asked to save at the next of its reports


def trainer(storage: Path, workers: Any, faults: Any = (), num_workers: int = 1, **options: Any) -> TorchTrainer:
    marks = storage / "marks"
    marks.mkdir(exist_ok=True)
    config = {"faults": list(faults), "sizes": options.pop("sizes", {}), "marks": str(marks)}
    config["stateful"] = options.pop("stateful", False)
    failures = train.FailureConfig(max_failures=options.pop("max_failures", 0), backoff_s=0)
    return TorchTrainer(
        train_fn,
        train_loop_config={**config, "num_workers": num_workers},
        scaling_config=train.ScalingConfig(num_workers=workers, elastic_resize_monitor_interval_s=0.1),
        run_config=train.RunConfig(
            name="run", storage_path=str(storage), failure_config=failures, verbose=0, **options
        ),
    )


def final_state(result: train.Result) -> dict[str, Any]:
    assert result.checkpoint is not None
    state: dict[str, Any] = torch.load(Path(result.checkpoint.path, "state.pt"))
    return state


def check_each_sample_once(state: dict[str, Any]) -> None:
    for epoch in range(EPOCHS):
        seen = Counter(index for when, _, indices in state["history"] for index in indices if when == epoch)
        assert seen == Counter(range(SAMPLES)), f"epoch {epoch}"
