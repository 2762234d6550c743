"""Searchers: they propose the configs of trials. Those on libraries have separate modules."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from holdfast.tune.search.basic_variant import BasicVariantGenerator
from holdfast.tune.search.concurrency_limiter import ConcurrencyLimiter
from holdfast.tune.search.repeater import Repeater
from holdfast.tune.search.searcher import Searcher
from holdfast.tune.search_space import grid_search

__all__ = ["BasicVariantGenerator", "ConcurrencyLimiter", "Repeater", "Searcher", "create_searcher", "grid_search"]

_MODULES = {
    "ax": ("ax", "AxSearch"),
    "bayesopt": ("bayesopt", "BayesOptSearch"),
    "bohb": ("bohb", "TuneBOHB"),
    "hyperopt": ("hyperopt", "HyperOptSearch"),
    "nevergrad": ("nevergrad", "NevergradSearch"),
    "optuna": ("optuna", "OptunaSearch"),
    "zoopt": ("zoopt", "ZOOptSearch"),
}
_NAMES = ("random", "variant_generator", *_MODULES)


def create_searcher(search_alg: str, **kwargs: Any) -> Searcher:
    """Create a searcher by its name. Arguments that it does not accept are dropped, so names can be swapped."""
    if search_alg.lower() == "hebo":
        raise ValueError("create_searcher(search_alg='hebo'): HEBO needs an old numpy, so it is left out; use optuna")
    if search_alg.lower() not in _NAMES:
        raise ValueError(f"create_searcher(search_alg={search_alg!r}): must be one of {', '.join(_NAMES)}")
    kind: type[Searcher] = BasicVariantGenerator
    if search_alg.lower() in _MODULES:
        module, name = _MODULES[search_alg.lower()]
        kind = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    known = inspect.signature(kind).parameters
    return kind(**{name: value for name, value in kwargs.items() if name in known})
