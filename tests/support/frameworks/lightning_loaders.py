"""Prints as JSON what checkpoints in the middle of an epoch say about loaders: ``python lightning_loaders.py WHAT``.

``fetches``: after each step that fetches its batch itself, how many batches the loader's state has, and how many rows
the shard's has left. ``foreign``: how many batches a step was made with, of a loader with a ``take`` of its own.
Without workers: the strategy is of one device.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader

import holdfast.data
from holdfast.train.lightning.strategies import _WorkerStrategy

ROWS, BATCH, STEPS = 16, 4, 3


class OneDevice(_WorkerStrategy, pl.strategies.SingleDeviceStrategy):  # type: ignore[misc]
    root_device = torch.device("cpu")


class Foreign:
    """As a streaming data set of another library."""

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.zeros(STEPS, 1))

    def take(self, rows: int) -> Any:
        raise AssertionError("it is not a loader of the run")


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.steps: list[Any] = []

    def training_step(self, batch: Any) -> torch.Tensor:
        self.steps.append(len(batch))
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


class Fetching(Model):
    def training_step(self, dataloader_iter: Any) -> torch.Tensor:  # type: ignore[override]
        next(dataloader_iter)
        return self.weight.sum()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        loops = self.trainer._checkpoint_connector.dump_checkpoint()["loops"]
        for state in loops["fit_loop"]["state_dict"]["combined_loader"]:
            self.steps.append(state["consumed"] if "consumed" in state else state["left"])


def fitted(model: Model, loader: Any) -> list[Any]:
    options = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False)
    trainer = pl.Trainer(
        max_epochs=1, limit_train_batches=STEPS, strategy=OneDevice(), enable_model_summary=False, **options
    )
    trainer.fit(model, loader)
    return model.steps


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1] == "foreign":
        print(json.dumps(fitted(Model(), Foreign())))
    else:
        shard = holdfast.data.range(ROWS).iterator()
        plain = DataLoader(range(ROWS), batch_size=BATCH)  # type: ignore[arg-type]
        print(json.dumps([fitted(Fetching(), plain), fitted(Fetching(), shard.iter_torch_batches(batch_size=BATCH))]))
