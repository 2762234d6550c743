"""A trial as an analysis shows it: what callbacks see of one, with all that it reported and what was kept of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from holdfast.core.experiment.trial import Trial
from holdfast.core.metric_names import flat_items, number
from holdfast.store.location import Location
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.result import Result
from holdfast.tune.experiment.callback_trial import TrialForCallbacks
from holdfast.tune.result_grid import SCOPES, score


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
        """Of each metric with numbers: its "max", "min", "avg", "last", "last-5-avg" and "last-10-avg"."""
        values: dict[str, list[float]] = {}
        for row in self.rows:
            for name, value in flat_items({key: item for key, item in row.items() if key != "config"}):
                found = number(value)
                if found is not None:
                    values.setdefault(name, []).append(found)
        return {name: _summary(each) for name, each in values.items()}


def _summary(values: list[float]) -> dict[str, float]:
    found = {mode: score(values, mode, "all") for mode in ("max", "min")}
    found.update({scope: score(values, "max", scope) for scope in SCOPES if scope != "all"})
    return {name: value for name, value in found.items() if value is not None}
