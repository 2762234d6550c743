"""What callbacks of gradient boosting have in common: which rounds are reported, with which metrics, and the model as a
checkpoint of rank 0."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.train.api import checkpoint_requested, get_context, report
from holdfast.train.checkpoint import Checkpoint
from holdfast.train.checks import check_bool, check_int

Metrics = str | list[str] | dict[str, str] | None


class RoundReports:
    """Reports every round, and a checkpoint every ``frequency`` rounds, at the end, and when one is requested because
    the workers are about to end."""

    def __init__(
        self,
        save: Callable[[Any, str], None],
        metrics: Metrics,
        filename: str,
        frequency: int,
        checkpoint_at_end: bool,
        postprocess: Callable[[dict[str, Any]], dict[str, Any]] | None,
    ) -> None:
        check_int("frequency", frequency, least=0)
        check_bool("checkpoint_at_end", checkpoint_at_end)
        self._save = save
        self._names = names_of(metrics)
        self._filename, self._frequency, self._at_end = filename, frequency, checkpoint_at_end
        self._postprocess = postprocess
        self._last: dict[str, Any] = {}
        self._saved_round = 0

    def resume(self, rounds: int) -> None:
        """Training continues with a model of this many rounds."""
        self._saved_round = rounds

    def after_round(self, model: Any, rounds: int, results: Mapping[str, Any], is_last: bool = False) -> None:
        metrics = {name: results[metric] for name, metric in self._names.items()} if self._names else dict(results)
        if self._postprocess is not None:
            metrics = self._postprocess(metrics)
        self._last = {"round": rounds, **metrics}
        is_due = (self._frequency > 0 and rounds % self._frequency == 0) or (is_last and self._at_end)
        if is_due or checkpoint_requested():
            self._report_with_model(model, rounds)
        else:
            report(self._last)

    def after_training(self, model: Any, rounds: int) -> None:
        if self._at_end and rounds != self._saved_round:
            self._report_with_model(model, rounds)

    def _report_with_model(self, model: Any, rounds: int) -> None:
        self._saved_round = rounds
        if get_context().get_world_rank() != 0:
            report(self._last)
            return
        with tempfile.TemporaryDirectory() as directory:
            self._save(model, os.path.join(directory, self._filename))
            report(self._last, Checkpoint.from_directory(directory))


def names_of(metrics: Metrics) -> dict[str, str]:
    """Reported name -> the framework's name; empty for all."""
    if isinstance(metrics, dict):
        return metrics
    return {name: name for name in ([metrics] if isinstance(metrics, str) else metrics or [])}
