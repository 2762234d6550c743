"""The kernel has no thread, clock, socket or file: it learns from its inputs, and what it does are effects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.driver

DRIVER = Path(holdfast.driver.__file__).parent
VALUES = {"__future__", "collections", "dataclasses", "enum", "functools", "itertools", "math", "re", "typing"}
LIBRARIES = {"cloudpickle", "logging", "msgspec", "pathlib"}  # values too: of pathlib, the names of files alone
# Of the modules that also read and write, what only works on values.
OF_STORE = {
    "report_log": {"parse", "RankReports", "StagedReport"},
    "metrics": {"parse_line"},
    "layout": {"RunLayout"},
    "location": {"Location"},
    "manifests": None,
    "values": None,
}
TOUCHES_FILES = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "open", "exists", "is_file", "is_dir", "iterdir", "glob"),
    *("rglob", "stat", "lstat", "mkdir", "rmdir", "unlink", "rename", "replace", "touch", "resolve", "cwd", "home"),
}


def kernel_modules() -> dict[str, ast.Module]:
    """``kernel.py`` and all that it imports from this folder, directly or not."""
    found: dict[str, ast.Module] = {}
    waiting = ["kernel"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = ast.parse((DRIVER / f"{name}.py").read_text())
            for node in ast.walk(found[name]):
                if isinstance(node, ast.ImportFrom) and node.level:
                    waiting += [node.module] if node.module else [alias.name for alias in node.names]
    return found


MODULES = kernel_modules()


def wrong_imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] not in VALUES | LIBRARIES)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module, names = node.module or "", {alias.name for alias in node.names}
            if module == "holdfast.store":
                yield from (f"{module}.{name}" for name in names - OF_STORE.keys())
            elif module.startswith("holdfast.store."):
                allowed = OF_STORE.get(module.rpartition(".")[2], set())
                yield from (f"{module}.{name}" for name in (names - allowed if allowed is not None else ()))
            elif module.startswith("holdfast.wire"):
                if "channel" in names or module.endswith(".channel"):
                    yield module
            elif module.startswith("holdfast."):
                if not f"{module}.".startswith(("holdfast.core.", "holdfast.errors.", "holdfast.runs.past.")):
                    yield module
            elif module.partition(".")[0] not in VALUES | LIBRARIES:
                yield module


def wrong_calls(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="open" | "print" | "input")):
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="report_log"), attr=attr)) if attr != "parse":
                yield ast.unparse(node)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in TOUCHES_FILES:
                if any(word in ast.unparse(value).lower() for word in ("path", "dir", "layout", "log", "file")):
                    yield ast.unparse(node)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_kernel_imports_values_and_decisions_only(name: str) -> None:
    assert list(wrong_imports(MODULES[name])) == []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_the_kernel_touches_no_file(name: str) -> None:
    assert list(wrong_calls(MODULES[name])) == []


def test_the_kernel_is_whole() -> None:
    assert {"inbound", "outbound", "outbox", "startup", "adoption", "late_shards", "shard_registry"} <= MODULES.keys()
    assert not {"runtime", "executor", "storage", "remote_storage", "late_reports", "recovery"} & MODULES.keys()


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from threading import Lock",
        "import os.path",
        "from holdfast.store import report_log, staging",
        "from holdfast.store.metrics import MetricsWriter",
        "from holdfast.store.checkpoints import CheckpointStore",
        "from holdfast.engine.agent_link import Link",
        "from holdfast.wire.channel import Channel",
    ],
)
def test_what_is_not_a_value_is_found(source: str) -> None:
    assert list(wrong_imports(ast.parse(source)))


@pytest.mark.parametrize("source", ["open(p)", "self.run_dir.mkdir()", "report_log.read(path)", "log_path.exists()"])
def test_what_touches_a_file_is_found(source: str) -> None:
    assert list(wrong_calls(ast.parse(source)))
