"""Arguments that all trials share."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

from holdfast.objects import exists, put
from holdfast.train import CheckpointConfig
from holdfast.tune.trainable import (
    Trainable,
    class_entry,
    entry_of,
    function_entry,
    resources_of,
    with_parameters,
    with_resources,
)
from support.tune.one_trial import rows, run_trial


def scaled(config: dict[str, Any], data: Any, offset: float = 0.0) -> dict[str, float]:
    return {"value": float(data.sum()) * config["factor"] + offset, "writeable": data.flags.writeable}


def yielding(config: dict[str, Any], data: Any) -> Iterator[dict[str, float]]:
    for value in data:
        yield {"value": float(value) * config["factor"]}


class Summing(Trainable):
    def setup(self, config: dict[str, Any], data: Any = None, offset: float = 0.0) -> None:
        self.value = float(data.sum()) * config["factor"] + offset

    def step(self) -> dict[str, Any]:
        return {"value": self.value, "done": True}


class Careless(Trainable):
    def setup(self, config: dict[str, Any]) -> None:
        """Takes nothing else."""


def test_a_function_and_a_class_get_them_in_their_processes(tmp_path: Path) -> None:
    data = np.ones(500_000)
    function = with_parameters(scaled, data=data, offset=1.0)
    entry = function_entry(function)
    assert len(cloudpickle.dumps(entry)) < 20_000
    result = run_trial(tmp_path / "1", entry, {"factor": 2})
    assert (result.metrics["value"], result.metrics["writeable"]) == (1_000_001.0, False)
    trainable = with_parameters(Summing, data=data)
    assert len(cloudpickle.dumps(class_entry(trainable))) < 50_000
    assert run_trial(tmp_path / "2", class_entry(trainable), {"factor": 3}).metrics["value"] == 1_500_000.0


def test_a_function_that_yields_still_yields(tmp_path: Path) -> None:
    entry = function_entry(with_parameters(yielding, data=np.arange(3)))
    assert [row["value"] for row in rows(run_trial(tmp_path, entry, {"factor": 2}))] == [0, 2, 4]


def test_they_are_called_here_as_well() -> None:
    assert with_parameters(scaled, data=np.ones(2))({"factor": 1})["value"] == 2.0
    trainable = with_parameters(with_parameters(Summing, data=np.ones(2)), offset=3.0)
    assert trainable({"factor": 1}).train()["value"] == 5.0


def test_references_are_taken_as_they_are() -> None:
    data = put(np.ones(2))
    function = with_parameters(scaled, data=data)
    assert function({"factor": 1})["value"] == 2.0
    del function
    gc.collect()
    assert exists(data)  # it is the user's


def test_parameters_and_resources_go_together() -> None:
    one = with_resources(with_parameters(with_parameters(scaled, data=np.ones(2)), offset=1.0), {"cpu": 2})
    other = with_parameters(with_resources(scaled, {"cpu": 2}), data=np.ones(2), offset=1.0)
    for trainable in (one, other):
        gc.collect()
        again = cloudpickle.loads(cloudpickle.dumps(trainable))
        assert again({"factor": 1})["value"] == 3.0
        assert resources_of(again, {}).bundles == [{"CPU": 2.0}]
        assert again.__name__ == "scaled"
        entry_of(again, CheckpointConfig())
    trainable = with_resources(with_parameters(Summing, data=np.ones(2)), {"cpu": 2})
    gc.collect()
    assert trainable({"factor": 1}).train()["value"] == 2.0
    assert resources_of(trainable, {}).bundles == [{"CPU": 2.0}]


def test_what_was_put_goes_with_the_trainable() -> None:
    function = with_parameters(scaled, data=np.ones(2))
    trainable = with_parameters(Summing, data=np.ones(2))
    (data,) = (ref for parameters in function.parameters for ref in parameters.refs.values())
    place = Path(data.place)
    assert len(os.listdir(place)) == 2
    del function
    assert not exists(data)
    del trainable
    gc.collect()
    assert os.listdir(place) == []


@pytest.mark.parametrize(
    ("trainable", "where"),
    [(scaled, r"scaled\(config"), (Summing, r"Summing.setup\(self, config"), (Careless, "Careless")],
)
def test_a_name_that_is_not_taken_is_refused(trainable: Any, where: str) -> None:
    with pytest.raises(ValueError, match=rf"with_parameters\(dota\): {where}.*unexpected keyword argument 'dota'"):
        with_parameters(trainable, dota=1)


def test_what_is_still_missing_is_said() -> None:
    with pytest.raises(ValueError, match="missing a required argument: 'data'"):
        function_entry(with_parameters(scaled, offset=1.0))


def test_what_cannot_be_shared_is_named() -> None:
    with pytest.raises(TypeError, match=r"with_parameters\(data=…\): put\(\): this generator cannot be shared"):
        with_parameters(scaled, data=(number for number in range(3)))


@pytest.mark.parametrize("trainable", [3, "name", dict])
def test_only_functions_and_classes_of_ours_can_be_given_parameters(trainable: Any) -> None:
    with pytest.raises(TypeError, match="pass a function, or a subclass"):
        with_parameters(trainable, data=1)


async def asynchronous(config: dict[str, Any], data: Any) -> None: ...


def test_an_async_function_is_found_in_its_wrapping() -> None:
    with pytest.raises(ValueError, match="async"):
        function_entry(with_parameters(asynchronous, data=1))
