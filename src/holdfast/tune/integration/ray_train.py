"""The callback for a trainer inside a trial."""

from holdfast.tune.trainable.report_callback import TuneReportCallback

__all__ = ["TuneReportCallback"]
