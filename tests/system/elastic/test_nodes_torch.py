"""Gloo over two logical nodes, one of which is lost and replaced: the weights end the same, bit for bit."""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

import holdfast.train as train
from holdfast.train.torch import TorchTrainer, prepare_model
from support.elastic.elastic_job import Scene, note, wait_until

STEPS = 12


def train_fn(config: dict[str, Any]) -> str:
    """Data is a function of step and rank, so the weights are one of the world size alone."""
    torch.set_num_threads(1)
    context = train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    torch.manual_seed(7)
    network = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    model = prepare_model(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    step = 0
    checkpoint = train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as directory:
            state = torch.load(os.path.join(directory, "state.pt"))
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    while step < STEPS:
        if step == 6 and checkpoint is None and "waits" in config:
            note(config, "here", rank)
            signal.pause()  # until a node goes
        data = torch.randn(16, 6, generator=torch.Generator().manual_seed(1000 * step + rank))
        loss = (model(data) - data.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        note(config, "step", rank, world, step)
        with tempfile.TemporaryDirectory() as directory:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, os.path.join(directory, "state.pt"))
            saved = train.Checkpoint.from_directory(directory) if rank == 0 else None
            train.report({"step": step, "loss": loss.item()}, checkpoint=saved)
    digest = hashlib.sha256()
    for name, tensor in sorted(network.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.mark.timeout(300)
def test_a_node_is_lost_and_replaced(scene: Scene, tmp_path: Path) -> None:
    undisturbed = TorchTrainer(
        train_fn,
        train_loop_config={"notes": os.devnull},
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="undisturbed", storage_path=str(tmp_path), verbose=0),
    ).fit()
    cluster = scene.cluster
    cluster.add_node(cpus=1)
    second = cluster.add_node(cpus=1)

    def replace() -> None:
        wait_until(lambda: {rank for (rank,) in scene.notes("here")} == {0, 1}, "both ranks' way to the middle")
        cluster.remove_node(second)
        cluster.add_node(cpus=1)

    with scene.meanwhile(replace):
        result = scene.trainer(2, train_fn, TorchTrainer, config={"waits": True}, max_failures=1).fit()
    assert result.return_value == undisturbed.return_value
    assert result.metrics_dataframe["step"].tolist() == list(range(1, STEPS + 1))
    assert result.metrics_dataframe["loss"].tolist() == undisturbed.metrics_dataframe["loss"].tolist()
    assert scene.worlds() == [2, 2]
    assert scene.kinds() == ["node lost"]
