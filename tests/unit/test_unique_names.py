"""A module's name and a public class's name say which one is meant: neither occurs twice in the package."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import holdfast

SRC = Path(holdfast.__file__).parent
# Names that users know.
PUBLIC_MODULES = {
    **dict.fromkeys(("config", "context", "error", "result"), "paths of Ray's scripts, in train and tune"),
    **dict.fromkeys(("callback", "data_parallel_trainer", "trial"), "paths of Ray's scripts"),
    **dict.fromkeys(("comet", "keras", "mlflow", "wandb"), "integrations are named for what they integrate"),
}
PUBLIC_CLASSES = {
    "Trial": "what callbacks see of a trial has the name that Ray gives it",
    "TuneReportCallback": "each framework's own, under the name that Ray gives them all",
}
# Two cores of the same shape: imports say ``core.run`` or ``core.experiment``, and commands have the names of what is
# done about them, in the driver and by messages, on purpose.
SAME_SHAPE = ("core/run/", "core/experiment/", "driver/effects.py", "wire/")


def paths() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.py")) if path.stem not in ("__init__", "__main__")]


def doubles(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Names that several modules have, of which at most one is of those with the same shape."""
    rest = {name: [where for where in places if not where.startswith(SAME_SHAPE)] for name, places in found.items()}
    return {name: found[name] for name, places in rest.items() if len(places) > 1 or (places and len(found[name]) > 1)}


def modules() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        found[path.stem].append(path.relative_to(SRC).as_posix())
    return doubles(found)


def classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SRC).as_posix())
    return doubles(found)


def test_module_names_are_unique() -> None:
    found = modules()
    assert {name: found[name] for name in found.keys() - PUBLIC_MODULES.keys()} == {}


def test_names_of_public_classes_are_unique() -> None:
    found = classes()
    assert {name: found[name] for name in found.keys() - PUBLIC_CLASSES.keys()} == {}


def test_only_the_platform_looks_at_processes() -> None:
    """What is in /proc is asked of ``platform/``."""
    exceptions = {"store/lease.py", "cli/diagnosis_machine.py"}  # locks of open files; the machine's own figures
    found = {
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc")
    }
    assert {name for name in found if not name.startswith("platform/")} <= exceptions
