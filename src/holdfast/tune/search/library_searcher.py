"""The common part of searchers on other libraries: space, points to try first, replay, and delivery of results. A
library is imported when a searcher is created. All its randomness comes from a seed: if it draws from the global
generators of Python or numpy, it gets its own state of them during each call.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.tune.result_metrics import DEFAULT_METRIC
from holdfast.tune.search.call_history import CallHistory, RestorableSearcher
from holdfast.tune.search.flat_space import FlatSpace, nested, numeric
from holdfast.tune.search_space import RandomSource, generate, source_of, unresolved

Params = dict[str, Any]
LATER = None


class LibrarySearcher(RestorableSearcher):
    """Subclasses implement how the library is opened, asked for a suggestion, and told a result. The library minimises;
    values are negated for "max"."""

    package = ""  # to import
    extra = ""  # to install

    def __init__(
        self,
        space: Any,
        metric: str | None,
        mode: str | None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None,
        seed: int | None,
    ) -> None:
        imported(type(self).__name__, self.package, self.extra)
        super().__init__(metric, mode)
        if isinstance(metric, list):
            raise ValueError(f"{type(self).__name__}(metric={metric!r}): pass one metric; OptunaSearch takes several")
        self._space = self._own_space(space)
        self._points = deque(points_to_evaluate or [])
        self._seed = seed
        self._is_open = False
        self._source: RandomSource | None = None  # for functions of sample_from
        self._live: dict[str, tuple[Any, dict[str, Any]]] = {}  # the library's own of it, and the config
        self._history = CallHistory()
        self._random_states: tuple[Any, Any] | None = None

    # For subclasses

    @property
    def _library(self) -> Any:
        return imported(type(self).__name__, self.package, self.extra)

    def _own_space(self, space: Any) -> FlatSpace | None:
        return self._flat(nested(space)) if isinstance(space, Mapping) and space else None

    def _open(self, space: FlatSpace) -> None:
        """Make the library's optimizer."""
        raise NotImplementedError

    def _ask(self) -> tuple[Any, Params] | str | None:
        """What identifies a proposal, and its parameters; LATER, or ``Searcher.FINISHED``."""
        raise NotImplementedError

    def _attach(self, params: Params) -> Any:
        """These parameters are tried instead of what the library would have proposed."""
        raise NotImplementedError

    def _tell(self, handle: Any, value: float) -> None:
        """The result of a proposal; lower is better."""
        raise NotImplementedError

    def _give_up(self, handle: Any) -> None:
        """A proposal ended without a result to learn from."""

    # Called by the experiment

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: Mapping[str, Any], **spec: Any
    ) -> bool:
        if self._space is not None and unresolved(dict(config)):
            return False
        self._metric, self._mode = metric or self._metric, mode or self._mode
        if self._space is None:
            self._space = self._flat(config)
        if self._seed is None:
            self._seed = spec.get("seed")
        self._samples: int | None = spec.get("num_samples")
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        space = self._ready()
        if trial_id not in self._live:
            with self._own_random():
                if self._points:
                    params = space.params(self._points.popleft())
                    found: Any = self._attach(self._completed(params)), params
                else:
                    found = self._ask()
            if found is None or found == self.FINISHED:
                return self.FINISHED if found else None
            handle, params = found
            config = next(generate(self._config(params), random_state=self._source)).config
            self._live[trial_id] = handle, config
            self._history.suggested(trial_id, config)
        return self._live[trial_id][1]

    def replay_suggestion(self, trial_id: str, config: Mapping[str, Any]) -> None:
        space = self._ready()
        if self.suggest(trial_id) is None or trial_id not in self._live:
            return  # the limits have changed since: the trial runs, but nothing is learned from it
        self._history.replayed(trial_id, config)
        try:
            given, own = space.params(config), space.params(self._live[trial_id][1])
        except ValueError:  # a choice that the journal did not restore to its original type
            return
        if given != own:
            with self._own_random():
                self._give_up(self._live[trial_id][0])
                self._live[trial_id] = self._attach(given), dict(config)

    def on_trial_resume(self, trial_id: str, config: Mapping[str, Any]) -> None:
        space = self._ready()
        with self._own_random():
            self._live[trial_id] = self._attach(space.params(config)), dict(config)
        self._history.resumed(trial_id, config)

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        if self._history.is_waiting:
            self._ready()
        live = self._live.pop(trial_id, None)
        if live is None:
            return
        metric = str(self._metric or DEFAULT_METRIC)
        self._history.ended(trial_id, result, error, [metric], [])
        value = number(lookup(result or {}, metric))
        with self._own_random():
            if error or value is None or not math.isfinite(value):
                self._give_up(live[0])
            else:
                self._tell(live[0], -value if self._mode == "max" else value)

    def add_evaluated_point(
        self,
        parameters: Mapping[str, Any],
        value: float,
        error: bool = False,
        pruned: bool = False,
        intermediate_values: Sequence[float] | None = None,
    ) -> None:
        space = self._ready()
        if error or pruned or not math.isfinite(value):
            return
        with self._own_random():
            handle = self._attach(space.params(parameters))
            self._tell(handle, -value if self._mode == "max" else value)

    # Within

    def _flat(self, tree: Mapping[str, Any]) -> FlatSpace:
        return FlatSpace(tree, partial(numeric, type(self).__name__))

    def _config(self, params: Params) -> dict[str, Any]:
        assert self._space is not None
        return self._space.config(params)

    def _completed(self, params: Params) -> Params:
        """A point that leaves parameters out has them drawn."""
        assert self._space is not None
        missing = [name for name in self._space.parameters if name not in params]
        if missing:
            who = type(self).__name__
            raise ValueError(f"{who}(points_to_evaluate=): {missing[0]!r} has no value. Pass one for each")
        return params

    def _ready(self) -> FlatSpace:
        """The space; the optimizer is made when it is needed first, as seed, space and metric may come late."""
        who = type(self).__name__
        if self._space is None:
            raise RuntimeError(f"{who} has no search space: pass space= or Tuner(param_space=)")
        if not self._is_open:
            if self._mode is None:
                raise RuntimeError(f"{who} has no metric and mode: pass them to it or to TuneConfig")
            if not self._space.parameters:
                raise ValueError(f"{who}: the search space has nothing to search")
            for position, point in enumerate(self._points):
                self._space.check_point(point, f"{who}(points_to_evaluate[{position}])")
            self._is_open = True
            self._source = source_of(self._seed or 0)
            with self._own_random():
                self._open(self._space)
            self._history.replay_into(self)
        return self._space

    @contextlib.contextmanager
    def _own_random(self) -> Iterator[None]:
        """In this context, the global generators have a state that belongs to this searcher."""
        import numpy

        outside = random.getstate(), numpy.random.get_state()
        if self._random_states is None:
            random.seed(self._seed or 0)
            numpy.random.seed((self._seed or 0) % (1 << 32))
        else:
            random.setstate(self._random_states[0])
            numpy.random.set_state(self._random_states[1])
        try:
            yield
        finally:
            self._random_states = random.getstate(), numpy.random.get_state()
            random.setstate(outside[0])
            numpy.random.set_state(outside[1])


def imported(who: str, package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{who} needs {package}: run pip install 'holdfast[{extra}]' ({error})") from error
