"""The model of the other examples: a small network that learns a curve, and a checkpoint with everything that the next
step depends on."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import prepare_data_loader, prepare_model


def make_data(phase: float = 0.0, seed: int = 0, size: int = 2048) -> TensorDataset:
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(size, 1, generator=generator) * 6 - 3
    return TensorDataset(x, torch.sin(2 * x + phase) + 0.1 * torch.randn(x.shape, generator=generator))


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(1, 64), nn.GELU(), nn.Dropout(0.1), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 1))


class Training:
    """A worker's share of the training. To be made inside a train function."""

    def __init__(self, phase: float = 0.0, lr: float = 0.003) -> None:
        torch.set_num_threads(1)
        self.rank = train.get_context().get_world_rank()
        torch.manual_seed(self.rank)
        self.network = make_network()
        self.model = prepare_model(self.network)
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=lr)
        self.loader = prepare_data_loader(DataLoader(make_data(phase), batch_size=32, shuffle=True))

    def run_epoch(self, epoch: int) -> float:
        self.loader.sampler.set_epoch(epoch)
        total = 0.0
        for x, y in self.loader:
            loss = nn.functional.mse_loss(self.model(x), y)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
        return total / len(self.loader)

    def save(self, directory: str, epoch: int) -> None:
        """Every rank saves its random state, rank 0 also what all of them have in common."""
        torch.save(torch.get_rng_state(), Path(directory) / f"random-{self.rank}.pt")
        if self.rank == 0:
            state = {"model": self.network.state_dict(), "optimizer": self.optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(directory) / "state.pt")

    def load(self, directory: str) -> int:
        """Take up what was saved. Returns the epoch that it was saved after."""
        state = torch.load(Path(directory) / "state.pt")
        self.network.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(torch.load(Path(directory) / f"random-{self.rank}.pt"))
        return int(state["epoch"])
