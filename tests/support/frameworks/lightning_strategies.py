"""Prints as JSON how Lightning refuses on CPUs the strategies for GPUs: ``python lightning_strategies.py STORAGE``.

``prepare_trainer`` accepts trainers with them before that.
"""

from __future__ import annotations

import json
import sys

import lightning.pytorch as pl
from lightning.pytorch.demos.boring_classes import BoringModel

from holdfast import train
from holdfast.train import lightning
from holdfast.train.torch import TorchTrainer


def train_fn() -> None:
    refused = {}
    for name in ("RayFSDPStrategy", "RayDeepSpeedStrategy"):
        strategy = getattr(lightning, name)()
        trainer = pl.Trainer(
            accelerator="cpu",
            strategy=strategy,
            plugins=[lightning.RayLightningEnvironment()],
            enable_checkpointing=False,
            logger=False,
        )
        assert lightning.prepare_trainer(trainer) is trainer
        assert trainer.strategy is strategy
        try:
            lightning.fit(trainer, BoringModel())
        except RuntimeError as error:
            refused[name] = str(error)
    train.report(refused)


if __name__ == "__main__":
    run_config = train.RunConfig(name="strategies", storage_path=sys.argv[1], verbose=0)
    scaling_config = train.ScalingConfig(num_workers=1)
    result = TorchTrainer(train_fn, scaling_config=scaling_config, run_config=run_config).fit()
    print(json.dumps(result.metrics))
