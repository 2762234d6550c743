"""A Lightning training with dropout, a shuffled loader and checkpoints in the middle of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import train
from holdfast.train.lightning import (
    RayDDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    fit,
    prepare_trainer,
)
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS, BATCHES, EVERY = 3, 7, 2


class Net(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        layers = [torch.nn.Linear(4, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        self.net = torch.nn.Sequential(*layers)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, y = batch
        loss = torch.nn.functional.mse_loss(self.net(x), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Strikes(pl.Callback):
    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        strike(self.config, trainer.global_step)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    pl.seed_everything(1)
    torch.manual_seed(train.get_context().get_world_rank())  # each rank drops out others
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(BATCHES * 8 * config.get("workers", 2), 4, generator=generator)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback(every_n_train_steps=EVERY), Strikes(config)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
    )
    fit(prepare_trainer(trainer), Net(), loader)


def digest(directory: str) -> bytes:
    state = torch.load(Path(directory) / "checkpoint.ckpt", weights_only=True)
    return b"".join(value.numpy().tobytes() for _, value in sorted(state["state_dict"].items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
