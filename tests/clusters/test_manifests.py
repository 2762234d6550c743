"""The clusters of examples/cluster are what Ray makes of them, and have room for the run that they are meant for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.autoscaler._private.kuberay import autoscaling_config
from ray.autoscaler._private.util import prepare_config, validate_config

from holdfast.cli.cluster.check import judge
from holdfast.engine.demand import Demand
from holdfast.engine.ray.capacity import Capacity, NodeType, room_in
from holdfast.train import RunConfig, ScalingConfig
from holdfast.train.demand import demand_of

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"
MANIFESTS = ("kuberay.yaml", "launcher.yaml")


def as_ray_reads_it(name: str) -> dict[str, Any]:
    """What Ray's autoscaler is given, which refuses what it does not know."""
    written = yaml.safe_load((EXAMPLES / name).read_text())
    if written.get("kind") == "RayCluster":
        written["metadata"].setdefault("namespace", "default")
        config: dict[str, Any] = autoscaling_config._derive_autoscaling_config_from_ray_cr(written)
        return config
    validate_config(config := prepare_config(written))
    return config


def demand() -> Demand:
    return demand_of(ScalingConfig(num_workers=(1, 8), use_gpu=True), RunConfig())


def types(config: dict[str, Any]) -> list[NodeType]:
    return [
        NodeType(name, room_in(kind["resources"], demand()), kind["min_workers"], kind["max_workers"])
        for name, kind in config["available_node_types"].items()
    ]


@pytest.mark.parametrize("name", MANIFESTS)
def test_ray_reads_it_and_it_grows_from_the_fewest_to_the_most_workers(name: str) -> None:
    config = as_ray_reads_it(name)
    head, group = types(config)
    assert head.name == config["head_node_type"]
    assert (head.seats, head.most) == (0, 0), "no worker beside the driver"
    assert (group.seats, group.least, group.most) == (1, 1, 8)
    assert config["max_workers"] == 8
    assert Capacity([], [head, group]).in_time == 8
    verdict, can_start = judge(demand(), Capacity([], [head, group]))
    assert can_start, verdict


@pytest.mark.parametrize("name", MANIFESTS)
def test_it_names_the_range_that_it_is_meant_for(name: str) -> None:
    least, most = re.findall(r"num_workers=\((\d+), (\d+)\)", (EXAMPLES / name).read_text())[0]
    assert (int(least), int(most)) == (demand().least, demand().most)


def test_a_word_that_the_launcher_does_not_know_is_refused() -> None:
    from jsonschema import ValidationError

    written = yaml.safe_load((EXAMPLES / "launcher.yaml").read_text())
    written["min_wrokers"] = 1
    with pytest.raises(ValidationError):
        validate_config(prepare_config(written))
