"""The one hook for programs that run a script in their own environment, as ``holdfast drill`` does.

``HOLDFAST_WRAPPER=module:argument`` names a module, whose ``wrapper(argument)`` returns a ``Wrapper``. Without it
nothing is wrapped, and nothing here costs anything.
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from holdfast import settings

T = TypeVar("T")


class Wrapper:
    """Wraps nothing. A program overrides the methods to replace parts of the script."""

    def storage(self, given: T) -> T:
        """Where the script's runs are stored; ``given`` is the script's own choice."""
        return given

    def run(self, plan: T, engine: Any) -> tuple[T, Any]:
        """The plan and the engine of a run that is about to start."""
        return plan, engine

    def ray_address(self) -> str | None:
        """The Ray cluster of a script that names none."""
        return None

    def check_experiment(self) -> None:
        """Raises if experiments cannot be wrapped."""


def in_force() -> Wrapper:
    module, _, argument = settings.load().wrapper.partition(":")
    if not module:
        return Wrapper()
    found: Wrapper = importlib.import_module(module).wrapper(argument)
    return found
