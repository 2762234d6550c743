"""A module's name and a public class's name say which one is meant; a question changes nothing; files are short."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import holdfast

SRC = Path(holdfast.__file__).parent
# Paths from which scripts for Ray import. One that only hands on the names of another module defines none of its own.
PUBLIC_MODULES = {
    "constants": "of air, train and tune",
    "context": "of train and tune",
    "keras": "of train.tensorflow and tune.integration",
    "result": "of train and tune",
}
PUBLIC_CLASSES = {
    "Trial": "what callbacks see of a trial has the name that Ray gives it",
    "TuneReportCallback": "each framework's own, under the name that Ray gives them all",
}
# Two cores of the same shape: imports say ``core.run`` or ``core.experiment``, and the driver's effects have the names
# of the commands that they carry out, on purpose.
SAME_SHAPE = ("core/run/", "core/experiment/", "driver/effects.py")
# What a core tells or hears, and the message that carries it to a node or from there, have one name.
CARRIED = {"DumpStacks", "Gather", "Recall", "Recalled", "StagedLost", "StartStandby", "Upload"}


def paths() -> list[Path]:
    return [path for path in sorted(SRC.rglob("*.py")) if path.stem not in ("__init__", "__main__")]


def doubles(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """Names that several modules have, of which at most one is of those with the same shape."""
    same = {name: (*SAME_SHAPE, "wire/") if name in CARRIED else SAME_SHAPE for name in found}
    rest = {name: [where for where in places if not where.startswith(same[name])] for name, places in found.items()}
    return {name: found[name] for name, places in rest.items() if len(places) > 1 or (places and len(found[name]) > 1)}


def hands_on_names_only(tree: ast.Module) -> bool:
    own = [node for node in tree.body if not isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)]
    return all(isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" for node in own)


def modules() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        if hands_on_names_only(ast.parse(path.read_text())):
            continue
        found[path.stem].append(path.relative_to(SRC).as_posix())
    return doubles(found)


def all_classes() -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in paths():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path.relative_to(SRC).as_posix())
    return found


def classes() -> dict[str, list[str]]:
    return doubles(all_classes())


def test_module_names_are_unique() -> None:
    assert modules().keys() == PUBLIC_MODULES.keys(), modules()


def test_names_of_public_classes_are_unique() -> None:
    assert classes().keys() == PUBLIC_CLASSES.keys(), classes()


def test_what_is_carried_is_the_cores_and_a_message() -> None:
    defined = {name: {where.split("/")[0] for where in places} for name, places in all_classes().items()}
    assert {name for name in CARRIED if not {"core", "wire"} <= defined[name]} == set()


def test_only_the_platform_looks_at_processes() -> None:
    """What is in /proc is asked of ``platform/``."""
    exceptions = {"store/lease.py", "cli/diagnosis_machine.py"}  # locks of open files; the machine's own figures
    found = {
        path.relative_to(SRC).as_posix()
        for path in sorted(SRC.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("/proc")
    }
    assert {name for name in found if not name.startswith("platform/")} <= exceptions


ASKS = ("is_", "has_", "are_", "was_", "were_", "had_", "needs_", "can_", "may_")
MUTATORS = {
    *("append", "appendleft", "add", "discard", "pop", "popleft", "popitem", "clear", "remove", "update", "setdefault"),
    *("extend", "insert", "sort", "reverse", "put", "send", "emit", "order", "tell", "set"),
}
TURN = ast.parse((SRC / "core/run/turn.py").read_text())
MUTATORS_OF_TURN = {
    node.name
    for node in ast.walk(TURN)
    if isinstance(node, ast.FunctionDef) and not node.name.startswith((*ASKS, "find_", "__"))
}


def root(node: ast.expr) -> str:
    """The name that an attribute or an item is looked up from; empty for the result of a call."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def own_values(function: ast.FunctionDef) -> set[str]:
    """The names of what a function makes for itself: to change that changes nothing outside."""
    made: dict[str, bool] = {}
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                made[name] = made.get(name, True) and not isinstance(value, ast.Attribute | ast.Subscript | ast.Name)
    return {name for name, is_own in made.items() if is_own}


def changes(function: ast.FunctionDef, verbs: frozenset[str] = frozenset()) -> bool:
    """Whether a function changes anything but what it makes for itself. ``verbs``: methods of its class that do."""
    own = own_values(function)
    for node in ast.walk(function):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()) | ast.Subscript(ctx=ast.Store() | ast.Del()):
                if root(node) not in own:
                    return True
            case ast.Global() | ast.Nonlocal():
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=attr)) if attr in verbs:
                return True
            case ast.Call(func=ast.Attribute(value=ast.Name(id="turn"), attr=attr)) if attr in MUTATORS_OF_TURN:
                return True
            case ast.Call(func=ast.Attribute(value=changed, attr=attr)) if attr in MUTATORS:
                if root(changed) and root(changed) not in own:
                    return True
    return False


def answers_that_change(tree: ast.Module) -> list[str]:
    """Functions and methods that are named as questions, and change something, themselves or through their class."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    methods = [[one for one in of.body if isinstance(one, ast.FunctionDef)] for of in classes]
    asked = lambda function: function.name.lstrip("_").startswith(ASKS)  # noqa: E731
    found = [one.name for one in tree.body if isinstance(one, ast.FunctionDef) if asked(one) and changes(one)]
    for of in methods:
        verbs: frozenset[str] = frozenset()
        while (more := frozenset(one.name for one in of if changes(one, verbs))) != verbs:
            verbs = more
        found += [one.name for one in of if asked(one) and one.name in verbs]
    return found


def test_what_is_called_is_or_has_only_asks() -> None:
    found = {path.relative_to(SRC).as_posix(): answers_that_change(ast.parse(path.read_text())) for path in paths()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    "body",
    [
        "self.count = 1",
        "self._known[part] = 1",
        "del self._known[part]",
        "part.engine.wants = True",
        "self._shares.get(part, {}); self._known.get(part).wanted.add(1); self.put(part)",
        "mine = self._known; mine.add(part)",
        "self._engine.state.update(part)",
        "turn.do(part)",
        "turn.change_attempt(given_up=part)",
        "self.drop(part)",
        "global known; known = part",
    ],
)
def test_what_changes_something_is_found(body: str) -> None:
    drop = "    def drop(self, part): self._known.pop(part)"
    question = f"    def is_part(self, part, turn):\n        {body}"
    assert answers_that_change(ast.parse(f"class Nodes:\n{drop}\n{question}")) == ["is_part"]


@pytest.mark.parametrize(
    "body",
    [
        "rest = []; rest.append(part); return rest",
        "found = self._known[part]; return found in self._known",
        "counts = dict(part); counts[1] = 2; return counts",
        "return turn.find_pending(part)",
        "count = self.count; count += 1; return count",
    ],
)
def test_a_question_may_work_on_what_it_made(body: str) -> None:
    assert answers_that_change(ast.parse(f"def is_part(self, part, turn):\n    {body}")) == []


def test_no_file_is_too_long_to_read_at_once() -> None:
    assert [path.relative_to(SRC).as_posix() for path in paths() if len(path.read_text().splitlines()) >= 400] == []
