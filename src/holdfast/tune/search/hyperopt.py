"""Search by HyperOpt's tree of Parzen estimators."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.tune.search.flat_space import Choices, FlatSpace, Parameter
from holdfast.tune.search.library_searcher import LibrarySearcher, Params


class HyperOptSearch(LibrarySearcher):
    """Suggests configurations with HyperOpt's TPE, after ``n_initial_points`` random trials.

    ``space`` is a dict of ``holdfast.tune`` domains; by default ``param_space``. It may also be HyperOpt's own, with
    ``hp.choice`` and conditional parameters. ``points_to_evaluate`` then use HyperOpt's names and values, and a
    restored trial counts as the suggestion that replaces it. ``gamma`` is the fraction of trials that counts as good.
    """

    package, extra = "hyperopt", "hyperopt"

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        n_initial_points: int = 20,
        random_state_seed: int | None = None,
        gamma: float = 0.25,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, random_state_seed)
        self._options = {"n_startup_jobs": 20 if n_initial_points is None else n_initial_points, "gamma": gamma}

    def _own_space(self, space: Any) -> FlatSpace | None:
        if isinstance(space, Mapping) and _has_nodes(space, self._library.pyll.base.Apply):
            return _NativeSpace(space)
        return super()._own_space(space)

    def _completed(self, params: Params) -> Params:
        return params if isinstance(self._space, _NativeSpace) else super()._completed(params)

    def _open(self, space: FlatSpace) -> None:
        import numpy

        nodes = space.nodes if isinstance(space, _NativeSpace) else _nodes(space, self._library.hp)
        self._domain = self._library.base.Domain(lambda sampled: sampled, nodes)
        self._trials = self._library.Trials()
        self._seeds = numpy.random.RandomState((self._seed or 0) % (1 << 32))  # as Ray draws them

    def _ask(self) -> tuple[int, Params]:
        ids = self._trials.new_trial_ids(1)
        self._trials.refresh()
        drawn = int(self._seeds.randint(2**31 - 1))
        tpe = importlib.import_module("hyperopt.tpe")
        docs = tpe.suggest(ids, self._domain, self._trials, drawn, verbose=False, **self._options)
        self._trials.insert_trial_docs(docs)
        self._trials.refresh()
        sampled = {name: found[0] for name, found in docs[0]["misc"]["vals"].items() if found}
        return ids[0], {name: _plain(value, self._ready().parameters.get(name)) for name, value in sampled.items()}

    def _attach(self, params: Params) -> int:
        id = self._trials.new_trial_ids(1)[0]
        known = self._domain.params
        misc = {
            "tid": id,
            "cmd": self._domain.cmd,
            "workdir": None,
            "idxs": {name: [id] if name in params else [] for name in known},
            "vals": {name: [params[name]] if name in params else [] for name in known},
        }
        self._trials.insert_trial_docs(self._trials.new_trial_docs([id], [None], [{"status": "new"}], [misc]))
        self._trials.refresh()
        return int(id)

    def _tell(self, handle: int, value: float) -> None:
        self._end(handle, self._library.JOB_STATE_DONE, {"loss": value, "status": "ok"})

    def _give_up(self, handle: int) -> None:
        self._end(handle, self._library.JOB_STATE_ERROR, {"status": "fail"})

    def _end(self, handle: int, state: int, result: dict[str, Any]) -> None:
        trial = next(trial for trial in self._trials._dynamic_trials if trial["tid"] == handle)
        trial["state"], trial["result"] = state, result
        self._trials.refresh()


class _NativeSpace(FlatSpace):
    """HyperOpt's own expressions: HyperOpt evaluates a sample itself."""

    def __init__(self, nodes: Mapping[str, Any]) -> None:
        super().__init__({}, lambda _path, _leaf: None)
        self.nodes = dict(nodes)
        labels = importlib.import_module("hyperopt.base").Domain(lambda sampled: sampled, self.nodes).params
        self.parameters = {label: Parameter((label,), None) for label in labels}

    def config(self, params: Mapping[str, Any]) -> dict[str, Any]:
        found = importlib.import_module("hyperopt").space_eval(self.nodes, dict(params))
        return {key: _without_tuples(value) for key, value in found.items()}

    def check_point(self, point: Mapping[str, Any], argument: str) -> None:
        unknown = [name for name in point if name not in self.parameters]
        if unknown:
            raise ValueError(f"{argument}: {unknown[0]!r} is not among HyperOpt's labels {sorted(self.parameters)}")


def _nodes(space: FlatSpace, hp: Any) -> dict[str, Any]:
    return {name: _node(name, parameter.theirs, hp) for name, parameter in space.parameters.items()}


def _node(name: str, drawn: Any, hp: Any) -> Any:
    if isinstance(drawn, Choices):
        return hp.choice(name, range(drawn.count))
    if drawn.whole and drawn.log:
        return hp.qloguniform(name, math.log(drawn.low - 0.499), math.log(drawn.high + 0.499), 1)
    if drawn.whole:
        return hp.uniformint(name, drawn.low, drawn.high)
    if drawn.log:
        return hp.loguniform(name, math.log(drawn.low), math.log(drawn.high))
    return hp.uniform(name, drawn.low, drawn.high)


def _plain(value: Any, parameter: Parameter | None) -> Any:
    """numpy's numbers as Python's, and whole ones as such."""
    drawn = None if parameter is None else parameter.theirs
    if isinstance(drawn, Choices):
        return int(value)
    if drawn is None:
        return value.item() if hasattr(value, "item") else value
    return round(float(value)) if drawn.whole else min(max(float(value), drawn.low), drawn.high)


def _has_nodes(space: Any, kind: type) -> bool:
    if isinstance(space, Mapping):
        return any(_has_nodes(value, kind) for value in space.values())
    return isinstance(space, kind)


def _without_tuples(value: Any) -> Any:
    """HyperOpt makes tuples of lists."""
    if isinstance(value, Mapping):
        return {key: _without_tuples(item) for key, item in value.items()}
    return [_without_tuples(item) for item in value] if isinstance(value, tuple) else value
