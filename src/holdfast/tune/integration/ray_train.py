"""For a trainer inside of a trial."""

from holdfast.tune.trainable.report_callback import TuneReportCallback

__all__ = ["TuneReportCallback"]
