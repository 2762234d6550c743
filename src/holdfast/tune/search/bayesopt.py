"""Search by Bayesian optimisation with Gaussian processes, of the package ``bayesian-optimization``."""

from __future__ import annotations

import inspect
import logging
import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.train.checks import check_int
from holdfast.tune.search.flat_space import Choices, FlatSpace, Range
from holdfast.tune.search.library_searcher import LATER, LibrarySearcher, Params

log = logging.getLogger(__name__)


class BayesOptSearch(LibrarySearcher):
    """Suggests the configuration with the best upper confidence bound of a Gaussian process, after
    ``random_search_steps`` random trials have finished.

    The space holds only numbers: integers and values with a ``q`` are rounded, logarithmic ones are searched by their
    logarithm, and choices are rejected. ``utility_kwargs`` is ``kappa`` of the bound, or selects another acquisition
    function by ``kind`` ("ei" or "poi") and ``xi``. A repeated configuration is replaced by a random one, unless
    ``skip_duplicate`` is False; more than ``patience`` of them end the search. Floats are compared to
    ``repeat_float_precision`` digits. ``analysis`` is an ``ExperimentAnalysis`` to learn from first.
    """

    package, extra = "bayes_opt", "bayesopt"

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        utility_kwargs: Mapping[str, Any] | None = None,
        random_state: int | None = 42,
        random_search_steps: int = 10,
        verbose: int = 0,
        patience: int = 5,
        skip_duplicate: bool = True,
        analysis: Any = None,
        repeat_float_precision: int = 5,
    ) -> None:
        check_int("BayesOptSearch(patience", patience, least=1)
        check_int("BayesOptSearch(repeat_float_precision", repeat_float_precision, least=0)
        super().__init__(space, metric, mode, points_to_evaluate, random_state)
        self._utility = {"kind": "ucb", "kappa": 2.576, "xi": 0.0, **(utility_kwargs or {})}
        self._random_steps, self._verbose = random_search_steps, verbose
        self._patience, self._skips, self._digits = patience, skip_duplicate, repeat_float_precision
        self._analysis = analysis
        self._seen: Counter[tuple[float, ...]] = Counter()
        self._proposed = self._ended = 0
        self._held: list[tuple[dict[str, float], float]] = []  # the results of the random trials

    def _open(self, space: FlatSpace) -> None:
        self._bounds = {name: _bounds(name, parameter.theirs) for name, parameter in space.parameters.items()}
        self._generator = random.Random(self._seed)
        given: dict[str, Any] = {
            "f": None,
            "pbounds": self._bounds,
            "verbose": self._verbose,
            "random_state": self._seed,
        }
        self._ask_with: tuple[Any, ...] = ()
        if hasattr(self._library, "UtilityFunction"):  # before version 2
            self._ask_with = (self._library.UtilityFunction(**self._utility),)
        else:
            given["acquisition_function"] = _acquisition(self._library.acquisition, self._utility, self._seed)
        self._optimizer = self._library.BayesianOptimization(**given)
        if self._analysis is not None:
            self.add_evaluated_trials([trial.result for trial in self._analysis.trials], str(self._metric))

    def _ask(self) -> tuple[Any, Params] | str | None:
        is_random = self._ended < self._random_steps
        if is_random and self._proposed >= self._random_steps:
            return LATER  # the model is not asked before all random ones have ended
        point = {name: float(value) for name, value in self._optimizer.suggest(*self._ask_with).items()}
        repeats = self._note(self._params(point))
        if repeats > self._patience:
            log.warning("BayesOptSearch: the same configuration came up %d times; the search ends.", repeats)
            return self.FINISHED
        if repeats > 1 and self._skips:  # while others are running, the model would propose the same again
            point = {name: self._generator.uniform(*bounds) for name, bounds in self._bounds.items()}
            self._note(self._params(point))
        self._proposed += is_random
        return point, self._params(point)

    def _attach(self, params: Params) -> dict[str, float]:
        self._note(params)
        self._proposed += self._ended < self._random_steps
        drawn = {name: parameter.theirs for name, parameter in self._ready().parameters.items()}
        return {name: math.log(value) if drawn[name].log else float(value) for name, value in params.items()}

    def _tell(self, handle: dict[str, float], value: float) -> None:
        self._ended += 1
        self._held.append((handle, -value))
        self._register()

    def _give_up(self, handle: dict[str, float]) -> None:
        self._ended += 1
        self._register()

    def _register(self) -> None:
        if self._ended >= self._random_steps:
            for point, value in self._held:
                self._optimizer.register(point, value)
            self._held = []

    def _note(self, params: Params) -> int:
        """How often this configuration has come up, with this time."""
        key = tuple(round(float(params[name]), self._digits) for name in sorted(params))
        self._seen[key] += 1
        return self._seen[key]

    def _params(self, point: Mapping[str, float]) -> Params:
        params: Params = {}
        for name, parameter in self._ready().parameters.items():
            drawn: Range = parameter.theirs
            value = math.exp(point[name]) if drawn.log else point[name]
            value = round(value) if drawn.whole else value
            params[name] = min(max(value, drawn.low), drawn.high)
        return params


def _bounds(name: str, drawn: Range | Choices) -> tuple[float, float]:
    if isinstance(drawn, Choices):
        raise ValueError(f"BayesOptSearch: {name!r} is a choice, and it searches numbers only; use OptunaSearch")
    return (math.log(drawn.low), math.log(drawn.high)) if drawn.log else (drawn.low, drawn.high)


def _acquisition(module: Any, given: Mapping[str, Any], seed: int | None) -> Any:
    """The acquisition function, for version 2 and later. ``seed``: version 3 takes it with the optimizer alone."""
    kinds = {"ucb": "UpperConfidenceBound", "ei": "ExpectedImprovement", "poi": "ProbabilityOfImprovement"}
    if given["kind"] not in kinds:
        raise ValueError(f"BayesOptSearch(utility_kwargs): kind={given['kind']!r}; use one of {', '.join(kinds)}")
    kind = getattr(module, kinds[given["kind"]])
    known = inspect.signature(kind).parameters
    options = {name: value for name, value in {**given, "random_state": seed}.items() if name in known}
    return kind(**options)
