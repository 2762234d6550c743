"""Weights & Biases, under the path that scripts from Ray import it from."""

from holdfast.trackers.wandb_logger import WandbLoggerCallback
from holdfast.train.tracked_workers import setup_wandb

__all__ = ["WandbLoggerCallback", "setup_wandb"]
