"""A trial in an analysis: what callbacks see, with all its results and kept checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.result import Result
from holdfast.tune.experiment.callback_trial import TrialForCallbacks
from holdfast.tune.experiment.metric_summary import MetricSummary


class AnalysedTrial(TrialForCallbacks):
    """``result`` is its ``Result``; ``rows`` are all its reports."""

    def __init__(self, trial: Trial, home: Location, result: Result, rows: list[dict[str, Any]]) -> None:
        super().__init__(trial, home, str(home))
        self.result, self.rows = result, rows
        result._rows = rows  # and nothing that would read them again, so that an analysis can be pickled

    @property
    def config(self) -> Mapping[str, Any]:
        return self.result.config or {}

    @property
    def logdir(self) -> str:
        return self.result.path

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.result.checkpoint

    @cached_property
    def metric_analysis(self) -> dict[str, dict[str, float]]:
        """For each numeric metric its "max", "min", "avg", "last", "last-5-avg" and "last-10-avg"."""
        summary = MetricSummary()
        for row in self.rows:
            summary.add(row)
        return summary.analysis
