"""Keras, under the path that scripts from Ray import it from."""

from holdfast.train.tensorflow.keras import ReportCheckpointCallback

__all__ = ["ReportCheckpointCallback"]
