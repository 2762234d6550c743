"""Loggers: callbacks that write what trials report to files and services."""

from __future__ import annotations

from holdfast.trackers.csv_logger import CSVLoggerCallback
from holdfast.trackers.json_logger import JsonLoggerCallback
from holdfast.trackers.logger_callback import LoggerCallback
from holdfast.trackers.tensorboard_logger import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback", "default_loggers"]


def default_loggers() -> list[LoggerCallback]:
    """What every experiment logs to."""
    return [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
