"""Small collectives over the driver, for control and not for tensors: they need no process group of a framework."""

from __future__ import annotations

import sys
from typing import TypeVar

import cloudpickle

from holdfast.train.api import session_for
from holdfast.train.checks import warn_once
from holdfast.train.ray_variables import collective_timeout_s

T = TypeVar("T")

_LARGE = 1 << 20


def barrier() -> None:
    """Wait until every worker has called it."""
    session_for("collective.barrier").request("barrier", None, collective_timeout_s())


def broadcast_from_rank_zero(data: T) -> T:
    """Return rank 0's ``data`` on every worker. All workers must call it; the arguments of other ranks are ignored."""
    session = session_for("collective.broadcast_from_rank_zero")
    body = cloudpickle.dumps(data) if session.rank == 0 else None
    if body is not None and len(body) > _LARGE:
        warn_once(
            "broadcast size",
            f"broadcast_from_rank_zero() got {len(body) / _LARGE:.1f} MiB, which passes through the driver; "
            "send large data with the framework's own collectives or through files",
        )
    answer = session.request("broadcast", body, collective_timeout_s())
    if session.rank == 0:
        return data
    result: T = cloudpickle.loads(answer)
    return result


sys.modules.setdefault(f"{__name__}.collectives", sys.modules[__name__])  # a path of Ray's
