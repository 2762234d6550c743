"""The public path of ``CSVLoggerCallback``."""

from holdfast.trackers.csv_logger import CSVLoggerCallback

__all__ = ["CSVLoggerCallback"]
