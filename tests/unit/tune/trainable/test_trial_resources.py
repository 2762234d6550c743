"""What trials ask for, in all the ways in which it can be said."""

from __future__ import annotations

import pickle
from typing import Any

import cloudpickle
import pytest

from holdfast.train import ScalingConfig
from holdfast.tune.resources import PlacementGroupFactory, request_of
from holdfast.tune.trainable import Trainable, resources_of, with_resources


def fn(config: dict[str, Any]) -> None:
    """A trainable."""


class Quiet(Trainable):
    """Asks for nothing."""


class Greedy(Trainable):
    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> PlacementGroupFactory:
        return PlacementGroupFactory([{"CPU": config["cpus"]}])


def test_bundles_are_kept_without_what_is_zero() -> None:
    factory = PlacementGroupFactory([{"CPU": 1, "GPU": 0.5, "disk": 2}, {"CPU": 2, "GPU": 0}], strategy="SPREAD")
    assert factory.bundles == [{"CPU": 1.0, "GPU": 0.5, "disk": 2.0}, {"CPU": 2.0}]
    assert factory.strategy == "SPREAD"
    assert factory.required_resources == {"CPU": 3.0, "GPU": 0.5, "disk": 2.0}
    assert (factory.head_cpus, factory.head_bundle_is_empty) == (1.0, False)


def test_the_trainable_itself_may_need_nothing() -> None:
    factory = PlacementGroupFactory([{}, {"CPU": 2}, {"CPU": 2}])
    assert factory.bundles == [{"CPU": 2.0}, {"CPU": 2.0}]
    assert (factory.head_cpus, factory.head_bundle_is_empty, factory.head_bundle) == (0.0, True, {})
    assert factory != PlacementGroupFactory([{"CPU": 2}, {"CPU": 2}])


def test_bundles_cannot_be_changed_from_outside() -> None:
    factory = PlacementGroupFactory([{"CPU": 1}])
    factory.bundles[0]["CPU"] = 9
    assert factory.bundles == [{"CPU": 1.0}]


def test_equal_requests_are_equal_and_pickle() -> None:
    one, other = PlacementGroupFactory([{"CPU": 1, "x": 2}]), PlacementGroupFactory([{"x": 2.0, "cpu": 1}])
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != PlacementGroupFactory([{"CPU": 1, "x": 2}], strategy="SPREAD")
    assert one != "a request"


@pytest.mark.parametrize(
    ("bundles", "error", "says"),
    [
        ([], ValueError, "asks for nothing"),
        ([{}], ValueError, "asks for nothing"),
        ([{"CPU": 0}], ValueError, "asks for nothing"),
        ([{"CPU": 1}, {}], ValueError, "only the first bundle may be empty"),
        ({"CPU": 1}, TypeError, "list of dicts"),
        ([{"CPU": "two"}], TypeError, r"bundles\[0\]\['CPU'\]='two'\): pass a number"),
        ([{"CPU": True}], TypeError, "pass a number"),
        ([{"CPU": 1}, {"GPU": -1}], ValueError, r"bundles\[1\]\['GPU'\]=-1\): must be at least 0"),
        ([{"GPU": 1.5}], ValueError, "whole number"),
        ([{"CPU": float("inf")}], ValueError, "finite"),
        ([{"CPU": float("nan")}], ValueError, "nan"),
        ([{"CPU": 1, "cpu": 1}], ValueError, "CPU appears twice"),
        ([{1: 1}], TypeError, "dict of amounts"),
    ],
)
def test_wrong_bundles_are_refused(bundles: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        PlacementGroupFactory(bundles)


def test_an_unknown_strategy_is_refused() -> None:
    with pytest.raises(ValueError, match=r"strategy='CLOSE'\): use one of PACK, SPREAD"):
        PlacementGroupFactory([{"CPU": 1}], strategy="CLOSE")


@pytest.mark.parametrize(
    ("given", "bundle"),
    [
        ({"cpu": 2, "gpu": 0.25}, {"CPU": 2.0, "GPU": 0.25}),
        ({"CPU": 0.5}, {"CPU": 0.5}),
        ({"gpu": 1}, {"GPU": 1.0}),
        ({}, {"CPU": 1.0}),
        ({"cpu": 1, "memory": 1e9, "licence": 1}, {"CPU": 1.0, "memory": 1e9, "licence": 1.0}),
        ({"cpu": 1, "custom_resources": {"licence": 2}}, {"CPU": 1.0, "licence": 2.0}),
    ],
)
def test_a_dict_is_one_bundle(given: dict[str, Any], bundle: dict[str, float]) -> None:
    assert request_of("resources", given).bundles == [bundle]


@pytest.mark.parametrize("given", [{"cpu": 0}, {"licence": 1, "custom_resources": {"licence": 1}}])
def test_a_dict_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"asks for nothing|appears twice"):
        request_of("resources", given)


