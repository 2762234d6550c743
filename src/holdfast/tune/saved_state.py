"""The state of a scheduler as plain data: for a file that can be read without running anything in it.

The scheduler's arguments are not in it: an equal one, created with the same arguments, loads the state. Objects are
recreated only from the schedulers' own classes, and from those in the modules of the scheduler's class.
"""

from __future__ import annotations

import random
import sys
from array import array
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from holdfast.store import values
from holdfast.tune.recorded import Recorded

_PLAIN = (str, int, float, bool, type(None))
_NOT_STATE = ("made_with", "_unused")
_TAG, _OBJECT = "is", "object"
_OWN = ("holdfast.tune.schedulers.", "holdfast.core.experiment.scheduler_requests")


def save(scheduler: Recorded, path: str) -> None:
    Path(path).write_bytes(values.encode(state_of(scheduler)))


def restore(scheduler: Recorded, path: str) -> None:
    take_state(scheduler, values.decode(Path(path).read_bytes()))


def state_of(scheduler: Recorded) -> dict[str, Any]:
    """The state as plain data: everything that has changed since the scheduler was created. TypeError if something
    cannot be stored."""
    made = type(scheduler)(**(scheduler.made_with or {})).__dict__
    writer = _Writer(_classes_of(scheduler))
    state = {}
    for name, value in scheduler.__dict__.items():
        if name in _NOT_STATE:
            continue
        if isinstance(value, Recorded):
            state[name] = {_TAG: "inner", "state": state_of(value)}
        elif name not in made or not _is_same(made[name], value):
            state[name] = writer.plain(value, f"{type(scheduler).__name__}.{name}")
    return state


def take_state(scheduler: Recorded, state: Mapping[str, Any]) -> None:
    """Load the state. ValueError, without any change, if another scheduler saved it."""
    reader = _Reader(_classes_of(scheduler))
    inner = {name: item for name, item in state.items() if isinstance(item, Mapping) and item.get(_TAG) == "inner"}
    own = {name: reader.value(item) for name, item in state.items() if name not in inner}
    for name, item in inner.items():
        found = scheduler.__dict__.get(name)
        if not isinstance(found, Recorded):
            raise ValueError(
                f"the state was saved by another scheduler than this {type(scheduler).__name__}: it has {name!r}"
            )
        take_state(found, item["state"])
    scheduler.__dict__.update(own)


def _is_same(one: Any, other: Any) -> bool:
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:  # arrays and others that compare by element
        return False


def _classes_of(scheduler: Recorded) -> dict[str, type]:
    modules = {name for name in sys.modules if name.startswith(_OWN)}
    modules |= {kind.__module__ for kind in type(scheduler).__mro__ if kind is not object}
    found = {}
    for name in sorted(modules):
        for kind in vars(sys.modules[name]).values():
            if isinstance(kind, type) and kind.__module__ == name:
                found[f"{name}.{kind.__qualname__}"] = kind
    return found


class _Writer:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._known: dict[int, tuple[int, Any]] = {}  # by identity: the number of an object, and itself to keep it

    def plain(self, value: Any, where: str) -> Any:
        if isinstance(value, _PLAIN) and type(value) in _PLAIN:
            return value
        if type(value) is list:
            return [self.plain(item, where) for item in value]
        if isinstance(value, random.Random):
            return {_TAG: "random", "items": self.plain(value.getstate(), where)}
        if isinstance(value, dict):
            return {_TAG: "dict", "items": [[self.plain(k, where), self.plain(v, where)] for k, v in value.items()]}
        if type(value) in (tuple, set, frozenset):
            return {_TAG: type(value).__name__, "items": [self.plain(item, where) for item in value]}
        if isinstance(value, deque):
            return {_TAG: "deque", "items": [self.plain(item, where) for item in value], "most": value.maxlen}
        if isinstance(value, array):
            return {_TAG: "array", "items": list(value), "of": value.typecode}
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Any:
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        if self._classes.get(name) is not type(value):
            raise TypeError(f"{where} holds {value!r:.100}, which cannot be stored: leave it out in get_state()")
        if isinstance(value, (tuple, Struct)):  # a NamedTuple, or a value that cannot be changed either
            items = value if isinstance(value, tuple) else structs.astuple(value)
            return {_TAG: "named", "class": name, "items": [self.plain(item, where) for item in items]}
        if id(value) in self._known:
            return {_TAG: _OBJECT, "number": self._known[id(value)][0]}
        number = len(self._known)
        self._known[id(value)] = number, value
        attributes = {key: self.plain(item, f"{where}.{key}") for key, item in _attributes(value).items()}
        return {_TAG: _OBJECT, "number": number, "class": name, "state": attributes}


class _Reader:
    def __init__(self, classes: Mapping[str, type]) -> None:
        self._classes = classes
        self._made: dict[int, Any] = {}

    def value(self, item: Any) -> Any:
        if isinstance(item, list):
            return [self.value(inner) for inner in item]
        if not isinstance(item, Mapping):
            return item
        kind = item.get(_TAG)
        if kind == _OBJECT:
            return self._object(item)
        items = [self.value(inner) for inner in item.get("items", ())]
        if kind == "dict":
            return dict(items)
        if kind == "deque":
            return deque(items, maxlen=item["most"])
        if kind == "array":
            return array(item["of"], items)
        if kind == "named":
            return self._class(item["class"])(*items)
        if kind == "random":
            generator = random.Random()
            version, inner, gauss = self.value(item["items"])
            generator.setstate((version, tuple(inner), gauss))
            return generator
        return {"tuple": tuple, "set": set, "frozenset": frozenset}[str(kind)](items)

    def _object(self, item: Mapping[str, Any]) -> Any:
        number = item["number"]
        if "class" in item:
            kind = self._class(item["class"])
            self._made[number] = made = kind.__new__(kind)
            for name, inner in item["state"].items():
                object.__setattr__(made, name, self.value(inner))
        return self._made[number]

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            raise ValueError(f"the state has an object of {name!r}, which is not a class of this scheduler")
        return self._classes[name]


def _attributes(value: Any) -> dict[str, Any]:
    slots = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ()) if hasattr(value, name)]
    return {**{name: getattr(value, name) for name in slots}, **getattr(value, "__dict__", {})}
