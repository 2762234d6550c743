"""A table of parameters below the docstring of every public class, function and method, on the API pages.

An extension of griffe, which reads the code for mkdocstrings. The texts are in ``parameter_texts.py``, those of methods
in ``method_texts.py``.
"""

from __future__ import annotations

import enum
import importlib
import importlib.util
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import griffe

HERE = Path(__file__).resolve().parent
_DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)


_HIDDEN = re.compile(r"^(_|test_|(from_history|held|mark|move_to|to_dict|use_clock)$)")  # as in mkdocs.yml, and tests


def _texts(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TEXTS, METHOD_TEXTS = _texts("parameter_texts"), _texts("method_texts")


def shown(pages: Path = HERE.parent / "api") -> dict[str, Any]:
    """What the API pages show, by the name under which they do."""
    found = {}
    for page in sorted(pages.glob("*.md")):
        for path, options in _DIRECTIVE.findall(page.read_text(encoding="utf-8")):
            members = re.search(r"members: \[(.*)\]", options)
            for name in [f"{path}.{member}" for member in members[1].split(", ")] if members else [path]:
                found[name] = resolve(name)
    return found


def resolve(path: str) -> Any:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise ValueError(f"{path} cannot be imported")


def parameters(thing: Any) -> list[inspect.Parameter]:
    """Those that a user may pass. An enum, an error and a protocol have none."""
    if not callable(thing) or inspect.ismodule(thing):
        return []
    if isinstance(thing, type) and (
        issubclass(thing, (BaseException, enum.Enum)) or getattr(thing, "_is_protocol", False)
    ):
        return []
    try:
        found = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter for parameter in found if not parameter.name.startswith("_")]


def text(name: str, parameter: str) -> str | None:
    return TEXTS.OWN.get(name, {}).get(parameter) or TEXTS.SHARED.get(parameter)


def methods(named: dict[str, Any]) -> dict[str, Any]:
    """The methods that the classes among them have themselves, by their names on the pages."""
    found: dict[str, Any] = {}
    for name, thing in named.items():
        for method, value in vars(thing).items() if isinstance(thing, type) else ():
            function = getattr(value, "__func__", value)
            if inspect.isfunction(function) and not _HIDDEN.match(method):
                found[f"{name}.{method}"] = function
    return found


def parameters_of_method(function: Any) -> list[inspect.Parameter]:
    return [parameter for parameter in parameters(function) if parameter.name not in ("self", "cls")]


def text_of_method(name: str, parameter: str) -> str | None:
    own = METHOD_TEXTS.OWN.get(name, {}).get(parameter)
    return own or METHOD_TEXTS.SHARED.get(parameter) or TEXTS.SHARED.get(parameter)


def table(rows: list[tuple[inspect.Parameter, str | None]]) -> str:
    lines = []
    for parameter, said in rows:
        stars = {parameter.VAR_POSITIONAL: r"\*", parameter.VAR_KEYWORD: r"\*\*"}.get(parameter.kind, "")
        lines.append(f"| {stars}`{parameter.name}` | {_default(parameter)} | {said or ''} |\n")
    return "\n\n| Parameter | Default | Description |\n|---|---|---|\n" + "".join(lines) if lines else ""


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return "" if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) else "required"
    value = parameter.default.name if isinstance(parameter.default, enum.Enum) else repr(parameter.default)
    return "" if value.startswith("<") or len(value) > 30 else f"`{value}`"


class Parameters(griffe.Extension):
    """Adds the tables to the docstrings."""

    def __init__(self) -> None:
        super().__init__()
        sys.path.insert(0, str(HERE.parent.parent / "src"))
        named = shown()
        self._tables = {
            f"{thing.__module__}.{thing.__qualname__}": table(
                [(one, text(name, one.name)) for one in parameters(thing)]
            )
            for name, thing in named.items()
            if parameters(thing)
        }
        for name, function in methods(named).items():
            rows = [(one, text_of_method(name, one.name)) for one in parameters_of_method(function)]
            self._tables[f"{function.__module__}.{function.__qualname__}"] = table(rows)

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        added = self._tables.get(obj.path)
        if added and (obj.is_class or obj.is_function):
            if obj.docstring is None:
                obj.docstring = griffe.Docstring("", parent=obj)
            if added not in obj.docstring.value:
                obj.docstring.value = obj.docstring.value.rstrip() + added
