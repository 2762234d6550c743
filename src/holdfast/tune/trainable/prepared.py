"""Trainables with what belongs to them: the resources that a trial needs.

The trainable that was given is never changed: a function is wrapped, a class is subclassed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.tune.resources import DEFAULT_REQUEST, PlacementGroupFactory, request_of

from .trainable import Trainable

RequestFunction = Callable[[dict[str, Any]], Any]


class PreparedFunction:
    """A function trainable with its resources."""

    def __init__(
        self, fn: Callable[..., Any], resources: PlacementGroupFactory | RequestFunction | None = None
    ) -> None:
        self.fn, self.resources = fn, resources
        self.__name__ = str(getattr(fn, "__name__", type(fn).__name__))
        self.__doc__ = fn.__doc__

    def __call__(self, config: dict[str, Any]) -> Any:
        return self.fn(config)


def with_resources(trainable: Any, resources: Any) -> Any:
    """The trainable, with what a trial of it needs: a dict (``{"cpu": 2, "gpu": 0.5}``), a ``PlacementGroupFactory``, a
    ``ScalingConfig``, or a function of the trial's config that returns one of them."""
    check_wrappable("with_resources", trainable)
    if callable(resources) and not isinstance(resources, (type, PlacementGroupFactory)):
        request: PlacementGroupFactory | RequestFunction = resources
    else:
        request = request_of("with_resources(resources", resources)
    if isinstance(trainable, type):
        return _class_with_resources(trainable, request)
    fn = trainable.fn if isinstance(trainable, PreparedFunction) else trainable
    return PreparedFunction(fn, request)


def _class_with_resources(base: type[Trainable], request: PlacementGroupFactory | RequestFunction) -> type[Trainable]:
    class Prepared(base):  # type: ignore[valid-type, misc]
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
            return _asked(request, config)

    return _named_like(base, Prepared)


def _named_like(base: type[Trainable], made: type[Trainable]) -> type[Trainable]:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(base, name))
    return made


def resources_of(trainable: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """What a trial of this trainable, a function or a class, needs with this config; one CPU if nothing says."""
    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        asked = _asked(trainable.default_resource_request, config)
    else:
        asked = _asked(trainable.resources, config) if isinstance(trainable, PreparedFunction) else None
    return asked or DEFAULT_REQUEST


def _asked(
    request: PlacementGroupFactory | RequestFunction | None, config: dict[str, Any]
) -> PlacementGroupFactory | None:
    if request is None or isinstance(request, PlacementGroupFactory):
        return request
    returned = request(config)
    return None if returned is None else request_of(f"what {_named(request)} returned: resources", returned)


def check_wrappable(function: str, trainable: Any) -> None:
    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        return
    if isinstance(trainable, type) or not callable(trainable):
        raise TypeError(
            f"{function}(trainable={trainable!r}): pass a function, or a subclass of holdfast.tune.Trainable; "
            "of a trainer, set ScalingConfig and datasets"
        )


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))
