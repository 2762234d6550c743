"""The public path of ``JsonLoggerCallback``."""

from holdfast.trackers.json_logger import JsonLoggerCallback

__all__ = ["JsonLoggerCallback"]
