"""``TuneController``, for type hints in scripts from Ray: what a scheduler and its functions see of the experiment."""

from __future__ import annotations

from holdfast.tune.schedulers.trial_scheduler import ExperimentView as TuneController

__all__ = ["TuneController"]
