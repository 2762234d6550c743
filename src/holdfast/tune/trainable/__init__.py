"""What a trial runs: functions, classes and trainers, and what they are given."""

from holdfast.tune.resources import PlacementGroupFactory

from .class_loop import DUPLICATE, class_entry
from .entry import entry_of
from .function import function_entry
from .prepared import resources_of, with_resources
from .trainable import Trainable, TrainingResult

__all__ = [
    "DUPLICATE",
    "PlacementGroupFactory",
    "Trainable",
    "TrainingResult",
    "class_entry",
    "entry_of",
    "function_entry",
    "resources_of",
    "with_resources",
]
