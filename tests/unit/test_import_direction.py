"""Which folder imports which, as a table; see the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
FOR_ALL = {"__version__", "errors", "platform", "printable", "private_dirs", "settings", "wrapper"}
MAY_IMPORT = {  # each folder, and what its modules may import themselves, beside FOR_ALL
    "core": set[str](),
    "platform": set[str](),
    "wire": set[str](),
    "store": set[str](),
    "objects": set[str](),
    "data": {"objects", "store"},
    "worker": {"store", "wire"},
    "node": {"store", "wire", "worker"},
    "engine": {"node", "objects", "wire", "worker"},
    "runs": {"core", "store"},
    "driver": {"core", "engine", "runs", "store", "wire"},
    "trackers": {"core", "store"},
    "ui": set[str](),
    "pictures": {"runs"},
    "web": {"core", "driver", "pictures", "runs", "store", "ui"},
    "train": {
        "core",
        "data",
        "driver",
        "engine",
        "objects",
        "pictures",
        "runs",
        "store",
        "trackers",
        "ui",
        "wire",
        "worker",
    },
    "metrics": {"train"},  # an earlier public path
    "tune": {
        "core",
        "driver",
        "engine",
        "objects",
        "pictures",
        "runs",
        "store",
        "trackers",
        "train",
        "ui",
        "wire",
        "worker",
    },
    "air": {"trackers", "train"},  # paths of Ray's
    "cli": {"core", "drill", "driver", "engine", "runs", "store", "train", "ui", "web"},
    "drill": {"core", "driver", "engine", "node", "pictures", "runs", "store", "wire", "worker"},
    "testing": {"core", "driver", "engine", "runs", "store", "tune", "wire", "worker"},
}
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


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_folder_imports_only_what_the_table_says(path: Path) -> None:
    name, folder = path.relative_to(SRC).as_posix(), path.relative_to(SRC).parts[0]
    assert folder in MAY_IMPORT, f"{folder}/ has no row in this table"
    lawful = {folder} | MAY_IMPORT[folder] | (FOR_ALL if folder not in ("core", "platform") else set())
    wrong = [f"line {line}: {target}" for line, target in folders_imported(path) if target not in lawful]
    assert not wrong, f"{name} may import {sorted(lawful)}, and imports {wrong}"


def test_every_line_of_the_table_is_used() -> None:
    """A folder that does not import another says so."""
    used: dict[str, set[str]] = {folder: set() for folder in MAY_IMPORT}
    for path in MODULES:
        used[path.relative_to(SRC).parts[0]] |= {target for _, target in folders_imported(path)}
    spare = {folder: sorted(lawful - used[folder]) for folder, lawful in MAY_IMPORT.items() if lawful - used[folder]}
    assert not spare, spare


@pytest.mark.parametrize("name", ["errors.py", "printable.py", "settings.py", "wrapper.py"])
def test_what_all_may_import_imports_nothing_of_ours(name: str) -> None:
    assert {target for _, target in folders_imported(SRC / name)} <= {"printable", "settings"}


def test_private_directories_need_errors_alone() -> None:
    assert {folder for _, folder in folders_imported(SRC / "private_dirs.py")} == {"errors"}


def test_an_import_against_the_direction_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("test_import_direction.SRC", tmp_path)
    (tmp_path / "core").mkdir()
    module = tmp_path / "core" / "bad.py"
    module.write_text("from holdfast.store import journal\nfrom ..driver.runtime import x\nfrom .state import y\n")
    assert [folder for _, folder in folders_imported(module)] == ["store", "driver", "core"]


def test_nothing_below_the_driver_can_decide_and_nothing_below_the_node_can_start_processes() -> None:
    assert all("core" not in reached_from(folder) for folder in ("engine", "node", "worker", "store", "wire"))
    assert all("node" not in reached_from(folder) for folder in ("worker", "store", "wire", "core"))


def reached_from(folder: str) -> set[str]:
    """All that the folder imports, directly or further down."""
    found, ahead = {folder}, {folder}
    while ahead:
        ahead = set[str]().union(*(MAY_IMPORT[each] for each in ahead)) - found
        found |= ahead
    return found
