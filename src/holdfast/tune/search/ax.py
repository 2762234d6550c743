"""Search by Ax: quasi-random trials first, then Bayesian optimisation with BoTorch."""

from __future__ import annotations

import contextlib
import importlib
import logging
import random
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holdfast.core.metric_names import lookup, number
from holdfast.tune.result_metrics import DEFAULT_METRIC
from holdfast.tune.search.flat_space import Choices, FlatSpace
from holdfast.tune.search.library_searcher import LATER, LibrarySearcher, Params


class AxSearch(LibrarySearcher):
    """Suggests configurations with Ax. ``parameter_constraints`` ("x1 + x2 <= 2") and ``outcome_constraints`` ("cost <=
    5") are written as Ax expects them, with flat names.

    Other keywords go to ``AxClient``, among them ``random_seed``, which is the experiment's by default.
    """

    package, extra = "ax", "ax"

    def __init__(
        self,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        parameter_constraints: Sequence[str] | None = None,
        outcome_constraints: Sequence[str] | None = None,
        ax_client: Any = None,
        **ax_kwargs: Any,
    ) -> None:
        if ax_client is not None:
            raise ValueError(
                "AxSearch(ax_client=): pass the space, metric and mode instead, and what the client was made with as "
                "keywords: a restore cannot recreate a client"
            )
        if isinstance(space, (list, tuple)):
            raise ValueError("AxSearch(space=[...]): pass a dict of holdfast.tune domains")
        super().__init__(space, metric, mode, points_to_evaluate, ax_kwargs.pop("random_seed", None))
        self._constraints = list(parameter_constraints or ()), list(outcome_constraints or ())
        self._options = ax_kwargs
        self._outcomes: dict[int, dict[str, float]] = {}

    def _open(self, space: FlatSpace) -> None:
        service = importlib.import_module("ax.service.ax_client")
        options = {"random_seed": (self._seed or 0) % (1 << 31), "verbose_logging": False, **self._options}
        with _quiet():
            self._client = service.AxClient(**options)
            self._client.create_experiment(
                name="holdfast",
                parameters=[_parameter(name, each.theirs) for name, each in space.parameters.items()],
                objectives={self._objective: service.ObjectiveProperties(minimize=True)},
                parameter_constraints=self._constraints[0] or None,
                outcome_constraints=self._constraints[1] or None,
            )

    def _ask(self) -> tuple[int, Params] | None:
        errors = importlib.import_module("ax.exceptions")
        later = (errors.core.DataRequiredError, errors.generation_strategy.MaxParallelismReachedException)
        try:
            with _quiet():
                params, index = self._client.get_next_trial()
        except later:
            return LATER
        return index, {name: _plain(value) for name, value in params.items()}

    def _attach(self, params: Params) -> int:
        with _quiet():
            return int(self._client.attach_trial(dict(params))[1])

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        live = self._live.get(trial_id)
        if live is not None:
            names = [text.split()[0] for text in self._constraints[1]]
            found = {name: number(lookup(result or {}, name)) for name in names}
            missing = [name for name, value in found.items() if value is None]
            if missing and result is not None and not error:
                raise ValueError(f"AxSearch(outcome_constraints=): the last result of {trial_id} has no {missing[0]!r}")
            self._outcomes[live[0]] = {name: value for name, value in found.items() if value is not None}
        super().on_trial_complete(trial_id, result, error)

    def _tell(self, handle: int, value: float) -> None:
        outcomes = {name: (found, 0.0) for name, found in self._outcomes.pop(handle, {}).items()}
        with _quiet():
            self._client.complete_trial(handle, raw_data={self._objective: (value, 0.0), **outcomes})

    def _give_up(self, handle: int) -> None:
        self._outcomes.pop(handle, None)
        with _quiet():
            self._client.log_trial_failure(handle)

    @contextlib.contextmanager
    def _own_random(self) -> Iterator[None]:
        import torch

        with super()._own_random(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(random.getrandbits(32))
            yield

    @property
    def _objective(self) -> str:
        return str(self._metric or DEFAULT_METRIC)


def _parameter(name: str, drawn: Any) -> dict[str, Any]:
    if isinstance(drawn, Choices):
        values = list(range(drawn.count))
        return {"name": name, "type": "choice", "values": values, "is_ordered": False, "value_type": "int"}
    if drawn.low == drawn.high:
        return {"name": name, "type": "fixed", "value": drawn.low}
    whole = {"value_type": "int" if drawn.whole else "float", "log_scale": drawn.log}
    return {"name": name, "type": "range", "bounds": [drawn.low, drawn.high], **whole}


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ax logs and warns about its own work."""
    handler = importlib.import_module("ax.utils.common.logger").ROOT_STREAM_HANDLER
    level = handler.level
    handler.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        handler.setLevel(level)
