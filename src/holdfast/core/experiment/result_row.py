"""A result of a trial: its reported metrics, with the fields that are added to all of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from functools import lru_cache
from typing import Any

from holdfast.core.experiment import events as ev
from holdfast.core.experiment.trial import Trial

_SUMMED = {"timesteps_this_iter": "timesteps_total", "episodes_this_iter": "episodes_total"}


def take_result(trial: Trial, event: ev.Reported, host: Mapping[str, Any]) -> None:
    """The report becomes the trial's last result."""
    took = max(0.0, event.time - trial.last_time) if trial.last_time else 0.0
    trial.last_time = event.time
    trial.time_total_s += took
    since, total_before = trial.restored_at
    metrics, moment = event.metrics, int(event.time)
    trial.last_result = {
        **metrics,
        **_totals(trial, event),
        "timestamp": moment,
        "checkpoint_dir_name": metrics.get("checkpoint_dir_name") if event.checkpoint is not None else None,
        "done": bool(metrics.get("done", False)),
        "training_iteration": event.iteration,
        "trial_id": trial.trial_id,
        "date": _date(moment),
        "time_this_iter_s": took,
        "time_total_s": trial.time_total_s,
        **host,
        "time_since_restore": trial.time_total_s - total_before,
        "iterations_since_restore": max(0, event.iteration - since),
        "config": trial.config,
    }
    trial.results, trial.heard = trial.results + 1, event.iteration
    if event.checkpoint is not None:
        trial.checkpoint_number = event.checkpoint


def _totals(trial: Trial, event: ev.Reported) -> dict[str, Any]:
    """Sums of the "timesteps_this_iter" that a function reports. A repeated iteration counts once."""
    found: dict[str, Any] = {}
    for each, total in _SUMMED.items():
        amount = event.metrics.get(each)
        if amount is None or total in event.metrics or isinstance(amount, bool) or not isinstance(amount, (int, float)):
            continue
        sums = trial.sums.get(total, {})
        before = max((iteration for iteration in sums if iteration < event.iteration), default=0)
        found[total] = sums.get(before, 0) + amount
        kept = {at: sums[at] for at in (trial.checkpoint_number, before) if at in sums}
        trial.sums[total] = {**kept, event.iteration: found[total]}
    return found


def row_of_result(event: ev.Reported, trial: Trial) -> dict[str, Any]:
    """The trial's last result as a row of its table, without the config, which is stored separately."""
    row = {name: value for name, value in trial.last_result.items() if name != "config"}
    return {**row, "config": event.metrics["config"]} if "config" in event.metrics else row


@lru_cache(16)
def _date(second: int) -> str:
    return datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%d_%H-%M-%S")
