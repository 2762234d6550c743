"""What the integrations with other frameworks have in common: which extra they need, and what workers should find
imported because the script uses them."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

_imported: list[str] = []


def require(integration: str, extra: str, *modules: str) -> None:
    """That at least one of these modules is installed; else an error that says which extra to install."""
    if not any(find_spec(module) is not None for module in modules):
        raise ModuleNotFoundError(
            f"{integration} needs {modules[0]}, which is not installed. Run: pip install 'holdfast[{extra}]'",
            name=modules[0],
        )


def preload_in_workers(*modules: str) -> None:
    """An integration was imported: workers that start after the first report find these modules imported."""
    _imported.extend(module for module in modules if module not in _imported)


def imported_integrations() -> tuple[str, ...]:
    return tuple(_imported)


def import_first(*modules: str) -> str:
    """Import the first of these modules that is installed; returns its name."""
    name = next(module for module in modules if find_spec(module.partition(".")[0]) is not None)
    importlib.import_module(name)
    return name
