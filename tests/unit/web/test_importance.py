"""The estimate of a parameter's importance: it finds what matters, whatever its scale, and nothing in noise."""

from __future__ import annotations

import random

import pytest

from holdfast.web.importance import importances


@pytest.mark.parametrize("seed", range(20))
def test_the_parameter_that_decides_comes_first(seed: int) -> None:
    rng = random.Random(seed)
    params = [{"noise": rng.random(), "lr": 10 ** rng.uniform(-5, 0), "act": rng.choice("abc")} for _ in range(300)]
    results = [each["lr"] * 1e6 + rng.gauss(0, 1) for each in params]
    found = importances(params, results)
    assert found[0][0] == "lr"
    assert found[0][1] > 0.9
    assert all(value < 0.1 for name, value in found if name != "lr")


def test_a_curved_dependence_counts_too() -> None:
    rng = random.Random(1)
    params = [{"x": rng.uniform(-1, 1)} for _ in range(500)]
    assert importances(params, [each["x"] ** 2 for each in params])[0][1] > 0.9


def test_words_missing_values_and_one_value_are_taken() -> None:
    params = [{"act": "a" if n % 2 else "b", "same": 1, **({"rare": n} if n < 3 else {})} for n in range(20)]
    found = dict(importances(params, [float(n % 2) for n in range(20)]))
    assert found["act"] == pytest.approx(1)
    assert found["same"] == 0
    assert importances([{"x": 1}], [1.0]) == []


def test_a_few_trials_with_values_of_their_own_explain_little() -> None:
    rng = random.Random(3)
    found = []
    for _ in range(50):
        params = [{"lr": rng.random()} for _ in range(6)]
        found.append(importances(params, [rng.random() for _ in params])[0][1])
    assert sum(found) / len(found) < 0.3
