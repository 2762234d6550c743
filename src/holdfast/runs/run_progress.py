"""How far a run is, if its configuration says how long it trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.metric_names import flat_items, number

_TOTALS = {  # names of settings that say how long training is, by the metric that counts the same
    "epoch": ("epochs", "num_epochs", "max_epochs", "n_epochs", "num_train_epochs"),
    "step": ("steps", "num_steps", "max_steps", "total_steps", "n_steps"),
    "iteration": ("iterations", "num_iterations", "max_iterations", "num_iters", "training_iterations"),
}


def progress_with(config: Any) -> Callable[[Mapping[str, Any], int], tuple[float | None, str]]:
    return lambda metrics, reports: progress_of(config, metrics, reports)


def progress_of(config: Any, metrics: Mapping[str, Any] | None, reports: int) -> tuple[float | None, str]:
    """The share from 0 to 1, and in words; None if it is not known. ``metrics``: of the last report."""
    settings = dict(flat_items(config)) if isinstance(config, Mapping) else {}
    shown = dict(flat_items(metrics)) if metrics else {}
    for metric, names in _TOTALS.items():
        total = next((number(settings[name]) for name in names if name in settings), None)
        if total is not None and total > 0:
            counted = number(shown.get(metric))
            done = float(reports) if counted is None else min(counted + 1, total) if reports else counted
            return max(0.0, min(1.0, done / total)), f"{min(done, total):,.0f} of {total:,.0f} {metric}s"
    return None, ""
