"""MLflow, under the path that scripts from Ray import it from."""

from holdfast.trackers.mlflow_logger import MLflowLoggerCallback
from holdfast.train.tracked_workers import setup_mlflow

__all__ = ["MLflowLoggerCallback", "setup_mlflow"]
