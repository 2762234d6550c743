"""Loggers: callbacks that write what trials report to files and services."""

from __future__ import annotations

from holdfast.tune.logger.csv import CSVLoggerCallback
from holdfast.tune.logger.json import JsonLoggerCallback
from holdfast.tune.logger.logger import LoggerCallback
from holdfast.tune.logger.tensorboardx import TBXLoggerCallback, available_writer

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback", "default_loggers"]


def default_loggers() -> list[LoggerCallback]:
    """What every experiment logs to: JSON, CSV, and TensorBoard's files if something that writes them is installed."""
    loggers: list[LoggerCallback] = [JsonLoggerCallback(), CSVLoggerCallback()]
    return [*loggers, TBXLoggerCallback()] if available_writer() is not None else loggers
