"""The script's connection to a Ray cluster."""

from __future__ import annotations

import os
import sys
import threading
from types import ModuleType
from typing import Any, Protocol

from holdfast import wrapper
from holdfast.engine.ray.ray_address import why_unreachable
from holdfast.errors import HoldfastError
from holdfast.objects import object_refs

OLDEST = (2, 49)  # the first minor release in which the bundles of a placement group can exclude nodes
_connecting = threading.Lock()  # Ray is not made for two threads that connect at the same time


class LeftClusterError(HoldfastError):
    """The connection has been closed, or cannot be made."""

    def __init__(
        self,
        text: str = "the script disconnected from the Ray cluster while a run was using it: "
        "call ray.shutdown() or holdfast.shutdown() after fit() has returned",
    ) -> None:
        super().__init__(text)


class User(Protocol):
    def leave(self) -> None:
        """End, as the connection does; returns when that is done, if it does not take too long."""


_users: list[User] = []  # runs that need the connection


def add_user(user: User) -> None:
    _users.append(user)


def remove_user(user: User) -> None:
    if user in _users:
        _users.remove(user)


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


def connected_ray() -> ModuleType:
    """For everything that a run asks of Ray: without a connection, most of Ray's functions would make one, and start a
    cluster for it."""
    ray = ray_module()
    if not ray.is_initialized():
        raise LeftClusterError
    return ray


def connect(address: str | None = None, **options: Any) -> ModuleType:
    """Join the cluster, unless the script has done so: the one at ``address``, at RAY_ADDRESS, or the one that runs on
    this machine; where there is none, Ray starts one here."""
    ray = ray_module()
    with _connecting:
        if not ray.is_initialized():
            if not address and (address := wrapper.in_force().ray_address()):
                # Older releases of Ray take a script to be on the node that was started last.
                options = {"_node_ip_address": address.rpartition(":")[0], **options}
            _look_at(os.environ.get("RAY_ADDRESS", "") if address in (None, "auto") else str(address))
            _join(ray, address, **{"log_to_driver": True, **options})
        if ray.util.client.ray.is_connected():
            raise _by_client()
        _carry_objects()
    return ray


def _join(ray: ModuleType, address: str | None, **options: Any) -> None:
    try:
        ray.init(address=address, **options)
    except ConnectionError as error:
        cause: BaseException | None = error
        while cause is not None and "AuthenticationError" not in repr(cause):
            cause = cause.__cause__
        if cause is None:
            raise
        raise ValueError(
            "the Ray cluster requires its token: set RAY_AUTH_MODE=token here too, with the token in RAY_AUTH_TOKEN or "
            "in ~/.ray/auth_token; or start the cluster with RAY_AUTH_MODE=disabled"
        ) from error


def _look_at(address: str) -> None:
    """Ray tries for minutes, and says little meanwhile."""
    if address.startswith("ray://"):
        raise _by_client()
    why = why_unreachable(address) if address not in ("", "auto", "local") else ""
    if why:
        print(f"holdfast: no Ray cluster answers at {address}: {why}. Ray keeps trying for a while", file=sys.stderr)


def _by_client() -> ValueError:
    return ValueError(
        "the script is connected by ray://, which Holdfast cannot use: run it inside the cluster, "
        'as "ray job submit -- python script.py" does'
    )


def disconnect() -> None:
    """What still runs ends first: Ray ends a process in which a thread asks it for something meanwhile."""
    for user in list(_users):
        user.leave()
    object_refs.use_carrier(None)
    ray_module().shutdown()


def _carry_objects() -> None:
    """Objects that this process has put, or will put, are for all nodes."""
    from holdfast.engine.ray.ray_carrier import RayCarrier

    known = object_refs.own_carrier()
    if known is None or not known.is_open:
        object_refs.use_carrier(RayCarrier())


def own_address() -> str:
    """Where nodes of the cluster reach this process."""
    return str(connected_ray().util.get_node_ip_address())


def cluster_address() -> str:
    return str(connected_ray().get_runtime_context().gcs_address)
