"""The defaults of Ray's public functions and classes that are others here, read from Ray's sources.

``python -m support.compat.ray_defaults`` prints them. A default that Ray computes, or marks as deprecated, is passed
over, and so is a None of Ray's that means the value which is the default here.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any

from support.compat import ray_names

# By dotted name: the default here and in Ray, and why
DECIDED = {
    "train.v2.api.train_fn_utils.report(checkpoint_upload_mode)": "ASYNC: the moving guide has a line",
}
_ENUMS = ("CheckpointConsistencyMode", "CheckpointUploadMode", "ResumeType")


def differences() -> dict[str, str]:
    """By dotted name, Ray's default and the one here."""
    return {name: text for module, names in ray_names.marked().items() for name, text in _of_module(module, names)}


def _of_module(module: str, names: set[str]) -> Iterator[tuple[str, str]]:
    source = ray_names.source_of("ray", module)
    assert source is not None
    try:
        there = importlib.import_module(f"holdfast.{module}")
    except ImportError:
        return
    for node in ast.parse(source.read_text()).body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name not in names:
            continue
        ours, name = getattr(there, node.name, None), f"{module}.{node.name}"
        if isinstance(node, ast.FunctionDef) and ours is not None:
            yield from _of_call(name, node, ours)
        elif isinstance(node, ast.ClassDef) and ours is not None:
            yield from _of_class(name, node, ours)


def _of_class(name: str, node: ast.ClassDef, ours: Any) -> Iterator[tuple[str, str]]:
    for member in node.body:
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            yield from _of_call(name, member, ours)
        elif isinstance(member, ast.FunctionDef) and not member.name.startswith("_"):
            found = getattr(ours, member.name, None)
            if callable(found):
                yield from _of_call(f"{name}.{member.name}", member, found)
        elif isinstance(member, ast.AnnAssign) and member.value is not None and is_dataclass(ours):
            field = ast.unparse(member.target)
            yield from _compared(f"{name}({field})", member.value, _parameters(ours).get(field))


def _of_call(name: str, node: ast.FunctionDef, ours: Any) -> Iterator[tuple[str, str]]:
    positional = [*node.args.posonlyargs, *node.args.args]
    first = len(positional) - len(node.args.defaults)
    pairs = [*zip(positional[first:], node.args.defaults, strict=True)]
    pairs += [(one, value) for one, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if value]
    here = _parameters(ours)
    for argument, value in pairs:
        yield from _compared(f"{name}({argument.arg})", value, here.get(argument.arg))


def _compared(name: str, value: ast.expr, here: inspect.Parameter | None) -> Iterator[tuple[str, str]]:
    if here is None or here.kind in (here.VAR_POSITIONAL, here.VAR_KEYWORD):
        return  # that it is missing is told by ``ray_members``
    if here.default is here.empty:
        yield name, f"{ast.unparse(value)} there, required here"
        return
    text = ast.unparse(value)
    if isinstance(value, ast.Attribute) and text.partition(".")[0] in _ENUMS:
        if text != f"{type(here.default).__name__}.{getattr(here.default, 'name', '')}":
            yield name, f"{text} there, {here.default!r} here"
        return
    try:
        theirs = ast.literal_eval(value)
    except (ValueError, TypeError):
        return  # it is computed
    if theirs != here.default and not (theirs is None and "factory" in repr(here.default)):
        yield name, f"{theirs!r} there, {here.default!r} here"


def _parameters(ours: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(ours).parameters)
    except (TypeError, ValueError):
        return {}


if __name__ == "__main__":
    for each in sorted(differences().items()):
        print(*each, sep="\t")
