"""Search by Nevergrad's derivative-free optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.tune.search.flat_space import Choices, FlatSpace
from holdfast.tune.search.library_searcher import LibrarySearcher, Params


class NevergradSearch(LibrarySearcher):
    """Suggests configurations with a Nevergrad optimizer: a class such as ``ng.optimizers.OnePlusOne``, a configured
    one, or a name; ``NGOpt`` by default.

    ``optimizer_kwargs`` are arguments of the class, such as ``budget``, which is ``num_samples`` by default. ``seed``
    is the experiment's by default.
    """

    package, extra = "nevergrad", "nevergrad"

    def __init__(
        self,
        optimizer: Any = None,
        optimizer_kwargs: Mapping[str, Any] | None = None,
        space: Mapping[str, Any] | None = None,
        metric: str | None = None,
        mode: str | None = None,
        points_to_evaluate: Sequence[Mapping[str, Any]] | None = None,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(space, metric, mode, points_to_evaluate, seed)
        base = self._library.optimizers.base
        if isinstance(optimizer, str):
            optimizer = self._library.optimizers.registry[optimizer]
        if isinstance(optimizer, base.Optimizer):
            raise ValueError(
                "NevergradSearch(optimizer=): pass the optimizer's class or its name, not an instance, and the "
                "space as space= or Tuner(param_space=): a restore cannot recreate an instance"
            )
        is_class = isinstance(optimizer, type) and issubclass(optimizer, base.Optimizer)
        if optimizer is not None and not is_class and not isinstance(optimizer, base.ConfiguredOptimizer):
            raise ValueError(f"NevergradSearch(optimizer={optimizer!r}): pass a class of ng.optimizers, or its name")
        self._kind, self._options = optimizer, dict(optimizer_kwargs or {})

    def _open(self, space: FlatSpace) -> None:
        parts = {name: self._part(parameter.theirs) for name, parameter in space.parameters.items()}
        parametrization = self._library.p.Dict(**parts)
        parametrization.random_state.seed((self._seed or 0) % (1 << 32))
        samples = getattr(self, "_samples", None)
        given = {"budget": samples if samples and samples > 0 else 100, **self._options}
        self._optimizer = (self._kind or self._library.optimizers.NGOpt)(parametrization, **given)

    def _ask(self) -> tuple[Any, Params]:
        candidate = self._optimizer.ask()
        return candidate, {name: _plain(value) for name, value in candidate.value.items()}

    def _attach(self, params: Params) -> Any:
        return self._optimizer.parametrization.spawn_child(new_value=params)

    def _tell(self, handle: Any, value: float) -> None:
        self._optimizer.tell(handle, value)

    def _part(self, drawn: Any) -> Any:
        p = self._library.p
        if isinstance(drawn, Choices):
            return p.Choice(list(range(drawn.count)))
        scalar = p.Log if drawn.log else p.Scalar
        part = scalar(lower=drawn.low, upper=drawn.high) if drawn.low < drawn.high else p.Choice([drawn.low])
        return part.set_integer_casting() if drawn.whole and drawn.low < drawn.high else part


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
