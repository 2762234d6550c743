"""Rounds of ``xgboost.train`` as reports and checkpoints of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import xgboost
from xgboost.callback import TrainingCallback

from holdfast.train.api import get_checkpoint
from holdfast.train.boosting import Metrics, RoundReports
from holdfast.train.checkpoint import Checkpoint


class XGBoostReportCallback(TrainingCallback):  # type: ignore[misc]
    """Reports the metrics of every round, and the model as a checkpoint. ``metrics`` are the metrics to report: a name
    such as ``"eval-logloss"``, a list of names, or a dict that renames them; None for all. ``frequency`` is the number
    of rounds between two checkpoints; 0 saves none before the end. ``results_postprocessing_fn`` changes the metrics
    before they are reported. ``round`` says how many rounds the model has.
    """

    CHECKPOINT_NAME = "model.ubj"

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        super().__init__()
        self._reports = RoundReports(
            lambda model, path: model.save_model(path),
            metrics,
            filename,
            frequency,
            checkpoint_at_end,
            results_postprocessing_fn,
        )

    @classmethod
    def get_model(cls, checkpoint: Checkpoint, filename: str = CHECKPOINT_NAME) -> Any:
        """Return the booster in a checkpoint that this callback reported."""
        with checkpoint.as_directory() as directory:
            return xgboost.Booster(model_file=os.path.join(directory, filename))

    def before_training(self, model: Any) -> Any:
        self._reports.resume(model.num_boosted_rounds())
        return model

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        results = {f"{data}-{name}": values[-1] for data, log in evals_log.items() for name, values in log.items()}
        self._reports.after_round(model, model.num_boosted_rounds(), results)
        return False

    def after_training(self, model: Any) -> Any:
        self._reports.after_training(model, model.num_boosted_rounds())
        return model


RayTrainReportCallback = XGBoostReportCallback  # the name in scripts for Ray


def remaining_rounds(num_boost_round: int, filename: str = XGBoostReportCallback.CHECKPOINT_NAME) -> dict[str, Any]:
    """Return arguments of ``xgboost.train`` that continue with the model of the run's newest checkpoint, if there is
    one, up to this number of rounds in total."""
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return {"num_boost_round": num_boost_round}
    model = XGBoostReportCallback.get_model(checkpoint, filename)
    return {"num_boost_round": max(0, num_boost_round - model.num_boosted_rounds()), "xgb_model": model}
