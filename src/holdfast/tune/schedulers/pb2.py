"""Population-based bandits: population-based training whose new configurations come from a model, not from chance.

The model is a Gaussian process. It is fitted to the improvement of each trial between two rankings. It requires numpy.
See https://arxiv.org/abs/2002.02518
"""

from __future__ import annotations

import importlib.util
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from numbers import Integral, Real
from typing import Any, NamedTuple

from holdfast.tune.space.domains import Float
from holdfast.tune.space.tree import Path, substituted

from .explore import Mutations
from .pbt import PopulationBasedTraining, Standing
from .scoring import ScoreReading
from .trial_scheduler import ExperimentView, Requests, TrialView

_REMEMBERED = 200  # observations; the older ones say little about now, and the model costs their cube


class Observation(NamedTuple):
    """What a trial gained per unit of time when it trained with these parameters from this point on."""

    time: float
    score: float
    parameters: tuple[float, ...]  # each in 0 to 1
    gain: float


class PB2(PopulationBasedTraining):
    def __init__(
        self,
        time_attr: str = "time_total_s",
        metric: str | None = None,
        mode: str | None = None,
        perturbation_interval: float = 60.0,
        hyperparam_bounds: Mapping[str, Any] | None = None,
        quantile_fraction: float = 0.25,
        log_config: bool = True,
        require_attrs: bool = True,
        synch: bool = False,
        custom_explore_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        if not hyperparam_bounds:
            raise ValueError("PB2(hyperparam_bounds): pass the bounds, such as {'lr': [0.0001, 0.1]}")
        if importlib.util.find_spec("numpy") is None:
            raise ImportError("PB2 needs numpy: pip install numpy")
        super().__init__(
            time_attr=time_attr,
            metric=metric,
            mode=mode,
            perturbation_interval=perturbation_interval,
            hyperparam_mutations=_as_domains(hyperparam_bounds, "PB2: hyperparam_bounds"),
            quantile_fraction=quantile_fraction,
            custom_explore_fn=custom_explore_fn,
            log_config=log_config,
            require_attrs=require_attrs,
            synch=synch,
            seed=seed,
        )
        self._ranges = dict(_ranges(self._mutations))
        self._observations: deque[Observation] = deque(maxlen=_REMEMBERED)
        self._since: dict[str, ScoreReading] = {}  # where each trial was when it was last ranked or took over
        self._under_way: dict[str, tuple[float, ...]] = {}  # the choice of the model, until the trial is ranked again

    def _note(self, standing: Standing, trial: TrialView, reading: ScoreReading) -> None:
        super()._note(standing, trial, reading)
        before = self._since.get(trial.trial_id)
        parameters = self._parameters(trial.config)
        self._since[trial.trial_id] = reading
        self._under_way.pop(trial.trial_id, None)
        if before is None or parameters is None or reading.time <= before.time:
            return
        gain = (reading.score - before.score) / (reading.time - before.time)
        if math.isfinite(gain):
            time = before.time / self._interval
            self._observations.append(Observation(time, before.score, parameters, gain))

    def _parameters(self, config: Mapping[str, Any]) -> tuple[float, ...] | None:
        """Those within bounds, scaled to 0 to 1; None if one is missing or no number."""
        scaled = []
        for path, bounds in self._ranges.items():
            value: Any = config
            for key in path:
                value = value.get(key) if isinstance(value, Mapping) else None
            if not isinstance(value, Real):
                return None
            scaled.append((float(value) - bounds.lower) / (bounds.upper - bounds.lower))
        return tuple(scaled)

    def _new_config(self, trial: TrialView, donor: TrialView) -> tuple[dict[str, Any], dict[str, Any]]:
        from .gaussian_process import suggest  # only here: it imports numpy, which Holdfast does not depend on

        standing = self._standings[donor.trial_id]
        score = standing.score if standing.score is not None else 0.0
        chosen = suggest(
            observations=self._observations,
            under_way=list(self._under_way.values()),
            time=standing.trained_until / self._interval,
            score=score,
            dimensions=len(self._ranges),
            seed=int(self._source.random() * 2**53),
        )
        self._under_way[trial.trial_id] = tuple(chosen)
        self._since[trial.trial_id] = ScoreReading(standing.trained_until, score)
        config = self._filled(donor.config)
        values = {
            path: _unscaled(part, bounds, _at(config, path))
            for part, (path, bounds) in zip(chosen, self._ranges.items(), strict=True)
        }
        return self._customised(substituted(config, values)), _labelled(self._mutations)

    def on_trial_remove(self, experiment: ExperimentView, trial: TrialView) -> Requests:
        self._since.pop(trial.trial_id, None)
        self._under_way.pop(trial.trial_id, None)
        return super().on_trial_remove(experiment, trial)


def _as_domains(bounds: Mapping[str, Any], name: str) -> dict[str, Any]:
    domains: dict[str, Any] = {}
    for key, value in bounds.items():
        where = f"{name}[{key!r}]={value!r}"
        if isinstance(value, Mapping):
            domains[key] = _as_domains(value, f"{name}[{key!r}]")
            continue
        if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(isinstance(v, Real) for v in value):
            raise ValueError(f"{where}: pass [lowest, highest]")
        low, high = map(float, value)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"{where}: the first must be below the second")
        domains[key] = Float(low, high)
    return domains


def _ranges(domains: Mutations, path: Path = ()) -> Iterator[tuple[Path, Float]]:
    for key, value in domains.items():
        if isinstance(value, Mapping):
            yield from _ranges(value, (*path, key))
        else:
            yield (*path, key), value


def _unscaled(part: float, bounds: Float, old: Any) -> float:
    """Within the bounds, and whole if the value was."""
    value = bounds.lower + part * (bounds.upper - bounds.lower)
    return round(value) if isinstance(old, Integral) else value


def _at(config: Any, path: Path) -> Any:
    for key in path:
        config = config[key]
    return config


def _labelled(domains: Mutations) -> dict[str, Any]:
    return {key: _labelled(value) if isinstance(value, Mapping) else "model" for key, value in domains.items()}
