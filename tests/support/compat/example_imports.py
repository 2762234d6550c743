"""What the examples that come with Ray Train and Ray Tune import of Ray, and whether a script finds it here."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from support.compat.ray_names import source_of

ROOTS = ("ray.train", "ray.tune", "ray.air")
INTERNAL = ("._internal", ".tests", "tune.examples.", "train.examples.", "ray.train.v2.")


def examples() -> list[Path]:
    found = []
    for part in ("tune", "train"):
        init = source_of("ray", part)
        assert init is not None
        found += sorted((init.parent / "examples").rglob("*.py"))
    return [path for path in found if path.name != "__init__.py"]


def imports_of(source: str) -> Iterator[tuple[str, str]]:
    """Module and name of all that is imported from the folders that Holdfast takes the place of."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name.startswith(ROOTS))
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if node.module.startswith(ROOTS) or full in ROOTS:
                    yield node.module, alias.name


def all_imports() -> list[tuple[str, str]]:
    found = {pair for path in examples() for pair in imports_of(path.read_text())}
    return sorted(pair for pair in found if not any(part in f"{pair[0]}.{pair[1]}" for part in INTERNAL))


def problem(module: str, name: str) -> str:
    """Why the import does not work with the root changed; empty if it does, or says which extra to install."""
    ours = module.replace("ray", "holdfast", 1)
    try:
        found = importlib.import_module(ours)
        if name and not hasattr(found, name):
            importlib.import_module(f"{ours}.{name}")
    except ImportError as error:
        return "" if "pip install 'holdfast[" in str(error) else f"{type(error).__name__}: {error}"
    return ""
