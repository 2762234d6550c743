"""A searcher around another one: it forwards everything that it does not change."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.store import values
from holdfast.tune.search.searcher import Objective, Searcher, taken_by

_OWN, _INNER = "own", "searcher"
_NOT_OWN = ("searcher", "made_with")  # the inner searcher is in its arguments too


class WrappedSearcher(Searcher):
    def __init__(self, searcher: Searcher) -> None:
        if not isinstance(searcher, Searcher):
            raise TypeError(f"{type(self).__name__}(searcher={searcher!r}): pass a Searcher")
        super().__init__()
        self.searcher = searcher

    @property
    def metric(self) -> Objective:
        return self.searcher.metric

    @property
    def mode(self) -> Objective:
        return self.searcher.mode

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        taken = taken_by(self.searcher.set_search_properties, spec)
        return self.searcher.set_search_properties(metric, mode, config, **taken)

    def on_pause(self, trial_id: str) -> None:
        self.searcher.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self.searcher.on_unpause(trial_id)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        self.searcher.add_evaluated_point(parameters, value, error, pruned, intermediate_values)

    def get_state(self) -> dict[str, Any]:
        """Its own state, and that of the inner searcher if it has one."""
        own = {name: value for name, value in self.__dict__.items() if name not in _NOT_OWN}
        state: dict[str, Any] = {_OWN: copy.deepcopy(own)}
        with contextlib.suppress(NotImplementedError):
            state[_INNER] = self.searcher.get_state()
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        if _OWN not in state:  # of an earlier version, which kept only that of the inner searcher
            self.searcher.set_state(state)
            return
        own = {name: value for name, value in state[_OWN].items() if name not in _NOT_OWN}
        self.__dict__.update(copy.deepcopy(own))  # together: its parts share objects
        if _INNER in state:
            self.searcher.set_state(state[_INNER])

    def _progress(self) -> dict[str, Any]:
        """Its own part of the state, as plain values, for ``save``."""
        return {}

    def _take_progress(self, progress: Mapping[str, Any]) -> None:
        """Continue where ``_progress`` was."""

    def save(self, checkpoint_path: str) -> None:
        """Its own part has a file beside that of the inner searcher, which can be restored without the wrapper."""
        self.searcher.save(checkpoint_path)
        self._own_file(checkpoint_path).write_bytes(values.encode(self._progress()))

    def restore(self, checkpoint_path: str) -> None:
        self.searcher.restore(checkpoint_path)
        own = self._own_file(checkpoint_path)
        if own.exists():  # an earlier version, or a searcher without the wrapper, did not write it
            self._take_progress(values.decode(own.read_bytes()))

    def _own_file(self, checkpoint_path: str) -> Path:
        return Path(f"{checkpoint_path}.{type(self).__name__}")
