"""What each domain gives, what it takes for its own, and what mistakes in its arguments are answered with."""

from __future__ import annotations

import json
import math
import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune import search_space as tune

BOUND = st.floats(-1e6, 1e6)
SEED = st.integers(0, 2**32)


class Fixed:
    """A source whose numbers are known."""

    def __init__(self, *numbers: float) -> None:
        self.numbers = list(numbers)

    def random(self) -> float:
        return self.numbers.pop(0)


@st.composite
def domains(draw: st.DrawFn) -> tune.Domain:
    low, high = sorted((draw(BOUND), draw(BOUND)))
    start, width, q = draw(st.integers(-1000, 1000)), draw(st.integers(1, 1000)), draw(st.integers(1, 7))
    positive = abs(low) + 1e-3
    return draw(
        st.sampled_from(
            [
                tune.uniform(low, high),
                tune.quniform(start * 0.1, (start + width) * 0.1, 0.1),
                tune.loguniform(positive, positive * (1 + width)),
                tune.qloguniform(0.5, 0.5 * (1 + width), 0.5),
                tune.randint(start, start + width),
                tune.qrandint(start * q, (start + width) * q, q),
                tune.lograndint(abs(start) + 1, abs(start) + 1 + width),
                tune.qlograndint(q, q + width * q, q),
                tune.randn(low, width),
                tune.qrandn(low, width, 0.25),
                tune.choice([low, "text", None, (1, 2), {"a": [high]}]),
            ]
        )
    )


@settings(deadline=None)
@given(domains(), SEED)
def test_what_is_drawn_is_valid_and_the_same_for_the_same_seed(domain: tune.Domain, seed: int) -> None:
    values = domain.sample(size=20, random_state=seed)
    assert all(domain.is_valid(value) for value in values)
    assert values == domain.sample(size=20, random_state=seed)


@settings(deadline=None)
@given(domains())
def test_a_domain_survives_pickle_and_is_described_as_json(domain: tune.Domain) -> None:
    assert pickle.loads(pickle.dumps(domain)) == domain
    described = tune.describe(domain)
    assert json.loads(json.dumps(described, allow_nan=False)) == described
    assert described["domain"] == domain.kind


@pytest.mark.parametrize(
    ("domain", "numbers", "value"),
    [
        (tune.uniform(2, 4), [0.25], 2.5),
        (tune.quniform(0, 1, 0.1), [0.31], 0.3),
        (tune.loguniform(1e-4, 1), [0.5], 1e-2),
        (tune.qloguniform(1, 100, 1), [0.5], 10.0),
        (tune.randint(3, 7), [0.0], 3),
        (tune.randint(3, 7), [0.999999], 6),
        (tune.qrandint(10, 20, 5), [0.999999], 20),
        (tune.qrandint(9, 21, 5), [0.0], 10),
        (tune.qrandint(0, 4), [0.999999], 3),
        (tune.lograndint(1, 100), [0.5], 10),
        (tune.qlograndint(2, 200, 2), [0.0], 2),
        (tune.randn(10, 2), [1 - math.exp(-0.5), 0.0], 12.0),
        (tune.randn(10, 2), [1 - math.exp(-0.5), 0.5], 8.0),
        (tune.qrandn(0, 1, 0.5), [1 - math.exp(-0.5), 0.0], 1.0),
        (tune.choice(["a", "d"]), [0.5], "d"),
    ],
)
def test_hand_computed_draws(domain: tune.Domain, numbers: list[float], value: Any) -> None:
    assert domain.sample(random_state=Fixed(*numbers)) == pytest.approx(value)


def test_multiples_are_as_they_are_written() -> None:
    assert set(tune.quniform(0, 0.5, 0.1).sample(size=200, random_state=1)) == {0.0, 0.1, 0.2, 0.3, 0.4, 0.5}


def test_the_spread_of_what_is_drawn() -> None:
    counts = Counter(tune.qrandint(0, 20, 10).sample(size=3000, random_state=1))
    assert sorted(counts) == [0, 10, 20]
    assert all(900 < count < 1100 for count in counts.values())
    tens = Counter(int(math.log10(v)) for v in tune.lograndint(1, 1000).sample(size=3000, random_state=1))
    assert all(850 < tens[power] < 1150 for power in range(3))
    normal = tune.randn(5, 2).sample(size=4000, random_state=1)
    assert np.mean(normal) == pytest.approx(5, abs=0.1)
    assert np.std(normal) == pytest.approx(2, abs=0.1)


def test_a_known_seed_gives_known_values() -> None:
    """Replaying an old experiment must give the same values under a newer version."""
    source = random.Random(7)
    drawn = [domain.sample(random_state=source) for domain in (tune.uniform(0, 1), tune.randint(0, 1000), tune.randn())]
    assert drawn == pytest.approx([0.32383276483316237, 150, 1.3031666217102853])


@pytest.mark.parametrize(
    "source", [3, np.int64(3), random.Random(3), np.random.default_rng(3), np.random.RandomState(3)]
)
def test_sources_of_randomness(source: Any) -> None:
    value = tune.uniform(1, 2).sample(random_state=source)
    assert type(value) is float
    assert 1 <= value <= 2


