"""Converts values of types that JSON lacks to JSON and back: tuples, sets, bytes, paths, times, enums, numpy's values.

A file cannot make this code import or run anything. A class of the user, such as an enum or a named tuple, is looked up
among the loaded modules, and used only if it is unchanged.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID

TYPE, VALUE = "__type__", "value"
_PLAIN = frozenset({str, int, float, bool, type(None)})
_MOST_ARRAY = 1 << 18  # bytes of an array that can be stored
_PATHS: dict[str, Callable[[str], PurePath]] = {
    "Path": Path,
    "PurePosixPath": PurePosixPath,
    "PureWindowsPath": PureWindowsPath,
}
_DTYPES = "biufcSUmM"  # numpy's kinds of types without objects


class UnknownTypeError(ValueError):
    """The class of a stored value is not loaded, or has changed."""


def to_json(value: Any, name: str = "value") -> Any:
    """The value as JSON, with its type. If a part cannot be stored, the TypeError shows the way to it from ``name``."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [to_json(item, f"{name}[{position}]") for position, item in enumerate(value)]
    if isinstance(value, Mapping):
        return _dict(value, name)
    return _typed(value, name)


def from_json(value: Any, unknown: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """The value from its JSON. If a class is not loaded, ``unknown`` makes a substitute; without it, this raises
    UnknownTypeError."""
    if isinstance(value, list):
        return [from_json(item, unknown) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get(TYPE)
    if kind is None:
        return {key: from_json(item, unknown) for key, item in value.items()}
    try:
        return _READERS[kind](value, unknown)
    except UnknownTypeError:
        if unknown is None:
            raise
        return unknown(value)
    except (KeyError, TypeError, ValueError) as error:
        if unknown is None:
            raise UnknownTypeError(f"not a stored value: {kind}: {error!r}") from None
        return unknown(value)


def shown(value: dict[str, Any]) -> Any:
    """A text for people about a value whose class is not loaded here."""
    if value.get(TYPE) == "enum":
        return f"{value['class'].rpartition(':')[2]}.{value[VALUE]}"
    content = value.get(VALUE)
    if "shape" in value:
        return f"array of shape {tuple(value['shape'])}"
    return tuple(from_json(content, shown)) if isinstance(content, list) else content


def _dict(value: Mapping[Any, Any], name: str) -> dict[str, Any]:
    if all(type(key) is str and not key.startswith("__") for key in value):
        return {key: to_json(item, f"{name}[{key!r}]") for key, item in value.items()}
    pairs = [[to_json(key, f"the key of {name}"), to_json(item, f"{name}[{key!r}]")] for key, item in value.items()]
    return {TYPE: "dict", VALUE: pairs}


def _typed(value: Any, name: str) -> Any:
    numpy = sys.modules.get("numpy")
    if isinstance(value, Enum) and type(value).__members__.get(value.name) is value:  # not a combination of flags
        return {TYPE: "enum", "class": _class_name(value, name), VALUE: value.name}
    if numpy is not None and isinstance(value, (numpy.generic, numpy.ndarray)):
        return _array(value, name)
    if isinstance(value, tuple):
        return describe_tuple(value, to_json(list(value), name), name)
    if isinstance(value, (set, frozenset)):
        items = sorted((to_json(item, name) for item in value), key=repr)
        return {TYPE: "frozenset" if isinstance(value, frozenset) else "set", VALUE: items}
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write(value)
    raise TypeError(f"{name} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be stored")


def _array(value: Any, name: str) -> dict[str, Any]:
    if value.dtype.kind not in _DTYPES or value.dtype.names is not None or value.nbytes > _MOST_ARRAY:
        raise TypeError(f"{name} is a numpy value of {value.dtype} and shape {value.shape}, which is not stored")
    if not value.shape and value.dtype.kind in "biuf" and value.nbytes <= 8:  # a number that JSON can hold exactly
        return {TYPE: "number", "dtype": value.dtype.str, VALUE: value.item()}
    content = {"dtype": value.dtype.str, VALUE: _text(value.tobytes())}
    return {TYPE: "ndarray", "shape": list(value.shape), **content} if value.shape else {TYPE: "numpy", **content}


def _read_array(value: dict[str, Any], _unknown: Any) -> Any:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        raise UnknownTypeError("an array is stored, and numpy is not loaded: import it")
    dtype = numpy.dtype(value["dtype"])
    if dtype.kind not in _DTYPES:
        raise ValueError(f"dtype {dtype}")
    if value[TYPE] == "number":
        return dtype.type(value[VALUE])
    flat = numpy.frombuffer(base64.b64decode(value[VALUE]), dtype)
    return flat[0] if value[TYPE] == "numpy" else flat.reshape(value["shape"]).copy()


def _class_name(value: Any, name: str) -> str:
    kind = type(value)
    found = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in found:
        raise TypeError(f"{name} is a {kind.__qualname__}, a class inside a function, which cannot be found again")
    return found


def _loaded(name: str) -> Any:
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise UnknownTypeError(f"the class {name} is not loaded")
    return found


def _read_enum(value: dict[str, Any], _unknown: Any) -> Any:
    kind = _loaded(value["class"])
    member = kind.__members__.get(value[VALUE]) if issubclass(kind, Enum) else None
    if member is None:
        raise UnknownTypeError(f"{value['class']} has no {value[VALUE]}")
    return member


def make_tuple(value: dict[str, Any], items: list[Any]) -> Any:
    """The tuple that ``value`` describes, plain or named, with these items in it."""
    if value[TYPE] == "tuple":
        return tuple(items)
    kind = _loaded(value["class"])
    if not issubclass(kind, tuple) or list(getattr(kind, "_fields", ())) != value["fields"]:
        raise UnknownTypeError(f"{value['class']} has other fields than {value['fields']}")
    return tuple.__new__(kind, items)


def describe_tuple(value: tuple[Any, ...], items: list[Any], name: str) -> dict[str, Any]:
    """The opposite of ``make_tuple``. The items are JSON already."""
    fields = getattr(value, "_fields", None)
    if fields is None:
        return {TYPE: "tuple", VALUE: items}
    return {TYPE: "namedtuple", "class": _class_name(value, name), "fields": list(fields), VALUE: items}


def _read_tuple(value: dict[str, Any], unknown: Any) -> Any:
    return make_tuple(value, from_json(value[VALUE], unknown))


def _path(value: PurePath) -> dict[str, Any]:
    return {TYPE: "path", "of": "Path" if isinstance(value, Path) else type(value).__name__, VALUE: str(value)}


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _writer(kind: str, write: Callable[[Any], Any] = str) -> Callable[[Any], dict[str, Any]]:
    return lambda value: {TYPE: kind, VALUE: write(value)}


_WRITERS: dict[type, Callable[[Any], Any]] = {  # a subclass of a plain type is stored as that type
    str: str.__str__,  # subclasses of plain types, with their class
    float: float,
    int: int,
    bytes: _writer("bytes", _text),
    bytearray: _writer("bytearray", lambda value: _text(bytes(value))),
    list: lambda value: to_json(list(value)),
    PurePath: _path,
    datetime: _writer("datetime", datetime.isoformat),
    date: _writer("date", date.isoformat),
    time: _writer("time", time.isoformat),
    timedelta: _writer("timedelta", lambda value: [value.days, value.seconds, value.microseconds]),
    complex: _writer("complex", lambda value: [value.real, value.imag]),
    Decimal: _writer("Decimal"),
    Fraction: _writer("Fraction"),
    UUID: _writer("UUID"),
    range: _writer("range", lambda value: [value.start, value.stop, value.step]),
}


def _reader(make: Callable[..., Any], many: bool = False) -> Callable[[dict[str, Any], Any], Any]:
    if many:
        return lambda value, _unknown: make(*value[VALUE])
    return lambda value, _unknown: make(value[VALUE])


def _items(make: Callable[[Any], Any]) -> Callable[[dict[str, Any], Any], Any]:
    return lambda value, unknown: make(from_json(value[VALUE], unknown))


_READERS: dict[str, Callable[[dict[str, Any], Any], Any]] = {
    "tuple": _read_tuple,
    "set": _items(set),
    "frozenset": _items(frozenset),
    "dict": _items(dict),
    "enum": _read_enum,
    "namedtuple": _read_tuple,
    "number": _read_array,
    "numpy": _read_array,
    "ndarray": _read_array,
    "bytes": _reader(base64.b64decode),
    "bytearray": _reader(lambda text: bytearray(base64.b64decode(text))),
    "path": lambda value, _unknown: _PATHS[value["of"]](value[VALUE]),
    "datetime": _reader(datetime.fromisoformat),
    "date": _reader(date.fromisoformat),
    "time": _reader(time.fromisoformat),
    "timedelta": _reader(timedelta, many=True),
    "complex": _reader(complex, many=True),
    "Decimal": _reader(Decimal),
    "Fraction": _reader(Fraction),
    "UUID": _reader(UUID),
    "range": _reader(range, many=True),
}
