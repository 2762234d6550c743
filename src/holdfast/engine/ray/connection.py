"""The script's connection to a Ray cluster."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from holdfast.wire.objects import refs

from .drill_cluster import drill_cluster

OLDEST = (2, 49)  # the first minor release in which the bundles of a placement group can be told where not to go


def ray_module() -> ModuleType:
    """Ray, or an error that says how to get it."""
    try:
        import ray
    except ImportError as error:
        raise ValueError('engine="ray" needs Ray: pip install "holdfast[ray]"') from error
    found = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if found < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ValueError(f'engine="ray" needs Ray {oldest} or newer, and {ray.__version__} is installed')
    module: ModuleType = ray
    return module


def connect(address: str | None = None, **options: Any) -> ModuleType:
    """Join the cluster, unless the script has done so: the one at ``address``, at RAY_ADDRESS, or the one that runs on
    this machine; where there is none, Ray starts one here."""
    ray = ray_module()
    if not ray.is_initialized():
        ray.init(address=address or drill_cluster(), **{"log_to_driver": True, **options})
    if ray.util.client.ray.is_connected():
        raise ValueError(
            "the script is connected by ray://, which Holdfast cannot use: run it inside the cluster, "
            'as "ray job submit -- python script.py" does'
        )
    _carry_objects()
    return ray


def disconnect() -> None:
    refs.use_carrier(None)
    ray_module().shutdown()


def _carry_objects() -> None:
    """What this process has put, or will put, is for all nodes."""
    from .objects import RayCarrier

    known = refs.own_carrier()
    if known is None or not known.is_open:
        refs.use_carrier(RayCarrier())


def own_address() -> str:
    """Where nodes of the cluster reach this process."""
    return str(ray_module().util.get_node_ip_address())


def cluster_address() -> str:
    return str(ray_module().get_runtime_context().gcs_address)