def test_without_a_source_the_global_one_is_used() -> None:
    before = random.getstate()
    try:
        random.seed(5)
        value = tune.uniform(0, 1).sample()
        random.seed(5)
        assert value == random.random()
    finally:
        random.setstate(before)


def test_a_source_that_is_none() -> None:
    with pytest.raises(TypeError, match="random_state='x': pass an int"):
        tune.uniform(0, 1).sample(random_state="x")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("domain", "good", "bad"),
    [
        (tune.uniform(0, 1), [0, 0.5, 1, np.float32(0.5)], [-0.1, 1.1, "0.5", None, True, math.nan, math.inf]),
        (tune.quniform(0, 1, 0.1), [0.3, 0.1 * 3, 1.0], [0.25]),
        (tune.randint(1, 4), [1, 3, 3.0, np.int64(2)], [4, 0, 2.5, "2", True, math.nan]),
        (tune.qrandint(0, 10, 5), [0, 5, 10], [3, 15]),
        (tune.randn(), [-1e9, 0.1], [math.nan, math.inf, "x"]),
        (tune.choice([1, "a", None, [2]]), [1, "a", None, [2]], [2, "b"]),
        (tune.sample_from(lambda: 1), [1, "anything"], []),
    ],
)
def test_is_valid(domain: tune.Domain, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not domain.is_valid(value)] == []
    assert [value for value in bad if domain.is_valid(value)] == []


def test_a_choice_of_arrays_can_be_checked() -> None:
    array = np.arange(3)
    assert tune.choice([array]).is_valid(array)
    assert not tune.choice([array]).is_valid(np.arange(3) + 1)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: tune.uniform(2, 1), ValueError, r"uniform\(lower=2.0, upper=1.0\): lower must not be above upper"),
        (lambda: tune.uniform("1", 2), TypeError, r"uniform\(lower='1'\): pass a number"),
        (lambda: tune.uniform(0, math.inf), ValueError, r"uniform\(upper=inf\): pass a finite number"),
        (lambda: tune.uniform(0, True), TypeError, r"uniform\(upper=True\)"),
        (lambda: tune.quniform(0, 1, 0.3), ValueError, r"quniform\(upper=1.0, q=0.3\): the bounds must be multiples"),
        (lambda: tune.quniform(0, 1, 0), ValueError, r"quniform\(q=0.0\): must be greater than 0"),
        (lambda: tune.loguniform(0, 1), ValueError, r"loguniform\(lower=0.0\): must be greater than 0; .* logarithm"),
        (lambda: tune.lograndint(-4, -1), ValueError, r"lograndint\(lower=-4\)"),
        (lambda: tune.randint(3, 3), ValueError, r"randint\(lower=3, upper=3\): upper is not included"),
        (lambda: tune.randint(0, 2.5), ValueError, r"randint\(upper=2.5\): pass a whole number"),
        (lambda: tune.qrandint(6, 9, 5), ValueError, r"qrandint\(lower=6, upper=9\): no multiple of q"),
        (lambda: tune.qrandint(0, 9, -1), ValueError, r"qrandint\(q=-1\): must be greater than 0"),
        (lambda: tune.randn(0, 0), ValueError, r"randn\(sd=0\): must be greater than 0"),
        (lambda: tune.qrandn(0, 1, 0), ValueError, r"qrandn\(q=0\)"),
        (lambda: tune.choice([]), ValueError, r"choice\(categories=\[\]\): pass at least one"),
        (lambda: tune.choice("abc"), TypeError, r"choice\(categories='abc'\): pass a list"),
        (lambda: tune.choice({"a": 1}), TypeError, r"choice\(categories="),
        (lambda: tune.grid_search(5), TypeError, r"grid_search\(values=5\): pass a list"),
        (lambda: tune.grid_search([]), ValueError, r"grid_search\(values=\[\]\)"),
        (lambda: tune.sample_from(3), TypeError, r"sample_from\(func=3\): pass a function"),
        (lambda: tune.sample_from(math.atan2), ValueError, "callable with one argument or none"),
    ],
)
def test_mistakes_are_named(call: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_whole_numbers_may_be_written_as_floats() -> None:
    assert tune.randint(1, 1e4) == tune.Integer(1, 10_000)
    assert tune.randint(np.int64(1), np.float64(4)) == tune.Integer(1, 4)


def test_a_range_of_one_float_is_that_float() -> None:
    assert tune.uniform(0.3, 0.3).sample() == 0.3
    assert tune.loguniform(0.3, 0.3).sample() == 0.3


def test_the_base_of_a_logarithm_is_accepted_and_does_nothing() -> None:
    with pytest.warns(DeprecationWarning, match=r"loguniform\(base=2\): it changes nothing"):
        assert tune.loguniform(1, 8, 2) == tune.loguniform(1, 8)


def test_a_grid_is_written_as_in_a_file() -> None:
    assert tune.grid_search(x for x in (1, 2)) == {"grid_search": [1, 2]}


def test_functions_get_the_configuration_if_they_take_it() -> None:
    assert tune.sample_from(lambda config: config["a"] + 1).sample({"a": 1}) == 2
    assert tune.sample_from(lambda: 4).sample() == 4
    assert tune.sample_from(lambda config=None: config).sample({"a": 1}) == {"a": 1}
    assert tune.sample_from(dict).sample({"a": 1}) == {"a": 1}
