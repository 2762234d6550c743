"""Which configurations come out of a space, and in which order."""

from __future__ import annotations

import copy
import itertools
import json
import math
import pickle
from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.tune import search_space as tune

Pair = namedtuple("Pair", "first second")


def configs(space: Any, num_samples: int = 1, **options: Any) -> list[dict[str, Any]]:
    return [variant.config for variant in tune.generate(space, num_samples, random_state=0, **options)]


def test_grids_combine_sorted_by_path_and_the_first_varies_fastest() -> None:
    space = {"b": tune.grid_search([1, 2]), "a": tune.grid_search(["x", "y", "z"]), "c": 7}
    assert [(c["a"], c["b"]) for c in configs(space)] == [("x", 1), ("y", 1), ("z", 1), ("x", 2), ("y", 2), ("z", 2)]
    assert all(list(c) == ["b", "a", "c"] for c in configs(space))


def test_every_sample_goes_through_the_whole_grid() -> None:
    space = {"g": tune.grid_search([1, 2]), "x": tune.uniform(0, 1)}
    found = configs(space, 3)
    assert [c["g"] for c in found] == [1, 2, 1, 2, 1, 2]
    assert len({c["x"] for c in found}) == 6


def test_a_constant_grid_draws_once_for_each_sample() -> None:
    space = {
        "x": tune.uniform(0, 1),
        "of_grid": tune.sample_from(lambda config: config["g"] * 10),
        "of_both": tune.sample_from(lambda config: config["of_grid"] + config["x"]),
        "g": tune.grid_search([1, 2]),
        "inner": {"h": tune.grid_search([7])},
        "of_inner": tune.sample_from(lambda config: config["inner"]),
    }
    found = configs(space, 2, constant_grid_search=True)
    assert [c["g"] for c in found] == [1, 2, 1, 2]
    assert found[0]["x"] == found[1]["x"] != found[2]["x"] == found[3]["x"]
    assert all(c["of_both"] == c["g"] * 10 + c["x"] for c in found)
    assert all(c["of_inner"] == {"h": 7} for c in found)


def test_values_are_found_in_dicts_lists_and_tuples_at_any_depth() -> None:
    space = {
        "model": {"layers": [tune.randint(1, 2), {"size": tune.choice([8])}], "pair": (1, tune.uniform(3, 3))},
        "named": Pair(tune.choice(["a"]), 2),
        "constant": {"empty": {}, "list": [], "none": None},
    }
    (found,) = configs(space)
    assert found == {
        "model": {"layers": [1, {"size": 8}], "pair": (1, 3.0)},
        "named": Pair("a", 2),
        "constant": {"empty": {}, "list": [], "none": None},
    }
    assert type(found["named"]) is Pair


def test_variants_share_no_container_with_the_space_or_each_other() -> None:
    leaf = object()
    space = {"list": [1], "of_choice": tune.choice([{"inner": [1]}]), "leaf": leaf}
    before = copy.deepcopy({k: space[k] for k in ("list", "of_choice")})
    first, second = configs(space, 2)
    first["list"].append(2)
    first["of_choice"]["inner"].append(2)
    assert {k: space[k] for k in before} == before
    assert second["list"] == [1]
    assert second["of_choice"] == {"inner": [1]}
    assert first["leaf"] is leaf


def test_a_space_without_anything_to_draw_is_one_variant_a_sample() -> None:
    assert configs({}) == [{}]
    assert configs({"a": 1}, 2) == [{"a": 1}, {"a": 1}]


def test_spaces_within_choices_and_grids() -> None:
    space = {
        "opt": tune.grid_search([{"name": "sgd", "momentum": tune.grid_search([0.8, 0.9])}, {"name": "adam"}]),
        "net": tune.choice([{"depth": tune.choice([tune.choice([3])])}]),
    }
    assert [c["opt"] for c in configs(space)] == [
        {"name": "sgd", "momentum": 0.8},
        {"name": "sgd", "momentum": 0.9},
        {"name": "adam"},
    ]
    assert all(c["net"] == {"depth": 3} for c in configs(space))
    assert tune.count_variants(space, 2) == 6


def test_a_grid_may_come_out_of_a_choice() -> None:
    assert configs({"a": tune.choice([tune.grid_search([1, 2])])}) == [{"a": 1}, {"a": 2}]


def test_functions_are_called_once_and_after_what_they_read_however_they_are_ordered() -> None:
    calls: list[str] = []

    def double(config: dict[str, Any]) -> float:
        calls.append("double")
        return float(config["base"]["x"]) * 2

    def triple(spec: Any) -> float:
        calls.append("triple")
        return float(spec.config.double) * 3

    space = {
        "triple": tune.sample_from(triple),
        "double": tune.sample_from(double),
        "base": {"x": tune.uniform(1, 2)},
    }
    for _ in range(2):
        calls.clear()
        (found,) = configs(space)
        assert found["double"] == found["base"]["x"] * 2
        assert found["triple"] == pytest.approx(found["base"]["x"] * 6)
        assert calls == ["triple", "double"]


