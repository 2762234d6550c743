"""Lightning with fully sharded data parallelism, on CPUs: the model wraps its layers itself, because Lightning and
torch look for a GPU otherwise. Checkpoints are sharded: on CPUs, torch crashes when it gathers a full one."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from holdfast.train.lightning import (
    RayFSDPStrategy,
    RayLightningEnvironment,
    RayTrainReportCallback,
    fit,
    prepare_trainer,
)
from holdfast.train.torch import TorchTrainer
from support.frameworks.framework_job import note, run, strike

EPOCHS, BATCHES, EVERY = 2, 7, 2


class Net(pl.LightningModule):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        layers = [torch.nn.Linear(4, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        self.net = torch.nn.Sequential(*layers)

    def configure_model(self) -> None:
        if not isinstance(self.net, FullyShardedDataParallel):
            self.net = FullyShardedDataParallel(self.net, device_id=torch.device("cpu"))

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        strike(self.config, self.trainer.global_step)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.mse_loss(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.trainer.model.parameters(), lr=0.01)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    pl.seed_everything(1)
    x = torch.randn(BATCHES * 8 * 2, 4, generator=torch.Generator().manual_seed(5))
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8, shuffle=True)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        strategy=RayFSDPStrategy(state_dict_type="sharded"),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback(every_n_train_steps=EVERY)],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
    )
    fit(prepare_trainer(trainer), Net(config), loader)


def digest(directory: str) -> bytes:
    """The shards of all ranks together."""
    with tempfile.TemporaryDirectory() as temporary:
        whole = Path(temporary) / "whole.pt"
        dcp_to_torch_save(Path(directory) / "checkpoint.ckpt", whole)
        state = torch.load(whole)["model"]
    return b"".join(value.numpy().tobytes() for _, value in sorted(state.items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
