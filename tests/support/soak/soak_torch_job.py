"""The soak's part with torch: DDP over gloo, dropout, the elastic loader, and random state that every rank saves."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import holdfast.train as train
from holdfast.train.torch import ElasticSampler, prepare_data_loader, prepare_model, rng_state, seed_rng, set_rng_state
from holdfast.worker import session
from support.soak.soak_job import hang_if_told, note


def train_fn(config: dict[str, Any]) -> str:
    torch.set_num_threads(1)
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(7)
    network = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    model = prepare_model(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    numbers = torch.arange(config["samples"])
    data = TensorDataset(numbers, torch.sin(numbers[:, None] * torch.arange(1.0, 5.0)))
    sampler = ElasticSampler(data, global_batch_size=config["batch"])
    loader: Any = prepare_data_loader(DataLoader(data, batch_size=config["batch"], sampler=sampler))
    seed_rng("dropout", rank)
    step = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory, "state.pt"))
            random_state = Path(directory, f"random-{rank}-of-{world}.pt")
            if random_state.exists():
                set_rng_state(torch.load(random_state))
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        step = state["step"]
    note(config, "start", step, os.getpid(), session.current().node_id)
    last = config["epochs"] * len(loader)
    for epoch in range(loader.epoch, config["epochs"]):
        loader.set_epoch(epoch)
        for indices, inputs in loader:
            hang_if_told(config)
            note(config, "step", step + 1, epoch, indices.tolist() if loader.weight else [])
            loss = model(inputs).square().mean() * loader.weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            due = step == last or step % config["every"] == 0 or (config["asks"] and train.checkpoint_requested())
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            report({**state, "loader": loader.state_dict()} if due else None, step)
            time.sleep(config["pause_s"])
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def report(state: dict[str, Any] | None, step: int) -> None:
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    metrics = {"step": step, "world": world}
    if state is None:
        train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        torch.save(rng_state(), Path(directory, f"random-{rank}-of-{world}.pt"))
        if rank == 0:
            torch.save(state, Path(directory, "state.pt"))
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
