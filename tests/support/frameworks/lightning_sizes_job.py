"""Lightning on one worker or two, whose number changes in the middle of an epoch: each sample of an epoch is trained on
once, and a step is for the same samples whatever the number of workers is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast.train.lightning import HoldfastDDPStrategy, HoldfastEnvironment, LightningReportCallback, fit
from holdfast.train.torch import TorchTrainer, prepare_data_loader
from support.frameworks.framework_job import await_change, note, run

EPOCHS, SAMPLES, BATCH = 2, 48, 8


class Net(pl.LightningModule):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        x, numbers = batch
        await_change(self.config, self.trainer.global_step + 1)
        for number in numbers.tolist():
            note(self.config, f"sample {self.trainer.current_epoch} {self.trainer.global_step + 1}", number)
        return torch.nn.functional.mse_loss(self.net(x), x.sum(1, keepdim=True))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    pl.seed_everything(1)
    x = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(5))
    data = TensorDataset(x, torch.arange(SAMPLES))
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        strategy=HoldfastDDPStrategy(),
        plugins=[HoldfastEnvironment()],
        callbacks=[LightningReportCallback(every_n_train_steps=1)],
        use_distributed_sampler=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
    )
    fit(trainer, Net(config), prepare_data_loader(DataLoader(data, batch_size=BATCH, shuffle=True)))


def digest(directory: str) -> bytes:
    state = torch.load(Path(directory) / "checkpoint.ckpt", weights_only=True)
    return b"".join(value.numpy().tobytes() for _, value in sorted(state["state_dict"].items()))


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step")
