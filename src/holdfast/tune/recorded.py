"""Records how an object was created, so that an equal one can be created after a restore.

User code is never loaded from storage: the stored data names a class of Holdfast and its arguments.
"""

from __future__ import annotations

import copy
import functools
import inspect
from typing import Any


class Recorded:
    """The base of schedulers, searchers and stoppers. ``made_with`` are the arguments of the outermost ``__init__``."""

    made_with: dict[str, Any] | None = None
    _unused: dict[str, Any] | None = None  # its state before an experiment used it

    def fresh(self) -> Any:
        """A copy that no experiment has used."""
        if self._unused is None:
            return copy.deepcopy(self)
        copied = copy.copy(self)
        inner = {name: part.fresh() for name, part in self._unused.items() if isinstance(part, Recorded)}
        copied.__dict__ = copy.deepcopy({name: part for name, part in self._unused.items() if name not in inner})
        copied.__dict__.update(inner)
        return copied

    def take_state_of(self, worked: Recorded) -> None:
        """An experiment has used a copy. The user who looks at the original sees the state of the copy."""
        before = self.__dict__ if self._unused is None else self._unused
        inner = {name: part for name, part in before.items() if isinstance(part, Recorded)}  # the wrapped object
        for name, part in inner.items():
            if isinstance(worked.__dict__.get(name), type(part)):
                part.take_state_of(worked.__dict__[name])
        self.__dict__ = {**worked.__dict__, **inner, "_unused": dict(before)}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in cls.__dict__:
            return
        init = cls.__dict__["__init__"]
        signature = inspect.signature(init)

        @functools.wraps(init)
        def recording(self: Recorded, *args: Any, **given: Any) -> None:
            if self.made_with is None:
                try:
                    bound = signature.bind(self, *args, **given)
                except TypeError:
                    pass  # the call below raises the better error
                else:
                    self.made_with = _arguments(signature, bound.arguments)
            init(self, *args, **given)

        cls.__init__ = recording  # type: ignore


def _arguments(signature: inspect.Signature, bound: dict[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, parameter in list(signature.parameters.items())[1:]:
        if name not in bound:
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments.update(bound[name])
        elif parameter.kind is parameter.VAR_POSITIONAL:
            arguments[f"*{name}"] = list(bound[name])
        else:
            arguments[name] = bound[name]
    return arguments
