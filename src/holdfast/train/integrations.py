"""What the integrations with other frameworks have in common: the extra that they need, and the modules that workers
should find imported because the script uses them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

_imported: list[str] = []


def require(integration: str, extra: str, *modules: str) -> None:
    """Raise an error that names the extra to install, unless one of these modules is installed."""
    if not any(find_spec(module) is not None for module in modules):
        raise ModuleNotFoundError(
            f"{integration} needs {modules[0]}, which is not installed. Run: pip install 'holdfast[{extra}]'",
            name=modules[0],
        )


def preload_in_workers(*modules: str) -> None:
    """Call it when an integration is imported: workers that start after the first report find these modules
    imported."""
    _imported.extend(module for module in modules if module not in _imported)


def imported_integrations() -> tuple[str, ...]:
    return tuple(_imported)


def import_first(*modules: str) -> str:
    """Import the first of these modules that is installed; returns its name."""
    name = next(module for module in modules if find_spec(module.partition(".")[0]) is not None)
    importlib.import_module(name)
    return name


def present(*modules: str) -> tuple[str, ...]:
    """The modules that the installed release has. They are found by their files, because asking importlib would import
    their packages."""
    return tuple(module for module in modules if _has_file(module))


def _has_file(module: str) -> bool:
    package, _, rest = module.partition(".")
    spec = find_spec(package)
    places = [Path(root, rest.replace(".", "/")) for root in (spec.submodule_search_locations if spec else None) or ()]
    return any(place.with_suffix(".py").exists() or (place / "__init__.py").exists() for place in places)


C = TypeVar("C")


def check_config(trainer: str, argument: str, config: C | None, kind: type[C]) -> C:
    """The framework's configuration, or the default one."""
    if config is not None and not isinstance(config, kind):
        raise TypeError(f"{trainer}({argument}={config!r}): pass a {kind.__name__}")
    return kind() if config is None else config


def refuse_old_arguments(trainer: str, given: Mapping[str, Any], *old: str) -> None:
    """Refuse arguments of trainers that took no train function."""
    found = [name for name in old if name in given]
    if found:
        raise ValueError(
            f"{trainer}({found[0]}=...): pass a function that trains as train_loop_per_worker, and what it needs with "
            "train_loop_config"
        )
