"""Keras inside a trial: metrics and checkpoints as reports of the trial."""

from holdfast.train.tensorflow.keras import KerasReportCallback as TuneReportCheckpointCallback

__all__ = ["TuneReportCheckpointCallback"]
