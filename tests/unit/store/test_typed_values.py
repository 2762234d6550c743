"""Values that JSON does not hold come back with their types, and nothing is run on the word of a file."""

from __future__ import annotations

import enum
import json
import math
import sys
from collections import namedtuple
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from uuid import UUID

import numpy
import pytest

from holdfast.store.typed_values import UnknownTypeError, from_json, shown, to_json


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Letters(enum.Flag):
    A = 1
    B = 2


class Layer(NamedTuple):
    units: int
    rate: float


Point = namedtuple("Point", "x y")

VALUES: list[Any] = [
    None,
    True,
    0,
    -1.5,
    "text",
    [1, [2.0, "x"]],
    {"a": {"b": 1}},
    (),
    (1, (2, [3])),
    {"nested": [(1, 2), {"x": (3,)}]},
    {1: "one", "two": 2, (1, 2): (3, 4)},
    {"__type__": "tuple", "value": [1]},
    {1, 2, 3},
    frozenset({"a"}),
    b"\x00\xff",
    bytearray(b"ab"),
    Path("/data/x"),
    PurePosixPath("a/b"),
    datetime(2026, 11, 17, 23, 0, 1, 5),
    datetime(2026, 11, 17, tzinfo=timezone.utc),
    date(2026, 11, 17),
    time(23, 1),
    timedelta(days=-1, seconds=3, microseconds=7),
    complex(1, -2),
    Decimal("1.10"),
    Fraction(1, 3),
    UUID(int=5),
    range(1, 9, 2),
    Size.LARGE,
    Letters.A,
    Layer(8, 0.1),
    (Layer(8, 0.1), Point(1, Size.SMALL)),
    numpy.float32(0.1),
    numpy.float64(0.1),
    numpy.int64(7),
    numpy.bool_(True),
    numpy.str_("x"),
    numpy.datetime64("2026-11-17"),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_with_their_types(value: Any) -> None:
    again = from_json(json.loads(json.dumps(to_json(value))))
    assert again == value
    assert _types(again) == _types(value)


def _types(value: Any) -> Any:
    if isinstance(value, dict):
        return [(type(key), _types(item)) for key, item in value.items()]
    return type(value), [_types(item) for item in value] if isinstance(value, (list, tuple)) else None


@pytest.mark.parametrize("dtype", ["int8", "float32", "float64", "bool", "complex64", "U3", "datetime64[s]"])
@pytest.mark.parametrize("shape", [(0,), (3,), (2, 3), (1, 1, 1)])
def test_arrays_come_back(dtype: str, shape: tuple[int, ...]) -> None:
    array = numpy.arange(math.prod(shape)).reshape(shape).astype(dtype)
    again = from_json(json.loads(json.dumps(to_json(array))))
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert (again == array).all()
    assert again.flags.writeable


def local_class() -> Any:
    class Local(enum.Enum):
        A = 1

    return Local.A


@pytest.mark.parametrize(
    "value",
    [object(), print, Size, local_class(), Letters.A | Letters.B, numpy.array([object()]), numpy.zeros(100_000)],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_stored_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"config\['a'\]\[1\]"):
        to_json({"a": [0, value]}, "config")


@pytest.mark.parametrize("stored", [to_json(Size.LARGE), to_json(Layer(1, 2.0)), [to_json(Layer(1, 2.0))]])
def test_a_class_that_is_not_loaded_is_not_imported(stored: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, __name__)
    with pytest.raises(UnknownTypeError, match="not loaded"):
        from_json(stored)
    assert __name__ not in sys.modules
    assert from_json(stored, shown) in ("Size.LARGE", (1, 2.0), [(1, 2.0)])


@pytest.mark.parametrize(
    "stored",
    [
        {"__type__": "enum", "class": "os:system", "value": "x"},
        {"__type__": "enum", "class": "os:_Environ", "value": "x"},
        {"__type__": "namedtuple", "class": "subprocess:Popen", "fields": [], "value": ["true"]},
        {"__type__": "namedtuple", "class": f"{__name__}:Layer", "fields": ["units"], "value": [1]},
        {"__type__": "ndarray", "dtype": "O", "shape": [1], "value": "AAAAAAAAAAA="},
        {"__type__": "unheard of", "value": 1},
        {"__type__": "Decimal", "value": []},
        {"__type__": "tuple"},
    ],
    ids=str,
)
def test_a_file_cannot_have_anything_else_made(stored: Any) -> None:
    with pytest.raises(UnknownTypeError):
        from_json(stored)