def test_a_scaling_config_has_a_bundle_for_each_worker() -> None:
    scaling = ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}, trainer_resources={"CPU": 1})
    request = request_of("resources", scaling)
    assert (request.bundles, request.head_bundle_is_empty) == ([{"CPU": 3.0}, {"CPU": 2.0}], True)
    spread = ScalingConfig(num_workers=(1, 3), use_gpu=True, placement_strategy="SPREAD")
    assert request_of("resources", spread).bundles == [{"GPU": 1.0}] * 3
    assert request_of("resources", spread).strategy == "SPREAD"


def test_what_is_no_request_is_refused() -> None:
    with pytest.raises(TypeError, match="pass a dict of amounts, a PlacementGroupFactory"):
        with_resources(fn, 2)


def test_a_trial_has_one_cpu_if_nothing_says_otherwise() -> None:
    assert [resources_of(trainable, {}).bundles for trainable in (fn, Quiet)] == [[{"CPU": 1.0}]] * 2


def test_a_function_gets_resources_and_is_itself_not_changed() -> None:
    small, large = with_resources(fn, {"cpu": 0.5}), with_resources(fn, {"gpu": 2})
    assert resources_of(small, {}).bundles == [{"CPU": 0.5}]
    assert resources_of(large, {}).bundles == [{"GPU": 2.0}]
    assert resources_of(fn, {}).bundles == [{"CPU": 1.0}]
    assert small.__name__ == "fn"
    assert resources_of(with_resources(small, {"cpu": 3}), {}).bundles == [{"CPU": 3.0}]


def test_a_class_gets_resources_and_is_itself_not_changed() -> None:
    wrapped = with_resources(Greedy, ScalingConfig(num_workers=2))
    assert resources_of(wrapped, {"cpus": 4}).bundles == [{"CPU": 1.0}] * 2
    assert resources_of(Greedy, {"cpus": 4}).bundles == [{"CPU": 4.0}]
    assert (wrapped.__name__, issubclass(wrapped, Greedy)) == ("Greedy", True)
    again = cloudpickle.loads(cloudpickle.dumps(wrapped))
    assert resources_of(again, {"cpus": 4}).bundles == [{"CPU": 1.0}] * 2


def test_a_function_of_the_config_decides() -> None:
    def wanted(config: dict[str, Any]) -> Any:
        return {"cpu": config["cpus"]} if config["cpus"] > 1 else None

    assert resources_of(with_resources(fn, wanted), {"cpus": 2}).bundles == [{"CPU": 2.0}]
    assert resources_of(with_resources(Quiet, wanted), {"cpus": 3}).bundles == [{"CPU": 3.0}]
    assert resources_of(with_resources(fn, wanted), {"cpus": 1}).bundles == [{"CPU": 1.0}]
    with pytest.raises(TypeError, match="returned: resources='many'"):
        resources_of(with_resources(fn, lambda _config: "many"), {})


@pytest.mark.parametrize("trainable", [3, "name", dict])
def test_only_functions_and_classes_of_ours_can_be_given_resources(trainable: Any) -> None:
    with pytest.raises(TypeError, match="pass a function, or a subclass"):
        with_resources(trainable, {"cpu": 1})
