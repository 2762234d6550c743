"""The public path of ``WandbLoggerCallback``."""

from holdfast.trackers.wandb_logger import WandbLoggerCallback

__all__ = ["WandbLoggerCallback"]
