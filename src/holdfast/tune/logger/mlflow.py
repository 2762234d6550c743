"""The public path of ``MLflowLoggerCallback``."""

from holdfast.trackers.mlflow_logger import MLflowLoggerCallback

__all__ = ["MLflowLoggerCallback"]
