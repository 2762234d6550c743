"""Names of nested values, and what counts as a number."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.metric_names import flat_items, lookup, metric_number, number

KEYS = st.text("ab", min_size=1, max_size=2)
NESTED = st.recursive(st.integers(), lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)


@given(st.dictionaries(KEYS, NESTED, max_size=4))
def test_every_value_is_found_by_its_name(tree: dict[str, Any]) -> None:
    for name, value in flat_items(tree):
        assert lookup(tree, name) == value


def test_a_name_that_is_nowhere_gives_the_default() -> None:
    assert lookup({"a": {"b": 1}}, "a/c") is None
    assert lookup({"a": 1}, "a/b", default=3) == 3
    assert lookup({"a": {"b/c": 1}, "a/b": {"d": 2}}, "a/b/c") == 1
    assert lookup({"a": {"b/c": 1}, "a/b": {"d": 2}}, "a/b/d") == 2


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1, 1.0),
        (numpy.float32(0.5), 0.5),
        (numpy.array([2]), 2.0),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        (True, None),
        (numpy.bool_(True), None),
        ("1", None),
        (None, None),
        (numpy.array([1, 2]), None),
        ([1], None),
    ],
)
def test_what_is_a_number(value: Any, expected: float | None) -> None:
    assert number(value) == expected


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_a_number_but_cannot_be_compared(value: float) -> None:
    assert repr(number(value)) == repr(value)
    assert metric_number({"loss": value}, "loss") is None


def test_a_metric_may_be_nested() -> None:
    assert metric_number({"eval": {"loss": 2}}, "eval/loss") == 2.0
