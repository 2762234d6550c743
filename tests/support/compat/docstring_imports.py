"""What the examples in the docstrings of Ray Train, Ray Tune and Ray AIR import: Ray's API pages are made of them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.compat.ray_names import source_of

ROOTS = ("train", "tune", "air")
_LINE = re.compile(r"^[ \t]*(from ray[\w.]* import (?:\([^)]*\)|[^\n(]+)|import ray[\w.]*(?: as \w+)?)", re.MULTILINE)
_PROMPT = re.compile(r"^(\s*)(?:>>> |\.\.\. )", re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Imports that do not work with the root changed, and why a script does not miss them
NOT_HERE = {
    ("ray.train.trainer", "BaseTrainer"): "of Train V1; DataParallelTrainer and those below it are there",
    ("ray.tune.examples.pbt_convnet_example", "PytorchTrainable"): "an example in Ray's wheel",
    ("ray.tune.examples.pbt_function", "pbt_function"): "an example in Ray's wheel",
    ("ray.tune.integrations.keras", "TuneReportCheckpointCallback"): "not there in Ray either: it is tune.integration",
    ("ray.tune.search.hebo", "HEBOSearch"): "HEBO needs an old numpy",
    ("ray.tune.utils.util", "warn_if_slow"): "internal to Ray",
}


def sources() -> list[Path]:
    found: list[Path] = []
    for root in ROOTS:
        init = source_of("ray", root)
        assert init is not None
        found += init.parent.rglob("*.py")
    return sorted(path for path in found if not {"_internal", "tests", "benchmarks"} & set(path.parts))


def imports_of(docstring: str) -> Iterator[tuple[str, str]]:
    """Module and name; the name is empty if a module is imported."""
    for match in _LINE.finditer(_PROMPT.sub(r"\1", docstring)):
        node = ast.parse(" ".join(match[1].split())).body[0]
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def all_imports() -> list[tuple[str, str]]:
    found = set()
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, _DOCUMENTED):
                found |= set(imports_of(ast.get_docstring(node) or ""))
    return sorted(found)
