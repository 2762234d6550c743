"""The public path of ``CometLoggerCallback``."""

from holdfast.trackers.comet_logger import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
