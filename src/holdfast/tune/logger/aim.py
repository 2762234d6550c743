"""The public path of ``AimLoggerCallback``."""

from holdfast.trackers.aim_logger import AimLoggerCallback

__all__ = ["AimLoggerCallback"]
