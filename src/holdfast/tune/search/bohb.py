"""``TuneBOHB``: the model of BOHB, for ``HyperBandForBOHB``, on an engine that is kept: Optuna's (decision 23)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.core.metric_names import metric_number, number
from holdfast.train.checks import check_int
from holdfast.tune.result_metrics import TRAINING_ITERATION
from holdfast.tune.search.optuna import OptunaSearch
from holdfast.tune.search_space import choice, lograndint, loguniform, randint, uniform

_OPTIONS = {"min_points_in_model": "n_startup_trials", "num_samples": "n_ei_candidates"}


class TuneBOHB(OptunaSearch):
    """Suggests configurations as BOHB does, with multivariate kernel density estimators of the trials with the largest
    budgets. A trial that was stopped early counts with its last iteration. Use it with ``HyperBandForBOHB``.

    ``space`` is a dict of ``holdfast.tune`` domains, or a ``ConfigSpace.ConfigurationSpace`` without conditions; by
    default ``param_space``. In ``bohb_config``, ``min_points_in_model`` random trials come first, and ``num_samples``
    are compared for each suggestion. ``max_concurrent`` is how many trials may run in parallel, 0 for any number;
    paused trials do not count.
    """

    def __init__(
        self,
        space: Any = None,
        bohb_config: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        seed: int | None = None,
        max_concurrent: int = 0,
    ) -> None:
        check_int("TuneBOHB(max_concurrent", max_concurrent, least=0, note=" (0: any number)")
        space = space if space is None or isinstance(space, dict) else _domains(space)
        super().__init__(space, metric, mode, points_to_evaluate, seed=seed)
        for name in set(bohb_config or {}) - set(_OPTIONS):
            warnings.warn(f"TuneBOHB(bohb_config={{{name!r}: ...}}): has no effect; leave it out", stacklevel=2)
        self._options = {_OPTIONS[name]: value for name, value in (bohb_config or {}).items() if name in _OPTIONS}
        self._most = max_concurrent
        self._running: set[str] = set()

    def set_max_concurrency(self, max_concurrent: int) -> bool:
        self._most = max_concurrent
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        if trial_id not in self._live and 0 < self._most <= len(self._running):
            return None
        suggestion = super().suggest(trial_id)
        self._running.add(trial_id)
        return suggestion

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> None:
        most, self._most = self._most, 0  # the trial exists, whatever the limit is now
        super().replay_suggestion(trial_id, config)
        self._most = most

    def on_pause(self, trial_id: str) -> None:
        self._running.discard(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        self._running.add(trial_id)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        self._running.discard(trial_id)
        live = self._live.get(trial_id)
        value = metric_number(result or {}, self._metric_names()[0])
        budget = number((result or {}).get(TRAINING_ITERATION))
        if live is None or live.trial is None or value is None or budget is None or error:
            super().on_trial_complete(trial_id, result, error)
            return
        self._end(trial_id, result, error)
        from optuna.trial import TrialState

        live.trial.report(value, int(budget))  # by which Optuna orders trials: the largest budget first, then the value
        self._ready().tell(live.number, state=TrialState.PRUNED)

    def _make_sampler(self) -> Any:
        import optuna

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings that some of its options are experimental
            return optuna.samplers.TPESampler(seed=self._seed, multivariate=True, constant_liar=True, **self._options)


def _domains(space: Any) -> dict[str, Any]:
    """Those of a ``ConfigSpace``, known by their shape."""
    if getattr(space, "conditions", None):
        raise ValueError("TuneBOHB(space=): a ConfigurationSpace with conditions is not supported; use OptunaSearch")
    return {name: _domain(name, space[name]) for name in list(space)}


def _domain(name: str, given: Any) -> Any:
    kind = type(given).__name__
    if hasattr(given, "choices"):
        return choice(list(given.choices))
    if "Float" in kind and hasattr(given, "lower"):
        return (loguniform if given.log else uniform)(given.lower, given.upper)
    if "Integer" in kind and hasattr(given, "lower"):
        return (lograndint if given.log else randint)(given.lower, given.upper + 1)
    if hasattr(given, "value"):
        return given.value
    raise ValueError(f"TuneBOHB(space=): {name!r} is a {kind}; use a float, an integer, a categorical or a constant")
