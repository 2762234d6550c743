"""What a trial runs: functions, classes and trainers, and their arguments."""

from typing import TYPE_CHECKING, Any

from holdfast.tune.resources import PlacementGroupFactory

from .class_loop import class_entry
from .entry import entry_of
from .function import function_entry
from .prepared import resources_of, with_parameters, with_resources
from .references import check_ray_data, check_refs, find_refs
from .report_callback import TuneReportCallback
from .trainable import Trainable, TrainingResult

if TYPE_CHECKING:
    from .trainers import trainer_resources, trial_trainer, with_scaling_fields

__all__ = [
    "PlacementGroupFactory",
    "Trainable",
    "TrainingResult",
    "TuneReportCallback",
    "check_ray_data",
    "check_refs",
    "class_entry",
    "entry_of",
    "find_refs",
    "function_entry",
    "resources_of",
    "trainer_resources",
    "trial_trainer",
    "with_parameters",
    "with_resources",
    "with_scaling_fields",
]


def __getattr__(name: str) -> Any:
    """A trial's process imports this package, and does not need the driver that trainers import."""
    if name in ("trainer_resources", "trial_trainer", "with_scaling_fields"):
        from . import trainers

        return getattr(trainers, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
