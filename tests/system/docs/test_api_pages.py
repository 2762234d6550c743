"""The API pages name every public name, once, and each has a docstring to show."""

from __future__ import annotations

import importlib
import importlib.util
import re
from types import ModuleType
from typing import Any

import pytest

from support.docs.page_blocks import ROOT

_DIRECTIVE = re.compile(r"^::: (\S+)\n((?: +.*\n)*)", re.MULTILINE)


def _directives() -> list[tuple[str, list[str]]]:
    """What is shown, and of a module the members that are."""
    found = []
    for page in sorted((ROOT / "docs/api").glob("*.md")):
        for path, options in _DIRECTIVE.findall(page.read_text()):
            members = re.search(r"members: \[(.*)\]", options)
            found.append((path, members[1].split(", ") if members else []))
    return found


SHOWN = [path for path, _ in _directives()]
# Names of one module that another one offers as well, and what needs no page of its own.
ELSEWHERE = {"collective", "TRAIN_DATASET_KEY", "TuneContext", "holdfast.tune.report", "holdfast.tune.get_checkpoint"}


def _public(module: str) -> list[str]:
    return [name for name in importlib.import_module(module).__all__ if not {name, f"{module}.{name}"} & ELSEWHERE]


def _resolve(path: str) -> Any:
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for name in parts[cut:]:
            found = getattr(found, name)
        return found
    raise AssertionError(f"{path} cannot be imported")


@pytest.mark.parametrize(
    "module",
    [
        "holdfast.train",
        "holdfast.train.torch",
        "holdfast.data",
        "holdfast.tune",
        "holdfast.tune.schedulers",
        "holdfast.tune.search",
    ],
)
def test_every_public_name_has_its_place(module: str) -> None:
    paths = [*SHOWN, *(f"{path}.{name}" for path, members in _directives() for name in members)]
    shown = {id(_resolve(path)) for path in paths}
    assert [name for name in _public(module) if id(_resolve(f"{module}.{name}")) not in shown] == []


def test_every_parameter_has_a_text() -> None:
    hook = load_hook("parameters")
    used, missing = set(), []
    for name, thing in hook.shown().items():
        for parameter in hook.parameters(thing):
            used.add(parameter.name)
            if not hook.text(name, parameter.name):
                missing.append(f"{name}({parameter.name})")
    assert missing == [], "say what these are for, in docs/hooks/parameter_texts.py"
    assert set(hook.TEXTS.SHARED) - used == set()
    assert set(hook.TEXTS.OWN) - set(hook.shown()) == set()


def test_every_parameter_of_a_method_has_a_text() -> None:
    hook = load_hook("parameters")
    methods = hook.methods(hook.shown())
    assert len(methods) > 300
    used, missing, unused = set(), [], set(hook.METHOD_TEXTS.OWN)
    for name, function in methods.items():
        unused.discard(name)
        for parameter in hook.parameters_of_method(function):
            used.add(parameter.name)
            if not hook.text_of_method(name, parameter.name):
                missing.append(f"{name}({parameter.name})")
    assert missing == [], "say what these are for, in docs/hooks/method_texts.py"
    assert set(hook.METHOD_TEXTS.SHARED) - used == set()
    assert unused == set(), "no such method"


def load_hook(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / "hooks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_errors_are_all_there() -> None:
    errors = importlib.import_module("holdfast.errors")
    named = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert named - {path.rpartition(".")[2] for path in SHOWN} == set()


def test_nothing_is_shown_twice() -> None:
    assert sorted(SHOWN) == sorted(set(SHOWN))


@pytest.mark.parametrize("path", [path for path in SHOWN if path != "holdfast.tune.uniform"])  # its name says it
def test_it_says_what_it_is(path: str) -> None:
    text = _resolve(path).__doc__
    assert text, f"{path} has no docstring"
    assert not text.startswith(f"{path.rpartition('.')[2]}("), f"{path} has only the docstring that dataclasses make"
