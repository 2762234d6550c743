"""How many workers fit on a node, and which of its GPUs each of them has."""

import pytest

from holdfast.core.run.placement import WorkerNeeds
from holdfast.driver.node_registry import NodeRegistry
from holdfast.wire.messages import NodeReady


def registry(cpus: float, gpus: float, *, node_cpus: float = 100.0, node_gpus: float = 0.0) -> NodeRegistry:
    made = NodeRegistry(WorkerNeeds(cpus, gpus, "PACK", 1))
    made.ready(NodeReady("a", 1, node_cpus, gpus=node_gpus))
    return made


@pytest.mark.parametrize(
    ("cpus", "gpus", "node_cpus", "node_gpus", "room"),
    [
        (1.0, 0.0, 4.0, 0.0, 4),
        (0.1, 0.0, 1.0, 0.0, 10),
        (0.3, 0.0, 1.0, 0.0, 3),
        (0.0, 1.0, 1.0, 2.0, 2),
        (0.0, 0.1, 1.0, 1.0, 10),
        (0.0, 0.4, 1.0, 2.0, 4),  # two on each: a share is of one device
        (1.0, 0.5, 3.0, 4.0, 3),
        (1.0, 2.0, 9.0, 5.0, 2),
        (1.0, 1.0, 9.0, 0.0, 0),
    ],
)
def test_room(cpus: float, gpus: float, node_cpus: float, node_gpus: float, room: int) -> None:
    places = registry(cpus, gpus, node_cpus=node_cpus, node_gpus=node_gpus).place(1000)
    assert sum(map(len, places.values())) == room


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        (0.0, [[], [], [], []]),
        (0.25, [[0], [0], [0], [0]]),
        (0.5, [[0], [0], [1], [1]]),
        (0.6, [[0], [1], [2], [3]]),
        (1.0, [[0], [1], [2], [3]]),
        (2.0, [[0, 1], [2, 3], [4, 5], [6, 7]]),
    ],
)
def test_devices(gpus: float, devices: list[list[int]]) -> None:
    (places,) = registry(1.0, gpus, node_cpus=4.0, node_gpus=8.0).place(4).values()
    assert [place.devices for place in places] == devices
