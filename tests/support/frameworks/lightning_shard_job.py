"""Lightning over a shard of a dataset, whose rows the model counts; checkpoints in the middle of epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch

from holdfast import train
from holdfast.train.lightning import HoldfastDDPStrategy, LightningReportCallback, fit
from holdfast.train.torch import TorchTrainer
from support.frameworks.counted_rows import BATCH, END, EPOCHS, ROWS, datasets, note_counts
from support.frameworks.framework_job import await_change, note, run, strike

EVERY = 4


class Counts(pl.LightningModule):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.config = config
        self.seen = torch.nn.Parameter(torch.zeros(ROWS))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        await_change(self.config, self.trainer.global_step + 1)
        return -self.seen[batch["id"]].sum() * train.get_context().get_world_size()  # DDP takes the mean of the ranks

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        strike(self.config, self.trainer.global_step)
        if batch_idx == 0:  # in the order of this epoch, also where a run resumes at its start
            assert train.get_dataset_shard("train").epoch == self.trainer.current_epoch

    def on_train_epoch_end(self) -> None:
        note_counts(self.config, self.trainer.current_epoch + 1, self.seen.detach())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def train_fn(config: dict[str, Any]) -> None:
    note(config, "start", 0)
    torch.set_num_threads(1)
    trainer = pl.Trainer(
        max_epochs=EPOCHS,
        strategy=HoldfastDDPStrategy(),
        callbacks=[LightningReportCallback(every_n_train_steps=config.get("every", EVERY))],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
    )
    fit(trainer, Counts(config), train.get_dataset_shard("train").iter_torch_batches(batch_size=BATCH))
    strike(config, END)


def digest(directory: str) -> bytes:
    state = torch.load(Path(directory) / "checkpoint.ckpt", weights_only=True)
    return bytes(state["state_dict"]["seen"].numpy().tobytes())


if __name__ == "__main__":
    run(TorchTrainer, train_fn, digest, "step", datasets=datasets())
