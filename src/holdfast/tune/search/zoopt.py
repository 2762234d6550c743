"""Search by ZOOpt's ASRacos, a classification-based optimizer."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.train.checks import check_int
from holdfast.tune.search.flat_space import Choices, FlatSpace, Range
from holdfast.tune.search.library_searcher import LATER, LibrarySearcher, Params

_TRIES = 20  # ZOOpt says that it has finished if 100 samples near the best are not new; others may be


class ZOOptSearch(LibrarySearcher):
    """Suggests configurations with ZOOpt's sequential RACOS.

    ``budget`` is how many trials there will be. ``dim_dict`` is the space, as ``holdfast.tune`` domains.
    ``parallel_num`` is how many trials may run in parallel after the first, random ones. Other keywords go to ZOOpt's
    ``Parameter``. ``seed`` is the experiment's by default.
    """

    package, extra = "zoopt", "zoopt"

    def __init__(
        self,
        algo: str = "asracos",
        budget: int | None = None,
        dim_dict: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parallel_num: int = 1,
        *,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if algo.lower() not in ("asracos", "sracos"):
            raise ValueError(f'ZOOptSearch(algo={algo!r}): use "asracos" or "sracos"')
        if budget is None:
            raise ValueError("ZOOptSearch(budget=None): say how many trials there will be, as num_samples does")
        check_int("ZOOptSearch(budget", budget, least=1)
        check_int("ZOOptSearch(parallel_num", parallel_num, least=1)
        super().__init__(dim_dict, metric, mode, points_to_evaluate, seed)
        self._budget, self._parallel, self._options = budget, parallel_num, kwargs

    def _open(self, space: FlatSpace) -> None:
        parameters = {name: parameter.theirs for name, parameter in space.parameters.items()}
        dimension = self._library.Dimension2([_dimension(self._library.ValueType, p) for p in parameters.values()])
        parameter = self._library.Parameter(budget=self._budget, **self._options)
        sracos = importlib.import_module("zoopt.algos.opt_algorithms.racos.sracos")
        self._optimizer = sracos.SRacosTune(dimension=dimension, parameter=parameter, parallel_num=self._parallel)

    def _ask(self) -> tuple[Any, Params] | str | None:
        optimizer, first = self._optimizer, self._optimizer._parameter.get_train_size()
        if optimizer.init_num == first:
            optimizer.init_num += 1  # its own wait here never ends, if all of the first trials have ended already
        if optimizer.init_num > first and (
            optimizer.complete_num < first or optimizer.live_num >= optimizer._parameter.get_server_num()
        ):
            return LATER
        tries = (optimizer.suggest() for _ in range(_TRIES))
        solution = next((found for found in tries if not isinstance(found, str)), self.FINISHED)
        if isinstance(solution, str):
            return self.FINISHED
        drawn = self._ready().parameters
        return solution, {
            name: _ours(value, drawn[name].theirs) for name, value in zip(drawn, solution.get_x(), strict=True)
        }

    def _attach(self, params: Params) -> Any:
        drawn = self._ready().parameters
        found = [_theirs(params[name], drawn[name].theirs) for name in drawn]
        return importlib.import_module("zoopt.solution").Solution(x=found)

    def _tell(self, handle: Any, value: float) -> None:
        self._optimizer.complete(handle, value)

    def _give_up(self, handle: Any) -> None:
        self._optimizer.complete(handle, math.inf)  # it waits for each of its first trials


def _dimension(kinds: Any, drawn: Any) -> tuple[Any, ...]:
    if isinstance(drawn, Choices):
        return kinds.GRID, list(range(drawn.count))
    low, high = _theirs(drawn.low, drawn), _theirs(drawn.high, drawn)
    if drawn.whole and not drawn.log:
        return kinds.DISCRETE, [low, high], True
    return kinds.CONTINUOUS, [low, high], 1e-12


def _theirs(value: Any, drawn: Range | Choices) -> Any:
    return math.log(value) if isinstance(drawn, Range) and drawn.log else value


def _ours(value: Any, drawn: Range | Choices) -> Any:
    if isinstance(drawn, Choices):
        return int(value)
    value = math.exp(value) if drawn.log else value
    return round(value) if drawn.whole else min(max(float(value), drawn.low), drawn.high)
