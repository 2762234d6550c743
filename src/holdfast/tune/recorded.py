"""How an object was made, written down when it is made, so that an equal one can be made after a restore.

Nothing that a user wrote is ever loaded from storage: what is stored names a class of Holdfast's own and its arguments.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any


class Recorded:
    """The base of schedulers, searchers and stoppers. ``made_with`` are the arguments of the outermost ``__init__``."""

    made_with: dict[str, Any] | None = None

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
                    pass  # the call below says it better
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
