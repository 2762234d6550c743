"""The names of trials and of their directories. The same after every restore."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.store.layout import check_name
from holdfast.train.ray_variables import LONGEST_NAME, number_in

_OWN = ("checkpoints", "journal", "logs", "metrics", "trials")  # names in the experiment's directory that are taken
_LONGEST, _LIMIT = 120, 200  # characters of a directory's name
_UNSAFE = re.compile(r"[^A-Za-z0-9_.,=+-]+")

Creator = Callable[[Any], str]


@dataclass(frozen=True)
class NewTrial:
    """The trial that functions for names get."""

    trial_id: str
    trainable_name: str
    config: Mapping[str, Any]
    evaluated_params: Mapping[str, Any]
    experiment_tag: str

    def __str__(self) -> str:
        return f"{self.trainable_name}_{self.trial_id}"


@dataclass(frozen=True)
class TrialNames:
    prefix: str  # of all trials of the experiment
    trainable: str
    name_creator: Creator | None = None
    directory_creator: Creator | None = None
    _taken: set[str] = field(default_factory=lambda: set(_OWN), repr=False)

    def take(self, directory: str) -> None:
        """A trial has this directory."""
        self._taken.add(directory.casefold())

    def id(self, number: int) -> str:
        return f"{self.prefix}_{number:05d}"

    def names(
        self, trial_id: str, number: int, config: Mapping[str, Any], params: Mapping[str, Any]
    ) -> tuple[str, str]:
        tag = _tag(number, params)
        trial = NewTrial(trial_id, self.trainable, config, params, tag)
        name = str(trial) if self.name_creator is None else str(self.name_creator(trial))
        if self.directory_creator is None:
            wanted = _UNSAFE.sub("-", f"{self.trainable}_{trial_id}_{tag}").replace(".json", "-json")
            longest = max(1, min(int(number_in(LONGEST_NAME, _LONGEST)), _LIMIT))
            directory = wanted[:longest].strip(".")
        else:
            directory = str(self.directory_creator(trial))
        check_name(directory, "trial_dirname_creator")
        if directory.casefold() in self._taken:  # two trials in one directory would find each other's checkpoints
            directory = f"{directory}_{trial_id}"
        return name, directory


def tag_of(trial_id: str, params: Mapping[str, Any]) -> str:
    """The number of the trial and its searched parameters, as in its directory's name."""
    return _tag(int(trial_id.rpartition("_")[2]), params)


def _tag(number: int, params: Mapping[str, Any]) -> str:
    """As in Ray Tune: the number and the values that were searched."""
    parts = [f"{key.rpartition('/')[2]}={_short(value)}" for key, value in params.items()]
    return "_".join([str(number), ",".join(parts)]) if parts else str(number)


def _short(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)[:30]
