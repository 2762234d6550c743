"""Tries each suggestion of a searcher several times, and tells it the mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.core.metric_names import metric_number
from holdfast.train.checks import check_int
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.wrapped import WrappedSearcher
from holdfast.tune.space.tree import substituted

TRIAL_INDEX = "__trial_index__"


class Repeater(WrappedSearcher):
    """Gives each suggestion to ``repeat`` trials, and tells the searcher the mean of their results.

    The searcher knows only the first trial of each suggestion, and learns the mean when all have finished. Trials whose
    metric is not a number do not count, and neither do results of a failed trial that is resumed.

    ``num_samples`` counts the repetitions too: make it a multiple of ``repeat``. With ``set_index``, the config
    contains the number of the repetition as ``"__trial_index__"``, so you can derive a seed from it.
    """

    def __init__(self, searcher: Searcher, repeat: int = 1, set_index: bool = True) -> None:
        check_int("Repeater(repeat", repeat, least=1)
        super().__init__(searcher)
        self.repeat = repeat
        self._set_index = set_index
        self._filling: _Group | None = None
        self._groups: dict[str, _Group] = {}

    def _progress(self) -> dict[str, Any]:
        groups = {group.first: group for group in (*self._groups.values(), self._filling) if group is not None}
        return {
            "groups": {first: asdict(group) for first, group in groups.items()},
            "first": {trial_id: group.first for trial_id, group in self._groups.items()},
            "filling": None if self._filling is None else self._filling.first,
        }

    def _take_progress(self, progress: Mapping[str, Any]) -> None:
        groups = {first: _Group(**group) for first, group in progress["groups"].items()}
        self._groups = {trial_id: groups[first] for trial_id, first in progress["first"].items()}
        self._filling = groups.get(progress["filling"])

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if self._filling is None:
            config = self.searcher.suggest(trial_id)
            if not isinstance(config, dict):
                return config
            self._filling = _Group(trial_id, config)
        return self._join(trial_id, self._filling)

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> None:
        if self._filling is None:
            first = {key: value for key, value in config.items() if key != TRIAL_INDEX}
            self.searcher.replay_suggestion(trial_id, first)
            self._filling = _Group(trial_id, first)
        self._join(trial_id, self._filling)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        group = self._groups.pop(trial_id, None)
        if group is None:
            return
        group.ended += 1
        group.failed += error
        metrics = self.metric if isinstance(self.metric, list) else [self.metric] if self.metric else []
        for metric in metrics:
            value = metric_number(result or {}, metric)
            if value is not None:
                group.values.setdefault(metric, []).append(value)
        if group.ended == self.repeat:
            means = {metric: sum(values) / len(values) for metric, values in group.values.items()}
            self.searcher.on_trial_complete(group.first, result=means or None, error=group.failed == self.repeat)

    def _join(self, trial_id: str, group: _Group) -> dict[str, Any]:
        config: dict[str, Any] = substituted(group.config, {})  # each trial its own
        if self._set_index:
            config[TRIAL_INDEX] = group.joined
        group.joined += 1
        self._groups[trial_id] = group
        if group.joined == self.repeat:
            self._filling = None
        return config


@dataclass
class _Group:
    first: str
    config: dict[str, Any]
    joined: int = 0
    ended: int = 0
    failed: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)
