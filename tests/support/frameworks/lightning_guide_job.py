"""Lightning in a script as Ray's guides write it, with another import root: their strategy, environment, callback and
``prepare_trainer``, a data module, and ``trainer.fit`` with the ``ckpt_path`` of the run's checkpoint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import holdfast.train.lightning
from holdfast import train
from holdfast.train.lightning import RayTrainReportCallback
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS, BATCHES = 3, 7


class Net(pl.LightningModule):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        layers = [torch.nn.Linear(4, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        self.net = torch.nn.Sequential(*layers)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        strike(self.config, self.trainer.global_step)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", torch.nn.functional.mse_loss(self.net(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Sums(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        x = torch.randn(BATCHES * 8 * 2, 4, generator=torch.Generator().manual_seed(5))
        self.data = TensorDataset(x, x.sum(1, keepdim=True))

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=8, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(self.data, batch_size=8)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    pl.seed_everything(1)
    model, data = Net(config), Sums()
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        devices="auto",
        accelerator="auto",
        strategy=holdfast.train.lightning.RayDDPStrategy(),
        plugins=[holdfast.train.lightning.RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer = holdfast.train.lightning.prepare_trainer(trainer)
    checkpoint = train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            path = os.path.join(directory, RayTrainReportCallback.CHECKPOINT_NAME)
            trainer.fit(model, datamodule=data, ckpt_path=path)
    else:
        trainer.fit(model, datamodule=data)


def digest(directory: str) -> bytes:
    state = torch.load(Path(directory) / "checkpoint.ckpt", weights_only=True)
    return b"".join(value.numpy().tobytes() for _, value in sorted(state["state_dict"].items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
