"""A loop with Accelerate, dropout and a shuffled data set, and a checkpoint after each epoch."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS = 6


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    accelerator = Accelerator(dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    assert accelerator.num_processes == 2
    torch.manual_seed(0)
    x = torch.randn(64, 4)
    model: Any = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
    optimizer: Any = torch.optim.AdamW(model.parameters(), lr=0.05)
    loader: Any = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    start, checkpoint = 0, train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
        start = checkpoint.get_metadata()["epoch"]
    for epoch in range(start, EPOCHS):
        strike(config, epoch)
        loader.set_epoch(epoch)
        for x, y in loader:
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        with tempfile.TemporaryDirectory() as directory:
            accelerator.save_state(directory)
            saved = train.Checkpoint.from_directory(directory)
            if accelerator.is_main_process:
                saved.set_metadata({"epoch": epoch + 1})
            train.report({"epoch": epoch + 1}, saved)


def digest(directory: str) -> bytes:
    from safetensors.torch import load_file

    state = load_file(Path(directory) / "model.safetensors")
    return b"".join(value.numpy().tobytes() for _, value in sorted(state.items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "epoch")
