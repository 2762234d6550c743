"""Who uses what is stored does not ask where that is: only ``store/`` tells disk and object stores apart.

Beyond it there is one question, which is about nodes and not about storage: whether they hold files until they have
uploaded them (``nodes_hold_files``). It is asked once, where a run's settings choose a row of
``core/run/staged_files.py``, and by the simulator, which judges for itself. A table has the places that ask either
question, each with its reason.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
KINDS = {
    *("DiskStorage", "RemoteStorage", "DiskRun", "ObjectRun", "CheckpointStore", "RemoteCheckpoints"),
    *("JournalFile", "RemoteJournal", "Lease", "RemoteLease"),
}
# By file: how often it asks, and why no interface can answer instead.
ANY = -1
TELLS_STORAGES_APART = {
    "data/file_access.py": (ANY, "the user's own files: those of a disk are mapped, and listed by pattern"),
    "driver/storage_place.py": (1, "chooses the driver's storage for a location, once"),
    "train/trainer.py": (1, "tells the core, once for each run, that its nodes hold files"),
}
ASKS_ABOUT_NODES = {
    "core/run/run_spec.py": (1, "chooses the row of ``staged_files``, by whose answers the core and the driver decide"),
    **dict.fromkeys(("testing/budget_invariants.py", "testing/simulated_runtime.py"), (2, "the simulated run's rule")),
    **dict.fromkeys(("testing/simulated_cluster.py", "testing/simulated_site.py"), (1, "the simulated run's rule")),
    "testing/fates.py": (3, "what must become of an uploaded checkpoint"),
    "testing/invariants.py": (6, "what must hold for uploaded checkpoints"),
}
MODULES = sorted(path for path in SRC.rglob("*.py") if path.relative_to(SRC).parts[0] != "store")


def is_place(expression: ast.expr) -> bool:
    """Whether an expression is named like a location or a storage."""
    return any(word in ast.unparse(expression).lower() for word in ("location", "storage"))


def paths_of_places(tree: ast.AST) -> set[str]:
    """Variables that are assigned ``location.path``, also among others."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=False))
            case ast.Assign(targets=[target], value=value):
                pairs = [(target, value)]
            case _:
                continue
        for name, value in pairs:
            if isinstance(name, ast.Name) and isinstance(value, ast.Attribute):
                found |= {name.id} if value.attr == "path" and is_place(value.value) else set()
    return found


def told_apart(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what asks which storage something is."""
    tree = ast.parse(source)
    names = paths_of_places(tree)

    def is_path(expression: ast.expr) -> bool:
        if isinstance(expression, ast.NamedExpr):
            return is_path(expression.value)
        if isinstance(expression, ast.Attribute):
            return expression.attr in ("path", "root") and is_place(expression.value)
        return isinstance(expression, ast.Name) and expression.id in names

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                if KINDS & {name.id for name in ast.walk(kinds) if isinstance(name, ast.Name)}:
                    yield node.lineno, ast.unparse(node)
            case ast.Compare(left=left, comparators=[ast.Constant(value=None)]) if is_path(left):
                yield node.lineno, ast.unparse(node)
            case (
                ast.If(test=test)
                | ast.IfExp(test=test)
                | ast.While(test=test)
                | ast.UnaryOp(op=ast.Not(), operand=test)
            ):
                if is_path(test):
                    yield node.lineno, ast.unparse(test)
            case ast.Attribute(attr="takes_uploads" | "is_remote" | "is_far" | "remote", value=of):
                if ast.unparse(of).rpartition(".")[2] in (
                    "location",
                    "storage",
                    "_storage",
                    "_location",
                    "spec",
                    "site",
                ):
                    yield node.lineno, ast.unparse(node)
            case ast.Constant(value="takes_uploads" | "is_remote"):
                yield node.lineno, ast.unparse(node)


def asked_about_nodes(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what asks whether nodes hold files; not what only passes it on by its name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and "nodes_hold_files" in node.attr and isinstance(node.ctx, ast.Load):
            yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Name) and node.id == "nodes_hold_files" and isinstance(node.ctx, ast.Load):
            yield node.lineno, node.id


def counted(finder: object) -> dict[str, list[tuple[int, str]]]:
    assert callable(finder)
    found = {path.relative_to(SRC).as_posix(): list(finder(path.read_text())) for path in MODULES}
    return {name: places for name, places in found.items() if places}


@pytest.mark.parametrize(
    ("finder", "table"), [(told_apart, TELLS_STORAGES_APART), (asked_about_nodes, ASKS_ABOUT_NODES)]
)
def test_only_the_places_in_the_table_ask(finder: object, table: dict[str, tuple[int, str]]) -> None:
    """A row that is no longer needed fails too."""
    found = counted(finder)
    uncounted = {name for name, (count, _) in table.items() if count == ANY}
    asked = {name: ANY if name in uncounted else len(places) for name, places in found.items()}
    assert asked == {name: count for name, (count, _) in table.items()}, found


@pytest.mark.parametrize(
    "source",
    [
        "isinstance(self._storage, DiskStorage)",
        "isinstance(x, (A, RemoteLease))",
        "if self.location.path is None: pass",
        "path, id = location.path, identity.get('id')\nif path is not None: pass",
        "root = self._location.path\nwhere = root if root else b",
        "if (path := location.path) is None: pass",
        "if not location.root: pass",
        "if spec.remote: pass",
        "bool(run.location.takes_uploads)",
        "getattr(location, 'takes_uploads')",
    ],
)
def test_what_tells_them_apart_is_found(source: str) -> None:
    assert list(told_apart(source))


@pytest.mark.parametrize(
    "source",
    ["if site.nodes_hold_files: pass", "far = self._storage.nodes_hold_files", "Outbox(spec.nodes_hold_files)"],
)
def test_what_asks_about_nodes_is_found(source: str) -> None:
    assert list(asked_about_nodes(source))
