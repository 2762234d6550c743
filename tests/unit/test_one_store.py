"""Who uses what is stored does not ask where that is: only ``store/`` tells disk and object stores apart.

Beyond it there is one question, which is about nodes and not about storage: whether they hold files until they have
uploaded them (``nodes_hold_files``). It is asked once, where a run's settings choose a row of
``core/run/staged_files.py``, and by the simulator, which judges for itself. A table has the places that ask either
question, each with its reason. To ask whether something is empty or missing that only a run on an object store has, is
the same question in other words.
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
    *("DiskAddress", "UploadAddress", "FilesInPlace", "NodeCheckpoints"),
}
# What is empty, or not there, for a run on a disk: to ask whether it is, is to ask where the run is stored.
EMPTY_ON_DISK = {"storage", "_storage", "storage_url", "run_url", "scratch", "upload_address"}
ASSIGNED = EMPTY_ON_DISK - {"_storage"}  # a driver's object has that name too
BYTES_OR_TEXT = {"bytes", "str"}
# By file: how often it asks, and why no interface can answer instead.
ANY = -1
TELLS_STORAGES_APART = {
    "cli/diagnosis_storage.py": (1, "`doctor` tries out what a run would use: a file system, or requests"),
    "core/failures.py": (3, "``evidence.storage``: whether storage failed, not where it is"),
    "data/file_access.py": (ANY, "the user's own files: those of a disk are mapped, and listed by pattern"),
    "driver/storage_place.py": (1, "chooses the driver's storage for a location, once"),
    "train/checkpoint.py": (1, "a place that the user named: files are used where they are, or downloaded"),
    "train/tracking.py": (
        1,
        "an event file grows, so the user names a directory where the run is in a bucket",
    ),
    "train/trainer.py": (1, "tells the core, once for each run, that its nodes hold files"),
    "train/uploads.py": (3, "places that the user named: files are staged, or stay where they are, or are downloaded"),
    "tune/search/optuna.py": (2, "Optuna's own storage of studies"),
    "tune/unused_options.py": (1, "files that trials print to are not uploaded, and the user is told so"),
    "web/curve_index.py": (1, "samples a large log, unless each sample is a request"),
    "worker/run_address.py": (1, "chooses for nodes and workers, from the message that says where the run is"),
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


def text(expression: ast.expr) -> str:
    """The last name of what is looked up or called; empty for anything else."""
    if isinstance(expression, ast.Call):
        expression = expression.func
    return ast.unparse(expression).rpartition(".")[2] if isinstance(expression, ast.Attribute | ast.Name) else ""


def may_be_missing(tree: ast.AST) -> set[str]:
    """Names and attributes that are annotated with one of the kinds of storage, or None."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name() | ast.Attribute() as target, annotation=kind):
                name = text(target)
            case ast.arg(arg=name, annotation=ast.expr() as kind):
                pass
            case ast.FunctionDef(name=name, returns=ast.expr() as kind):
                pass
            case _:
                continue
        words = {of.id for of in ast.walk(kind) if isinstance(of, ast.Name)}
        is_optional = "Optional" in words or any(
            isinstance(of, ast.Constant) and of.value is None for of in ast.walk(kind)
        )
        found |= {name} if is_optional and words & KINDS else set()
    return found


def given_from_empty(tree: ast.AST) -> set[str]:
    """Variables that are assigned what is empty on a disk, and arguments of its name that are bytes or text."""
    found: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(attr=attr)) if attr in EMPTY_ON_DISK - {
                "_storage"
            }:
                found.add(name)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if text(call) == "directory_here":
                found |= set() if call.args else {name}
            case ast.arg(arg=name, annotation=ast.Name(id=kind)) if kind in BYTES_OR_TEXT and name in EMPTY_ON_DISK:
                found.add(name)
    return found


def questions(tree: ast.AST) -> Iterator[ast.expr]:
    """What a branch depends on, in parts: each is asked whether it is empty, or not there."""
    for node in ast.walk(tree):
        match node:
            case (
                ast.If(test=test)
                | ast.IfExp(test=test)
                | ast.While(test=test)
                | ast.Assert(test=test)
                | ast.UnaryOp(op=ast.Not(), operand=test)
                | ast.match_case(guard=ast.expr() as test)
            ):
                yield test
            case ast.BoolOp(values=values):
                yield from values
            case ast.comprehension(ifs=tests):
                yield from tests
            case ast.Call(func=ast.Name(id="bool"), args=[test]):
                yield test
            case ast.Compare(left=left, comparators=[ast.Constant(value=None | b"" | "")]):
                yield left


def scopes(tree: ast.Module) -> Iterator[ast.AST]:
    """Functions and methods, each with what is in it, and the rest of the module."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    yield from functions
    yield ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], [])


def told_apart_by_emptiness(tree: ast.Module) -> Iterator[tuple[int, str]]:
    optional = may_be_missing(tree)
    found: dict[tuple[int, int], str] = {}
    for scope in scopes(tree):
        taken = given_from_empty(scope)
        for asked in questions(scope):
            is_empty = isinstance(asked, ast.Attribute) and asked.attr in EMPTY_ON_DISK
            is_here = isinstance(asked, ast.Call) and text(asked) == "directory_here" and not asked.args
            is_taken = isinstance(asked, ast.Name) and asked.id in taken
            if is_empty or is_here or is_taken or text(asked) in optional:
                found[(asked.lineno, asked.col_offset)] = ast.unparse(asked)
    yield from ((line, what) for (line, _), what in sorted(found.items()))


def told_apart(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of what asks which storage something is."""
    tree = ast.parse(source)
    names = paths_of_places(tree)
    if any(word in source for word in (*EMPTY_ON_DISK, *KINDS, "directory_here")):
        yield from told_apart_by_emptiness(tree)

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
        "if session.storage: make_private(session.scratch)",
        "run_dir = '' if self._configure.storage else self._configure.run_dir",
        "if self._removed and self._configure.storage: pass",
        "where = run.storage == b''",
        "where = session.run_url or session.run_dir",
        "def configuration(storage: bytes) -> str:\n    return 'url' if storage else ''",
        "storage = session.storage\nif not storage: pass",
        "self._checkpoints: NodeCheckpoints | None = None\nif self._checkpoints is None: pass",
        "def f(kept: NodeCheckpoints | None) -> list:\n    return kept.left() if kept else []",
        "kept: Optional[NodeCheckpoints] = None\nassert kept is not None",
        "match order:\n    case Forget() if self.storage: pass",
        "if location.directory_here(): pass",
        "here = location.directory_here()\nif delete and here: pass",
        "isinstance(self._files, FilesInPlace)",
    ],
)
def test_what_tells_them_apart_is_found(source: str) -> None:
    assert list(told_apart(source))


@pytest.mark.parametrize(
    "source",
    [
        "self._storage.write(entries)",
        "address_in(configure).files(on_disk, uploaded)",
        "self._objects: ObjectStore | None = None\nif self._objects is None: pass",
        "where = location.directory_here(instead) or 'x'",
        "self._files: NodeFiles = node_files(session)\nif self._files.has(id): pass",
    ],
)
def test_what_uses_either_is_not_found(source: str) -> None:
    assert not list(told_apart(source))


@pytest.mark.parametrize(
    "source",
    ["if site.nodes_hold_files: pass", "far = self._storage.nodes_hold_files", "Outbox(spec.nodes_hold_files)"],
)
def test_what_asks_about_nodes_is_found(source: str) -> None:
    assert list(asked_about_nodes(source))
