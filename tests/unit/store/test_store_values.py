from __future__ import annotations

import contextlib
import enum
import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.store import values

np = pytest.importorskip("numpy")
torch = pytest.importorskip("torch")

text = st.text(st.characters(), max_size=8) | st.text(st.characters(categories=["Cs", "Lu"]), max_size=3)
text |= st.sampled_from(["$float", "$dict", "$", "a$"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | text | st.binary(max_size=8)
scalars |= st.integers(min_value=-(2**200), max_value=2**200)
anything = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(scalars, inner, max_size=4),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and type, with NaN the same as NaN and 0.0 not the same as -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=True)
        return len(a) == len(b) and all(same(k, m) and same(v, w) for (k, v), (m, w) in pairs)
    return bool(a == b)


def refuse_literal(name: str) -> None:
    raise AssertionError(f"{name} is not strict JSON")


@settings(max_examples=400, deadline=None)
@given(anything)
@example({float("nan"): 1, float("inf") - float("inf"): 2})
def test_everything_comes_back_as_it_was(value: Any) -> None:
    data = values.encode(value)
    json.loads(data, parse_constant=refuse_literal)
    assert b"\n" not in data
    assert same(values.decode(data), value)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_bytes_that_were_not_encoded_are_a_value_error_at_most(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        values.decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b'{"$float":"1.5"}',
        b'{"$float":[]}',
        b'{"$float":"nan","a":1}',
        b'{"$new":1}',
        b'{"$dict":[[[],1]]}',
        b'{"$dict":[1]}',
        b'{"$bytes":"?"}',
        b'{"$int":"1.0"}',
        b"[" * 100_000,
    ],
)
def test_malformed_tags_are_value_errors(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a stored value"):
        values.decode(data)


class Colour(str, enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    BIG = 3


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (np.float32(0.5), 0.5),
        (np.float64("nan"), math.nan),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[7]]), 7),
        (np.str_("a"), "a"),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (torch.tensor([2]), 2),
        (torch.tensor(True), True),
        (torch.tensor(-math.inf), -math.inf),
        (Colour.RED, "red"),
        (Size.BIG, 3),
        ((1, (2,)), [1, [2]]),
        (bytearray(b"x"), b"x"),
        ({"loss": torch.tensor(1.0), "n": [np.int8(1)]}, {"loss": 1.0, "n": [1]}),
    ],
)
def test_scalars_of_numpy_and_torch_become_plain(given: Any, stored: Any) -> None:
    assert same(values.decode(values.encode(given)), stored)


@pytest.mark.parametrize("given", [{1, 2}, 1j, np.complex128(1j), {(1, 2): 1}, datetime(2026, 11, 17), Path("/x")])
def test_what_typed_values_knows_comes_back(given: Any) -> None:
    again = values.decode(values.encode({"a": given}))["a"]
    assert again == given
    assert type(again) is type(given)


@pytest.mark.parametrize("given", [np.arange(6.0).reshape(2, 3), np.zeros(0), torch.ones(2, 3)])
def test_small_arrays_come_back(given: Any) -> None:
    again = values.decode(values.encode(given))
    assert np.array_equal(np.asarray(again), np.asarray(given))


def test_a_text_takes_the_place_of_what_cannot_be_stored() -> None:
    value = {"a": [object(), print], "b": {"c": 1, (1,): math.nan}, "d": np.zeros(99_999)}
    text = values.as_text(value)
    assert text["a"] == ["<builtins.object>", "<built-in function print>"]
    assert text["b"]["c"] == 1
    values.encode(text)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (
            {"a": {"b": torch.zeros(999, 999)}},
            r"metrics\['a'\]\['b'\] is a torch.Tensor of shape \(999, 999\); report numbers",
        ),
        ({"a": [0, np.zeros(99_999)]}, r"metrics\['a'\]\[1\] is a numpy.ndarray of shape \(99999,\)"),
        ({"a": {object()}}, r"metrics\['a'\] is a builtins.set"),
        ({(1, object()): 1}, r"the key of metrics\[\(1, <object"),
        (object(), r"metrics is a builtins.object"),
    ],
)
def test_what_cannot_be_stored_is_named_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(TypeError, match=path):
        values.encode(value, "metrics")


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    with pytest.raises(ValueError, match="metrics is nested too deeply or contains itself"):
        values.encode(loop, "metrics")
    loop["nan"] = math.nan
    with pytest.raises(ValueError, match="contains itself"):
        values.encode({1: loop}, "metrics")