@pytest.mark.parametrize(
    "read",
    [
        lambda c: c["x"],
        lambda c: c.get("x"),
        lambda c: c.x,
        lambda c: c.config.x,
        lambda c: c["config"]["x"],
        lambda c: {**c["inner"]}["x"],
        lambda c: dict(c["inner"])["x"],
        lambda c: dict(c["inner"].items())["x"],
        lambda c: c["inner"].copy()["x"],
        lambda c: (c["inner"] | {})["x"],
        lambda c: ({} | c["inner"])["x"],
        lambda c: copy.deepcopy(c["inner"])["x"],
        lambda c: copy.copy(c["inner"])["x"],
        lambda c: next(iter(c["inner"].values())),
        lambda c: json.loads(json.dumps(c["inner"]))["x"],
        lambda c: c["list"][0],
        lambda c: c["list"][-2],
        lambda c: sum(c["list"]) - 1,
        lambda c: c["list"][0:1][0],
        lambda c: c.config.list[0],
        lambda c: dict(enumerate(list(c["list"])))[0],
    ],
)
def test_every_way_to_read_draws_first(read: Any) -> None:
    space = {
        "a": tune.sample_from(read),
        "x": tune.uniform(3, 3),
        "inner": {"x": tune.uniform(3, 3)},
        "list": [tune.uniform(3, 3), 1],
    }
    assert configs(space)[0]["a"] == 3.0


def test_a_parameter_may_be_called_config() -> None:
    space = {
        "config": {"x": tune.choice([5])},
        "a": tune.sample_from(lambda config: config["config"]["x"]),
        "b": tune.sample_from(lambda spec: spec.config.config.x),
    }
    assert configs(space) == [{"config": {"x": 5}, "a": 5, "b": 5}]


def test_what_a_function_returns_is_the_configurations_own() -> None:
    space = {"inner": {"x": tune.choice([1])}, "same": tune.sample_from(lambda config: config["inner"])}
    (found,) = configs(space)
    assert type(found["same"]) is dict
    assert found["same"] is not found["inner"]
    assert pickle.loads(pickle.dumps(found)) == found


def test_a_function_may_return_a_domain() -> None:
    space = {
        "kind": tune.grid_search(["small", "large"]),
        "size": tune.sample_from(lambda c: tune.randint(1, 2) if c["kind"] == "small" else {"n": tune.randint(9, 10)}),
        "after": tune.sample_from(lambda c: c["size"]),
    }
    assert [(c["size"], c["after"]) for c in configs(space)] == [(1, 1), ({"n": 9}, {"n": 9})]


def test_a_cycle_is_named() -> None:
    space = {
        "free": tune.uniform(0, 1),
        "a": tune.sample_from(lambda config: config["b"]["inner"]),
        "b": {"inner": tune.sample_from(lambda config: config["c"])},
        "c": tune.sample_from(lambda config: config["a"]),
    }
    with pytest.raises(tune.DependencyCycleError, match="a -> b/inner -> c -> a depend on each other"):
        configs(space)
    with pytest.raises(tune.DependencyCycleError, match="m/x -> m/x"):
        configs({"m": {"x": tune.sample_from(lambda config: config["m"])}})
    with pytest.raises(tune.DependencyCycleError, match="x -> x"):
        configs({"x": tune.sample_from(lambda config: config["x"])})


def test_a_function_that_fails_is_named() -> None:
    with pytest.raises(ValueError, match=r"param_space: 'm/a' could not be drawn: KeyError\('missing'\)"):
        configs({"m": {"a": tune.sample_from(lambda config: config["missing"])}})
    with pytest.raises(ValueError, match="is a grid_search inside a value that is drawn"):
        configs({"g": tune.choice([tune.grid_search([1])]), "a": tune.sample_from(lambda config: config["g"])})


def test_points_come_first_and_each_takes_the_place_of_a_sample() -> None:
    space = {"a": tune.grid_search([1, 2]), "b": tune.randint(0, 3), "m": {"c": tune.uniform(0, 1), "d": 4}}
    points = [{"a": 2, "b": 2}, {"a": 1}, {"b": 2, "m": {"c": 0.5}}]
    found = configs(space, 4, points_to_evaluate=points)
    assert [c["a"] for c in found] == [2, 1, 1, 2, 1, 2]
    assert found[0]["b"] == found[2]["b"] == found[3]["b"] == 2
    assert found[2]["m"] == found[3]["m"] == {"c": 0.5, "d": 4}
    assert tune.count_variants(space, 4, points) == 6
    assert len(configs(space, 1, points_to_evaluate=points)) == tune.count_variants(space, 1, points) == 4


def test_a_point_may_reach_into_lists_and_replace_a_choice_of_dicts() -> None:
    space = {"list": [tune.uniform(0, 1), tune.uniform(0, 1)], "m": tune.choice([{"k": 1}, {"k": 2}])}
    (found,) = configs(space, points_to_evaluate=[{"list": [0.5, 0.25], "m": {"k": 2}}])
    assert found == {"list": [0.5, 0.25], "m": {"k": 2}}


