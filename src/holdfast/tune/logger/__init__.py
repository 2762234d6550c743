"""Loggers: callbacks that write what trials report to files and services."""

from __future__ import annotations

from holdfast.tune.logger.csv import CSVLoggerCallback
from holdfast.tune.logger.json import JsonLoggerCallback
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback", "default_loggers"]


def default_loggers() -> list[LoggerCallback]:
    """What every experiment logs to."""
    return [JsonLoggerCallback(), CSVLoggerCallback(), TBXLoggerCallback()]
