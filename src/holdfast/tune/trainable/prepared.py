"""Trainables with what belongs to them: large objects that all trials share, and the resources that a trial needs.

The trainable that was given is never changed: a function is wrapped, a class is subclassed.
"""

from __future__ import annotations

import inspect
import os
import weakref
from collections.abc import Callable
from typing import Any

from holdfast.objects.object_refs import ObjectRef, discard, get, put
from holdfast.train.checks import WrongTypeError
from holdfast.train.ray_data import is_ray_data
from holdfast.tune.resources import DEFAULT_REQUEST, PlacementGroupFactory, request_of

from .trainable import Trainable

RequestFunction = Callable[[dict[str, Any]], Any]
Request = PlacementGroupFactory | RequestFunction | None


class Parameters:
    """Arguments of a trainable, by reference. They are put once, and released with this object. A dataset of Ray Data
    is small, and sent as it is: only what is sent to workers is made readable there."""

    def __init__(self, refs: dict[str, Any]) -> None:
        self.refs = refs

    @classmethod
    def put(cls, values: dict[str, Any]) -> Parameters:
        kept = {name for name, value in values.items() if isinstance(value, ObjectRef) or is_ray_data(value)}
        ours = {name: _put(name, value) for name, value in values.items() if name not in kept}
        parameters = cls({**values, **ours})
        weakref.finalize(parameters, _discard, list(ours.values()), os.getpid())
        return parameters

    def get(self) -> dict[str, Any]:
        return {name: get(ref) if isinstance(ref, ObjectRef) else ref for name, ref in self.refs.items()}


def _put(name: str, value: Any) -> ObjectRef:
    try:
        return put(value)
    except TypeError as error:
        raise TypeError(f"with_parameters({name}=…): {error}") from error


def _discard(refs: list[ObjectRef], pid: int) -> None:
    if os.getpid() == pid:  # the copies in a fork do not count
        for ref in refs:
            discard(ref)


class PreparedFunction:
    """A function trainable with its parameters and its resources."""

    def __init__(
        self, fn: Callable[..., Any], parameters: tuple[Parameters, ...] = (), resources: Request = None
    ) -> None:
        self.fn, self.parameters, self.resources = fn, parameters, resources
        self.__wrapped__ = fn
        self.__name__ = str(getattr(fn, "__name__", type(fn).__name__))
        self.__doc__ = fn.__doc__
        self.__signature__ = self._signature()

    def __call__(self, config: dict[str, Any]) -> Any:
        arguments: dict[str, Any] = {}
        for parameters in self.parameters:
            arguments |= parameters.get()
        return self.fn(config, **arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.fn, self.parameters, self.resources)

    def _signature(self) -> inspect.Signature | None:
        """The remaining arguments."""
        given = {name for parameters in self.parameters for name in parameters.refs}
        try:
            signature = inspect.signature(self.fn)
        except (TypeError, ValueError):
            return None
        return signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in given])


def with_parameters(trainable: Any, **kwargs: Any) -> Any:
    """Return the trainable with arguments that all trials share. A function gets them by name besides ``config``, a
    class in ``setup``.

    They are stored once per machine (see ``holdfast.put``), not sent with each trial.
    """
    _check_wrappable("with_parameters", trainable)
    _check_takes(trainable, kwargs)
    parameters = Parameters.put(kwargs)
    if isinstance(trainable, type):
        return _class_with_parameters(trainable, parameters)
    if isinstance(trainable, PreparedFunction):
        return PreparedFunction(trainable.fn, (*trainable.parameters, parameters), trainable.resources)
    return PreparedFunction(trainable, (parameters,))


def with_resources(trainable: Any, resources: Any) -> Any:
    """Return the trainable with the resources of a trial: a dict (``{"cpu": 2, "gpu": 0.5}``), a
    ``PlacementGroupFactory``, a ``ScalingConfig``, or a function of the trial's config that returns one of them.
    """
    _check_wrappable("with_resources", trainable)
    if callable(resources) and not isinstance(resources, (type, PlacementGroupFactory)):
        request: Request = resources
    else:
        request = request_of("with_resources(resources", resources)
    if isinstance(trainable, type):
        return _class_with_resources(trainable, request)
    if isinstance(trainable, PreparedFunction):
        return PreparedFunction(trainable.fn, trainable.parameters, request)
    return PreparedFunction(trainable, resources=request)


def resources_of(trainable: Any, config: dict[str, Any]) -> PlacementGroupFactory:
    """The resources of a trial of this trainable, a function or a class, with this config; one CPU by default."""
    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        asked = _asked(trainable.default_resource_request, config)
    else:
        asked = _asked(trainable.resources, config) if isinstance(trainable, PreparedFunction) else None
    return asked or DEFAULT_REQUEST


def _class_with_parameters(base: type[Trainable], parameters: Parameters) -> type[Trainable]:
    class Prepared(base):  # type: ignore[valid-type, misc]
        def setup(self, config: dict[str, Any], **more: Any) -> None:
            super().setup(config, **parameters.get(), **more)

    return _named_like(base, Prepared)


def _class_with_resources(base: type[Trainable], request: Request) -> type[Trainable]:
    class Prepared(base):  # type: ignore[valid-type, misc]
        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory | None:
            return _asked(request, config)

    return _named_like(base, Prepared)


def _named_like(base: type[Trainable], made: type[Trainable]) -> type[Trainable]:
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(base, name))
    return made


def _asked(request: Request, config: dict[str, Any]) -> PlacementGroupFactory | None:
    if request is None or isinstance(request, PlacementGroupFactory):
        return request
    returned = request(config)
    return None if returned is None else request_of(f"what {_named(request)} returned: resources", returned)


def _check_takes(trainable: Any, kwargs: dict[str, Any]) -> None:
    """Refuse arguments that the function, or ``setup`` of the class, has no parameters for."""
    is_class = isinstance(trainable, type)
    try:
        signature = inspect.signature(trainable.setup if is_class else trainable)
    except (TypeError, ValueError):
        return
    try:
        signature.bind_partial(*([None] if is_class else []), {}, **kwargs)
    except TypeError as error:
        where = f"{trainable.__name__}.setup" if is_class else _named(trainable)
        raise ValueError(
            f"with_parameters({', '.join(kwargs)}): {where}{signature} cannot take them: {error}"
        ) from None


def _check_wrappable(function: str, trainable: Any) -> None:
    if isinstance(trainable, type) and issubclass(trainable, Trainable):
        return
    if isinstance(trainable, type) or not callable(trainable):
        raise WrongTypeError(
            f"{function}(trainable={trainable!r}): pass a function, or a subclass of holdfast.tune.Trainable; "
            "of a trainer, set ScalingConfig and datasets"
        )


def _named(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function))
