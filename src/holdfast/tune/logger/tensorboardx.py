"""The public path of ``TBXLoggerCallback``."""

from holdfast.trackers.tensorboard_logger import TBXLoggerCallback

__all__ = ["TBXLoggerCallback"]
