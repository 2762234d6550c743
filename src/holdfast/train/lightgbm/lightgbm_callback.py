"""Rounds of ``lightgbm.train`` as reports and checkpoints of the run."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import lightgbm

from holdfast.train.api import get_checkpoint
from holdfast.train.boosting import Metrics, RoundReports
from holdfast.train.checkpoint import Checkpoint


class LightGBMReportCallback:
    """Reports the metrics of every round, and the model as a checkpoint. ``metrics`` are the metrics to report: a name
    such as ``"valid-auc"``, a list of names, or a dict that renames them; None for all. ``frequency`` is the number of
    rounds between two checkpoints; 0 saves none before the end. ``results_postprocessing_fn`` changes the metrics
    before they are reported. ``round`` says how many rounds the model has.
    """

    CHECKPOINT_NAME = "model.txt"
    before_iteration = False  # LightGBM asks
    order = 25  # before early stopping (30), which ends the training by an exception

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = CHECKPOINT_NAME,
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        self._reports = RoundReports(
            _save,
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
            return lightgbm.Booster(model_file=os.path.join(directory, filename))

    def __call__(self, env: Any) -> None:
        results: dict[str, Any] = {}
        for data, name, value, _, *deviation in env.evaluation_result_list or ():
            if deviation:  # of lightgbm.cv
                results[f"{data}-{name}-mean"], results[f"{data}-{name}-stdv"] = value, deviation[0]
            else:
                results[f"{data}-{name}"] = value
        rounds = env.iteration + 1
        self._reports.after_round(env.model, rounds, results, is_last=rounds == env.end_iteration)


def _save(model: Any, path: str) -> None:
    """Without what belongs to this attempt, which LightGBM writes among the parameters: addresses, and its rounds."""
    own = ("[machines:", "[local_listen_port:", "[num_iterations:")
    lines = model.model_to_string().splitlines(keepends=True)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line for line in lines if not line.startswith(own))


RayTrainReportCallback = LightGBMReportCallback  # the name in scripts for Ray


def remaining_rounds(num_boost_round: int, filename: str = LightGBMReportCallback.CHECKPOINT_NAME) -> dict[str, Any]:
    """Return arguments of ``lightgbm.train`` that continue with the model of the run's newest checkpoint, if there is
    one, up to this number of rounds in total."""
    checkpoint = get_checkpoint()
    if checkpoint is None:
        return {"num_boost_round": num_boost_round}
    model = LightGBMReportCallback.get_model(checkpoint, filename)
    return {"num_boost_round": max(0, num_boost_round - model.current_iteration()), "init_model": model}