@pytest.mark.parametrize(
    ("point", "name"),
    [({"b": 9}, "'b' is 9, and param_space says Integer"), ({"a": 3}, "'a' is 3"), ({"k": 5}, "'k' is 5, .* says 4")],
)
def test_a_point_outside_of_the_space_is_taken_with_a_warning(point: dict[str, Any], name: str) -> None:
    space = {"a": tune.grid_search([1, 2]), "b": tune.randint(0, 3), "k": 4}
    with pytest.warns(UserWarning, match=rf"points_to_evaluate\[0\]: {name}"):
        found = configs(space, points_to_evaluate=[point])
    assert point.items() <= found[0].items()


def test_mistakes_in_points_and_spaces_are_named() -> None:
    space = {"m": {"a": tune.uniform(0, 1)}}
    with pytest.raises(ValueError, match=r"points_to_evaluate\[1\]: 'm/b' is not in param_space"):
        configs(space, points_to_evaluate=[{}, {"m": {"b": 1}}])
    with pytest.raises(TypeError, match=r"points_to_evaluate\[0\]=3: pass a dict"):
        configs(space, points_to_evaluate=[3])
    with pytest.raises(TypeError, match="param_space=3: pass a dict"):
        configs(3)
    with pytest.raises(TypeError, match=r"grid_search\(values=True\): pass a list"):
        configs({"a": {"grid_search": True}})


def test_without_an_end() -> None:
    space = {"g": tune.grid_search([1, 2])}
    endless = tune.generate(space, -1)
    assert [variant.config["g"] for variant in itertools.islice(endless, 5)] == [1, 2, 1, 2, 1]
    assert tune.count_variants(space, -1) == math.inf


def test_a_huge_grid_costs_nothing_until_it_is_gone_through() -> None:
    space = {name: tune.grid_search(range(1000)) for name in "abcd"}
    assert tune.count_variants(space) == 10**12
    assert next(tune.generate(space)).config == {"a": 0, "b": 0, "c": 0, "d": 0}


def test_tags_and_names() -> None:
    space = {
        "m": {"lr": tune.uniform(0.5, 0.5)},
        "l": [tune.choice(["a b/c"])] * 11,
        "g": tune.grid_search([True]),
        7: tune.choice([1]),
    }
    (variant,) = tune.generate(space)
    assert tune.format_vars(variant.resolved) == "7=1,g=True," + "".join(f"{i}=a_b_c," for i in range(11)) + "lr=0.5000"
    assert tune.flatten(variant.resolved)["m/lr"] == 0.5
    assert tune.flat_keys({"a": {"b": 1, "c": tune.uniform(0, 1)}, "d": []}) == ["a/b", "a/c", "d"]
    assert tune.flat_keys({}) == []
    assert tune.unresolved({"a": 1, "b": [tune.randn(), tune.grid_search([1])]}) == [("b", 0), ("b", 1)]


def test_any_space_is_described_as_json() -> None:
    space = {
        "f": tune.sample_from(test_without_an_end),
        "n": np.float32(0.5),
        "array": np.arange(3),
        "nan": math.nan,
        "o": Pair,
        "g": tune.grid_search([1, Pair(1, 2)]),
        3: tune.uniform(0, 1),
    }
    described = json.loads(json.dumps(tune.describe(space), allow_nan=False))
    assert described == {
        "f": {"domain": "function", "func": {"object": "test_space_variants.test_without_an_end"}},
        "n": 0.5,
        "array": {"object": "numpy.ndarray"},
        "nan": "nan",
        "o": {"object": "test_space_variants.Pair"},
        "g": {"grid_search": [1, [1, 2]]},
        "3": {"domain": "float", "lower": 0.0, "upper": 1.0, "log": False, "q": None},
    }


LEAVES = st.one_of(
    st.integers(0, 3),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tune.grid_search),
    st.just(tune.uniform(0, 1)),
    st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tune.choice),
)
SPACES = st.dictionaries(
    st.sampled_from("abcd"),
    st.recursive(
        LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=2)
    ),
    max_size=3,
)


@settings(deadline=None)
@given(SPACES, st.integers(0, 3), st.integers(0, 99), st.booleans())
def test_any_space_has_as_many_variants_as_counted_and_the_same_for_the_same_seed(
    space: dict[str, Any], num_samples: int, seed: int, constant: bool
) -> None:
    found = list(tune.generate(space, num_samples, random_state=seed, constant_grid_search=constant))
    assert len(found) == tune.count_variants(space, num_samples)
    assert found == list(tune.generate(space, num_samples, random_state=seed, constant_grid_search=constant))
    for variant in found:
        assert tune.unresolved(variant.config) == []
        assert sorted(variant.resolved, key=str) == sorted(tune.unresolved(space), key=str)
    json.dumps(tune.describe(space), allow_nan=False)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True)))
def test_every_combination_of_grids_comes_once_and_in_order(values: dict[str, list[int]]) -> None:
    names = sorted(values)
    found = [
        tuple(c[name] for name in names) for c in configs({name: tune.grid_search(v) for name, v in values.items()})
    ]
    assert found == [point[::-1] for point in itertools.product(*(values[name] for name in reversed(names)))]
