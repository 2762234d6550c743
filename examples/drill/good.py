"""A script that passes every drill: it saves and restores everything that the next step depends on.

holdfast drill examples/drill/good.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer, prepare_data_loader, prepare_model

STEPS = 14


def make_data() -> TensorDataset:
    x = torch.linspace(-3, 3, 96).unsqueeze(1)
    return TensorDataset(x, torch.sin(2 * x))


def train_loop() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
    model = prepare_model(network)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    loader = prepare_data_loader(DataLoader(make_data(), batch_size=8, shuffle=True))
    step = 0

    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            state = torch.load(Path(directory) / "state.pt")
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        loader.load_state_dict(state["loader"])
        step = state["step"]

    while step < STEPS:
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            step += 1
            metrics = {"step": step, "loss": loss.item()}
            if train.get_context().get_world_rank() == 0:
                state = {
                    "model": network.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "scheduler": scheduler.state_dict(),
                    "loader": loader.state_dict(),
                    "step": step,
                }
                with tempfile.TemporaryDirectory() as directory:
                    torch.save(state, Path(directory) / "state.pt")
                    train.report(metrics, checkpoint=train.Checkpoint.from_directory(directory))
            else:
                train.report(metrics)
            if step == STEPS:
                break


def main() -> None:
    trainer = TorchTrainer(
        train_loop,
        scaling_config=train.ScalingConfig(num_workers=2),
        run_config=train.RunConfig(name="good", failure_config=train.FailureConfig(max_failures=3, backoff_s=0.05)),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
