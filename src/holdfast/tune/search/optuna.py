"""Search with Optuna's samplers (TPE, CMA-ES, GP, NSGA-II, ...), through ask and tell.

The study is kept in memory and rebuilt by replay. Optuna is imported when a search is created, not before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.metric_names import flat_items, lookup, metric_number, number
from holdfast.tune.result_metrics import DEFAULT_METRIC, TRAINING_ITERATION
from holdfast.tune.search.call_history import CallHistory, RestorableSearcher
from holdfast.tune.search.flat_space import nested
from holdfast.tune.search.optuna_space import OptunaSpace, distributions_of
from holdfast.tune.search.searcher import Objective
from holdfast.tune.search_space import RandomSource, generate, source_of, unresolved

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution

DefineByRun = Callable[["optuna.Trial"], dict[str, Any] | None]
TRIAL_ID = "holdfast_trial_id"  # identifies a trial in the user's storage


class OptunaSearch(RestorableSearcher):
    """Suggests configurations with an Optuna sampler, and tells it the results.

    ``space`` is a dict of ``holdfast.tune`` domains or Optuna distributions, nested or not, or a function of an
    ``optuna.Trial`` that calls its ``suggest_`` methods and may return constants. By default it is ``param_space``.
    ``metric`` and ``mode`` are lists for several objectives. ``seed`` is the seed of the default sampler, TPE. Give
    your own sampler a seed: without one, a restored experiment keeps its trials but draws different new ones.
    ``points_to_evaluate`` are configurations to try first; with their known results in ``evaluated_rewards``, they are
    not tried. ``storage`` is an Optuna storage that also keeps the study, for its dashboard or for a study that
    continues. A restored experiment uses the trials that it finds there.
    """

    def __init__(
        self,
        space: Mapping[str, Any] | DefineByRun | None = None,
        metric: Objective = None,
        mode: Objective = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        study_name: str | None = None,
        storage: optuna.storages.BaseStorage | None = None,
        seed: int | None = None,
        evaluated_rewards: Sequence[Any] | None = None,
    ) -> None:
        imported = _optuna()
        super().__init__(metric, mode)
        _check_type("sampler", sampler, imported.samplers.BaseSampler, "an instance of a sampler of optuna.samplers")
        _check_type("storage", storage, imported.storages.BaseStorage, "an instance of a storage of optuna.storages")
        if evaluated_rewards and len(evaluated_rewards) != len(points_to_evaluate or []):
            raise ValueError("OptunaSearch(evaluated_rewards=): pass one for each of points_to_evaluate")
        self._define_by_run = space if callable(space) else None
        self._space = OptunaSpace(nested(space)) if isinstance(space, Mapping) and space else None
        self._points = deque(points_to_evaluate or [])
        self._rewards = list(evaluated_rewards or [])
        self._sampler, self._seed = sampler, seed
        self._storage, self._study_name = storage, study_name or "optuna"
        self._study: optuna.Study | None = None
        self._source: RandomSource | None = None  # for functions of sample_from
        self._known: dict[str, optuna.trial.FrozenTrial] = {}
        self._live: dict[str, _Live] = {}
        self._latest: dict[str, float] = {}
        self._history = CallHistory()

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        has_own = self._space is not None or self._define_by_run is not None
        if has_own and unresolved(dict(config)):
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        if not has_own:
            self._space = OptunaSpace(config)
        if self._seed is None:
            self._seed = spec.get("seed")
        return True

    @staticmethod
    def convert_search_space(spec: Mapping[str, Any]) -> dict[str, BaseDistribution]:
        """Return the space as Optuna's distributions, by flat names; constants are left out."""
        return distributions_of(spec)

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        study = self._ready()
        if trial_id not in self._live:
            point = self._points.popleft() if self._points else None
            known = self._known.get(trial_id)
            if known is not None:
                self._live[trial_id] = _Live(known.number, self._config(known.params), None)
            else:
                self._live[trial_id] = self._ask(study, trial_id, None if point is None else self._params(point))
            self._history.suggested(trial_id, self._live[trial_id].config)
        return self._live[trial_id].config

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> Any:
        self.suggest(trial_id)
        self._history.replayed(trial_id, config)
        live = self._live[trial_id]
        try:
            params = self._params(config)
        except ValueError:  # a choice that the journal did not restore to its original type
            return live.config
        if live.trial is None or all(live.trial.params.get(name, value) == value for name, value in params.items()):
            return live.config
        from optuna.trial import TrialState

        study = self._ready()
        study.tell(live.number, state=TrialState.FAIL)  # no sampler learns from it
        self._live[trial_id] = self._ask(study, trial_id, params)
        return self._live[trial_id].config

    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None:
        self._live[trial_id] = self._ask(self._ready(), trial_id, self._params(config))
        self._history.resumed(trial_id, config)

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._history.is_waiting:
            self._ready()
        live = self._live.get(trial_id)
        if live is None or isinstance(self.metric, list):
            return
        value = metric_number(result, self._metric_names()[0])
        if value is None:
            return
        self._latest[trial_id] = value
        step = number(result.get(TRAINING_ITERATION))
        # Only for who looks at the storage: Optuna copies all of a trial's values for each that is added.
        if self._storage is not None and live.trial is not None and step is not None and math.isfinite(step):
            live.trial.report(value, int(step))

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        live, latest = self._end(trial_id, result, error)
        if live is None:
            return
        from optuna.trial import TrialState

        study = self._ready()
        values = [self._value(result or {}, metric, latest) for metric in self._metric_names()]
        if error:
            study.tell(live.number, state=TrialState.FAIL, skip_if_finished=True)
        elif not all(map(math.isfinite, values)):  # to samplers it is among the worst then
            study.tell(live.number, state=TrialState.PRUNED, skip_if_finished=True)
        else:
            study.tell(live.number, values, state=TrialState.COMPLETE, skip_if_finished=True)

    def _end(self, trial_id: str, result: dict[str, Any] | None, error: bool) -> tuple[_Live | None, float | None]:
        """The trial, which is forgotten, and the last value that it reported."""
        if self._history.is_waiting:
            self._ready()
        live, latest = self._live.pop(trial_id, None), self._latest.pop(trial_id, None)
        if live is not None:
            self._history.ended(trial_id, result, error, self._metric_names(), [TRAINING_ITERATION])
        return live, latest

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: Any,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        study = self._ready()
        if self._space is None:
            raise TypeError("OptunaSearch: points that were evaluated need a space that is a dict, not a function")
        from optuna.trial import TrialState, create_trial

        params = self._space.params(parameters)
        missing = [name for name in self._space.parameters if name not in params]
        if missing:
            raise ValueError(f"OptunaSearch: {dict(parameters)!r} was evaluated and has no value for {missing[0]!r}")
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if error else TrialState.PRUNED if pruned else TrialState.COMPLETE,
                values=None if error else list(value) if isinstance(value, (list, tuple)) else [value],
                params=params,
                distributions=self._space.distributions,
                intermediate_values=dict(enumerate(intermediate_values or ())),
            )
        )

    def _ready(self) -> optuna.Study:
        """The study; it is made when it is needed first, as seed, space and metric may come late."""
        if self._study is not None:
            return self._study
        if self._space is None and self._define_by_run is None:
            raise RuntimeError("OptunaSearch has no search space: pass space= or Tuner(param_space=)")
        if self.mode is None:
            raise RuntimeError("OptunaSearch has no metric and mode: pass them to it or to TuneConfig")
        if isinstance(self.mode, list) and self.metric is None:
            raise RuntimeError(f"OptunaSearch(mode={self.mode!r}): several objectives need their names in metric=")
        if self._space is not None:
            for position, point in enumerate(self._points):
                self._space.check_point(point, f"OptunaSearch(points_to_evaluate[{position}])")
        self._source = source_of(self._seed)
        self._study = self._create_study()
        trials = self._study.get_trials(deepcopy=False)  # none, unless they come from a storage
        self._known = {t.user_attrs[TRIAL_ID]: t for t in trials if TRIAL_ID in t.user_attrs}
        if trials and self._sampler is None and self._seed is not None:  # or it would draw the first ones again
            self._study.sampler = _optuna().samplers.TPESampler(seed=self._seed + len(trials))
        for reward in self._rewards:
            point = self._points.popleft()
            if not self._known:
                self.add_evaluated_point(point, reward)
        self._history.replay_into(self)
        return self._study

    def _create_study(self) -> optuna.Study:
        import optuna

        modes = self.mode if isinstance(self.mode, list) else [self.mode]
        sampler = self._sampler or self._make_sampler()
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(max(level, optuna.logging.WARNING))  # a study in memory needs no log message
        try:
            return optuna.create_study(
                storage=self._storage,
                sampler=sampler,
                pruner=optuna.pruners.NopPruner(),
                study_name=self._study_name,
                directions=["minimize" if mode == "min" else "maximize" for mode in modes],
                load_if_exists=True,
            )
        finally:
            optuna.logging.set_verbosity(level)

    def _make_sampler(self) -> optuna.samplers.BaseSampler:
        import optuna

        return optuna.samplers.TPESampler(seed=self._seed)

    def _ask(self, study: optuna.Study, trial_id: str, fixed: Mapping[str, Any] | None) -> _Live:
        if fixed is not None:
            study.enqueue_trial(dict(fixed))
        trial = study.ask(self._space.distributions if self._space is not None else None)
        if self._storage is not None:
            trial.set_user_attr(TRIAL_ID, trial_id)
        if self._define_by_run is None:
            return _Live(trial.number, self._config(trial.params), trial)
        constants = self._define_by_run(trial)
        if constants is not None and not isinstance(constants, Mapping):
            raise TypeError(f"OptunaSearch(space=): the function returned {constants!r}; return a dict or None")
        return _Live(trial.number, nested({**trial.params, **(constants or {})}), trial)

    def _config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        if self._space is None:
            return nested(params)
        return next(generate(self._space.config(params), random_state=self._source)).config

    def _params(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return dict(flat_items(config)) if self._space is None else self._space.params(config)

    def _metric_names(self) -> list[str]:
        return self.metric if isinstance(self.metric, list) else [self.metric or DEFAULT_METRIC]

    @staticmethod
    def _value(result: Mapping[str, Any], metric: str, latest: float | None) -> float:
        """The value of the last result that has one; NaN if none has."""
        value = number(lookup(result, metric))
        if value is None:
            value = latest
        return math.nan if value is None else value


class _Live(NamedTuple):
    number: int
    config: dict[str, Any]
    trial: optuna.Trial | None  # None if it was found in the storage


def _check_type(argument: str, value: Any, kind: type, wanted: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"OptunaSearch({argument}={value!r}): pass {wanted}")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ImportError("OptunaSearch needs Optuna: run pip install 'holdfast[optuna]'") from error
    return optuna
