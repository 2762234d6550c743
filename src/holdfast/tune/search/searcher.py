"""The base of searchers, which propose the configs of trials.

A searcher does no I/O and reads no clock, and its randomness comes from a seed. It is therefore restored by replay: a
fresh one that receives the same calls in the same order proposes the same, and resumes where the other one was.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.core.metric_names import metric_number
from holdfast.tune.recorded import Recorded

Objective = str | list[str] | None


class Searcher(Recorded):
    """The base class of searchers. Override ``suggest`` and ``on_trial_complete``, and pass an instance as
    ``TuneConfig(search_alg=)``.

    To continue after a restore as if nothing had happened, a searcher must draw all randomness from a generator that is
    seeded in ``__init__`` or by the ``seed`` that ``set_search_properties`` receives.
    """

    FINISHED = "FINISHED"

    def __init__(self, metric: Objective = None, mode: Objective = None) -> None:
        check_objective(type(self).__name__, metric, mode)
        self._metric = metric
        self._mode = mode

    @property
    def metric(self) -> Objective:
        return self._metric

    @property
    def mode(self) -> Objective:
        return self._mode

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        """Set the metric, the mode and the search space of the experiment, before the first suggestion.

        ``spec`` has ``num_samples`` and ``seed``. The seed is the experiment's, the same after every restore; use it if
        the searcher has none. Return False if the searcher ignores the space because it has its own.
        """
        return False

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        """Set the number of trials that may run in parallel. Return True if the searcher enforces it itself."""
        return False

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Return the config of a new trial, or the searched part of it; None if there is none yet;
        ``Searcher.FINISHED`` if there will be no more.
        """
        raise NotImplementedError

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> Any:
        """Called on restore: an earlier driver gave this config to the trial. May return the suggestion that it would
        make now; objects that could not be stored are taken from it.

        The trial keeps its config even if ``suggest`` would return something else now, because the searcher had no seed
        or its limits were changed for the restore. Override this method if that would spoil what the searcher learns
        from the trial's results.
        """
        return self.suggest(trial_id)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        """Called when a trial has reported. The result may lack the metric, or have NaN for it."""

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Called when a trial has finished. ``result`` is its last result, or None."""
        raise NotImplementedError

    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None:
        """Called when a failed trial runs again, with the same config. It will finish once more."""

    def on_pause(self, trial_id: str) -> None:
        """Called when a trial was paused."""

    def on_unpause(self, trial_id: str) -> None:
        """Called when a paused trial runs again."""

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        """Learn from a config that was tried elsewhere."""
        raise NotImplementedError(f"{type(self).__name__} cannot learn from points that it did not suggest")

    def add_evaluated_trials(self, trials_or_analysis: Any, metric: str) -> None:
        """Learn from the results of an earlier experiment: an ExperimentAnalysis, a ResultGrid, a list of trials or
        results, or one of them.
        """
        given = getattr(trials_or_analysis, "trials", trials_or_analysis)
        for trial in given if isinstance(given, Iterable) else [given]:
            result: Any = getattr(trial, "result", trial)
            value = metric_number(result.metrics or {}, metric)
            if value is not None and result.config is not None:
                self.add_evaluated_point(result.config, value, error=result.error is not None)

    def get_state(self) -> dict[str, Any]:
        """Return the state, for subclasses that can be stored outside an experiment. Experiments restore by replay and
        never call it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no get_state; experiments restore it by replay")

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Take over the state that ``get_state`` returned."""
        raise NotImplementedError(f"{type(self).__name__} has no set_state; experiments restore it by replay")

    def save(self, checkpoint_path: str) -> None:
        """Write the state to a file."""
        raise NotImplementedError(f"{type(self).__name__} has no save; experiments restore it by replaying the journal")

    def restore(self, checkpoint_path: str) -> None:
        """Read the state from a file that ``save`` wrote."""
        raise NotImplementedError(
            f"{type(self).__name__} has no restore; experiments restore it by replaying the journal"
        )

    def save_to_dir(self, checkpoint_dir: str, session_str: str = "default") -> None:
        """Write the state to a file in a directory. Experiments do not need it: the journal restores their searcher."""
        self.save(str(Path(checkpoint_dir, f"searcher-state-{session_str}.json")))

    def restore_from_dir(self, checkpoint_dir: str) -> None:
        """Read the state from the last file, by name, that ``save_to_dir`` wrote in the directory."""
        files = sorted(Path(checkpoint_dir).glob("searcher-state-*.json"))
        if not files:
            raise RuntimeError(
                f"no searcher state in {checkpoint_dir}. To continue an experiment, use Tuner.restore(); to learn "
                "from its results use add_evaluated_trials(tune.ExperimentAnalysis(path), metric)"
            )
        self.restore(str(files[-1]))


def check_objective(name: str, metric: Any, mode: Any) -> None:
    """One metric with one mode, or a list of each of the same length."""
    modes = mode if isinstance(mode, list) else [] if mode is None else [mode]
    if any(each not in ("min", "max") for each in modes):
        raise ValueError(f'{name}(mode={mode!r}): use "min" or "max"')
    if metric is None or mode is None:
        return
    if isinstance(metric, list) != isinstance(mode, list) or (isinstance(mode, list) and len(mode) != len(metric)):
        raise ValueError(f"{name}(metric={metric!r}, mode={mode!r}): give each metric its mode")


def taken_by(method: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Searchers of scripts may not accept arguments that were added later."""
    parameters = inspect.signature(method).parameters.values()
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if takes_all or name in names}


def __getattr__(name: str) -> Any:
    """``ConcurrencyLimiter``, which scripts from Ray import from here. Late, because its module imports this one."""
    if name == "ConcurrencyLimiter":
        from holdfast.tune.search.concurrency_limiter import ConcurrencyLimiter

        return ConcurrencyLimiter
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
