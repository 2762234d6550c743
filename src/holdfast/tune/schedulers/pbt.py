"""Population-based training: at intervals, bad trials copy the state of good ones and explore from there.

Every ``perturbation_interval`` a trial is ranked. A trial in the lowest ``quantile_fraction`` resumes from the
checkpoint of a trial in the highest, with a perturbed copy of its configuration. With ``synch``, trials wait for each
other before they are ranked.

See "Population Based Training of Neural Networks", https://arxiv.org/abs/1711.09846
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.errors import SchedulerError
from holdfast.train.checks import check_number
from holdfast.tune.result_metrics import TRAINING_ITERATION
from holdfast.tune.space.tree import substituted

from .decision import Decision, Exploit, Request, Save, SetConfig
from .explore import Explorer, Mutations, check_mutations, filled, picked, summary
from .scoring import WORST, ScoreReading, ScoringScheduler
from .trial_scheduler import PAUSED, PENDING, ExperimentView, Requests, TrialView


@dataclass
class Standing:
    """The state of a trial in the population that has not ended."""

    score: float | None = None
    trained_until: float = 0.0
    perturbed_at: float = 0.0


class PopulationBasedTraining(ScoringScheduler):
    accepts_searcher = False
    needs_population = True

    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        burn_in_period: float = 0.0,
        hyperparam_mutations: Mutations | None = None,
        quantile_fraction: float = 0.25,
        resample_probability: float = 0.25,
        perturbation_factors: tuple[float, float] = (1.2, 0.8),
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(time_attr, metric, mode, seed)
        name = type(self).__name__
        mutations = dict(hyperparam_mutations or {})
        if not mutations and custom_explore_fn is None:
            raise SchedulerError(f"{name}: pass hyperparam_mutations, custom_explore_fn, or both")
        check_number(f"{name}(perturbation_interval", perturbation_interval, above=0)
        check_number(f"{name}(burn_in_period", burn_in_period, least=0)
        for argument, value, most in (
            ("quantile_fraction", quantile_fraction, 0.5),
            ("resample_probability", resample_probability, 1.0),
        ):
            check_number(f"{name}({argument}", value, least=0)
            if value > most:
                raise ValueError(f"{name}({argument}={value!r}): must not be above {most:g}")
        if not perturbation_factors:
            raise ValueError(f"{name}(perturbation_factors={perturbation_factors!r}): pass at least one factor")
        self._check_mutations(mutations)
        self._interval = perturbation_interval
        self._burn_in_period = burn_in_period
        self._mutations = mutations
        self._quantile_fraction = quantile_fraction
        self._resample_probability = resample_probability
        self._factors = tuple(perturbation_factors)
        self._custom_explore_fn = custom_explore_fn
        self._log_config = log_config
        self._require_time = self._require_attrs = require_attrs
        self._synch = synch
        self._next_sync = max(perturbation_interval, burn_in_period)
        self._standings: dict[str, Standing] = {}
        self._num_perturbations = 0
        self.perturbations: list[Exploit] = []  # all of them in order, with log_config

    def _check_mutations(self, mutations: Mutations) -> None:
        check_mutations(mutations, f"{type(self).__name__}: hyperparam_mutations")

    def on_trial_add(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._check_objective()
        self._standings.setdefault(trial.trial_id, Standing())
        config = self._filled(trial.config)
        return () if config == trial.config else (SetConfig(trial.trial_id, config),)

    def _filled(self, config: Mapping[str, Any]) -> dict[str, Any]:
        return filled(config, self._mutations, self._source)

    def on_trial_result(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Decision:
        reading = self._read(trial, result)
        if isinstance(reading, Decision):
            if reading == "ERROR" and not self._require_attrs:
                return Decision("CONTINUE", reading.reason)
            return reading
        if reading.time < self._burn_in_period:
            return self.CONTINUE
        standing = self._standings.setdefault(trial.trial_id, Standing())
        if self._synch:
            if reading.time < self._next_sync:
                return self.CONTINUE
            self._note(standing, trial, reading)
            return Decision("PAUSE", f"waits for the whole population at {self._next_sync:g}")
        if reading.time - standing.perturbed_at < self._interval:
            return self.CONTINUE
        self._note(standing, trial, reading)
        standing.perturbed_at = reading.time
        requests, reason = self._perturb(experiment, trial)
        others = (other for other in experiment.get_live_trials() if other.trial_id != trial.trial_id)
        give_way = any(other.status in (PENDING, PAUSED) for other in others)
        return Decision("PAUSE" if give_way else "CONTINUE", reason, requests)

    def next_decision(self, trial_id: str, iteration: int) -> float:
        if self._time_attr != TRAINING_ITERATION or trial_id not in self._standings:
            return iteration + 1
        if self._synch:
            return self._next_sync
        return max(self._burn_in_period, self._standings[trial_id].perturbed_at + self._interval)

    def _note(self, standing: Standing, trial: TrialView, reading: ScoreReading) -> None:
        """The trial has come to a point where it is ranked."""
        standing.score = reading.score
        standing.trained_until = reading.time

    def on_idle(self, experiment: ExperimentView) -> Requests:
        """With ``synch``: the whole population has come to the same point."""
        waiting = [standing for standing in self._standings.values() if standing.trained_until >= self._next_sync]
        if not self._synch or not waiting or len(waiting) < len(self._standings):
            return ()
        latest = max(standing.trained_until for standing in waiting)
        for standing in waiting:
            standing.perturbed_at = latest
        requests: list[Request] = []
        for trial_id in self._quantiles()[0]:
            trial = experiment.get_trial(trial_id)
            if trial is not None:
                requests += self._perturb(experiment, trial)[0]
        while self._next_sync <= latest:
            self._next_sync += self._interval
        return requests

    def _perturb(self, experiment: ExperimentView, trial: TrialView) -> tuple[list[Request], str]:
        """What happens to a trial at this point because of its rank, and why."""
        lower, upper = self._quantiles()
        if trial.trial_id in upper:
            return [Save(trial.trial_id)], "among the best"
        if trial.trial_id not in lower:
            return [], ""
        donor = experiment.get_trial(picked(upper, self._source))
        if donor is None or donor.checkpoint is None:
            return [], "among the worst, but the trial to copy has no checkpoint yet"
        config, operations = self._new_config(trial, donor)
        exploit = Exploit(
            trial_id=trial.trial_id,
            donor_id=donor.trial_id,
            checkpoint=donor.checkpoint,
            config=config,
            donor_config=substituted(dict(donor.config), {}),
            step=_step(trial),
            donor_step=_step(donor),
            operations=operations,
        )
        mine, donors = self._standings[trial.trial_id], self._standings[donor.trial_id]
        mine.perturbed_at, mine.trained_until = donors.perturbed_at, donors.trained_until
        self._num_perturbations += 1
        if self._log_config:
            self.perturbations.append(exploit)
        changes = summary(donor.config, config, operations) or "the same configuration"
        return [exploit], f"copies {donor.trial_id} with {changes}"

    def _new_config(self, trial: TrialView, donor: TrialView) -> tuple[dict[str, Any], dict[str, Any]]:
        explorer = Explorer(self._mutations, self._resample_probability, self._factors, self._source)
        config, operations = explorer.explore(donor.config)
        return self._customised(config), operations

    def _customised(self, config: dict[str, Any]) -> dict[str, Any]:
        if self._custom_explore_fn is None:
            return config
        custom = self._custom_explore_fn(config)
        if not isinstance(custom, dict):
            raise TypeError(f"custom_explore_fn returned {custom!r}; it must return the configuration, a dict")
        return custom

    def _quantiles(self) -> tuple[list[str], list[str]]:
        """The worst and the best of those that were ranked. One that has diverged is never among the best."""
        scores = {trial_id: s.score for trial_id, s in self._standings.items() if s.score is not None}
        ranked = sorted(scores, key=lambda trial_id: scores[trial_id])
        count = min(math.ceil(len(ranked) * self._quantile_fraction), len(ranked) // 2)
        best = [trial_id for trial_id in ranked[len(ranked) - count :] if scores[trial_id] != WORST]
        return (ranked[:count], best) if best else ([], [])

    def on_trial_complete(self, experiment: ExperimentView, trial: TrialView, result: Mapping[str, Any]) -> Requests:
        return self.on_trial_remove(experiment, trial)

    def on_trial_error(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        return self.on_trial_remove(experiment, trial)

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._standings.pop(trial.trial_id, None)
        return ()

    def choose_trial_to_run(self, experiment: ExperimentView) -> TrialView | None:
        """The one that has trained the least, so that a population larger than the cluster advances evenly."""
        waiting = [
            (self._standings[trial.trial_id].trained_until, position, trial)
            for position, trial in enumerate(experiment.get_live_trials())
            if trial.status in (PENDING, PAUSED) and trial.trial_id in self._standings
        ]
        trained, _, trial = min(waiting, default=(math.inf, 0, None))
        return None if self._synch and trained >= self._next_sync else trial

    def debug_string(self) -> str:
        return f"{type(self).__name__}: {self._num_perturbations} perturbations"


def _step(trial: TrialView) -> int:
    return int(number(lookup(trial.last_result, TRAINING_ITERATION)) or 0)


def __getattr__(name: str) -> Any:
    """Names that scripts for Ray import from here, and that have their own module."""
    if name == "PopulationBasedTrainingReplay":
        from .pbt_replay import PopulationBasedTrainingReplay

        return PopulationBasedTrainingReplay
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
