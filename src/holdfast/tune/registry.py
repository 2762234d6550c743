"""Trainables and environments by name, in this process: a trial's process gets the trainable itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import TrainableError
from holdfast.tune.trainable.function import check_function
from holdfast.tune.trainable.trainable import Trainable

_registered: dict[str, Any] = {}
_environments: dict[str, Callable[..., Any]] = {}


def register_trainable(
    name: str,
    trainable: type[Trainable] | Callable[..., Any],
    warn: bool = True,  # noqa: ARG001  there is nothing to warn of
) -> None:
    """Register this function or class for ``Tuner(name)``. Registering the name again replaces it."""
    if not isinstance(name, str) or not name:
        raise TypeError(f"register_trainable(name={name!r}): pass a name, as in register_trainable('mine', fn)")
    check_trainable(trainable)
    _registered[name] = trainable


def register_env(name: str, env_creator: Callable[..., Any]) -> None:
    """Register a function that creates an environment under a name, for your own trainables."""
    if not callable(env_creator):
        raise TypeError(f"register_env(env_creator={env_creator!r}): pass a function of a config")
    _environments[name] = env_creator


def get_env(name: str) -> Callable[..., Any]:
    """Return the function that was registered with ``register_env`` under this name."""
    if name not in _environments:
        known = ", ".join(map(repr, sorted(_environments))) or "none"
        raise ValueError(f"unknown environment {name!r} (registered: {known}). Register it with tune.register_env().")
    return _environments[name]


def get_trainable(name: str) -> Any:
    """Return the function or class with this name."""
    if name not in _registered:
        known = ", ".join(map(repr, sorted(_registered))) or "none"
        raise TrainableError(
            f"unknown trainable {name!r} (registered: {known}). Register it with tune.register_trainable()."
        )
    return _registered[name]


def name_of(trainable: Any) -> str:
    """For the names of trials and of experiments without a name."""
    name = getattr(trainable, "__name__", None) or type(trainable).__name__
    return "".join(c if c.isalnum() or c in "_-" else "-" for c in str(name)) or "trainable"


def check_trainable(trainable: Any) -> None:
    """Reject anything that is neither a class ``Trainable`` nor a function that can be one."""
    if isinstance(trainable, type):
        if not issubclass(trainable, Trainable):
            raise TrainableError(f"trainable={trainable!r}: a class must be a subclass of holdfast.tune.Trainable")
    else:
        check_function(trainable)
