"""The public path of ``LoggerCallback``."""

from holdfast.trackers.logger_callback import LoggerCallback

__all__ = ["LoggerCallback"]
