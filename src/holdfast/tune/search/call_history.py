"""The calls of a searcher, so that an equal one can be brought to the same state by replay.

It is plain data: a file of it can be read without running anything in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast.core.metric_names import lookup
from holdfast.store import values
from holdfast.tune.search.searcher import Searcher

SUGGESTED, RESUMED, ENDED = "suggested", "resumed", "ended"


class ReplayableSearcher(Protocol):
    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> None: ...
    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None: ...
    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None: ...


class CallHistory:
    def __init__(self) -> None:
        self._calls: list[list[Any]] = []
        self._restored: list[list[Any]] = []  # to be replayed when the searcher knows its space

    def suggested(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._calls.append([SUGGESTED, trial_id, dict(config)])

    def replayed(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """The last suggestion was in fact this one."""
        self._calls[-1] = [SUGGESTED, trial_id, dict(config)]

    def resumed(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._calls.append([RESUMED, trial_id, dict(config)])

    def ended(
        self, trial_id: str, result: Mapping[str, Any] | None, error: bool, metrics: Sequence[str], more: Sequence[str]
    ) -> None:
        kept = None if result is None else {name: lookup(result, name) for name in [*metrics, *more]}
        self._calls.append([ENDED, trial_id, kept, error])

    def state(self) -> dict[str, Any]:
        return {"calls": [*self._restored, *self._calls]}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._restored = [list(call) for call in state["calls"]]

    @property
    def is_waiting(self) -> bool:
        """Whether restored calls are yet to be replayed."""
        return bool(self._restored)

    def replay_into(self, searcher: ReplayableSearcher) -> None:
        waiting, self._restored = self._restored, []
        for kind, trial_id, what, *error in waiting:
            if kind == SUGGESTED:
                searcher.replay_suggestion(trial_id, what)
            elif kind == RESUMED:
                searcher.on_trial_resume(trial_id, what)
            else:
                searcher.on_trial_complete(trial_id, what, error=bool(error[0]))


class RestorableSearcher(Searcher):
    """Its state is its history, which a fresh searcher with the same arguments replays."""

    _history: CallHistory

    def get_state(self) -> dict[str, Any]:
        """The calls, as plain data."""
        return self._history.state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        """For a fresh searcher with the same arguments: it continues where the other one was."""
        self._history.restore(state)

    def save(self, checkpoint_path: str) -> None:
        Path(checkpoint_path).write_bytes(values.encode(self.get_state()))

    def restore(self, checkpoint_path: str) -> None:
        self.set_state(values.decode(Path(checkpoint_path).read_bytes()))
