"""Limits how many of a searcher's suggestions are tried in parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.train.checks import check_int
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search.wrapped import WrappedSearcher


class ConcurrencyLimiter(WrappedSearcher):
    """Limits the number of trials of a searcher that run in parallel to ``max_concurrent``.

    With ``batch``, the searcher learns the results of a batch of trials only when all of them have finished; then the
    next batch starts. A searcher that can limit itself gets the number and does so.
    """

    def __init__(self, searcher: Searcher, max_concurrent: int, batch: bool = False) -> None:
        check_int("ConcurrencyLimiter(max_concurrent", max_concurrent, least=1)
        super().__init__(searcher)
        self.max_concurrent = max_concurrent
        self.batch = batch
        self._limits_itself = searcher.set_max_concurrency(max_concurrent)
        self._out: set[str] = set()
        self._ended: dict[str, tuple[dict[str, Any] | None, bool]] = {}  # of the batch that is under way

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self.max_concurrent = max_concurrent
        self._limits_itself = self.searcher.set_max_concurrency(max_concurrent)
        return True

    def _progress(self) -> dict[str, Any]:
        return {"out": sorted(self._out), "ended": {id: list(ended) for id, ended in self._ended.items()}}

    def _take_progress(self, progress: Mapping[str, Any]) -> None:
        self._out = set(progress["out"])
        self._ended = {id: (result, error) for id, (result, error) in progress["ended"].items()}

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if not self._limits_itself and len(self._out) + len(self._ended) >= self.max_concurrent:
            return None
        suggestion = self.searcher.suggest(trial_id)
        if isinstance(suggestion, dict):
            self._out.add(trial_id)
        return suggestion

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> Any:
        self._out.add(trial_id)
        return self.searcher.replay_suggestion(trial_id, config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        self.searcher.on_trial_result(trial_id, result)

    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self.searcher.on_trial_resume(trial_id, config)
        self._out.add(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if trial_id not in self._out:
            return
        self._out.remove(trial_id)
        self._ended[trial_id] = (result, error)
        if self.batch and self._out and not self._limits_itself:
            return
        ended, self._ended = self._ended, {}
        for name, (last, failed) in ended.items():
            self.searcher.on_trial_complete(name, result=last, error=failed)
