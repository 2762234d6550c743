"""core/ decides and does nothing else: it imports values and types, and of Holdfast only itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.core

CORE = Path(holdfast.core.__file__).parent
ALLOWED = {"__future__", "collections", "datetime", "enum", "functools", "math", "msgspec", "signal", "typing"}


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """What a module imports: (level, module)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_core_imports_only_values_and_itself(path: Path) -> None:
    for level, module in imported(ast.parse(path.read_text())):
        depth = len(path.relative_to(CORE).parts)
        if level == 0 and not module.startswith("holdfast.core"):
            assert module.partition(".")[0] in ALLOWED, f"{path.name} imports {module}"
        assert level <= depth, f"{path.name} imports from outside core: {'.' * level}{module}"


@pytest.mark.parametrize("path", sorted(CORE.rglob("*.py")), ids=lambda p: str(p.relative_to(CORE)))
def test_core_calls_nothing_that_reads_or_writes(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "exec", "eval", "__import__"}, path.name
        assert not isinstance(node, ast.Global), f"{path.name} keeps state in a global"


def test_datetime_is_used_to_write_a_given_moment_alone() -> None:
    for path in CORE.rglob("*.py"):
        asked = {ast.unparse(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)}
        assert not asked & {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}, path.name


def test_signal_is_used_for_names_alone() -> None:
    tree = ast.parse((CORE / "failures.py").read_text())
    used = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n.value) == "signal"}
    assert used == {"Signals"}
