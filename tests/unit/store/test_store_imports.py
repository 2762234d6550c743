"""What the store must never do: load code from storage, or know of the layers above it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.store

MODULES = sorted(Path(holdfast.store.__file__).parent.rglob("*.py"))
FORBIDDEN = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "torch", "numpy"}
CALLS = {"eval", "exec", "compile", "__import__", "import_module"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def called(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                yield node.func.id
            elif isinstance(node.func, ast.Attribute) and node.func.attr in ("import_module", "__import__"):
                yield node.func.attr


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_nothing_stored_is_ever_run(path: Path) -> None:
    tree = ast.parse(path.read_text())
    assert not {name.split(".")[0] for name in imported(tree)} & FORBIDDEN
    assert not set(called(tree)) & CALLS


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_the_store_knows_nothing_of_what_is_above_it(path: Path) -> None:
    ours = {name.split(".")[1] for name in imported(ast.parse(path.read_text())) if name.startswith("holdfast.")}
    assert ours <= {"__version__", "errors", "platform", "printable", "private_dirs", "settings", "store"}


def test_the_check_can_fail() -> None:
    tree = ast.parse("import pickle.x\nfrom torch import load\neval('1')\nimportlib.import_module('x')")
    assert {name.split(".")[0] for name in imported(tree)} == {"pickle", "torch"}
    assert set(called(tree)) == {"eval", "import_module"}
    assert len(MODULES) > 8
