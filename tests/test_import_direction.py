"""Each folder of the house imports only from itself and from the folders below it; see the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
FOR_ALL = {"__version__", "errors", "interrupt", "printable", "private_dirs", "settings"}
USER_SIDE = {"train", "tune", "cli", "ui", "drill", "metrics"}
BELOW = {
    "core": set[str](),
    "wire": set[str](),
    "store": set[str](),
    "worker": {"store", "wire"},
    "node": {"worker", "store", "wire"},
    "engine": {"node", "wire"},
    "driver": {"core", "engine", "store", "wire"},
    "testing": {"driver"},
    **{folder: USER_SIDE | {"driver"} for folder in USER_SIDE},
}
# The entry point of a worker that is started anew belongs to the worker, and dies with its parent as the node's do.
EXCEPTIONS: set[tuple[str, str]] = set()
MODULES = sorted(path for path in SRC.rglob("*.py") if path.parent != SRC)


def folders_imported(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and top folder of all that the module imports of Holdfast."""
    package = ("holdfast", *path.relative_to(SRC).parent.parts)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            stem = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (stem, node.module or "") if part)
            targets = [f"{module}.{alias.name}" for alias in node.names] if module == "holdfast" else [module]
        else:
            continue
        for target in targets:
            parts = target.split(".")
            if parts[0] == "holdfast" and len(parts) > 1:
                yield node.lineno, parts[1]


def lawful_for(folder: str) -> set[str]:
    """The folder itself, and all that is below it, directly or further down."""
    found, ahead = {folder}, {folder}
    while ahead:
        ahead = set[str]().union(*(BELOW[f] for f in ahead)) - found
        found |= ahead
    return found if folder == "core" else found | FOR_ALL


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_folder_imports_only_from_itself_and_below(path: Path) -> None:
    name, folder = path.relative_to(SRC).as_posix(), path.relative_to(SRC).parts[0]
    assert folder in BELOW, f"{folder}/ has no rule in this test"
    lawful = lawful_for(folder) | {target for module, target in EXCEPTIONS if module == name}
    wrong = [f"line {line}: {target}" for line, target in folders_imported(path) if target not in lawful]
    assert not wrong, f"{name} may import {sorted(lawful)}, and imports {wrong}"


@pytest.mark.parametrize("name", ["errors.py", "printable.py", "settings.py"])
def test_what_all_may_import_imports_nothing_of_ours(name: str) -> None:
    assert {target for _, target in folders_imported(SRC / name)} <= {"printable"}


def test_private_directories_need_errors_alone() -> None:
    assert {folder for _, folder in folders_imported(SRC / "private_dirs.py")} == {"errors"}


def test_an_import_against_the_direction_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_import_direction.SRC", tmp_path)
    (tmp_path / "core").mkdir()
    module = tmp_path / "core" / "bad.py"
    module.write_text("from holdfast.store import journal\nfrom ..driver.loop import x\nfrom .state import y\n")
    assert [folder for _, folder in folders_imported(module)] == ["store", "driver", "core"]


def test_nothing_below_the_driver_can_decide_and_nothing_below_the_node_can_start_processes() -> None:
    assert all("core" not in lawful_for(folder) for folder in ("engine", "node", "worker", "store", "wire"))
    assert all("node" not in lawful_for(folder) for folder in ("worker", "store", "wire", "core"))
