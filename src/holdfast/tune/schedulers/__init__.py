"""Schedulers decide which trials continue, pause, stop or copy others. All are pure; see ``trial_scheduler``."""

from __future__ import annotations

import inspect
from typing import Any

from .async_hyperband import ASHAScheduler, AsyncHyperBandScheduler
from .decision import Decision, Exploit, Request, Resize, Save, SetConfig, StopTrial, policy_rows
from .hb_bohb import HyperBandForBOHB
from .hyperband import HyperBandScheduler
from .median_stopping_rule import MedianStoppingRule
from .pb2 import PB2
from .pbt import PopulationBasedTraining
from .pbt_replay import PopulationBasedTrainingReplay
from .resource_changing_scheduler import ResourceChangingScheduler
from .trial_scheduler import ExperimentView, FIFOScheduler, TrialScheduler, TrialView

__all__ = [
    "ASHAScheduler",
    "AsyncHyperBandScheduler",
    "Decision",
    "Exploit",
    "ExperimentView",
    "FIFOScheduler",
    "HyperBandForBOHB",
    "HyperBandScheduler",
    "MedianStoppingRule",
    "PB2",
    "PopulationBasedTraining",
    "PopulationBasedTrainingReplay",
    "Request",
    "Resize",
    "ResourceChangingScheduler",
    "Save",
    "SetConfig",
    "StopTrial",
    "TrialScheduler",
    "TrialView",
    "create_scheduler",
    "policy_rows",
]

_BY_NAME: dict[str, type[TrialScheduler]] = {
    "fifo": FIFOScheduler,
    "async_hyperband": AsyncHyperBandScheduler,
    "asynchyperband": AsyncHyperBandScheduler,
    "median_stopping_rule": MedianStoppingRule,
    "medianstopping": MedianStoppingRule,
    "hyperband": HyperBandScheduler,
    "hb_bohb": HyperBandForBOHB,
    "pbt": PopulationBasedTraining,
    "pbt_replay": PopulationBasedTrainingReplay,
    "pb2": PB2,
    "resource_changing": ResourceChangingScheduler,
}


def create_scheduler(scheduler: str, **kwargs: Any) -> TrialScheduler:
    """Create a scheduler by its name. Arguments that it does not accept are dropped, so names can be swapped."""
    kind = _BY_NAME.get(scheduler.lower())
    if kind is None:
        raise ValueError(f"create_scheduler(scheduler={scheduler!r}): must be one of {', '.join(_BY_NAME)}")
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in kwargs.items() if name in known})
